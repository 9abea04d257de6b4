"""Whether the operands of a node have the types that its schema allows."""

from __future__ import annotations

from collections.abc import Sequence

import onnx.defs

from ostinato.element_types import onnx_name


def type_error(schema: onnx.defs.OpSchema, dtypes: Sequence[str | None]) -> str | None:
    """Say what is wrong with operands of these types, None for absent ones; None if nothing is.

    dtypes: NumPy names of the element types of tensors, whole ONNX types of other values. Operands
    whose formal types share a type variable must be of one type. What an optional may hold is
    accepted for it.
    """
    bound: dict[str, str] = {}
    for position, dtype in enumerate(dtypes):
        if dtype is None:
            continue
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        kind = dtype if "(" in dtype else f"tensor({onnx_name(dtype)})"
        if formal.types.isdisjoint((kind, f"optional({kind})")):
            return f"input {formal.name!r} is {dtype}, which opset {schema.since_version} forbids"
        if formal.is_homogeneous and bound.setdefault(formal.type_str, dtype) != dtype:
            return (
                f"input {formal.name!r} is {dtype}, another one of its type is "
                + bound[formal.type_str]
            )
    return None
