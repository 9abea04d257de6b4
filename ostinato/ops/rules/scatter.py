"""Elements written to positions that are computed while running.

Updates are applied one after the other, so that of several for one place the last one stays, and
sums have one order of their terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np

from ostinato.graph.facts import facts_of
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.literals import in_range
from ostinato.ops.core.progressions import Picks, firsts, guard, injective, view_at
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Joined, Tensor, Value, slice_axis
from ostinato.ops.rules.gather import (
    Positions,
    column_picks,
    element_picks,
    index_columns,
    normalized,
    positions,
    require_all,
    require_columns,
    require_fitting,
    require_in_range,
    without_axes,
)
from ostinato.ops.rules.views import axis_of
from ostinato.program.expr import Access, Axis, Const, Expr, Extent, Index, Load, cast, constant, op
from ostinato.program.kernel import Store
from ostinato.program.laid import elements
from ostinato.sizes.dims import Size, is_nonnegative, maximum, minimum

_COMBINES = {"none": None, "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _combine(context: Context) -> str | None:
    """Combine an update with the element that is there."""
    reduction = context.attributes.string("reduction", "none")
    if reduction not in _COMBINES:
        raise context.invalid(f"attribute 'reduction' is {reduction!r}")
    if context.input(0).dtype == "bool" and reduction != "none":
        raise context.refuse(f"reduction {reduction!r} of bool has no native form")
    return _COMBINES[reduction]


def _target(context: Context) -> Tensor:
    """The data to update, in memory of its own: that of a scatter which nobody else reads, if any.

    Otherwise it is a copy.
    """
    builder, data = context.builder, context.input(0)
    if _is_spare(data, context):
        return data
    # A result that the caller gets is dense; for all others, transposed data stays transposed, so
    # that a Transpose behind it leads to what lies as the original does.
    is_result = any(out.is_graph_output() for out in context.node.outputs)
    target = builder.empty(data.dtype, data.shape) if is_result else builder.empty_like(data)
    fill = _fill(context)
    if fill is None:
        builder.copy(data, target)
    else:
        axes = builder.axes(target.shape)
        builder.emit.kernel(axes, [Store(builder.access(target, axes), fill)])
    return target


def _is_spare(data: Value, context: Context) -> TypeGuard[Tensor]:
    """Whether the data is memory of a scatter in the same graph, read by nobody but the node."""
    value = context.node.inputs[0]
    node = None if value is None else value.producer()
    if value is None or node is None or not facts_of(node.op_type, node.domain).stores:
        return False
    if node.graph is not context.node.graph:
        return False
    if isinstance(data, Joined) or data.base is None or value.is_graph_output():
        return False
    buffer = context.builder.draft.buffers[data.base.buffer]
    return buffer.kind == "arena" and len(value.uses()) == 1


def _fill(context: Context) -> Const | None:
    """The element of data that is the same everywhere, as that of most gradients is at first."""
    data, value = context.input(0), context.node.inputs[0]
    node = None if value is None else value.producer()
    known = None
    if node is not None and node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        known = np.zeros(1, np.float32) if fill is None else fill.as_tensor().numpy()
    elif isinstance(data, Tensor) and data.known is not None and data.known.dtype != object:
        known = data.known
    elif isinstance(data, Tensor) and data.base is not None:
        held = context.builder.draft.constants.get(data.base.buffer)
        if held is not None and held.size == 1 and all(s == 0 for s in data.strides):
            known = elements(held)
    if known is None or not _is_uniform(known):
        return None
    return constant(known.flat[0].item(), data.dtype)


def _is_uniform(array: np.ndarray) -> bool:
    """Whether all elements have the same bits, and there are any."""
    if array.size == 0:
        return False
    if not any(n > 1 and step for n, step in zip(array.shape, array.strides, strict=True)):
        return True
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    return bool((bits == bits[:1]).all())


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
    builder.emit.kernel(axes, [Store(access, element, inside, index)], ordered=ordered)
    return target


def _apply_to_view(builder: Builder, view: Tensor, combine: str | None, updates: Tensor) -> None:
    """As `_apply`, where the places are a view of the target and none occurs twice."""
    axes = builder.axes(updates.shape)
    element = builder.load(updates, axes)
    access = builder.access(view, axes)
    if combine is not None:
        element = op(combine, Load(access, view.dtype), element)
    # A store with a mask keeps the rest of the target, so that it stays behind what writes that.
    builder.emit.kernel(axes, [Store(access, element, constant(True, "bool"))])


def _apply_evenly(
    context: Context, combine: str | None, picks: Picks | None, updates: Value
) -> Value | None:
    """The data after updates at evenly spaced places, if it is sure that none occurs twice."""
    builder, data = context.builder, context.input(0)
    differ = 0 if picks is None else injective(picks)
    if picks is None or differ == 0 or not (differ == 1 or builder.guarded):
        return None
    places = firsts(context, data.shape, picks)
    if places is None:
        return None
    guard(builder, differ, "places none of which occurs twice")
    joined = _between(context, combine, picks, places, updates)
    if joined is not None:
        return joined
    target = _target(context)
    _apply_to_view(builder, view_at(target, picks, places), combine, builder.strided(updates))
    return target


def _between(
    context: Context,
    combine: str | None,
    picks: Picks,
    places: Mapping[int, Size],
    updates: Value,
) -> Value | None:
    """Updates with copies of a single element before and behind them along one axis, as a view."""
    builder, data, fill = context.builder, context.input(0), _fill(context)
    if fill is None or len(places) != 1 or len(picks.shape) != len(data.shape):
        return None
    ((axis, first),) = places.items()
    rank, extent = len(data.shape), data.shape[axis]
    others = [i for i in range(rank) if i != axis]
    steps, count = picks.lines[axis].steps, picks.shape[axis]
    step = 1 if count == 1 else steps[axis]
    is_slab = all(
        picks.own[i] == i and steps[i] == 0 and picks.shape[i] == data.shape[i] for i in others
    )
    if not is_slab or step not in (1, -1):
        return None
    values = updates
    if step == -1:
        first = first - (count - 1)
        values = slice_axis(builder.strided(updates), axis, count - 1, -1, count)
    if combine is not None:
        values = builder.pointwise(lambda x: op(combine, fill, x), values)
    # Where there are no indices, nothing is known of the first one.
    present = 1 if is_nonnegative(picks.count - 1) else minimum(picks.count, 1)
    before = builder.sizes.defined(present * first, "elements before the updates")
    after = extent - before - count
    if present != 1 and picks.count != count:
        after = maximum(after, 0)
    after = builder.sizes.defined(after, "elements behind the updates")

    def filled(length: Size) -> Tensor:
        single = builder.constant(np.array(fill.value, fill.dtype))
        shape = (*data.shape[:axis], length, *data.shape[axis + 1 :])
        return builder.expanded(single, shape)

    parts = (filled(before), values, filled(after))
    kept = tuple(part for part in parts if part.shape[axis] != 0)
    if len(kept) > 1:
        return Joined(data.dtype, data.shape, axis, kept)
    # Memory of its own, which another scatter may go on updating.
    whole = builder.empty(data.dtype, data.shape)
    builder.copy(kept[0], whole)
    return whole


@lowers("ScatterElements", "Scatter")
def lower_scatter_elements(context: Context) -> Value:
    """The data with `data[.., indices[..], ..]` updated: an index for each update."""
    builder = context.builder
    data, indices, updates = (context.input(i) for i in range(3))
    combine = _combine(context)
    axis = axis_of(context, context.attributes.int("axis", 0), len(data.shape))
    require_fitting(context, indices, data, axis)
    if len(updates.shape) != len(indices.shape):
        raise context.invalid(f"updates of shape {updates.shape} for indices {indices.shape}")
    for i, (n, wanted) in enumerate(zip(updates.shape, indices.shape, strict=True)):
        builder.require.equal(n, wanted, f"axis {i} of updates and indices")
    evenly = _apply_evenly(context, combine, element_picks(indices, data, axis), updates)
    if evenly is not None:
        return evenly
    require_in_range(context, indices, axis, data.shape[axis])
    target = _target(context)
    axes = builder.axes(indices.shape)
    position, inside = normalized(builder.load(indices, axes), target.shape[axis])
    access = builder.access(without_axes(target, axis), (*axes[:axis], *axes[axis + 1 :]))
    places = (((position, target.strides[axis]),), inside)
    in_turn = axes[axis : axis + 1]
    values = builder.strided(updates)
    return _apply(builder, target, combine, access, places, (values, axes), in_turn)


@lowers("ScatterND")
def lower_scatter_nd(context: Context) -> Value:
    """The data with `data[indices[..], ..]` updated: the last axis of the indices has positions."""
    builder = context.builder
    data, indices, updates = (context.input(i) for i in range(3))
    combine = _combine(context)
    depth = len(indices.shape) - 1 + len(data.shape) - len(updates.shape)
    columns = index_columns(context, indices, data, depth=depth)
    shape = (*indices.shape[:-1], *data.shape[len(columns) :])
    if len(updates.shape) != len(shape):
        raise context.invalid(f"updates of shape {updates.shape}, expected {shape}")
    for i, (n, wanted) in enumerate(zip(updates.shape, shape, strict=True)):
        builder.require.equal(n, wanted, f"axis {i} of the updates")
    picks = column_picks(columns, indices.shape[:-1], data)
    evenly = _apply_evenly(context, combine, picks, updates)
    if evenly is not None:
        return evenly
    require_columns(context, columns, data)
    target = _target(context)
    axes = builder.axes(shape)
    outer, inner = axes[: len(indices.shape) - 1], axes[len(indices.shape) - 1 :]
    access = builder.access(without_axes(target, 0, len(columns)), inner)
    places = positions(context, columns, outer, target)
    values = builder.strided(updates)
    return _apply(builder, target, combine, access, places, (values, axes), outer)


@lowers("TensorScatter")
def lower_tensor_scatter(context: Context) -> Value:
    """A cache with a part along one axis replaced, which begins elsewhere for each batch row."""
    builder = context.builder
    cache, update = context.input(0), builder.strided(context.input(1))
    starts = context.optional(2)
    mode = context.attributes.string("mode", "linear")
    if mode not in ("linear", "circular"):
        raise context.invalid(f"attribute 'mode' is {mode!r}")
    axis = axis_of(context, context.attributes.int("axis", -2), len(cache.shape))
    if axis == 0 or len(update.shape) != len(cache.shape):
        raise context.invalid(f"axis {axis} of an update of shape {update.shape}")
    for i, (n, wanted) in enumerate(zip(update.shape, cache.shape, strict=True)):
        if i != axis:
            builder.require.equal(n, wanted, f"axis {i} of update and cache")
    extent, count = cache.shape[axis], update.shape[axis]
    builder.require.nonnegative(extent - count, "length of the cache beyond the update")
    if starts is None:
        target = _target(context)
        _apply_to_view(builder, slice_axis(target, axis, 0, 1, count), None, update)
        return target
    _require_starts(context, starts, extent, count if mode == "linear" else 1)
    target = _target(context)
    axes: list[Axis | None] = list(builder.axes(cache.shape))
    # The place along the axis is known by its index, even if there is only one.
    number = axes[axis] = builder.axis(count)
    place = cast(builder.load(builder.strided(starts), axes[:1]), "int64") + Index(number)
    if mode == "circular":
        place = op("mod", place, Extent(extent))
    inside = in_range(place, extent)
    access = builder.access(without_axes(target, axis), [*axes[:axis], *axes[axis + 1 :]])
    places = (((place, target.strides[axis]),), inside)
    return _apply(builder, target, None, access, places, (update, axes), ())


def _require_starts(context: Context, starts: Value, extent: Size, count: Size) -> None:
    """`count` elements from each of these positions on lie within the axis."""

    def fits(start: Expr) -> Expr:
        last = start <= Extent(extent) - Extent(count)
        return (start >= 0) & last

    within = context.builder.pointwise(fits, starts)
    require_all(context, within, f"an index to write to is out of range for {extent} elements")
