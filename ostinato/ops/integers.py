"""Sums of products of small integers: exact in int32, so no order matters and sums come apart."""

from __future__ import annotations

import numpy as np

from ostinato.ops.builder import Builder
from ostinato.ops.tensor import Tensor, Value
from ostinato.program.dims import Size
from ostinato.program.expr import Expr, Extent, cast, op


def is_zero(value: Value | None) -> bool:
    """Whether a zero point is known to be 0 everywhere."""
    numbers = None if value is None else known_numbers(value)
    return numbers is not None and not np.any(numbers)


def known_numbers(value: Value) -> np.ndarray | None:
    """The elements of a value where they are numbers known while compiling."""
    known = value.known
    return None if known is None or known.dtype == object else known


def integer_matmul(
    builder: Builder, left: Value, right: Value, left_zero: Value | None, right_zero: Value | None
) -> Tensor:
    """`(left - left_zero) @ (right - right_zero)` in int32, for int8 and uint8.

    left `[.., m, k]`, right `[.., k, n]`; the zero points are scalars, or `[.., m, 1]` and
    `[.., 1, n]` or `[n]`. Computed as

        sum(a b) - left_zero sum(b) - right_zero sum(a) + k left_zero right_zero

    where sums over constants are constants. int32 wraps, which changes none of it.
    """
    depth = left.shape[-1]
    total = _products(builder, builder.strided(left), builder.strided(right))
    moves_left = left_zero is not None and not is_zero(left_zero)
    moves_right = right_zero is not None and not is_zero(right_zero)
    operands: list[Value] = [total]
    if moves_left:
        assert left_zero is not None
        operands += [left_zero, _sums(builder, right, -2)]
    if moves_right:
        assert right_zero is not None
        operands += [right_zero, _sums(builder, left, -1)]
    if len(operands) == 1:
        return total

    def corrected(total: Expr, *others: Expr) -> Expr:
        wide = [cast(other, "int32") for other in others]
        for zero, sums in zip(wide[::2], wide[1::2], strict=True):
            total = op("sub", total, op("mul", zero, sums))
        if moves_left and moves_right:
            both = op("mul", wide[0], wide[2])
            total = op("add", total, op("mul", cast(Extent(depth), "int32"), both))
        return total

    return builder.pointwise(corrected, *operands)


def _products(builder: Builder, a: Tensor, b: Tensor) -> Tensor:
    """`a [.., m, k] @ b [.., k, n]` in int32."""
    builder.require_equal(a.shape[-1], b.shape[-2], "contracted axes")
    batch = builder.broadcast(a.shape[:-2], b.shape[:-2])
    shape: tuple[Size, ...] = (*batch, a.shape[-2], b.shape[-1])
    axes = builder.axes(shape)
    inner = builder.axis(a.shape[-1], "r")
    outer, row, column = axes[:-2], axes[-2], axes[-1]
    left = cast(builder.load(a, (*outer, row, inner)), "int32")
    right = cast(builder.load(b, (*outer, inner, column)), "int32")
    return builder.contract(shape, axes, (inner,), left, right)


def _sums(builder: Builder, value: Value, axis: int) -> Tensor:
    """Sums along an axis, which keeps an extent of 1, in int32."""
    numbers = known_numbers(value)
    if numbers is not None:
        return builder.constant(numbers.sum(axis, np.int32, keepdims=True))
    return builder.reduce(value, (axis % len(value.shape),), "sum", lambda x: cast(x, "int32"))
