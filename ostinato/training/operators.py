"""Standard operators as functions, for losses that are written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx.defs
import onnx_ir as ir

from ostinato.errors import InputError
from ostinato.graph.writer import Array, Writer
from ostinato.model.schema import schema_of

Operand: TypeAlias = "ir.Value | Array | float | int"


class Operators:
    """`op.Sub(a, b)` writes a Sub; attributes are keywords: `op.ReduceMean(x, keepdims=0)`.

    Operands are values, arrays and numbers; a number gets the element type of the first value
    among the operands that the operator wants it to agree with. The result is the node's first
    output.
    Raises `InputError` for operators and attributes that the standard does not have.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        schema = schema_of(op_type, "", self._writer.opset)
        if schema is None:
            raise InputError(f"opset {self._writer.opset} has no operator {op_type!r}")

        def write(*operands: Operand, **attributes: Any) -> ir.Value:
            unknown = [name for name in attributes if name not in schema.attributes]
            if unknown:
                raise InputError(
                    f"{op_type} has no attribute {unknown[0]!r}; it has {sorted(schema.attributes)}"
                )
            kinds = _kinds(schema, len(operands))
            values = [
                self._value(operand, [o for o, k in zip(operands, kinds, strict=True) if k == kind])
                for operand, kind in zip(operands, kinds, strict=True)
            ]
            writer = self._writer
            output = ir.Value(name=writer.name(op_type.lower()))
            dtype = _result_type(schema, values, attributes)
            output.type = None if dtype is None else ir.TensorType(dtype)
            writer.node(op_type, values, [output], attributes)
            return output

        return write

    def _value(self, operand: Operand, alike: Sequence[Operand]) -> ir.Value:
        """The operand as a value; alike: the operands of its element type."""
        if isinstance(operand, ir.Value):
            return operand
        if isinstance(operand, bool | int | float):
            values = [other for other in alike if isinstance(other, ir.Value)]
            known = next((value.dtype for value in values if value.dtype), self._writer.dtype)
            operand = np.array(operand, known.numpy())
        if not isinstance(operand, np.ndarray | np.generic):
            raise InputError(f"an operand is {operand!r}, expected a value, an array or a number")
        return self._writer.value(np.asarray(operand), "constant")


def _kinds(schema: onnx.defs.OpSchema, count: int) -> list[str]:
    """List the type names in the signature of that many operands; the last may be repeated."""
    last = len(schema.inputs) - 1
    return [schema.inputs[min(position, last)].type_str for position in range(count)]


def _result_type(
    schema: onnx.defs.OpSchema, values: list[ir.Value], attributes: dict[str, Any]
) -> ir.DataType | None:
    """The element type of a node's first output, where the operator's signature tells it."""
    wanted = schema.outputs[0].type_str
    for value, kind in zip(values, _kinds(schema, len(values)), strict=True):
        if kind == wanted and value.dtype is not None:
            return value.dtype
    if isinstance(attributes.get("to"), int):
        return ir.DataType(attributes["to"])
    allowed = [c for c in schema.type_constraints if c.type_param_str == wanted]
    names = list(allowed[0].allowed_type_strs) if allowed else [wanted]
    if len(names) != 1:
        return None
    name = names[0].removeprefix("tensor(").removesuffix(")").upper()
    return ir.DataType[name] if name in ir.DataType.__members__ else None
