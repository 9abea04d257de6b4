"""Arithmetic of gradients: nodes with one output, of the type of a writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.writer import Operand, Writer

Term: TypeAlias = "Operand | float"


class Arithmetic:
    """Writes formulas with `writer`; numbers become scalars of its element type."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def op(
        self,
        op_type: str,
        inputs: Sequence[Term],
        role: str | None = None,
        attributes: dict[str, Any] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Write a node with one output; numbers become scalars of the writer's type."""
        operands = [self.writer.scalar(x) if isinstance(x, float | int) else x for x in inputs]
        return self.writer.op(op_type, operands, role or op_type.lower(), attributes, dtype)

    def add(self, x: Term, y: Term) -> ir.Value:
        return self.op("Add", [x, y])

    def sub(self, x: Term, y: Term) -> ir.Value:
        return self.op("Sub", [x, y])

    def mul(self, x: Term, y: Term) -> ir.Value:
        return self.op("Mul", [x, y])

    def div(self, x: Term, y: Term) -> ir.Value:
        return self.op("Div", [x, y])

    def neg(self, x: Term) -> ir.Value:
        return self.op("Neg", [x])

    def compare(self, op_type: str, x: Term, y: Term) -> ir.Value:
        """Less, Greater, Equal and their like: bools."""
        return self.op(op_type, [x, y], dtype=ir.DataType.BOOL)

    def where(self, condition: ir.Value, x: Term, y: Term) -> ir.Value:
        return self.op("Where", [condition, x, y])

    def sum(self, x: ir.Value, axes: Sequence[int], keepdims: bool = True) -> ir.Value:
        """The sum over `axes`, which stay with size 1 unless `keepdims` is false."""
        if not axes:
            return x
        return self.op(
            "ReduceSum", [x, np.array(axes, np.int64)], "sum", {"keepdims": int(keepdims)}
        )

    def integers(self, op_type: str, x: Operand, y: Operand) -> Operand:
        """Add, Sub, Mul, Div, Max or Min of int64: at once where both are arrays."""
        if isinstance(x, ir.Value) or isinstance(y, ir.Value):
            return self.op(op_type, [x, y], "index", dtype=ir.DataType.INT64)
        function = facts_of(op_type).arithmetic
        assert function is not None
        return np.asarray(np.frompyfunc(function, 2, 1)(x, y), np.int64)

    def reshape(self, x: ir.Value, sizes: Operand) -> ir.Value:
        """`x` with these sizes, of which 0 is one; -1 is what is left."""
        known = None if isinstance(sizes, ir.Value) else sizes
        literal = {"allowzero": 1} if known is None or 0 in known else None
        return self.op("Reshape", [x, sizes], attributes=literal)

    def unsqueeze(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """`x` with new axes of size 1 at the positions `axes` of the result."""
        return self.op("Unsqueeze", [x, np.array(axes, np.int64)]) if axes else x

    def squeeze(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """`x` without `axes`, whose size is 1."""
        return self.op("Squeeze", [x, np.array(axes, np.int64)]) if axes else x

    def reversed(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """`x` with the elements along `axes` in the opposite order."""
        last = -np.ones(len(axes), np.int64)
        before_first = np.full(len(axes), np.iinfo(np.int64).min)
        places = np.array(axes, np.int64)
        return self.op("Slice", [x, last, before_first, places, last], "reversed")

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        """`x` with its axes in the order `perm`."""
        if list(perm) == sorted(perm):
            return x
        return self.op("Transpose", [x], attributes={"perm": list(perm)})
