"""The shape inference of the onnx package: native code that ends the process on some nodes.

It calls a function for each operator. In the registry of the package, those that take for granted
what no check makes sure of are replaced by ones that look first, and leave the result open where
the original would fail. What they look at are inferred shapes, so nothing before inference could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

import onnx
import onnx.defs
import onnx.shape_inference

# Whether a node, given as the context of its inference, is one that the original can take.
Guard: TypeAlias = Callable[[Any], bool]


def infer_shapes(model: onnx.ModelProto | bytes, data_prop: bool = False) -> onnx.ModelProto:
    """As `onnx.shape_inference.infer_shapes`, for any model that passes the checks."""
    _guard_all()
    inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
    return inferred


@cache
def _guard_all() -> None:
    for name, guard in _GUARDS.items():
        for schema in _versions(name):
            original = schema.get_type_and_shape_inference_function()
            schema.set_type_and_shape_inference_function(_guarded(guard, original))
            onnx.defs.deregister_schema(name, schema.since_version, "")
            onnx.defs.register_schema(schema)


def _versions(name: str) -> Iterator[Any]:
    version = onnx.defs.onnx_opset_version()
    while version:
        try:
            schema = onnx.defs.get_schema(name, version, "")
        except onnx.defs.SchemaError:
            return
        yield schema
        version = schema.since_version - 1


def _guarded(guard: Guard, original: Callable[[Any], None]) -> Callable[[Any], None]:
    def infer(context: Any) -> None:
        if guard(context):
            # What the original raises would end all inference: only its own caller passes over it.
            with suppress(Exception):
                original(context)

    return infer


def _sizes(context: Any, position: int) -> list[int | None] | None:
    """The sizes of an operand as far as they are known; None if its rank is not."""
    kind = context.get_input_type(position) if context.has_input(position) else None
    if kind is None or not kind.HasField("tensor_type"):
        return None
    if not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]


def _number(context: Any, name: str, default: int) -> int:
    attribute = context.get_attribute(name)
    return default if attribute is None else int(attribute.i)


def _is_not_negative(context: Any) -> bool:
    """Sizes that a node before this one makes negative, as a window too large for its image."""
    return all(size is None or size >= 0 for size in _sizes(context, 0) or ())


def _has_axis(context: Any) -> bool:
    sizes = _sizes(context, 0)
    return sizes is None or -len(sizes) <= _number(context, "axis", -1) < len(sizes)


def _has_batch(context: Any) -> bool:
    ranks = [len(sizes) for sizes in (_sizes(context, 0), _sizes(context, 1)) if sizes is not None]
    return 0 <= _number(context, "batch_dims", 0) < min(ranks, default=1)


_GUARDS: dict[str, Guard] = {
    "Slice": _is_not_negative,
    "LayerNormalization": _has_axis,
    "GatherND": _has_batch,
}
