"""Ostinato compiles ONNX models that repeat into one native function, from pure Python.

Importing this package imports neither NumPy, onnx nor llvmlite: each name is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ostinato.errors import (
    CopyError,
    InputError,
    ModelError,
    OptionError,
    OstinatoError,
    PoolError,
    RunError,
    ShapeError,
    StreamError,
    UnsupportedError,
)
from ostinato.garbage import uncollected
from ostinato.options import Options
from ostinato.version import __version__

if TYPE_CHECKING:
    from ostinato.aot.build import build
    from ostinato.optimization import optimize
    from ostinato.quantization.quantize import quantize
    from ostinato.runtime.call import BoundCall
    from ostinato.runtime.growing import GrowingStream
    from ostinato.runtime.pool import Pool
    from ostinato.runtime.session import InferenceSession, NodeArg
    from ostinato.runtime.stream import Stream
    from ostinato.stages.report import Report
    from ostinato.training import Trainer

__all__ = [
    "BoundCall",
    "CopyError",
    "GrowingStream",
    "InferenceSession",
    "InputError",
    "ModelError",
    "NodeArg",
    "OptionError",
    "Options",
    "OstinatoError",
    "Pool",
    "PoolError",
    "Report",
    "RunError",
    "ShapeError",
    "Stream",
    "StreamError",
    "Trainer",
    "UnsupportedError",
    "__version__",
    "build",
    "optimize",
    "quantize",
]

_MODULES = {
    "BoundCall": "ostinato.runtime.call",
    "GrowingStream": "ostinato.runtime.growing",
    "InferenceSession": "ostinato.runtime.session",
    "NodeArg": "ostinato.runtime.session",
    "Pool": "ostinato.runtime.pool",
    "Report": "ostinato.stages.report",
    "Stream": "ostinato.runtime.stream",
    "Trainer": "ostinato.training",
    "build": "ostinato.aot.build",
    "optimize": "ostinato.optimization",
    "quantize": "ostinato.quantization.quantize",
}

_ROOMS = (
    "autodiff",
    "backend",
    "decoding",
    "onnxruntime",
    "quantization",
    "streaming",
    "torch",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"ostinato.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'ostinato' has no attribute {name!r}")
    with uncollected():
        value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
