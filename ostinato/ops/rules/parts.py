"""Ops that take parts of values or put values together: Concat, Split, Slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.graph.facts import facts_of
from ostinato.model.values import constant_array, constant_tensor
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.known_sizes import known_ints, known_sizes, require_numbers
from ostinato.ops.core.literals import in_range
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import (
    Joined,
    Value,
    can_be_known,
    side_by_side,
    slice_axis,
    static_shape,
)
from ostinato.ops.rules.gather import gather
from ostinato.ops.rules.views import axes_of, axis_of
from ostinato.program.expr import cast
from ostinato.program.nodes import Require
from ostinato.sizes.conditions import choose, is_less
from ostinato.sizes.dims import (
    Dim,
    Size,
    ceildiv,
    computed,
    exact_quotient,
    floordiv,
    is_nonnegative,
    maximum,
    minimum,
)

if TYPE_CHECKING:
    import onnx_ir as ir

# Bounds and steps beyond this are "as far as there is"; no axis is as long.
_FAR = 2**40
# "INT_MAX" and "INT_MIN", which the document recommends for ends of an axis of unknown size.
_UNBOUNDED = {2**31 - 1: 2**63 - 1, -(2**31): -(2**63)}
# A joined value of more parts, or of parts joined of parts more often, is joined further only in
# memory: models concatenate in long chains, and what walks over parts calls itself for each depth.
# Chains of 8 to 400 take the same time with 64 parts or more, and with any depth.
_MOST_PARTS = 256
_MOST_DEPTH = 8


@lowers("Concat")
def lower_concat(context: Context) -> Value:
    """Values one after the other along an axis; what a state of a loop grows by, beside it."""
    values, axis = context.all_inputs(), context.attributes.int("axis", 1)
    appending = context.builder.appending.get(context.node.outputs[0].name or "")
    if appending is not None and len(values) > 1:
        place = len(values) - 1 if appending.in_front else 0
        given, others = values[place], [*values[:place], *values[place + 1 :]]
        longer = appending.append(
            given, axis_of(context, axis, len(given.shape)), concatenated(context, others, axis)
        )
        if longer is not None:
            return longer
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
    if len(present) == 1:
        return present[0]
    return side_by_side(present, axis) or Joined(first.dtype, shape, axis, present)


def _widest(arrays: Sequence[np.ndarray]) -> np.dtype[Any]:
    """The type of these arrays joined: sizes, where some are."""
    return next((array.dtype for array in arrays if array.dtype.kind == "O"), arrays[0].dtype)


def _parts(context: Context, value: Value, axis: int) -> Sequence[Value]:
    """List the parts of a value along this axis; one with many parts becomes one tensor."""
    if not isinstance(value, Joined):
        return (value,)
    if value.depth >= _MOST_DEPTH or len(value.parts) >= _MOST_PARTS:
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
        counts = ", ".join(str(len(given)) for given in (starts, ends, axes, steps))
        raise context.invalid(
            f"starts, ends, axes and steps have {counts} elements, expected as many of each"
        )
    axes_of(context, axes, len(value.shape))
    result = value
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        position = axis_of(context, axis, len(value.shape))
        start, end = (_UNBOUNDED.get(n, n) if isinstance(n, int) else n for n in (start, end))
        context.builder.require.nonzero(step, "a step is 0")
        step = maximum(minimum(step, _FAR), -_FAR)
        if not isinstance(step, int):
            signed = not is_nonnegative(step)
            step = context.builder.sizes.defined(step, "step", signed=signed)
        first, count = _bounds(context, start, end, step, result.shape[position])
        result = _sliced(context.builder, result, position, first, step, count)
    return result


def _sliced(
    builder: Builder, value: Value, axis: int, first: Size, step: Size, count: Size
) -> Value:
    """This many elements of an axis; parts along another one stay parts.

    A stream has the elements that it needs without a slice: a product of the parts must have the
    same bits with one.
    """
    if isinstance(value, Joined) and value.axis != axis:
        parts = [_sliced(builder, part, axis, first, step, count) for part in value.parts]
        shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
        return replace(value, shape=shape, parts=tuple(parts))
    tensor = builder.strided(value) if isinstance(value, Joined) else value
    if not isinstance(first, int) or not isinstance(count, int):
        tensor = builder.constants.placed(tensor)
    return slice_axis(tensor, axis, first, step, count)


def _bounds(
    context: Context, start: Size, end: Size, step: Size, extent: Size
) -> tuple[Size, Size]:
    """The first element of a slice and how many there are, as sizes to lay out memory by."""
    sizes = context.builder.sizes
    first: Size
    count: Size
    if step == 1 and _is_of_table(context, start, end, extent):
        return start, end - start
    if step == 1 and end - start == 1 and _guarded_inside(context, start, extent):
        first, count = start, 1
    elif step == 1 and isinstance(end, int) and end >= _FAR and _counts_back(context, start):
        first, count = _last(start, extent)
    elif isinstance(step, int):
        first, count = slice_bounds(start, end, step, extent)
    else:
        first, count = _bounds_by_steps(start, end, step, extent)
    first, count = sizes.decided(first), sizes.decided(count)
    first = sizes.defined(first, "first element", signed=not is_nonnegative(first))
    bound = None if isinstance(step, int) else extent
    return first, sizes.defined(count, "number of elements", bound=bound)


def _guarded_inside(context: Context, start: Size, extent: Size) -> bool:
    """Whether the program is now for an element within its axis, where sizes tell its place."""
    builder = context.builder
    if not builder.guarded or isinstance(start, int) or computed(start) or computed(extent):
        return False
    inside = is_less(-1, start) * is_less(start, extent)
    if inside == 0:
        return False
    if inside != 1:
        builder.require.guard(inside, "slices that are empty")
    return True


def _counts_back(context: Context, start: Size) -> bool:
    """Whether the program is now for a start before the end of the axis, as of `x[-n:]`."""
    builder = context.builder
    if isinstance(start, int) or computed(start) or not is_nonnegative(-start):
        return False
    if not is_nonnegative(-start - 1):
        if not builder.guarded:
            return False
        builder.require.guard(is_less(start, 0), "slices that begin at -0")
    return True


def _is_of_table(context: Context, start: Size, end: Size, extent: Size) -> bool:
    """Whether the program is now for rows that a constant has, where only a run tells which.

    Masks and positions are tables for the longest sequence, of which steps take `[past : all]`.
    """
    builder, source = context.builder, context.node.inputs[0]
    while source is not None and (node := source.producer()) is not None:
        source = node.inputs[0] if node.op_type == "Slice" else None
    if constant_tensor(source) is None or not isinstance(extent, int):
        return False
    if not builder.guarded or not computed(end):
        return False
    if not is_nonnegative(start) or not is_nonnegative(end - start):
        return False
    builder.require.guard_now(extent - end, "slices that end behind the axis")
    return True


def _last(start: Size, extent: Size) -> tuple[Size, Size]:
    """The bounds of the last `-start` elements: it is plain how many there are at most."""
    count = minimum(extent, -start)
    return extent - count, count


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
    within = builder.pointwise(
        lambda place: in_range(cast(place, "int64"), extent), builder.reshaped(start, ())
    )
    message = f"{builder.draft.where}: slices that are empty"
    builder.emit.append(Require(within.buffer, message, is_guard=True))
    return gather(context, tensor, builder.reshaped(start, (1,)), position)


def _slice_operands(context: Context) -> tuple[list[Size], list[Size], list[int], list[Size]]:
    if context.since < 10:
        starts: list[Size] = list(context.attributes.ints("starts"))
        ends: list[Size] = list(context.attributes.ints("ends"))
        axes = list(context.attributes.ints("axes", tuple(range(len(starts)))))
        ones: list[Size] = [1] * len(axes)
        return starts, ends, axes, ones
    starts = known_sizes(context, 1, "input 'starts'")
    ends = known_sizes(context, 2, "input 'ends'")
    axes = list(range(len(starts)))
    steps: list[Size] = [1] * len(starts)
    # Outside of loops a program for the steps of a call finds neighbours, where they are 1: those
    # that inputs tell mostly are. Steps of a size are taken to be what a layout asks for.
    is_open = context.builder.emit.is_inside or _steps_by_sizes(context)
    require_numbers(context, 3, *(() if is_open else (4,)), what="which axes or steps are meant")
    if context.optional(3) is not None:
        axes = known_ints(context, 3, "input 'axes'")
    if context.optional(4) is not None:
        steps = known_sizes(context, 4, "input 'steps'")
    return starts, ends, axes, steps


def _steps_by_sizes(context: Context) -> bool:
    """Whether the steps follow from dimensions alone, as in `x[n - 1 :: n]` for `n` blocks."""
    steps = context.optional(4)
    if steps is None or steps.known is None:
        return False
    return all(
        is_nonnegative(n) and not computed(n) for n in steps.known.flat if isinstance(n, Dim)
    )


def slice_bounds(start: Size, end: Size, step: int, extent: Size) -> tuple[Size, Size]:
    """First element and number of elements of a slice; bounds are clamped as in Slice-13.

    Unlike in NumPy, a slice that falls from before the front begins with the first element.
    """
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    counts_back = isinstance(start, int) and -_FAR < start < 0
    if step == 1 and counts_back and isinstance(end, int) and end >= _FAR:
        return _last(start, extent)
    last = _clamped(end, extent, low, high)
    is_within = is_nonnegative(start + 1)
    first = _clamped(start, extent, low if is_within else minimum(0, high), high)
    span = last - first if step > 0 else first - last
    if step > 0 and isinstance(start, int) and isinstance(end, int):
        span = _span(start, end, extent, span)
    return first, maximum(ceildiv(span, abs(step)), 0)


def _span(start: int, end: int, extent: Size, otherwise: Size) -> Size:
    """The length between two bounds, in a form whose largest value is found (`largest`).

    otherwise: the length, for bounds that do not count from the same end of an open extent.
    """
    is_mixed = (start < 0) != (end < 0)
    if isinstance(extent, int) or is_mixed or not -_FAR < start < end < _FAR:
        return otherwise
    behind = extent + min(end, 0) if start < 0 else extent - start
    return minimum(maximum(behind, 0), end - start)


def _bounds_by_steps(start: Size, end: Size, step: Size, extent: Size) -> tuple[Size, Size]:
    """As `slice_bounds`, where a run tells the step and its sign."""
    forward = is_less(0, step)
    low, high = forward - 1, extent - 1 + forward
    last = _clamped(end, extent, low, high)
    first = _clamped(start, extent, minimum(0, high), high)
    span = choose(forward, last - first, first - last)
    apart = maximum(maximum(step, -step), 1)
    return first, maximum(floordiv(span + apart - 1, apart), 0)


def _clamped(bound: Size, extent: Size, low: Size, high: Size) -> Size:
    if isinstance(bound, int) and abs(bound) >= _FAR:
        return high if bound > 0 else low
    if isinstance(bound, int):
        counted = extent + bound if bound < 0 else bound
    elif is_nonnegative(bound):
        counted = bound
    else:
        # One extent more where the bound is negative: the inner term is -1 there, else 0.
        counted = bound - extent * maximum(minimum(bound, 0), -1)
    return maximum(minimum(counted, high), low)
