"""Elements at positions that are computed while running: Gather, GatherElements, GatherND."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ostinato.ops.builder import literal
from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Tensor, Value, drop_ones, slice_axis
from ostinato.ops.views import axis_of
from ostinato.program.dims import Dim, Size
from ostinato.program.expr import Axis, Expr, Extent, Load, cast, constant, op
from ostinato.program.nodes import Require

# Computed positions of a load or store, each with its stride.
Positions: TypeAlias = "tuple[tuple[Expr, Size], ...]"


def normalized(index: Expr, extent: Size) -> tuple[Expr, Expr]:
    """A position counted from the start, and whether it was in range; negative ones count back."""
    position = cast(index, "int64")
    count = constant(extent, "int64") if isinstance(extent, int) else Extent(extent)
    negative = op("lt", position, literal(0, position))
    moved = op("select", negative, op("add", position, count), position)
    inside = op("and", op("ge", moved, literal(0, moved)), op("lt", moved, count))
    return moved, inside


def require_in_range(context: Context, indices: Value, axis: int, extent: Size) -> None:
    """Stop the run with an error that names the node if an index is out of range.

    Indices that are known while compiling are checked then, or when sizes are known.
    """
    builder = context.builder
    known = indices.known
    if known is not None and not any(isinstance(n, Dim) for n in known.flat):
        numbers = [int(n) for n in known.flat]
        for number in numbers:
            if isinstance(extent, int) and not -extent <= number < extent:
                raise context.invalid(f"index {number} is out of range for {extent} elements")
        needed = max((n + 1 if n >= 0 else -n for n in numbers), default=0)
        builder.require_nonnegative(extent - needed, f"axis {axis} minus the index needed")
        return
    within = builder.pointwise(lambda i: normalized(i, extent)[1], indices)
    require_all(context, within, f"an index is out of range for axis {axis} of {extent} elements")


def require_all(context: Context, conditions: Tensor, what: str) -> None:
    """Stop the run with an error that names the node unless all of these bools are true."""
    builder = context.builder
    axes = tuple(range(len(conditions.shape)))
    if axes:
        conditions = builder.reduce(conditions, axes, "min", lambda x: x)
    assert conditions.base is not None
    message = f"node {builder.node!r} ({context.node.op_type}): {what}"
    builder.append(Require(conditions.base.buffer, message))


def without_axes(value: Tensor, first: int, count: int = 1) -> Tensor:
    """The value at position 0 of some axes, which disappear."""
    end = first + count
    return Tensor(
        value.dtype,
        value.shape[:first] + value.shape[end:],
        value.base,
        value.strides[:first] + value.strides[end:],
    )


def gather(context: Context, value: Tensor, indices: Value, axis: int) -> Tensor:
    """`value[.., indices, ..]`: the indices' axes take the place of `axis`."""
    builder = context.builder
    require_in_range(context, indices, axis, value.shape[axis])
    places = builder.strided(indices)
    rank = len(indices.shape)
    shape = (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    rest = without_axes(value, axis)

    def element(axes: Sequence[Axis | None]) -> Expr:
        inner = axes[axis : axis + rank]
        outer = (*axes[:axis], *axes[axis + rank :])
        position, inside = normalized(builder.load(places, inner), value.shape[axis])
        access = builder.access(rest, outer)
        index = ((position, value.strides[axis]),)
        return Load(access, value.dtype, inside, constant(0, value.dtype), index)

    return builder.compute(shape, element)


@lowers("GatherElements")
def lower_gather_elements(context: Context) -> Value:
    """`data[.., indices[..], ..]`: an index for each element of the result."""
    builder = context.builder
    data, indices = builder.strided(context.input(0)), context.input(1)
    axis = axis_of(context, context.attributes.int("axis", 0), len(data.shape))
    require_fitting(context, indices, data, axis)
    require_in_range(context, indices, axis, data.shape[axis])
    rest = without_axes(data, axis)

    def element(axes: Sequence[Axis | None]) -> Expr:
        position, inside = normalized(builder.load(indices, axes), data.shape[axis])
        access = builder.access(rest, (*axes[:axis], *axes[axis + 1 :]))
        index = ((position, data.strides[axis]),)
        return Load(access, data.dtype, inside, constant(0, data.dtype), index)

    return builder.compute(indices.shape, element)


def require_fitting(context: Context, indices: Value, data: Tensor, axis: int) -> None:
    """The indices have as many axes as the data, and except for `axis` no longer ones."""
    if len(indices.shape) != len(data.shape):
        raise context.invalid(f"{len(indices.shape)} axes of indices for {len(data.shape)} of data")
    for i, (n, extent) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if i != axis:
            context.builder.require_nonnegative(extent - n, f"axis {i} of data beyond the indices")


@lowers("GatherND")
def lower_gather_nd(context: Context) -> Value:
    """`data[batch.., indices[batch.., ..], ..]`: the last axis of the indices holds positions."""
    builder = context.builder
    data, indices = builder.strided(context.input(0)), builder.strided(context.input(1))
    batch = context.attributes.int("batch_dims", 0)
    columns = index_columns(context, indices, data, batch)
    if not 0 <= batch < min(len(indices.shape), len(data.shape)):
        raise context.invalid(f"batch_dims {batch} for indices of shape {indices.shape}")
    for i in range(batch):
        builder.require_equal(data.shape[i], indices.shape[i], f"axis {i} of data and indices")
    rest = without_axes(data, batch, len(columns))
    rank = len(indices.shape) - 1

    def element(axes: Sequence[Axis | None]) -> Expr:
        access = builder.access(rest, (*axes[:batch], *axes[rank:]))
        index, inside = positions(context, columns, axes[:rank], data, batch)
        if inside is None:
            return Load(access, data.dtype)
        return Load(access, data.dtype, inside, constant(0, data.dtype), index)

    return builder.compute((*indices.shape[:-1], *data.shape[batch + len(columns) :]), element)


def index_columns(context: Context, indices: Tensor, data: Tensor, batch: int = 0) -> list[Tensor]:
    """The positions along axes `batch, batch + 1, ..` of the data, which are checked to exist."""
    last = len(indices.shape) - 1
    count = indices.shape[last] if indices.shape else 0
    if not isinstance(count, int):
        raise context.refuse("the number of axes to index is only known at run time")
    if not indices.shape or batch + count > len(data.shape):
        raise context.invalid(f"indices of shape {indices.shape} for data of shape {data.shape}")
    columns: list[Tensor] = []
    for i in range(count):
        column = drop_ones(slice_axis(indices, last, i, 1, 1), (last,))
        assert isinstance(column, Tensor)
        require_in_range(context, column, batch + i, data.shape[batch + i])
        columns.append(column)
    return columns


def positions(
    context: Context,
    columns: Sequence[Tensor],
    axes: Sequence[Axis | None],
    data: Tensor,
    batch: int = 0,
) -> tuple[Positions, Expr | None]:
    """Computed positions in `data`, and whether all are in range; None if there are none."""
    index: list[tuple[Expr, Size]] = []
    every: Expr | None = None
    for i, column in enumerate(columns, batch):
        position, inside = normalized(context.builder.load(column, axes), data.shape[i])
        index.append((position, data.strides[i]))
        every = inside if every is None else op("and", every, inside)
    return tuple(index), every
