"""Elements written to positions that are computed while running.

Updates are applied one after the other, so that of several for one place the last one stays, and
sums have one order of their terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.ops.builder import Builder, literal
from ostinato.ops.gather import (
    Positions,
    index_columns,
    normalized,
    positions,
    require_all,
    require_fitting,
    require_in_range,
    without_axes,
)
from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Tensor, Value, advance, insert_ones, static_shape
from ostinato.ops.views import axis_of
from ostinato.program.dims import Size
from ostinato.program.expr import Access, Axis, Expr, Extent, Index, Load, constant, op
from ostinato.program.nodes import Store

COMBINES = {"none": None, "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _target(context: Context) -> tuple[Tensor, str | None]:
    """A copy of the data to update, and how an update is combined with what is there."""
    data = context.input(0)
    reduction = context.attributes.string("reduction", "none")
    if reduction not in COMBINES:
        raise context.invalid(f"attribute 'reduction' is {reduction!r}")
    if data.dtype == "bool" and reduction != "none":
        raise context.refuse(f"reduction {reduction!r} of bool has no native form")
    target = context.builder.empty(data.dtype, data.shape)
    context.builder.copy(data, target)
    return target, COMBINES[reduction]


def _apply(
    builder: Builder,
    target: Tensor,
    combine: str | None,
    access: Access,
    places: tuple[Positions, Expr | None],
    updates: tuple[Tensor, Sequence[Axis | None]],
    ordered: Sequence[Axis | None],
) -> Tensor:
    """The target after its updates, which are stored or combined with the present elements.

    places: computed positions, and whether they are in range. updates: values and their axes.
    """
    index, inside = places
    values, axes = updates
    element = builder.load(values, axes)
    if combine is not None:
        other = None if inside is None else constant(0, target.dtype)
        element = op(combine, Load(access, target.dtype, inside, other, index), element)
    builder.kernel(axes, [Store(access, element, inside, index)], ordered=ordered)
    return target


def _apply_to_view(builder: Builder, view: Tensor, combine: str | None, updates: Tensor) -> None:
    """As `_apply`, where the places are a view of the target and none occurs twice."""
    axes = builder.axes(updates.shape)
    element = builder.load(updates, axes)
    access = builder.access(view, axes)
    if combine is not None:
        element = op(combine, Load(access, view.dtype), element)
    # A store with a mask keeps the rest of the target, so that it stays behind what writes that.
    builder.kernel(axes, [Store(access, element, constant(True, "bool"))])


def _view(target: Tensor, offsets: np.ndarray | None, behind: int) -> Tensor | None:
    """The target at these offsets, and its last `behind` axes, as a view; None if it is none.

    Exporters write assignments to slices with indices that are known and evenly spaced.
    """
    if offsets is None or offsets.size == 0 or np.unique(offsets).size < offsets.size:
        return None
    first, steps = int(offsets.flat[0]), [0] * offsets.ndim
    expected: np.ndarray = np.full(offsets.shape, first)
    for axis, extent in enumerate(offsets.shape):
        if extent > 1:
            steps[axis] = int(offsets.take(1, axis).flat[0]) - first
            expected += np.expand_dims(
                np.arange(extent) * steps[axis], [i for i in range(offsets.ndim) if i != axis]
            )
    if not np.array_equal(offsets, expected):
        return None
    kept = len(target.shape) - behind
    shape = (*offsets.shape, *target.shape[kept:])
    return Tensor(target.dtype, shape, advance(target, first), (*steps, *target.strides[kept:]))


def _known_offsets(target: Tensor, indices: Value) -> np.ndarray | None:
    """What known positions along the first axes, in the last axis of the indices, are in memory."""
    known, count = indices.known, indices.shape[-1]
    shape = static_shape(target.shape)
    if known is None or shape is None or not isinstance(count, int) or known.dtype == object:
        return None
    places = np.where(known < 0, known + np.array(shape[:count], known.dtype), known)
    offsets: np.ndarray = places.astype(np.int64) @ np.array(target.strides[:count], np.int64)
    return offsets


@lowers("ScatterElements", "Scatter")
def lower_scatter_elements(context: Context) -> Value:
    """A copy of the data with `data[.., indices[..], ..]` updated: an index for each update."""
    builder = context.builder
    indices, updates = context.input(1), context.input(2)
    target, combine = _target(context)
    axis = axis_of(context, context.attributes.int("axis", 0), len(target.shape))
    require_fitting(context, indices, target, axis)
    if len(updates.shape) != len(indices.shape):
        raise context.invalid(f"updates of shape {updates.shape} for indices {indices.shape}")
    for i, (n, wanted) in enumerate(zip(updates.shape, indices.shape, strict=True)):
        builder.require_equal(n, wanted, f"axis {i} of updates and indices")
    require_in_range(context, indices, axis, target.shape[axis])
    values = builder.strided(updates)
    view = _view(target, _known_offsets(target, _all_positions(indices, axis)), 0)
    if view is not None:
        _apply_to_view(builder, view, combine, values)
        return target
    axes = builder.axes(indices.shape)
    position, inside = normalized(builder.load(indices, axes), target.shape[axis])
    access = builder.access(without_axes(target, axis), (*axes[:axis], *axes[axis + 1 :]))
    places = (((position, target.strides[axis]),), inside)
    in_turn = axes[axis : axis + 1]
    return _apply(builder, target, combine, access, places, (values, axes), in_turn)


def _all_positions(indices: Value, axis: int) -> Value:
    """Known indices along one axis, with those along the other axes beside them."""
    if indices.known is None or indices.known.dtype == object:
        return indices
    grid: np.ndarray = np.moveaxis(np.indices(indices.known.shape), 0, -1).copy()
    grid[..., axis] = indices.known
    return Tensor("int64", grid.shape, None, (), grid)


@lowers("ScatterND")
def lower_scatter_nd(context: Context) -> Value:
    """A copy of the data with `data[indices[..], ..]` updated: the last axis holds positions."""
    builder = context.builder
    indices, updates = builder.strided(context.input(1)), context.input(2)
    target, combine = _target(context)
    columns = index_columns(context, indices, target)
    shape = (*indices.shape[:-1], *target.shape[len(columns) :])
    if len(updates.shape) != len(shape):
        raise context.invalid(f"updates of shape {updates.shape}, expected {shape}")
    for i, (n, wanted) in enumerate(zip(updates.shape, shape, strict=True)):
        builder.require_equal(n, wanted, f"axis {i} of the updates")
    values = builder.strided(updates)
    behind = len(target.shape) - len(columns)
    view = _view(target, _known_offsets(target, indices), behind)
    if view is not None:
        _apply_to_view(builder, view, combine, values)
        return target
    axes = builder.axes(shape)
    outer, inner = axes[: len(indices.shape) - 1], axes[len(indices.shape) - 1 :]
    access = builder.access(without_axes(target, 0, len(columns)), inner)
    places = positions(context, columns, outer, target)
    return _apply(builder, target, combine, access, places, (values, axes), outer)


@lowers("TensorScatter")
def lower_tensor_scatter(context: Context) -> Value:
    """A cache with a part along one axis replaced, which begins elsewhere for each batch row.

    Every element is written once, from the update where it covers the place, else from the cache.
    """
    builder = context.builder
    cache, update = (builder.strided(context.input(i)) for i in (0, 1))
    starts = context.optional(2)
    mode = context.attributes.string("mode", "linear")
    if mode not in ("linear", "circular"):
        raise context.invalid(f"attribute 'mode' is {mode!r}")
    axis = axis_of(context, context.attributes.int("axis", -2), len(cache.shape))
    if axis == 0 or len(update.shape) != len(cache.shape):
        raise context.invalid(f"axis {axis} of an update of shape {update.shape}")
    for i, (n, wanted) in enumerate(zip(update.shape, cache.shape, strict=True)):
        if i != axis:
            builder.require_equal(n, wanted, f"axis {i} of update and cache")
    extent, count = cache.shape[axis], update.shape[axis]
    builder.require_nonnegative(extent - count, "length of the cache beyond the update")
    if starts is not None:
        _require_starts(context, starts, extent, count if mode == "linear" else 1)
        rank = len(cache.shape)
        starts = insert_ones(builder.strided(starts), tuple(range(1, rank)))
    # The place along the axis is known by its index, even if there is only one.
    axes: list[Axis | None] = list(builder.axes(cache.shape))
    place = axes[axis] = builder.axis(extent)
    distance: Expr = Index(place)
    if starts is not None:
        first = builder.load(starts, [axes[0], *[None] * (len(axes) - 1)])
        distance = op("sub", distance, first)
    if mode == "circular":
        distance = op("mod", distance, Extent(extent))
    covered = op("and", op("ge", distance, literal(0, distance)), op("lt", distance, Extent(count)))
    access = builder.access(without_axes(update, axis), [*axes[:axis], *axes[axis + 1 :]])
    index = ((distance, update.strides[axis]),)
    new = Load(access, update.dtype, covered, constant(0, update.dtype), index)
    return builder.stored(cache.shape, axes, op("select", covered, new, builder.load(cache, axes)))


def _require_starts(context: Context, starts: Value, extent: Size, count: Size) -> None:
    """`count` elements from each of these positions on lie within the axis."""

    def fits(start: Expr) -> Expr:
        last = op("le", start, op("sub", Extent(extent), Extent(count)))
        return op("and", op("ge", start, literal(0, start)), last)

    within = context.builder.pointwise(fits, starts)
    require_all(context, within, f"an index to write to is out of range for {extent} elements")
