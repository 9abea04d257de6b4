"""Elements chosen or moved by where they are: triangles, diagonals, one-hot rows, reversed rows."""

from __future__ import annotations

from ostinato.ops.core.known_sizes import known_size, known_sizes, require_numbers
from ostinato.ops.core.literals import in_range
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Value
from ostinato.ops.rules.gather import at_place, require_all, without_axes
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.views import axes_of, axis_of
from ostinato.program.expr import (
    INTEGERS,
    Axis,
    Expr,
    Extent,
    Index,
    Load,
    cast,
    constant,
    op,
    select,
)
from ostinato.sizes.dims import Size, floordiv, maximum


@lowers("Trilu")
def lower_trilu(context: Context) -> Value:
    """Matrices with zeros below (upper=1) or above their k-th diagonal."""
    builder = context.builder
    value, diagonal = context.input(0), context.optional(1)
    upper = bool(context.attributes.int("upper", 1))
    if len(value.shape) < 2:
        raise context.invalid(f"an input of {len(value.shape)} axes holds no matrices")
    x = builder.strided(value)
    row, column = (builder.axis(n) for n in x.shape[-2:])
    axes = (*builder.axes(x.shape[:-2]), row, column)
    distance = Index(column) - Index(row)
    offset: Expr = constant(0, "int64")
    if diagonal is not None:
        offset = builder.load(builder.reshaped(diagonal, ()), ())
    kept = op("ge" if upper else "le", distance, offset)
    element = builder.load(x, axes)
    return builder.stored(x.shape, axes, select(kept, element, 0))


@lowers("EyeLike")
def lower_eye_like(context: Context) -> Value:
    """A matrix with ones on its k-th diagonal, else zeros."""
    value, builder = context.input(0), context.builder
    diagonal = context.attributes.int("k", 0)
    code = context.attributes.int("dtype", None)
    dtype = value.dtype if code is None else context.native_dtype(code)
    if len(value.shape) != 2:
        raise context.invalid(f"an input of {len(value.shape)} axes is no matrix")
    axes = [builder.axis(n) for n in value.shape]
    here = (Index(axes[1]) - Index(axes[0])).equals(diagonal)
    one, zero = (constant(n, dtype) for n in (1, 0))
    return builder.stored(value.shape, axes, select(here, one, zero))


@lowers("OneHot")
def lower_one_hot(context: Context) -> Value:
    """A new axis with one value at the place that an index names, and another one elsewhere."""
    builder = context.builder
    indices, values = context.input(0), builder.strided(context.input(2))
    if context.input(1).dtype not in INTEGERS:
        # It is cast, and what is computed from floats is no size.
        require_numbers(context, 1, what="input 'depth'")
    depth = known_size(context, 1, "input 'depth'")
    rank = len(indices.shape)
    axis = axis_of(context, context.attributes.int("axis", -1), rank + 1)
    if len(values.shape) != 1 or (values.shape[0] != 2 and isinstance(values.size, int)):
        raise context.invalid(f"input 'values' has the shape {values.shape}, expected (2,)")
    builder.require.equal(values.shape[0], 2, "elements of 'values' and two")
    depth = builder.sizes.defined(depth, "depth")
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    outer = builder.axes(indices.shape)
    place = builder.axis(depth)
    index = cast(builder.load(indices, outer), "int64")
    # Negative ones count back; nothing is hot for those out of range on either side.
    counted = index + Extent(depth)
    wanted = select(index < 0, counted, index)
    off, on = (Load(builder.access(at_place(values, i), ()), values.dtype) for i in (0, 1))
    hot = wanted.equals(Index(place))
    axes: list[Axis | None] = [*outer[:axis], place, *outer[axis:]]
    return builder.stored(shape, axes, select(hot, on, off))


@lowers("ReverseSequence")
def lower_reverse_sequence(context: Context) -> Value:
    """The first elements of each sequence of a batch backwards, as many as its length says."""
    builder = context.builder
    x, lengths = builder.strided(context.input(0)), context.input(1)
    rank = len(x.shape)
    time = axis_of(context, context.attributes.int("time_axis", 0), rank)
    batch = axis_of(context, context.attributes.int("batch_axis", 1), rank)
    if time == batch or len(lengths.shape) != 1:
        raise context.invalid(f"axes {time} and {batch}, and lengths of shape {lengths.shape}")
    builder.require.equal(lengths.shape[0], x.shape[batch], "lengths and rows of the batch")
    extent = x.shape[time]

    def fits(length: Expr) -> Expr:
        return (length >= 0) & (length <= Extent(extent))

    within = builder.pointwise(fits, lengths)
    require_all(context, within, f"a length is out of range for {extent} elements")
    axes: list[Axis | None] = list(builder.axes(x.shape))
    step = axes[time] = builder.axis(extent)
    length = builder.load(lengths, [axes[batch]])
    mirrored = length - 1 - Index(step)
    moved = select(Index(step) < length, mirrored, Index(step))
    inside = in_range(moved, extent)
    access = builder.access(without_axes(x, time), [*axes[:time], *axes[time + 1 :]])
    index = ((moved, x.strides[time]),)
    return builder.stored(x.shape, axes, Load(access, x.dtype, inside, constant(0, x.dtype), index))


@lowers("CenterCropPad")
def lower_center_crop_pad(context: Context) -> Value:
    """The middle of some axes, or the whole in the middle of zeros, to get a given shape."""
    value = context.builder.strided(context.input(0))
    rank = len(value.shape)
    shape = known_sizes(context, 1, "input 'shape'")
    axes = list(context.attributes.ints("axes", tuple(range(rank))))
    axes_of(context, axes, rank)
    if len(shape) != len(axes):
        raise context.invalid(f"a shape of {len(shape)} sizes for {len(axes)} axes")
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for axis, wanted in zip(axes, shape, strict=True):
        i = axis_of(context, axis, rank)
        # Half of what is missing or too much, rounded down, lies at the start.
        missing = wanted - value.shape[i]
        before[i] = floordiv(maximum(missing, 0), 2) - floordiv(maximum(-missing, 0), 2)
        after[i] = missing - before[i]
    if all(n == 0 for n in (*before, *after)):
        return value
    return pad(context, value, before, after, 0)
