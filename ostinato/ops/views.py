"""Ops that only look at memory in another way. They make views; a copy only where strides cannot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.ops.gather import gather
from ostinato.ops.registry import Context, lowers
from ostinato.ops.sizes import known_ints, known_sizes
from ostinato.ops.tensor import (
    Joined,
    Shape,
    Tensor,
    Value,
    drop_ones,
    insert_ones,
    reshape_view,
    slice_axis,
    transpose,
)
from ostinato.program.dims import Size, ceildiv, exact_quotient, floordiv, maximum, minimum, product
from ostinato.program.expr import DTYPES, Const, Expr, Index, Load, constant, op


def axis_of(context: Context, axis: int, rank: int) -> int:
    """A possibly negative axis as a position in 0 .. rank - 1."""
    if not -rank <= axis < rank:
        raise context.refuse(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(context: Context, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Possibly negative axes as sorted distinct positions."""
    positions = sorted(axis_of(context, axis, rank) for axis in axes)
    if len(set(positions)) != len(positions):
        raise context.refuse(f"axes {list(axes)} name an axis twice")
    return tuple(positions)


def optional_axes(context: Context, position: int, from_opset: int) -> list[int] | None:
    """Axes from the attribute, or from opset `from_opset` on from an input; None when left out."""
    if context.since < from_opset:
        axes = context.attributes.ints("axes", None)
        return None if axes is None else list(axes)
    if context.optional(position) is None:
        return None
    return known_ints(context, position, "input 'axes'")


def native(context: Context, value: Value) -> Value:
    """The value, refused unless its type has a native form."""
    if value.dtype not in DTYPES:
        raise context.refuse(f"type {value.dtype} has no native form")
    return value


@lowers("Identity", "Dropout")
def lower_identity(context: Context) -> Value | list[Value]:
    """The value itself; dropout does nothing at inference."""
    if context.node.op_type == "Dropout":
        context.attributes.float("ratio", 0.5)
        context.attributes.int("seed", 0)
        context.attributes.ints("consumed_inputs", ())
        training = context.optional(2)
        if context.attributes.int("is_test", 1) == 0 or training is not None:
            known = None if training is None else training.known
            if known is None or bool(known.reshape(-1)[0]):
                raise context.refuse("training mode has no native form")
        if len(context.node.outputs) > 1:
            raise context.refuse("output 'mask' has no native form")
    context.attributes.finish()
    return context.input(0)


@lowers("Transpose")
def lower_transpose(context: Context) -> Value:
    """Axes in another order; reversed by default."""
    value = native(context, context.input(0))
    rank = len(value.shape)
    order = context.attributes.ints("perm", tuple(reversed(range(rank))))
    context.attributes.finish()
    if sorted(order) != list(range(rank)):
        raise context.refuse(f"attribute 'perm' {list(order)} does not order {rank} axes")
    return transpose(value, order)


@lowers("Unsqueeze")
def lower_unsqueeze(context: Context) -> Value:
    """Insert axes of extent 1."""
    value = native(context, context.input(0))
    axes = optional_axes(context, 1, 13)
    context.attributes.finish()
    if axes is None:
        raise context.refuse("'axes' is required")
    return insert_ones(value, axes_of(context, axes, len(value.shape) + len(axes)))


@lowers("Squeeze")
def lower_squeeze(context: Context) -> Value:
    """Remove axes of extent 1: those named, or all of them."""
    value = native(context, context.input(0))
    axes = optional_axes(context, 1, 13)
    context.attributes.finish()
    if axes is None:
        if not all(isinstance(n, int) for n in value.shape):
            raise context.refuse("without 'axes' every dimension must be known while compiling")
        axes = [i for i, n in enumerate(value.shape) if n == 1]
    positions = axes_of(context, axes, len(value.shape))
    for axis in positions:
        context.builder.require_equal(value.shape[axis], 1, f"axis {axis} to squeeze")
    dropped = drop_ones(value, positions)
    if dropped is None:
        dropped = drop_ones(context.builder.strided(value), positions)
    assert dropped is not None
    return dropped


def reshape(context: Context, value: Value, shape: Shape) -> Value:
    """The value with another shape of the same size: a view, or a copy where that is impossible."""
    context.builder.require_equal(value.size, product(shape), "number of elements")
    if isinstance(value, Joined):
        value = context.builder.strided(value)
    view = reshape_view(value, shape)
    if view is not None:
        return view
    copied = context.builder.empty(value.dtype, value.shape)
    context.builder.copy(value, copied)
    view = reshape_view(copied, shape)
    if view is None:
        raise context.refuse(f"from {value.shape} to {shape} has no native form")
    return view


@lowers("Reshape")
def lower_reshape(context: Context) -> Value:
    """Another shape; 0 keeps a dimension (without allowzero), -1 is what is left."""
    value = native(context, context.input(0))
    allow_zero = context.attributes.int("allowzero", 0)
    if context.since < 5:
        target: list[Size] = list(context.attributes.ints("shape"))
        context.attributes.ints("consumed_inputs", ())
    else:
        target = known_sizes(context, 1, "input 'shape'")
    context.attributes.finish()
    if not allow_zero:
        if any(n == 0 for n in target[len(value.shape) :]):
            raise context.refuse(f"shape {target} keeps a dimension that the input does not have")
        target = [value.shape[i] if n == 0 else n for i, n in enumerate(target)]
    if target.count(-1) > 1:
        raise context.refuse(f"shape {target} has more than one -1")
    if -1 in target:
        rest = product([n for n in target if n != -1])
        if rest == 0:
            raise context.refuse(f"shape {target}: -1 cannot be found beside a 0")
        target[target.index(-1)] = floordiv(value.size, rest)
    return reshape(context, value, tuple(target))


@lowers("Flatten")
def lower_flatten(context: Context) -> Value:
    """Two axes: everything before `axis`, and the rest."""
    value = native(context, context.input(0))
    rank = len(value.shape)
    axis = context.attributes.int("axis", 1)
    context.attributes.finish()
    if not -rank <= axis <= rank:
        raise context.refuse(f"axis {axis} is out of range for rank {rank}")
    axis = axis + rank if axis < 0 else axis
    return reshape(context, value, (product(value.shape[:axis]), product(value.shape[axis:])))


@lowers("Expand")
def lower_expand(context: Context) -> Value:
    """Broadcast to a shape that is known while compiling."""
    value = native(context, context.input(0))
    target = tuple(known_sizes(context, 1, "input 'shape'"))
    context.attributes.finish()
    return context.builder.expanded(value, target)


@lowers("Concat")
def lower_concat(context: Context) -> Value:
    """Values one after the other along an axis."""
    values = [native(context, context.input(i)) for i in range(len(context.inputs))]
    rank = len(values[0].shape)
    axis = axis_of(context, context.attributes.int("axis", 1), rank)
    context.attributes.finish()
    for value in values[1:]:
        if len(value.shape) != rank or value.dtype != values[0].dtype:
            raise context.refuse("inputs differ in rank or type")
        for i in range(rank):
            if i != axis:
                context.builder.require_equal(
                    value.shape[i], values[0].shape[i], f"axis {i} of operands to concatenate"
                )
    known = [value.known for value in values]
    extent: Size = sum((v.shape[axis] for v in values[1:]), values[0].shape[axis])
    shape = (*values[0].shape[:axis], extent, *values[0].shape[axis + 1 :])
    arrays = [k for k in known if k is not None]
    if len(arrays) == len(known):
        return Tensor(values[0].dtype, shape, None, (), np.concatenate(arrays, axis))
    present = tuple(value for value in values if value.shape[axis] != 0)
    if len(present) == 1:
        return present[0]
    return Joined(values[0].dtype, shape, axis, present)


@lowers("Split")
def lower_split(context: Context) -> list[Value]:
    """Pieces along an axis, of given or equal sizes."""
    value = context.builder.strided(native(context, context.input(0)))
    axis = axis_of(context, context.attributes.int("axis", 0), len(value.shape))
    outputs = len(context.node.outputs)
    extent = value.shape[axis]
    if context.since < 13:
        sizes = context.attributes.ints("split", None)
        lengths: list[Size] | None = None if sizes is None else list(sizes)
    elif context.optional(1) is not None:
        lengths = known_sizes(context, 1, "input 'split'")
    else:
        lengths = None
    count = context.attributes.int("num_outputs", outputs)
    context.attributes.finish()
    if lengths is None:
        even = exact_quotient(extent, count)
        if even is not None:
            lengths = [even] * count
        elif isinstance(extent, int):
            chunk = -(-extent // count)
            lengths = [min(chunk, extent - i * chunk) for i in range(count)]
        else:
            raise context.refuse(f"{extent} elements in {count} pieces has no native form")
    if len(lengths) != outputs:
        raise context.refuse(f"{len(lengths)} pieces for {outputs} outputs")
    context.builder.require_equal(
        sum(lengths[1:], lengths[0]), extent, "sum of the pieces and the axis"
    )
    pieces: list[Value] = []
    start: Size = 0
    for length in lengths:
        pieces.append(slice_axis(value, axis, start, 1, length))
        start = start + length
    return pieces


@lowers("Slice")
def lower_slice(context: Context) -> Value:
    """Every `step`-th element of some axes, from `start` to before `end`, as in NumPy."""
    value = native(context, context.input(0))
    rank = len(value.shape)
    if context.since < 10:
        starts: list[Size] = list(context.attributes.ints("starts"))
        ends: list[Size] = list(context.attributes.ints("ends"))
        axes = list(context.attributes.ints("axes", tuple(range(len(starts)))))
        steps = [1] * len(starts)
    else:
        starts = known_sizes(context, 1, "input 'starts'")
        ends = known_sizes(context, 2, "input 'ends'")
        given = context.optional(3) is not None
        axes = known_ints(context, 3, "input 'axes'") if given else list(range(len(starts)))
        given = context.optional(4) is not None
        steps = known_ints(context, 4, "input 'steps'") if given else [1] * len(starts)
    context.attributes.finish()
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise context.refuse("starts, ends, axes and steps differ in length")
    result = context.builder.strided(value) if isinstance(value, Joined) else value
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise context.refuse("step 0 never ends")
        position = axis_of(context, axis, rank)
        first, count = slice_bounds(start, end, step, result.shape[position])
        if isinstance(result.known, np.ndarray) and not isinstance(first, int):
            result = context.builder.placed(result)
        result = slice_axis(result, position, first, step, count)
    return result


def slice_bounds(start: Size, end: Size, step: int, extent: Size) -> tuple[Size, Size]:
    """First element and number of elements of a slice, by NumPy's rules."""

    def clamp(bound: Size, low: int, high: Size) -> Size:
        if isinstance(bound, int):
            if bound < 0:
                shifted = extent + bound
                return low if isinstance(shifted, int) and shifted < low else maximum(shifted, low)
            return minimum(bound, high) if bound < 2**31 - 1 else high
        return maximum(low, minimum(bound, high))

    if step > 0:
        first, last = clamp(start, 0, extent), clamp(end, 0, extent)
        return first, maximum(0, ceildiv(last - first, step))
    first, last = clamp(start, -1, extent - 1), clamp(end, -1, extent - 1)
    return first, maximum(0, ceildiv(first - last, -step))


@lowers("Gather")
def lower_gather(context: Context) -> Value:
    """Elements of an axis by index: a view where the indices are known and evenly spaced."""
    value = native(context, context.input(0))
    rank = len(value.shape)
    axis = axis_of(context, context.attributes.int("axis", 0), rank)
    context.attributes.finish()
    indices = context.input(1)
    if indices.known is None:
        return gather(context, context.builder.strided(value), indices, axis)
    numbers = known_ints(context, 1, "input 'indices'")
    extent = value.shape[axis]
    if isinstance(extent, int):
        for number in numbers:
            if not -extent <= number < extent:
                raise context.refuse(f"index {number} is out of range for {extent} elements")
        numbers = [number % extent for number in numbers]
    elif any(number < 0 for number in numbers) and len(set(numbers)) > 1:
        raise context.refuse("negative indices into a run-time dimension have no native form")
    else:
        needed = max((n + 1 if n >= 0 else -n for n in numbers), default=0)
        context.builder.require_nonnegative(extent - needed, f"axis {axis} minus the index needed")
    tensor = context.builder.strided(value) if isinstance(value, Joined) else value
    rows = _gather_rows(context, tensor, axis, numbers)
    shape = (*tensor.shape[:axis], *indices.shape, *tensor.shape[axis + 1 :])
    return reshape(context, rows, shape)


def _gather_rows(context: Context, tensor: Tensor, axis: int, numbers: list[int]) -> Value:
    steps = {b - a for a, b in zip(numbers, numbers[1:])}
    if len(numbers) <= 1 or (len(steps) == 1 and 0 not in steps):
        first: Size = numbers[0] if numbers else 0
        if isinstance(first, int) and first < 0:
            first = tensor.shape[axis] + first
        return slice_axis(tensor, axis, first, steps.pop() if steps else 1, len(numbers))
    parts = tuple(slice_axis(tensor, axis, number, 1, 1) for number in numbers)
    if tensor.known is not None and all(part.known is not None for part in parts):
        return Tensor(
            tensor.dtype,
            (*tensor.shape[:axis], len(numbers), *tensor.shape[axis + 1 :]),
            None,
            (),
            np.concatenate([part.known for part in parts], axis),  # type: ignore[misc]
        )
    shape = (*tensor.shape[:axis], len(numbers), *tensor.shape[axis + 1 :])
    return Joined(tensor.dtype, shape, axis, parts)


@lowers("Pad")
def lower_pad(context: Context) -> Value:
    """Elements added or removed at both ends of each axis, filled with a constant."""
    value = native(context, context.input(0))
    rank = len(value.shape)
    mode = context.attributes.string("mode", "constant")
    if mode != "constant":
        raise context.refuse(f"mode {mode!r} has no native form")
    fill: float | int = 0
    if context.since < 11:
        pads: list[Size] = list(context.attributes.ints("pads"))
        fill = context.attributes.float("value", 0.0)
    else:
        pads = known_sizes(context, 1, "input 'pads'")
        filler = context.optional(2)
        if filler is not None:
            if filler.known is None:
                raise context.refuse("input 'constant_value' is only known at run time")
            fill = filler.known.reshape(-1)[0]
    axes = (
        known_ints(context, 3, "input 'axes'") if context.optional(3) is not None else range(rank)
    )
    context.attributes.finish()
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for i, axis in enumerate(axes):
        position = axis_of(context, axis, rank)
        before[position], after[position] = pads[i], pads[len(pads) // 2 + i]
    if all(n == 0 for n in (*before, *after)):
        return value
    return pad(context, context.builder.strided(value), before, after, fill)


def pad(
    context: Context,
    tensor: Tensor,
    before: Sequence[Size],
    after: Sequence[Size],
    fill: float | int,
) -> Tensor:
    """A padded copy; negative amounts remove elements."""
    shape = tuple(b + n + a for b, n, a in zip(before, tensor.shape, after, strict=True))
    for axis, extent in enumerate(shape):
        context.builder.require_nonnegative(extent, f"axis {axis} of the padded value")
    target = context.builder.empty(tensor.dtype, shape)
    # Extents of 1 keep their axis here: the padded place is known by its index.
    axes = [context.builder.axis(extent) for extent in shape]
    shifted = Tensor(
        tensor.dtype,
        shape,
        tensor.base and _moved(tensor, before),
        tensor.strides,
    )
    inside: Expr | None = None
    for axis, extent, b, a in zip(axes, tensor.shape, before, after, strict=True):
        for condition in bounds(Index(axis), b, extent, a):
            inside = condition if inside is None else op("and", inside, condition)
    access = context.builder.access(shifted, axes)
    other = constant(fill, tensor.dtype)
    value = Load(access, tensor.dtype, inside, other if inside is not None else None)
    from ostinato.program.nodes import Store

    context.builder.kernel(axes, [Store(context.builder.access(target, axes), value)])
    return target


def _moved(tensor: Tensor, before: Sequence[Size]):  # type: ignore[no-untyped-def]
    from ostinato.ops.tensor import advance

    offset: Size = 0
    for amount, stride in zip(before, tensor.strides, strict=True):
        offset = offset - amount * stride
    return advance(tensor, offset)


def bounds(index: Expr, before: Size, extent: Size, after: Size) -> list[Expr]:
    """Conditions for `index - before` to lie in 0 .. extent - 1, those that can fail."""
    from ostinato.program.expr import Extent

    conditions: list[Expr] = []
    if before != 0:
        conditions.append(op("ge", index, Extent(before)))
    if after != 0:
        conditions.append(op("lt", index, Extent(before + extent)))
    return conditions


__all__ = ["Const", "axes_of", "axis_of", "native", "pad", "reshape"]
