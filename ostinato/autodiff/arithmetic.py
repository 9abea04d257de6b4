"""Formulas of gradients: nodes with one output, written by Python's operators on terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.writer import Operand, Writer

Factor: TypeAlias = "Term | Operand | float"
"""What a formula may name; numbers become scalars of the writer's element type."""


class Term:
    """A value in a formula: `x * y`, `1.0 - x`, `-x`, `x > 0.0` and `p & q` write nodes."""

    __slots__ = ("ops", "value")
    # Arrays leave their operators to terms.
    __array_ufunc__ = None

    def __init__(self, ops: Arithmetic, value: ir.Value) -> None:
        self.ops, self.value = ops, value

    def op(self, op_type: str, *others: Factor, role: str = "", **attributes: Any) -> Term:
        """Write a node of the writer's type that reads this term first."""
        return self.ops.op(op_type, [self, *others], role, attributes)

    def __add__(self, other: Factor) -> Term:
        return self.op("Add", other)

    def __sub__(self, other: Factor) -> Term:
        return self.op("Sub", other)

    def __rsub__(self, other: Factor) -> Term:
        return self.ops.op("Sub", [other, self])

    def __mul__(self, other: Factor) -> Term:
        return self.op("Mul", other)

    def __truediv__(self, other: Factor) -> Term:
        return self.op("Div", other)

    def __rtruediv__(self, other: Factor) -> Term:
        return self.ops.op("Div", [other, self])

    def __neg__(self) -> Term:
        return self.op("Neg")

    def __gt__(self, other: Factor) -> Term:
        return self.ops.truth("Greater", self, other)

    def __ge__(self, other: Factor) -> Term:
        return self.ops.truth("GreaterOrEqual", self, other)

    def __lt__(self, other: Factor) -> Term:
        return self.ops.truth("Less", self, other)

    def __and__(self, other: Term) -> Term:
        return self.ops.truth("And", self, other)

    def __or__(self, other: Term) -> Term:
        return self.ops.truth("Or", self, other)

    def equals(self, other: Factor) -> Term:
        """Whether both are equal as numbers: terms themselves are compared by identity."""
        return self.ops.truth("Equal", self, other)

    def where(self, x: Factor, y: Factor) -> Term:
        """`x` where this term is true, else `y`."""
        return self.op("Where", x, y)

    def squared(self) -> Term:
        return self * self

    def cast(self, dtype: ir.DataType) -> Term:
        """This term in another element type."""
        return self.ops.op("Cast", [self], attributes={"to": dtype}, dtype=dtype)

    def sum(self, axes: Sequence[int], keepdims: bool = True) -> Term:
        """The sum over `axes`, which stay with size 1 unless `keepdims` is false."""
        if not axes:
            return self
        where = np.array(axes, np.int64)
        return self.op("ReduceSum", where, role="sum", keepdims=int(keepdims))

    def mean(self, axes: Sequence[int]) -> Term:
        """The mean over `axes`, which stay with size 1."""
        return self.op("ReduceMean", np.array(axes, np.int64)) if axes else self

    def reshape(self, sizes: Operand) -> Term:
        """This term with these sizes, of which 0 is one; -1 is what is left."""
        if isinstance(sizes, ir.Value) or 0 in sizes:
            return self.op("Reshape", sizes, allowzero=1)
        return self.op("Reshape", sizes)

    def unsqueeze(self, axes: Sequence[int]) -> Term:
        """This term with new axes of size 1 at the positions `axes` of the result."""
        return self.op("Unsqueeze", np.array(axes, np.int64)) if axes else self

    def squeeze(self, axes: Sequence[int]) -> Term:
        """This term without `axes`, whose size is 1."""
        return self.op("Squeeze", np.array(axes, np.int64)) if axes else self

    def reversed(self, axes: Sequence[int]) -> Term:
        """This term with the elements along `axes` in the opposite order."""
        last = -np.ones(len(axes), np.int64)
        before_first = np.full(len(axes), np.iinfo(np.int64).min)
        places = np.array(axes, np.int64)
        return self.op("Slice", last, before_first, places, last, role="reversed")

    def transpose(self, perm: Sequence[int]) -> Term:
        """This term with its axes in the order `perm`."""
        return self if list(perm) == sorted(perm) else self.op("Transpose", perm=list(perm))


class Arithmetic:
    """Writes nodes of terms, and of the integers that are sizes and positions, with `writer`."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def op(
        self,
        op_type: str,
        inputs: Sequence[Factor],
        role: str = "",
        attributes: dict[str, Any] | None = None,
        dtype: ir.DataType | None = None,
    ) -> Term:
        """Write a node with one output, of the writer's type unless another is given."""
        operands = [self._operand(x) for x in inputs]
        role = role or op_type.lower()
        return Term(self, self.writer.op(op_type, operands, role, attributes, dtype))

    def _operand(self, factor: Factor) -> Operand:
        if isinstance(factor, Term):
            return factor.value
        return self.writer.scalar(factor) if isinstance(factor, float | int) else factor

    def truth(self, op_type: str, x: Factor, y: Factor) -> Term:
        """A comparison, or logic of two: bools."""
        return self.op(op_type, [x, y], dtype=ir.DataType.BOOL)

    def integers(self, op_type: str, x: Operand, y: Operand) -> Operand:
        """Add, Sub, Mul, Div, Max or Min of int64: at once where both are arrays."""
        if isinstance(x, ir.Value) or isinstance(y, ir.Value):
            return self.index(op_type, x, y, role="index")
        function = facts_of(op_type).arithmetic
        assert function is not None
        return np.asarray(np.frompyfunc(function, 2, 1)(x, y), np.int64)

    def index(self, op_type: str, *inputs: Factor, role: str = "") -> ir.Value:
        """Write a node that gives int64."""
        return self.op(op_type, inputs, role, dtype=ir.DataType.INT64).value

    def shape(self, x: Factor, role: str = "shape") -> ir.Value:
        """The sizes of `x`."""
        return self.index("Shape", x, role=role)
