"""Gradients of operators that move elements to other places, repeat them or leave some out."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates
from ostinato.autodiff.unbroadcast import sum_repeats
from ostinato.graph.writer import Array, Operand

# Other axes


@differentiates("Reshape", "Flatten")
def _reshape(context: Context) -> None:
    """The gradient with the shape of the input."""
    context.attributes.int("allowzero" if context.op_type == "Reshape" else "axis", 0)
    own = context.node.outputs[0]
    context.give(0, _reshape_as(context, context.gradient(), own, context.given(0)))


def _reshape_as(context: Context, x: Term, own: ir.Value, wanted: ir.Value) -> Term:
    """`x`, which has the shape of `own`, with the shape of `wanted`: values of the node.

    `wanted` is only read where its sizes do not follow from those of `x`.
    """
    before, after = context.dims(own), context.dims(wanted)
    if before == after and None not in after:
        return x
    target = [
        size if isinstance(size, int) else 0 if size and size in before[i : i + 1] else -1
        for i, size in enumerate(after)
    ]
    # The rest (-1) is only defined beside sizes that are not 0.
    if 0 in after or (-1 in target and (target.count(-1) > 1 or 0 in target)):
        return x.reshape(context.sizes(wanted))
    return x.op("Reshape", np.array(target, np.int64))


@differentiates("Identity", "Squeeze", "Transpose", "Unsqueeze")
def _axes(context: Context) -> None:
    """The gradient with its axes put back."""
    row, given, own = context.row(), context.gradient(), context.node.outputs[0]
    if row is None:
        context.give(0, _reshape_as(context, given, own, context.given(0)))
        return
    places = [place for place in row if isinstance(place, int)]
    new = set(range(context.rank(own))).difference(places)
    order = np.argsort(np.argsort(places)).tolist()
    given = given.squeeze(sorted(new)).transpose(order)
    context.give(0, given.unsqueeze(context.mixed()))


@differentiates("DepthToSpace", "SpaceToDepth")
def _blocks(context: Context) -> None:
    """Each is the inverse of the other; channels in another order are put into it."""
    block = context.attributes.int("blocksize")
    mode = context.attributes.string("mode", "DCR")
    given = context.gradient()
    if context.op_type == "SpaceToDepth":
        context.give(0, given.op("DepthToSpace", blocksize=block, mode=mode))
        return
    image = given.op("SpaceToDepth", blocksize=block)
    if mode == "CRD":
        channels = context.dims(context.given(0))[1]
        if not isinstance(channels, int):
            raise context.refuse("has no gradient for channels of a run-time size")
        order = np.arange(channels).reshape(block * block, -1).T.reshape(-1)
        image = image.op("Gather", order, axis=1)
    context.give(0, image)


@differentiates("ReverseSequence")
def _reverse_sequence(context: Context) -> None:
    """Reverse the gradient again."""
    defaults = {"batch_axis": 1, "time_axis": 0}
    axes = {name: context.attributes.int(name, default) for name, default in defaults.items()}
    context.give(0, context.gradient().op("ReverseSequence", context.input(1), **axes))


@differentiates("Trilu")
def _trilu(context: Context) -> None:
    """The same triangle of the gradient."""
    upper = context.attributes.int("upper", 1)
    diagonal = [context.input(1)] if context.has(1) else []
    context.give(0, context.gradient().op("Trilu", *diagonal, upper=upper))


@differentiates("EyeLike", "RandomNormalLike", "RandomUniformLike")
def _constant(context: Context) -> None:
    """Give zeros: the result depends on the shape alone."""
    context.attributes.int("dtype", 0)
    context.attributes.int("k", 0)
    for name in ("mean", "scale", "low", "high", "seed"):
        context.attributes.float(name, 0.0)


# Joining and parting


@differentiates("Concat")
def _concat(context: Context) -> None:
    """Pieces of the gradient."""
    axis = context.axis()
    inputs = [context.given(i) for i in range(len(context.node.inputs))]
    if len(inputs) == 1:
        context.give(0, context.gradient())
        return
    sizes = context.writer.concat([context.size(value, axis) for value in inputs], 0, "sizes")
    roles = [f"piece_{i}" for i in range(len(inputs))]
    operands = [context.gradient().value, sizes]
    pieces = context.writer.ops("Split", operands, roles, {"axis": axis})
    for index, piece in enumerate(pieces):
        context.give(index, Term(context.ops, piece))


@differentiates("Split")
def _split(context: Context) -> None:
    """Each piece of the gradient is that of an output; of sizes known at run time all at once."""
    axis, outputs = context.axis(0), context.node.outputs
    context.attributes.int("num_outputs", 0)
    sizes = [context.dims(value)[axis] for value in outputs]
    known = [size for size in sizes if isinstance(size, int)]
    whole = context.dims(context.given(0))[axis]
    if len(known) < len(outputs) or whole != sum(known):
        pieces = [context.gradient(i) for i in range(len(outputs))]
        context.give(0, pieces[0].op("Concat", *pieces[1:], axis=axis))
        return
    starts = accumulate(known, initial=0)
    for index, (start, size) in enumerate(zip(starts, known, strict=False)):
        if context.has_gradient(index):
            context.give_part(0, context.gradient(index), axis, start, size)


# Leaving elements out


@differentiates("Slice")
def _slice(context: Context) -> None:
    """Zeros around and between the elements that were taken."""
    axes, steps = _slice_axes(context)
    result, given = context.node.outputs[0], context.given(0)
    counts, extents = _sizes_along(context, result, axes), _sizes_along(context, given, axes)
    low = _lowest(context, steps, counts, extents)
    taken = context.ops.integers("Mul", counts, abs(steps))
    after = context.ops.integers("Sub", context.ops.integers("Sub", extents, low), taken)
    part = _spread(context, context.gradient(), axes, steps)
    if isinstance(low, ir.Value) or isinstance(after, ir.Value):
        context.give(0, padded(context, part, low, after, axes))
        return
    # Along one axis the zeros are left to what sums parts; what lies beyond the end is cut off.
    before, behind = low.copy(), after.copy()
    before[:1], behind[:1] = 0, behind[:1].clip(max=0)
    part = padded(context, part, before, behind, axes)
    if len(axes):
        size = int(np.asarray(taken)[0] + behind[0])
        context.give_part(0, part, int(axes[0]), int(low[0]), size)
    else:
        context.give(0, part)


def _slice_axes(context: Context) -> tuple[Array, Array]:
    """The axes that a Slice names and its steps along them."""
    axes, steps = context.constant(3), context.constant(4)
    if (context.has(3) and axes is None) or (context.has(4) and steps is None):
        raise context.refuse("has no gradient for axes or steps that are known at run time only")
    if axes is None:
        (count,) = context.dims(context.given(1))
        if not isinstance(count, int):
            raise context.refuse("has no gradient for an unknown number of axes")
        axes = np.arange(count)
    axes = axes.astype(np.int64) % max(context.rank(context.given(0)), 1)
    return axes, np.ones(len(axes), np.int64) if steps is None else steps.astype(np.int64)


def _sizes_along(context: Context, value: ir.Value, axes: Array) -> Operand:
    sizes = [context.size(value, axis) for axis in axes.tolist()]
    return context.writer.concat(sizes, 0, "sizes") if sizes else np.zeros(0, np.int64)


def _lowest(context: Context, steps: Array, counts: Operand, extents: Operand) -> Operand:
    """The first place in memory of the elements that a Slice takes, clamped as it clamps."""
    known = context.constant(1)
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    starts: Operand
    counted: Operand
    if known is None:
        index = ir.DataType.INT64
        begun = context.input(1).cast(index)
        starts, counted = begun.value, (begun < zero).cast(index).value
    else:
        starts, counted = known.astype(np.int64), (known < 0).astype(np.int64)
    backward = (steps < 0).astype(np.int64)
    first = context.ops.integers("Add", starts, context.ops.integers("Mul", counted, extents))
    first = context.ops.integers("Max", first, zero)
    first = context.ops.integers("Min", first, context.ops.integers("Sub", extents, backward))
    moves = context.ops.integers("Max", context.ops.integers("Sub", counts, one), zero)
    back = context.ops.integers("Mul", moves, backward * abs(steps))
    return context.ops.integers("Max", context.ops.integers("Sub", first, back), zero)


def _spread(context: Context, x: Term, axes: Array, steps: Array) -> Term:
    """Put the slice in the order of memory, with `step - 1` zeros behind each element."""
    back = axes[steps < 0]
    if back.size:
        x = x.reversed(back.tolist())
    factors = np.ones(context.rank(context.node.outputs[0]), np.int64)
    factors[axes] = abs(steps)
    wide = np.flatnonzero(factors > 1)
    if not wide.size:
        return x
    new = wide + 1 + np.arange(wide.size)
    x = x.unsqueeze(new.tolist())
    x = padded(context, x, np.zeros(wide.size, np.int64), factors[wide] - 1, new)
    return x.reshape(context.ops.integers("Mul", context.sizes(context.node.outputs[0]), factors))


def padded(context: Context, x: Term, before: Operand, after: Operand, axes: Array) -> Term:
    """`x` with so many zeros added at both ends of these axes, elements removed for less than 0."""
    pads = context.writer.concat([before, after], 0, "pads")
    if not isinstance(pads, ir.Value) and not pads.any():
        return x
    return x.op("Pad", pads, 0.0, axes)


@differentiates("Pad")
def _pad(context: Context) -> None:
    """The gradient without its ends, to which those that copies of elements got are added."""
    mode = context.attributes.string("mode", "constant")
    given, rank = context.gradient(), context.rank(context.given(0))
    axes = np.arange(rank)
    if context.has(3):
        named = context.constant(3)
        if named is None:
            raise context.refuse("has no gradient for axes that are known at run time only")
        axes = named.astype(np.int64) % max(rank, 1)
    pads = context.constant(1)
    if mode != "constant":
        if pads is None or (pads < 0).any():
            raise context.refuse(f"has no gradient for pads of mode {mode!r} below 0 or unknown")
        for axis, before, after in zip(axes.tolist(), *pads.reshape(2, -1).tolist(), strict=True):
            given = _folded(context, given, axis, before, after, mode)
        context.give(0, given)
        return
    kept = _without_ends(context, given, pads, axes)
    context.give(0, kept)
    if context.wants(2):
        everything, own = (x.op("ReduceSum", role="sum", keepdims=0) for x in (given, kept))
        context.give(
            2,
            (everything - own).reshape(context.sizes(context.given(2))),
        )


def _without_ends(context: Context, x: Term, pads: Array | None, axes: Array) -> Term:
    """`x` without what Pad added, and with zeros for what it removed."""
    if pads is None:
        removed = context.ops.index("Neg", context.input(1))
        return x.op("Pad", removed, 0.0, axes)
    before, after = pads.reshape(2, -1)
    if (pads < 0).any():
        return padded(context, x, -before, -after, axes)
    chosen = (before > 0) | (after > 0)
    if not chosen.any():
        return x
    ends = np.where(after > 0, -after, np.iinfo(np.int64).max)
    return x.op("Slice", before[chosen], ends[chosen], axes[chosen])


def _folded(context: Context, x: Term, axis: int, before: int, after: int, mode: str) -> Term:
    """The gradient of a value that was continued by its own elements along one axis."""
    if before == after == 0:
        return x
    size = context.size(context.given(0), axis)
    where = np.array([axis], np.int64)
    total = _without_ends(context, x, np.array([before, after], np.int64), where)

    def piece(first: int, end: int) -> Term:
        return x.op("Slice", *(np.array([n], np.int64) for n in (first, end)), where)

    for amount, is_first in ((before, True), (after, False)):
        if not amount:
            continue
        end = piece(0, amount) if is_first else piece(-amount, np.iinfo(np.int64).max)
        if mode == "edge":
            end, amount = end.sum([axis]), 1
        elif mode == "reflect":
            end = end.reversed([axis])
        margin = np.array([1 if mode == "reflect" else 0], np.int64)
        rest = _at_least_zero(context, context.ops.integers("Sub", size, margin + amount))
        # Behind the last element a wrapped value begins again.
        at_start = is_first != (mode == "wrap")
        lead, trail = (margin, rest) if at_start else (rest, margin)
        total = total + padded(context, end, lead, trail, where)
    return total


def _at_least_zero(context: Context, rest: Operand) -> Operand:
    """Count the elements left; a negative number is refused, here or by a run."""
    if isinstance(rest, ir.Value):
        # There is no value of a negative shape.
        nothing = context.ops.op("ConstantOfShape", [rest], "pads_repeat_elements_once")
        return context.ops.shape(nothing)
    if rest.min() < 0:
        raise context.refuse("has no gradient for pads that repeat elements more than once")
    return rest


@differentiates("CenterCropPad")
def _center_crop_pad(context: Context) -> None:
    """Pad the gradient where the operator cropped, crop it where it padded, about the middle."""
    axes = context.attributes.ints("axes", None)
    sizes, chosen = context.sizes(context.given(0)), dict[str, Any]()
    if axes is not None:
        rank = context.rank(context.given(0))
        sizes = context.writer.take(sizes, [axis % rank for axis in axes], 0, "sizes")
        chosen = {"axes": list(axes)}
    context.give(0, context.gradient().op("CenterCropPad", sizes, **chosen))


# Repeating


@differentiates("Expand")
def _expand(context: Context) -> None:
    """The sum over copies."""
    context.give_broadcast(0, context.gradient())


@differentiates("Tile")
def _tile(context: Context) -> None:
    """The sum over copies."""
    repeats = context.constant(1)
    times = context.input(1).value if repeats is None else repeats
    given = context.given(0)
    sizes, rank = context.sizes(given), context.rank(given)
    context.give(0, sum_repeats(context.gradient(), rank, times, sizes))
