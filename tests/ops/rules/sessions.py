"""Sessions of models of one input `x` and one output."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

import ostinato


def opened(model: onnx.ModelProto, **options: object) -> Callable[[np.ndarray], np.ndarray]:
    """A session, as a function of its only input."""
    session = ostinato.InferenceSession(model, cache_dir=None, **options)
    return lambda x: session.run(None, {"x": x})[0]


def run(model: onnx.ModelProto, x: np.ndarray, **options: object) -> np.ndarray:
    return opened(model, **options)(x)
