"""Determinants by Gaussian elimination."""

from __future__ import annotations

import numpy as np

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, at
from ostinato.ops.rules.gather import without_axes
from ostinato.program.expr import Axis, Expr, Index, Load, literal, op, select
from ostinato.sizes.dims import product


@lowers("Det")
def lower_det(context: Context) -> Value:
    """The product of the pivots of each matrix, of the other sign for each exchange of rows."""
    builder, value = context.builder, context.input(0)
    if len(value.shape) < 2:
        raise context.invalid(f"an input of {len(value.shape)} axes holds no matrices")
    *outer, rows, columns = value.shape
    builder.require.equal(rows, columns, "rows and columns of a matrix")
    count = product(tuple(outer))
    source = builder.reshaped(value, (count, rows, rows))
    matrix, reduced = (builder.empty(value.dtype, source.shape) for _ in range(2))
    total, updated = (builder.empty(value.dtype, (count,)) for _ in range(2))
    builder.copy(source, matrix)
    one = builder.constant(np.ones((), value.dtype))
    builder.copy(builder.expanded(one, (count,)), total)
    with builder.emit.loop(rows) as loop:
        row = _pivot_row(builder, matrix, loop.axis)
        pivot = _pivot(builder, matrix, row, loop.axis)
        _update(builder, (total, updated), row, pivot, loop.axis)
        _eliminate(builder, (matrix, reduced), row, pivot, loop.axis)
        for state, successor in ((matrix, reduced), (total, updated)):
            loop.carry(state, successor)
    return builder.reshaped(total, tuple(outer))


def _pivot_row(builder: Builder, matrix: Tensor, step: Axis) -> Tensor:
    """int64: the first row from the present one on whose element of the column is largest."""
    column = at(matrix, 2, step, 0, 1)
    count, rows = column.shape
    axes, inner = builder.axes((count,)), builder.axis(rows, "r")
    size = abs(builder.load(column, (*axes, inner)))
    below = Index(inner) >= Index(step)
    kept = select(below, size, -1)
    largest = builder.fold((count,), axes, (inner,), "max", kept)

    axes, inner = builder.axes((count,)), builder.axis(rows, "r")
    size = abs(builder.load(column, (*axes, inner)))
    below = Index(inner) >= Index(step)
    # A NaN equals nothing, and where there is one it is the largest.
    found = size.equals(builder.load(largest, axes))
    found = below & (found | size.differs(size))
    place = select(found, Index(inner), rows)
    return builder.fold((count,), axes, (inner,), "min", place)


def _pivot(builder: Builder, matrix: Tensor, row: Tensor, step: Axis) -> Tensor:
    """The element of the pivot's row in the present column."""
    column = at(matrix, 2, step, 0, 1)
    axes = builder.axes(row.shape)
    return builder.stored(row.shape, axes, _in_row(builder, column, axes, row, axes))


def _in_row(
    builder: Builder,
    value: Tensor,
    axes: tuple[Axis | None, ...],
    row: Tensor,
    batch: tuple[Axis | None, ...],
) -> Expr:
    """The element of axis 1 of `value` that `row` names, at these other axes."""
    access = builder.access(without_axes(value, 1), axes)
    index = ((builder.load(row, batch), value.strides[1]),)
    return Load(access, value.dtype, None, None, index)


def _update(
    builder: Builder, totals: tuple[Tensor, Tensor], row: Tensor, pivot: Tensor, step: Axis
) -> None:
    total, updated = totals

    def factor(t: Expr, r: Expr, p: Expr) -> Expr:
        return t * select(r.equals(Index(step)), p, -p)

    builder.copy(builder.pointwise(factor, total, row, pivot), updated)


def _eliminate(
    builder: Builder, matrices: tuple[Tensor, Tensor], row: Tensor, pivot: Tensor, step: Axis
) -> None:
    """All rows, without what they have of the pivot's. Only what lies behind the step is right."""
    matrix, reduced = matrices
    count, rows, _ = matrix.shape
    column, present = at(matrix, 2, step, 0, 1), at(matrix, 1, step, 0, 1)
    diagonal = Tensor(
        matrix.dtype,
        (count, rows),
        matrix.base,
        (matrix.strides[0], matrix.strides[1] + matrix.strides[2]),
    )
    batch, i = builder.axes((count,)), builder.axis(rows)

    # Quotients: the element of the column, once the rows are exchanged, over the pivot.
    moved = Index(i).equals(builder.load(row, batch))
    corner = builder.load(at(diagonal, 1, step, 0, 1), batch)
    own = select(moved, corner, builder.load(column, (*batch, i)))
    divisor = builder.load(pivot, batch)
    zero = literal(0, divisor)
    quotient = select(divisor.equals(zero), zero, own / divisor)
    factors = builder.stored((count, rows), (*batch, i), quotient)

    batch, j = builder.axes((count,)), builder.axis(rows)
    element = _in_row(builder, matrix, (*batch, j), row, batch)
    subtracted = builder.stored((count, rows), (*batch, j), element)

    batch = builder.axes((count,))
    i, j = builder.axis(rows), builder.axis(rows)
    moved = Index(i).equals(builder.load(row, batch))
    own = select(moved, builder.load(present, (*batch, j)), builder.load(matrix, (*batch, i, j)))
    factor = -builder.load(factors, (*batch, i))
    result = op("fma", factor, builder.load(subtracted, (*batch, j)), own)
    builder.copy(builder.stored(matrix.shape, (*batch, i, j), result), reduced)
