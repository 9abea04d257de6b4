"""The form of a compiled model in the cache: JSON, and raw blobs.

    Argument("x", "float32", ("N", 3))          ["Argument", "x", "float32", ["tuple", "N", 3]]

A number, a text, a truth value or None stands for itself; a list begins with its kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from ostinato.codegen.artifact import Argument, Artifact
from ostinato.element_types import numpy_dtype
from ostinato.stages import stage
from ostinato.stages.stage import Array, CompiledModel

_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Argument,
        Artifact,
        CompiledModel,
        stage.BranchStage,
        stage.FallbackStage,
        stage.GrownInput,
        stage.KeptState,
        stage.ListStage,
        stage.LookupStage,
        stage.NativeStage,
    )
}


def pack(model: CompiledModel) -> tuple[list[Any], list[bytes | Array]]:
    """A JSON-able header and the blobs its numbers refer to."""
    blobs: list[bytes | Array] = []
    header: list[Any] = _packed(model, blobs)
    return header, blobs


def unpack(header: Sequence[Any], blobs: Sequence[Array]) -> CompiledModel:
    """The inverse of `pack`; constants stay views of the blobs."""
    model: CompiledModel = _unpacked(header, blobs)
    return model


def _packed(value: Any, blobs: list[bytes | Array]) -> Any:
    if isinstance(value, tuple):
        return ["tuple", *(_packed(each, blobs) for each in value)]
    if is_dataclass(value):
        parts = (_packed(getattr(value, field.name), blobs) for field in fields(value))
        return [type(value).__name__, *parts]
    if isinstance(value, Mapping):
        has_arrays = any(isinstance(each, np.ndarray) for each in value.values())
        packed = {key: _packed(each, blobs) for key, each in value.items()} if has_arrays else None
        return ["report", dict(value)] if packed is None else ["arrays", packed]
    if isinstance(value, bytes):
        blobs.append(value)
        return ["bytes", len(blobs) - 1]
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object:
        return ["strings", value.shape, value.ravel().tolist()]
    is_raw = value.dtype == np.uint8 and value.ndim == 1
    blobs.append(value if is_raw else np.frombuffer(value.tobytes(), np.uint8))
    return ["array", value.dtype.name, value.shape, len(blobs) - 1]


def _unpacked(packed: Any, blobs: Sequence[Array]) -> Any:
    if not isinstance(packed, list):
        return packed
    kind, *parts = packed
    if kind == "tuple":
        return tuple(_unpacked(part, blobs) for part in parts)
    if kind == "report":
        return parts[0]
    if kind == "arrays":
        return {name: _unpacked(array, blobs) for name, array in parts[0].items()}
    if kind == "strings":
        shape, texts = parts
        strings = np.empty(len(texts), object)
        strings[:] = texts
        return strings.reshape(shape)
    if kind == "array":
        dtype, shape, number = parts
        return blobs[number].view(numpy_dtype(dtype)).reshape(shape)
    if kind == "bytes":
        return blobs[parts[0]].tobytes()
    return _CLASSES[kind](*(_unpacked(part, blobs) for part in parts))
