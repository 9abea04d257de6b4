"""16-bit floats are kept in memory and computed in float32: one rounding for each op's result.

An op that computes sees its float16 and bfloat16 operands as float32, and its float32 results are
rounded back. Ops that only move elements see them as they are. The conversions are kernels like any
other and join their neighbours, but the rounding stays where it is: fused or not, the bits agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
import onnx.defs
import onnx_ir as ir

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.tensor import AnyValue, Joined, Tensor, Value
from ostinato.program.expr import HALVES, cast


def _is_half(value: AnyValue | None) -> TypeGuard[Value]:
    return isinstance(value, (Tensor, Joined)) and value.dtype in HALVES


def widened(builder: Builder, values: Sequence[AnyValue | None]) -> list[AnyValue | None]:
    """The operands with 16-bit floats as float32."""
    return [_widen(builder, v) if _is_half(v) else v for v in values]


def _widen(builder: Builder, value: Value) -> Value:
    if isinstance(value, Tensor) and value.known is not None:
        found = builder.constants.computed("Cast", value.known, to=ir.DataType.FLOAT)
        return builder.constant(value.known.astype(np.float32) if found is None else found)
    return builder.pointwise(lambda x: cast(x, "float32"), value)


def narrowed(
    builder: Builder,
    schema: onnx.defs.OpSchema,
    operands: Sequence[AnyValue | None],
    results: Sequence[AnyValue],
) -> list[AnyValue]:
    """The results, rounded to the 16-bit type of the operands where the schema gives them that."""
    types: dict[str, str] = {}
    for position, value in enumerate(operands):
        if _is_half(value):
            formal = schema.inputs[min(position, len(schema.inputs) - 1)]
            types.setdefault(formal.type_str, value.dtype)
    rounded: list[AnyValue] = []
    for position, result in enumerate(results):
        formal = schema.outputs[min(position, len(schema.outputs) - 1)]
        half = types.get(formal.type_str)
        if half and isinstance(result, (Tensor, Joined)) and result.dtype == "float32":
            rounded.append(builder.pointwise(lambda x, half=half: cast(x, half), result))
        else:
            rounded.append(result)
    return rounded
