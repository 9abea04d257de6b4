"""Pad: what stands around the elements, for a rule of its own and for windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.known_sizes import known_ints, known_sizes
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.singles import scalar
from ostinato.ops.core.tensor import Joined, Tensor, Value, advance, expand, slice_axis
from ostinato.ops.rules.gather import without_axes
from ostinato.ops.rules.views import axes_of, axis_of
from ostinato.program.expr import Axis, Expr, Extent, Index, Load, constant, op, select, sized
from ostinato.program.kernel import Store
from ostinato.sizes.bounds import is_never_negative, unless_negative
from ostinato.sizes.conditions import is_equal, is_less
from ostinato.sizes.dims import Dim, Size, is_nonnegative, maximum
from ostinato.sizes.strides import Shape


@lowers("Pad")
def lower_pad(context: Context) -> Value:
    """Elements added or removed at both ends of each axis: a constant, or elements of the value."""
    value = context.input(0)
    rank = len(value.shape)
    mode = context.attributes.string("mode", "constant")
    if mode not in ("constant", *_MIRRORS):
        raise context.invalid(f"attribute 'mode' is {mode!r}")
    axes = list(range(rank))
    if context.since < 11:
        name = "pads" if context.since >= 2 else "paddings"
        pads: list[Size] = list(context.attributes.ints(name))
        fill: float | Value = context.float("value")
    else:
        asked = known_sizes(context, 1, "input 'pads'")
        pads = [context.builder.sizes.defined(n, "pads", signed=True) for n in asked]
        fill = _fill(context) if mode == "constant" else 0
        context.optional(2)
        if context.optional(3) is not None:
            axes = known_ints(context, 3, "input 'axes'")
    axes_of(context, axes, rank)
    if len(pads) != 2 * len(axes):
        raise context.invalid(f"{len(pads)} pads for {len(axes)} axes")
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for i, axis in enumerate(axes):
        position = axis_of(context, axis, rank)
        before[position], after[position] = pads[i], pads[len(axes) + i]
    if all(n == 0 for n in (*before, *after)):
        return value
    if mode == "constant":
        return pad(context, context.builder.strided(value), before, after, fill)
    for axis in range(rank):
        value = _extended(context, value, axis, before[axis], after[axis], _MIRRORS[mode])
    return value


Ends = Callable[[Tensor, int, Size, Size], tuple[Tensor, Tensor]]


def _reflected(x: Tensor, axis: int, before: Size, after: Size) -> tuple[Tensor, Tensor]:
    """The elements before and behind `x`, reflected at the first and at the last one."""
    last = x.shape[axis] - 1
    return slice_axis(x, axis, before, -1, before), slice_axis(x, axis, last - 1, -1, after)


def _repeated(x: Tensor, axis: int, before: Size, after: Size) -> tuple[Tensor, Tensor]:
    """The first and the last element again and again."""
    ends = (slice_axis(x, axis, place, 1, 1) for place in (0, x.shape[axis] - 1))
    sizes = ((*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in (before, after))
    first, last = (expand(end, shape) for end, shape in zip(ends, sizes, strict=True))
    return first, last


def _wrapped(x: Tensor, axis: int, before: Size, after: Size) -> tuple[Tensor, Tensor]:
    """The other end of the axis."""
    return slice_axis(x, axis, x.shape[axis] - before, 1, before), slice_axis(x, axis, 0, 1, after)


# Where added elements come from, and how many fewer than the axis has there can be.
_MIRRORS: dict[str, tuple[Ends, int]] = {
    "reflect": (_reflected, 1),
    "edge": (_repeated, 0),
    "wrap": (_wrapped, 0),
}


def _extended(
    context: Context, value: Value, axis: int, before: Size, after: Size, mirror: tuple[Ends, int]
) -> Value:
    """The value continued beyond both ends of an axis with its own elements, as a view."""
    if before == 0 and after == 0:
        return value
    builder = context.builder
    ends, margin = mirror
    tensor = builder.strided(value)
    extent = tensor.shape[axis]
    if extent == 0:
        for amount in (before, after):
            builder.require.equal(amount, 0, f"pad of axis {axis}, which has no elements, and none")
        return value
    if not (is_never_negative(before) and is_never_negative(after)):
        removed = unless_negative(-before), unless_negative(-after)
        extent = builder.sizes.defined(
            extent - sum(removed, 0), "elements that negative pads leave"
        )
        tensor = slice_axis(builder.constants.placed(tensor), axis, removed[0], 1, extent)
        before = builder.sizes.defined(unless_negative(before), "pad")
        after = builder.sizes.defined(unless_negative(after), "pad")
    if ends is not _repeated and not _is_single(builder, extent - margin, before, after):
        return _periodic(context, tensor, axis, before, after, ends is _reflected)
    if ends is _repeated:
        builder.require.nonnegative(extent - 1, f"axis {axis} has {extent} elements, too few")
    first, last = ends(tensor, axis, before, after)
    parts = tuple(part for part in (first, tensor, last) if part.shape[axis] != 0)
    shape = (*tensor.shape[:axis], before + extent + after, *tensor.shape[axis + 1 :])
    return Joined(tensor.dtype, shape, axis, parts)


def _is_single(builder: Builder, most: Size, *amounts: Size) -> bool:
    """Whether no amount is larger than `most`, or the program may be for such sizes."""
    rooms = [most - amount for amount in amounts]
    if any(isinstance(room, int) and room < 0 for room in rooms) or not builder.guarded:
        return all(map(is_nonnegative, rooms))
    for room in rooms:
        if not is_nonnegative(room):
            builder.require.guard(1 - is_less(room, 0), "pads that repeat elements more than once")
    return True


def _periodic(
    context: Context, tensor: Tensor, axis: int, before: Size, after: Size, is_mirrored: bool
) -> Tensor:
    """The value continued beyond both ends of an axis again and again, as NumPy does."""
    builder, extent = context.builder, tensor.shape[axis]
    lacks = is_equal(extent, 0) * (1 - is_equal(before + after, 0))
    builder.require.that(-lacks, f"axis {axis} has no elements to repeat")
    shape = (*tensor.shape[:axis], before + extent + after, *tensor.shape[axis + 1 :])
    # A mirrored axis goes forth and back, without its ends on the way back.
    period = maximum(2 * extent - 2, 1) if is_mirrored else extent
    rest = without_axes(tensor, axis)

    def element(axes: Sequence[Axis | None]) -> Expr:
        along = axes[axis]
        index: Expr = constant(0, "int64") if along is None else Index(along)
        place = op("mod", index - before, sized(period))
        if is_mirrored:
            back = sized(period) - place
            place = select(place < extent, place, back)
        access = builder.access(rest, (*axes[:axis], *axes[axis + 1 :]))
        inside = place < extent
        terms = ((place, tensor.strides[axis]),)
        return Load(access, tensor.dtype, inside, constant(0, tensor.dtype), terms)

    return builder.compute(shape, element)


def _fill(context: Context) -> float | Value:
    filler = scalar(context, 2, "constant_value")
    if filler is None:
        return 0
    if filler.known is None or isinstance(filler.known.reshape(-1)[0], Dim):
        return filler
    number: float = filler.known.reshape(-1)[0]
    return number


def pad(
    context: Context,
    tensor: Tensor,
    before: Sequence[Size],
    after: Sequence[Size],
    fill: float | Value,
    empty: Callable[[str, Shape], Tensor] | None = None,
) -> Tensor:
    """A padded copy; negative amounts remove elements. fill: the element at the added places.

    empty: makes the tensor that holds the copy, by default `Builder.empty`.
    """
    builder = context.builder
    extents = [b + n + a for b, n, a in zip(before, tensor.shape, after, strict=True)]
    shape = tuple(
        builder.sizes.defined(n, f"axis {axis} of the padded value")
        for axis, n in enumerate(extents)
    )
    # The padded place is known by its index, along axes whose extent is 1 as well.
    axes = [
        builder.axis(extent) if extent != 1 or b != 0 or a != 0 else None
        for extent, b, a in zip(shape, before, after, strict=True)
    ]
    offset: Size = 0
    for amount, stride in zip(before, tensor.strides, strict=True):
        offset = offset - amount * stride
    shifted = Tensor(tensor.dtype, shape, advance(tensor, offset), tensor.strides)
    inside: Expr | None = None
    for axis_, extent, b, a in zip(axes, tensor.shape, before, after, strict=True):
        for condition in [] if axis_ is None else within(Index(axis_), b, extent, a):
            inside = condition if inside is None else inside & condition
    is_number = isinstance(fill, (int, float, np.generic))
    other = None if inside is None else constant(fill if is_number else 0, tensor.dtype)
    element: Expr = Load(builder.access(shifted, axes), tensor.dtype, inside, other)
    if inside is not None and isinstance(fill, (Tensor, Joined)):
        single = builder.load(builder.reshaped(fill, ()), ())
        element = select(inside, element, single)
    target = (empty or builder.empty)(tensor.dtype, shape)
    builder.emit.kernel(axes, [Store(builder.access(target, axes), element)])
    return target


def within(index: Expr, before: Size, extent: Size, after: Size) -> list[Expr]:
    """Conditions for `index - before` to lie in 0 .. extent - 1, those that can fail.

    The index is known to lie in 0 .. before + extent + after - 1.
    """
    conditions: list[Expr] = []
    if before != 0:
        conditions.append(index >= Extent(before))
    if after != 0:
        conditions.append(index < Extent(before + extent))
    return conditions
