"""Elements written to positions that are computed while running.

Updates are applied one after the other, so that of several for one place the last one stays, and
sums have one order of their terms.
"""

from __future__ import annotations

from ostinato.ops.builder import literal
from ostinato.ops.gather import (
    index_columns,
    normalized,
    positions,
    require_all,
    require_fitting,
    require_in_range,
    without_axes,
)
from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Tensor, Value, insert_ones
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


def _update(
    access: Access,
    index: tuple[tuple[Expr, Size], ...],
    inside: Expr | None,
    combine: str | None,
    update: Expr,
    dtype: str,
) -> Store:
    """The store of one update, or of what it and the present element are combined to."""
    if combine is None:
        return Store(access, update, inside, index)
    other = None if inside is None else constant(0, dtype)
    present = Load(access, dtype, inside, other, index)
    return Store(access, op(combine, present, update), inside, index)


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
    values, places = builder.strided(updates), builder.strided(indices)
    axes = builder.axes(indices.shape)
    position, inside = normalized(builder.load(places, axes), target.shape[axis])
    access = builder.access(without_axes(target, axis), (*axes[:axis], *axes[axis + 1 :]))
    index = ((position, target.strides[axis]),)
    update = builder.load(values, axes)
    store = _update(access, index, inside, combine, update, target.dtype)
    builder.kernel(axes, [store], ordered=axes[axis : axis + 1])
    return target


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
    axes = builder.axes(shape)
    outer, inner = axes[: len(indices.shape) - 1], axes[len(indices.shape) - 1 :]
    index, inside = positions(context, columns, outer, target)
    access = builder.access(without_axes(target, 0, len(columns)), inner)
    store = _update(access, index, inside, combine, builder.load(values, axes), target.dtype)
    builder.kernel(axes, [store], ordered=outer)
    return target


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
