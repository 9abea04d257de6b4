"""Ops that take parts of values or put values together: Concat, Split, Slice, Pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.graph.facts import facts_of
from ostinato.model.values import constant_array
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.known_sizes import known_ints, known_sizes, require_numbers
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import (
    Joined,
    Tensor,
    Value,
    advance,
    can_be_known,
    expand,
    slice_axis,
    static_shape,
)
from ostinato.ops.rules.gather import gather, without_axes
from ostinato.ops.rules.views import axes_of, axis_of
from ostinato.program.expr import Axis, Expr, Extent, Index, Load, cast, constant, op
from ostinato.program.nodes import Require, Store
from ostinato.sizes.dims import (
    Dim,
    Size,
    ceildiv,
    exact_quotient,
    floordiv,
    is_equal,
    is_less,
    is_nonnegative,
    maximum,
    minimum,
)

if TYPE_CHECKING:
    import onnx_ir as ir

# Bounds and steps beyond this are "as far as there is"; no axis is as long.
FAR = 2**40
# A joined value of more parts, or of parts joined of parts more often, is joined further only in
# memory: models concatenate in long chains.
MOST_PARTS = 256
MOST_DEPTH = 8


@lowers("Concat")
def lower_concat(context: Context) -> Value:
    """Values one after the other along an axis; what a state of a loop grows by, beside it."""
    values, axis = context.all_inputs(), context.attributes.int("axis", 1)
    appending = context.builder.appending.get(context.node.outputs[0].name or "")
    if appending is not None and len(values) > 1:
        place = len(values) - 1 if appending.in_front else 0
        if values[place] is appending.state:
            others = [*values[:place], *values[place + 1 :]]
            whole = appending.append(concatenated(context, others, axis))
            if whole is not None:
                return whole
    return concatenated(context, values, axis)


def concatenated(context: Context, values: Sequence[Value], place: int) -> Value:
    """Values of one rank and dtype, at least one, joined along axis `place`, which may be < 0."""
    first, rank = values[0], len(values[0].shape)
    axis = axis_of(context, place, rank)
    for value in values[1:]:
        if len(value.shape) != rank:
            raise context.invalid(f"inputs have {rank} and {len(value.shape)} axes")
        for i in range(rank):
            if i != axis:
                context.builder.require.equal(
                    value.shape[i], first.shape[i], f"axis {i} of operands to concatenate"
                )
    extent: Size = sum((v.shape[axis] for v in values[1:]), first.shape[axis])
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    known = [value.known for value in values if value.known is not None]
    static = static_shape(shape)
    if len(known) == len(values):
        if can_be_known(_widest(known), static or ()):
            return context.builder.constants.known(first.dtype, np.concatenate(known, axis))
        # Each gets memory once, however often it is joined.
        placed = {value: context.builder.strided(value) for value in values}
        values = [placed[value] for value in values]
    parts = [part for value in values for part in _parts(context, value, axis)]
    present = tuple(part for part in parts if part.shape[axis] != 0) or (first,)
    return present[0] if len(present) == 1 else Joined(first.dtype, shape, axis, present)


def _widest(arrays: Sequence[np.ndarray]) -> np.dtype[Any]:
    """The type of these arrays joined: sizes, where some are."""
    return next((array.dtype for array in arrays if array.dtype.kind == "O"), arrays[0].dtype)


def _parts(context: Context, value: Value, axis: int) -> Sequence[Value]:
    """What a value joins along this axis; one that joins much already becomes one tensor."""
    if not isinstance(value, Joined):
        return (value,)
    if value.depth >= MOST_DEPTH or len(value.parts) >= MOST_PARTS:
        return (context.builder.strided(value),)
    return value.parts if value.axis == axis else (value,)


@lowers("Split")
def lower_split(context: Context) -> list[Value]:
    """Pieces along an axis, of given or equal sizes."""
    value = context.builder.strided(context.input(0))
    axis = axis_of(context, context.attributes.int("axis", 0), len(value.shape))
    extent = value.shape[axis]
    lengths = [
        context.builder.sizes.defined(length, f"size of piece {number}")
        for number, length in enumerate(_piece_lengths(context, extent))
    ]
    context.builder.require.equal(
        sum(lengths[1:], lengths[0]), extent, "sum of the pieces and the axis"
    )
    pieces: list[Value] = []
    start: Size = 0
    for length in lengths:
        pieces.append(slice_axis(value, axis, start, 1, length))
        start = start + length
    return pieces


def _piece_lengths(context: Context, extent: Size) -> list[Size]:
    outputs = len(context.node.outputs)
    given: list[Size] | None = None
    if context.since < 13:
        sizes = context.attributes.ints("split", None)
        given = None if sizes is None else list(sizes)
    if (context.since == 1 or context.since >= 13) and context.optional(1) is not None:
        given = known_sizes(context, 1, "input 'split'")
    count = context.attributes.int("num_outputs", outputs)
    if count != outputs or (given is not None and len(given) != outputs):
        pieces = count if given is None else len(given)
        raise context.invalid(f"{pieces} pieces for {outputs} outputs")
    if given is not None:
        return given
    even = exact_quotient(extent, count)
    if even is not None:
        return [even] * count
    if context.since < 18:
        # Equal sizes only: the sum of the pieces, which is checked, fails for any other extent.
        return [floordiv(extent, count)] * count
    piece = ceildiv(extent, count)
    return [maximum(minimum(piece, extent - i * piece), 0) for i in range(count)]


@lowers("Slice")
def lower_slice(context: Context) -> Value:
    """Every `step`-th element of some axes, from `start` to before `end`."""
    value = context.input(0)
    if context.builder.guarded and context.since >= 10 and _takes_one(context):
        return _element(context, value)
    starts, ends, axes, steps = _slice_operands(context)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise context.invalid("starts, ends, axes and steps differ in length")
    axes_of(context, axes, len(value.shape))
    result = context.builder.strided(value) if isinstance(value, Joined) else value
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise context.invalid("a step is 0")
        step = max(-FAR, min(step, FAR))
        position = axis_of(context, axis, len(value.shape))
        first, count = slice_bounds(start, end, step, result.shape[position])
        first = context.builder.sizes.defined(
            first, "first element", signed=not is_nonnegative(first)
        )
        count = context.builder.sizes.defined(count, "number of elements")
        if not isinstance(first, int) or not isinstance(count, int):
            result = context.builder.constants.placed(result)
        result = slice_axis(result, position, first, step, count)
    return result


def _takes_one(context: Context) -> bool:
    """Whether the slice is written as `[k : k + 1]` for a `k` that is no size, as in a loop."""
    start, end = context.input(1), context.input(2)
    if start.known is not None or end.known is not None or start.size != 1 or end.size != 1:
        return False
    first, last = (_origin(context.node.inputs[position]) for position in (1, 2))
    node = last.producer()
    if node is None or node.op_type != "Add":
        return False
    if context.optional(4) is not None and known_ints(context, 4, "input 'steps'") != [1]:
        return False
    operands = [_origin(operand) for operand in node.inputs if operand is not None]
    ones = [array for array in map(constant_array, operands) if array is not None]
    return first in operands and len(ones) == 1 and ones[0].size == 1 and ones[0].item() == 1


def _origin(value: ir.Value | None) -> ir.Value:
    """The value before its single element was given other axes."""
    assert value is not None
    node = value.producer()
    while node is not None and facts_of(node.op_type).in_order:
        (value, *_) = node.inputs
        assert value is not None
        node = value.producer()
    return value


def _element(context: Context, value: Value) -> Value:
    """The slice `[k : k + 1]`, in a program for a `k` within the axis."""
    builder = context.builder
    tensor, start = builder.strided(value), builder.strided(context.input(1))
    context.input(2)
    (axis,) = known_ints(context, 3, "input 'axes'") if context.optional(3) is not None else (0,)
    position = axis_of(context, axis, len(tensor.shape))
    extent = tensor.shape[position]
    count = constant(extent, "int64") if isinstance(extent, int) else Extent(extent)

    def inside(k: Expr) -> Expr:
        place = cast(k, "int64")
        return op("and", op("ge", place, constant(0, "int64")), op("lt", place, count))

    within = builder.pointwise(inside, builder.reshaped(start, ()))
    assert within.base is not None
    message = f"node {builder.draft.node!r}: slices that are empty"
    builder.emit.append(Require(within.base.buffer, message, is_guard=True))
    return gather(context, tensor, builder.reshaped(start, (1,)), position)


def _slice_operands(context: Context) -> tuple[list[Size], list[Size], list[int], list[int]]:
    if context.since < 10:
        starts: list[Size] = list(context.attributes.ints("starts"))
        ends: list[Size] = list(context.attributes.ints("ends"))
        axes = list(context.attributes.ints("axes", tuple(range(len(starts)))))
        return starts, ends, axes, [1] * len(axes)
    starts = known_sizes(context, 1, "input 'starts'")
    ends = known_sizes(context, 2, "input 'ends'")
    axes, steps = list(range(len(starts))), [1] * len(starts)
    require_numbers(context, 3, 4, what="which axes or steps are meant")
    if context.optional(3) is not None:
        axes = known_ints(context, 3, "input 'axes'")
    if context.optional(4) is not None:
        steps = known_ints(context, 4, "input 'steps'")
    return starts, ends, axes, steps


def slice_bounds(start: Size, end: Size, step: int, extent: Size) -> tuple[Size, Size]:
    """First element and number of elements of a slice; bounds are clamped as in Slice-13.

    Unlike in NumPy, a slice that falls from before the front begins with the first element.
    """
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    counts_back = isinstance(start, int) and -FAR < start < 0
    if step == 1 and counts_back and isinstance(end, int) and end >= FAR:
        # The last elements, written such that it is plain how many there are at most.
        count = minimum(extent, -start)
        return extent - count, count
    last = _clamped(end, extent, low, high)
    is_within = is_nonnegative(start + 1)
    first = _clamped(start, extent, low if is_within else minimum(0, high), high)
    span = last - first if step > 0 else first - last
    return first, maximum(ceildiv(span, abs(step)), 0)


def _clamped(bound: Size, extent: Size, low: Size, high: Size) -> Size:
    if isinstance(bound, int) and abs(bound) >= FAR:
        return high if bound > 0 else low
    if isinstance(bound, int):
        counted = extent + bound if bound < 0 else bound
    elif is_nonnegative(bound):
        counted = bound
    else:
        # One extent more where the bound is negative: the inner term is -1 there, else 0.
        counted = bound - extent * maximum(minimum(bound, 0), -1)
    return maximum(minimum(counted, high), low)


@lowers("Pad")
def lower_pad(context: Context) -> Value:
    """Elements added or removed at both ends of each axis: a constant, or elements of the value."""
    value = context.input(0)
    rank = len(value.shape)
    mode = context.attributes.string("mode", "constant")
    if mode not in ("constant", *MIRRORS):
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
        value = _extended(context, value, axis, before[axis], after[axis], MIRRORS[mode])
    return value


Ends = Callable[[Tensor, int, Size, Size], tuple[Tensor, Tensor]]


def _reflected(x: Tensor, axis: int, before: Size, after: Size) -> tuple[Tensor, Tensor]:
    """What lies behind a mirror at the first and at the last element."""
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
MIRRORS: dict[str, tuple[Ends, int]] = {
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
    if not (is_nonnegative(before) and is_nonnegative(after)):
        removed = maximum(-before, 0), maximum(-after, 0)
        extent = builder.sizes.defined(
            extent - sum(removed, 0), "elements that negative pads leave"
        )
        tensor = slice_axis(builder.constants.placed(tensor), axis, removed[0], 1, extent)
        before = builder.sizes.defined(maximum(before, 0), "pad")
        after = builder.sizes.defined(maximum(after, 0), "pad")
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
        place = op("mod", op("sub", index, _number(before)), _number(period))
        if is_mirrored:
            back = op("sub", _number(period), place)
            place = op("select", op("lt", place, _number(extent)), place, back)
        access = builder.access(rest, (*axes[:axis], *axes[axis + 1 :]))
        inside = op("lt", place, _number(extent))
        terms = ((place, tensor.strides[axis]),)
        return Load(access, tensor.dtype, inside, constant(0, tensor.dtype), terms)

    return builder.compute(shape, element)


def _number(size: Size) -> Expr:
    return constant(size, "int64") if isinstance(size, int) else Extent(size)


def _fill(context: Context) -> float | Value:
    filler = context.optional(2)
    if filler is None:
        return 0
    if filler.size != 1:
        raise context.invalid(f"input 'constant_value' has the shape {filler.shape}")
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
) -> Tensor:
    """A padded copy; negative amounts remove elements. fill: the element at the added places."""
    builder = context.builder
    extents = [b + n + a for b, n, a in zip(before, tensor.shape, after, strict=True)]
    shape = tuple(
        builder.sizes.defined(n, f"axis {axis} of the padded value")
        for axis, n in enumerate(extents)
    )
    # Extents of 1 keep their axis here: the padded place is known by its index.
    axes = [builder.axis(extent) for extent in shape]
    offset: Size = 0
    for amount, stride in zip(before, tensor.strides, strict=True):
        offset = offset - amount * stride
    shifted = Tensor(tensor.dtype, shape, advance(tensor, offset), tensor.strides)
    inside: Expr | None = None
    for axis_, extent, b, a in zip(axes, tensor.shape, before, after, strict=True):
        for condition in within(Index(axis_), b, extent, a):
            inside = condition if inside is None else op("and", inside, condition)
    is_number = isinstance(fill, (int, float, np.generic))
    other = None if inside is None else constant(fill if is_number else 0, tensor.dtype)
    element: Expr = Load(builder.access(shifted, axes), tensor.dtype, inside, other)
    if inside is not None and isinstance(fill, (Tensor, Joined)):
        single = builder.load(builder.reshaped(fill, ()), ())
        element = op("select", inside, element, single)
    target = builder.empty(tensor.dtype, shape)
    builder.emit.kernel(axes, [Store(builder.access(target, axes), element)])
    return target


def within(index: Expr, before: Size, extent: Size, after: Size) -> list[Expr]:
    """Conditions for `index - before` to lie in 0 .. extent - 1, those that can fail.

    The index is known to lie in 0 .. before + extent + after - 1.
    """
    conditions: list[Expr] = []
    if before != 0:
        conditions.append(op("ge", index, Extent(before)))
    if after != 0:
        conditions.append(op("lt", index, Extent(before + extent)))
    return conditions
