"""Elements at positions that are computed while running: Gather, GatherElements, GatherND."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ostinato.ops.core.literals import in_range
from ostinato.ops.core.moved_rows import moves
from ostinato.ops.core.progressions import Picks, aligned, by_sign, line_along, view
from ostinato.ops.core.ranges import is_within, of_value
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Joined, Tensor, Value, can_be_known, drop_ones, slice_axis
from ostinato.ops.rules.views import axis_of, reshape
from ostinato.program.expr import Access, Axis, Expr, Load, cast, constant, select
from ostinato.program.nodes import Require
from ostinato.sizes.dims import Dim, Size, product
from ostinato.sizes.progressions import Progression
from ostinato.sizes.strides import Shape

# Each piece of a value is copied by a kernel of its own. 4 pieces take 0.1 to 0.9 of the time of
# gathering, 8 take 0.2 to 1.4, and 16 take 0.3 to 2.1: the least are whole rows, the most columns
# of 512 short rows (by turns).
_MOST_PIECES = 8

# Computed positions of a load or store, each with its stride.
Positions: TypeAlias = "tuple[tuple[Expr, Size], ...]"


def normalized(index: Expr, extent: Size) -> tuple[Expr, Expr]:
    """A position counted from the start, and whether it was in range; negative ones count back."""
    position = cast(index, "int64")
    negative = position < 0
    moved = select(negative, position + extent, position)
    return moved, in_range(moved, extent)


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
        builder.require.nonnegative(extent - needed, f"axis {axis} minus the index needed")
        return
    if is_within(of_value(builder.ranges, indices), extent):
        return
    check = (indices, axis, extent)
    if builder.checked.get(check) is builder.draft.body:
        return
    builder.checked[check] = builder.draft.body
    within = builder.pointwise(lambda i: normalized(i, extent)[1], _once(indices))
    require_all(context, within, f"an index is out of range for axis {axis} of {extent} elements")


def _once(value: Value) -> Value:
    """The value without the axes along which it is repeated."""
    if isinstance(value, Joined) or value.base is None:
        return value
    pairs = zip(value.shape, value.strides, strict=True)
    repeated = [i for i, (n, s) in enumerate(pairs) if s == 0 and isinstance(n, int) and n > 0]
    for axis in reversed(repeated):
        value = without_axes(value, axis)
    return value


def require_all(context: Context, conditions: Tensor, what: str) -> None:
    """Stop the run with an error that names the node unless all of these bools are true."""
    builder = context.builder
    axes = tuple(range(len(conditions.shape)))
    if axes:
        conditions = builder.reduce(conditions, axes, "min")
    message = f"{builder.draft.where}: {what}"
    builder.emit.append(Require(conditions.buffer, message))


def without_axes(value: Tensor, first: int, count: int = 1) -> Tensor:
    """The value at position 0 of some axes, which disappear."""
    end = first + count
    return Tensor(
        value.dtype,
        value.shape[:first] + value.shape[end:],
        value.base,
        value.strides[:first] + value.strides[end:],
    )


def at_place(value: Tensor, place: int) -> Tensor:
    """The element at a place of the first axis."""
    return without_axes(slice_axis(value, 0, place, 1, 1), 0)


def gather(context: Context, value: Tensor, indices: Value, axis: int) -> Tensor:
    """`value[.., indices, ..]`: the indices' axes take the place of `axis`."""
    builder = context.builder
    require_in_range(context, indices, axis, value.shape[axis])
    places = builder.strided(indices)
    rank = len(indices.shape)
    shape = (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    rest = without_axes(value, axis)
    exists = is_within(of_value(builder.ranges, indices), value.shape[axis])

    def element(axes: Sequence[Axis | None]) -> Expr:
        inner = axes[axis : axis + rank]
        access = builder.access(rest, (*axes[:axis], *axes[axis + rank :]))
        return element_at(builder.load(places, inner), access, value, axis, exists)

    return builder.compute(shape, element)


def element_at(index: Expr, access: Access, data: Tensor, axis: int, exists: bool) -> Expr:
    """The element at an index along an axis. exists: whether that is proven to be a position."""
    if exists:
        return Load(access, data.dtype, index=((cast(index, "int64"), data.strides[axis]),))
    position, inside = normalized(index, data.shape[axis])
    place = ((position, data.strides[axis]),)
    return Load(access, data.dtype, inside, constant(0, data.dtype), place)


@lowers("Gather")
def lower_gather(context: Context) -> Value:
    """Elements of an axis by index: a view where the indices are evenly spaced."""
    value, indices, builder = context.input(0), context.input(1), context.builder
    axis = axis_of(context, context.attributes.int("axis", 0), len(value.shape))
    numbers = _numbers(indices)
    if isinstance(value, Tensor) and value.base is None and _is_known(value, numbers, axis):
        require_in_range(context, indices, axis, value.shape[axis])
        assert value.known is not None and numbers is not None
        builder.constants.read(value.known)
        known = np.asarray(value.known.take(numbers, axis), value.known.dtype)
        return builder.constants.known(value.dtype, known)
    moved = _moved(context, value, indices, axis)
    if moved is not None:
        return moved
    data = builder.strided(value)
    line = line_along(indices, data.shape[axis])
    picked = None if line is None else _evenly_spaced(context, data, indices, line, axis)
    if isinstance(picked, Tensor) and _is_known(data, numbers, axis):
        assert data.known is not None and numbers is not None
        builder.constants.read(data.known)
        known = np.asarray(data.known.take(numbers, axis), data.known.dtype)
        picked = replace(picked, known=known)
    if picked is None and numbers is not None:
        picked = _in_pieces(context, data, indices, numbers, axis)
    return gather(context, data, indices, axis) if picked is None else picked


def _moved(context: Context, value: Value, indices: Value, axis: int) -> Tensor | None:
    """The rows of a state of a loop, moved within its memory, if this is what the node makes."""
    builder = context.builder
    moving = builder.moving.get(context.node.outputs[0].name or "")
    if moving is None or moving.axis != axis or not moving.fits(value, indices):
        return None
    assert isinstance(value, Tensor)
    extent = value.shape[axis]
    if indices not in moving.plans:
        require_in_range(context, indices, axis, extent)
        rows = builder.pointwise(lambda i: normalized(i, extent)[0], indices)
        moving.plans[indices] = moves(builder, rows)
    return moving.move(builder, value, indices)


def _is_known(data: Tensor, numbers: np.ndarray | None, axis: int) -> bool:
    """Whether the elements at these places are computed while compiling."""
    if data.known is None or numbers is None:
        return False
    shape = (*data.known.shape[:axis], *numbers.shape, *data.known.shape[axis + 1 :])
    return can_be_known(data.known.dtype, shape, data.known)


def _numbers(indices: Value) -> np.ndarray | None:
    """Indices that are plain numbers."""
    known = indices.known
    if known is None or any(isinstance(n, Dim) for n in known.flat):
        return None
    return known.astype(np.int64)


def _evenly_spaced(
    context: Context, data: Tensor, indices: Value, line: Progression, axis: int
) -> Value | None:
    """The elements as one view, or as two where indices go on at the other end of the axis."""
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    rank = len(indices.shape)
    own = (*range(axis), *[None] * rank, *range(axis + 1, len(data.shape)))
    picks = Picks(shape, own, {axis: aligned(line, axis, len(shape))}, indices.size)
    whole = view(context, data, picks)
    count = indices.shape[0] if rank == 1 else None
    if whole is not None or not all(isinstance(n, int) for n in (count, line.start, *line.steps)):
        return whole
    assert isinstance(count, int)
    parts: list[Tensor] = []
    for piece, length in by_sign(line, count):
        shorter = (*data.shape[:axis], length, *data.shape[axis + 1 :])
        lines = {axis: aligned(piece, axis, len(shape))}
        part = view(context, data, Picks(shorter, own, lines, length))
        if part is None:
            return None
        parts.append(part)
    return Joined(data.dtype, shape, axis, tuple(parts))


def _in_pieces(
    context: Context, data: Tensor, indices: Value, numbers: np.ndarray, axis: int
) -> Value | None:
    """The elements at known places as views joined; None where it would fall into many pieces."""
    extent = data.shape[axis]
    places = [n if n >= 0 else extent + n for n in numbers.reshape(-1).tolist()]
    if len(places) > _MOST_PIECES:
        return None
    require_in_range(context, indices, axis, extent)
    parts = tuple(slice_axis(data, axis, place, 1, 1) for place in places)
    flat = (*data.shape[:axis], len(places), *data.shape[axis + 1 :])
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    return reshape(context, Joined(data.dtype, flat, axis, parts), shape)


@lowers("GatherElements")
def lower_gather_elements(context: Context) -> Value:
    """`data[.., indices[..], ..]`: an index for each element of the result."""
    builder = context.builder
    data, indices = builder.strided(context.input(0)), context.input(1)
    axis = axis_of(context, context.attributes.int("axis", 0), len(data.shape))
    require_fitting(context, indices, data, axis)
    picks = element_picks(indices, data, axis)
    picked = None if picks is None else view(context, data, picks)
    if picked is not None:
        return picked
    require_in_range(context, indices, axis, data.shape[axis])
    rest = without_axes(data, axis)
    exists = is_within(of_value(builder.ranges, indices), data.shape[axis])

    def element(axes: Sequence[Axis | None]) -> Expr:
        access = builder.access(rest, (*axes[:axis], *axes[axis + 1 :]))
        return element_at(builder.load(indices, axes), access, data, axis, exists)

    return builder.compute(indices.shape, element)


def element_picks(indices: Value, data: Value, axis: int) -> Picks | None:
    """Gather by one index for each element as a view; None if they are not evenly spaced."""
    line = line_along(indices, data.shape[axis])
    if line is None:
        return None
    own = tuple(None if i == axis else i for i in range(len(data.shape)))
    return Picks(indices.shape, own, {axis: line}, indices.size)


def require_fitting(context: Context, indices: Value, data: Value, axis: int) -> None:
    """The indices have as many axes as the data, and except for `axis` no longer ones."""
    if len(indices.shape) != len(data.shape):
        raise context.invalid(f"{len(indices.shape)} axes of indices for {len(data.shape)} of data")
    for i, (n, extent) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if i != axis:
            context.builder.require.nonnegative(extent - n, f"axis {i} of data beyond the indices")


@lowers("GatherND")
def lower_gather_nd(context: Context) -> Value:
    """`data[batch.., indices[batch.., ..], ..]`: the last axis of the indices holds positions."""
    builder = context.builder
    data, indices = builder.strided(context.input(0)), context.input(1)
    batch = context.attributes.int("batch_dims", 0)
    columns = index_columns(context, indices, data, batch)
    if not 0 <= batch < min(len(indices.shape), len(data.shape)):
        raise context.invalid(f"batch_dims {batch} for indices of shape {indices.shape}")
    for i in range(batch):
        builder.require.equal(data.shape[i], indices.shape[i], f"axis {i} of data and indices")
    picks = column_picks(columns, indices.shape[:-1], data, batch)
    picked = None if picks is None else view(context, data, picks)
    if picked is not None:
        return picked
    require_columns(context, columns, data, batch)
    rest = without_axes(data, batch, len(columns))
    rank = len(indices.shape) - 1

    def element(axes: Sequence[Axis | None]) -> Expr:
        access = builder.access(rest, (*axes[:batch], *axes[rank:]))
        index, inside = positions(context, columns, axes[:rank], data, batch)
        if inside is None:
            return Load(access, data.dtype)
        return Load(access, data.dtype, inside, constant(0, data.dtype), index)

    return builder.compute((*indices.shape[:-1], *data.shape[batch + len(columns) :]), element)


def index_columns(
    context: Context, indices: Value, data: Value, batch: int = 0, depth: int | None = None
) -> list[Tensor]:
    """The positions along axes `batch, batch + 1, ..` of the data.

    depth: how many there have to be, if ranks tell that.
    """
    last = len(indices.shape) - 1
    count = indices.shape[last] if indices.shape else 0
    if not isinstance(count, int):
        if depth is None or depth < 0:
            raise context.refuse("the number of axes to index is only known at run time")
        context.builder.require.equal(count, depth, "positions of an index and axes to index")
        open_ = context.builder.strided(indices)
        indices, count = replace(open_, shape=(*open_.shape[:-1], depth)), depth
    if not indices.shape or batch + count > len(data.shape):
        raise context.invalid(f"indices of shape {indices.shape} for data of shape {data.shape}")
    sources: tuple[Value, ...] = (indices,)
    if isinstance(indices, Joined) and indices.axis == last:
        sources = indices.parts
    columns: list[Tensor] = []
    for source in sources:
        part, width = context.builder.strided(source), source.shape[last]
        assert isinstance(width, int)
        for i in range(width):
            column = drop_ones(slice_axis(part, last, i, 1, 1), (last,))
            assert isinstance(column, Tensor)
            columns.append(column)
    return columns


def require_columns(
    context: Context, columns: Sequence[Tensor], data: Value, batch: int = 0
) -> None:
    """All positions along axes `batch, batch + 1, ..` of the data exist."""
    for i, column in enumerate(columns, batch):
        require_in_range(context, column, i, data.shape[i])


def column_picks(
    columns: Sequence[Tensor], places: Shape, data: Value, batch: int = 0
) -> Picks | None:
    """Gather by columns of indices at `places` as a view; None if one is not evenly spaced."""
    lines: dict[int, Progression] = {}
    shape = (*places, *data.shape[batch + len(columns) :])
    for axis, column in enumerate(columns, batch):
        line = line_along(column, data.shape[axis])
        if line is None:
            return None
        lines[axis] = aligned(line, 0, len(shape))
    behind = range(batch + len(columns), len(data.shape))
    own = (*range(batch), *[None] * (len(places) - batch), *behind)
    return Picks(shape, own, lines, product(places))


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
        every = inside if every is None else every & inside
    return tuple(index), every
