"""Pools: the largest element or the mean below a window, where it was, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ostinato.graph.windows import Window
from ostinato.ops.core.known_sizes import known_sizes
from ostinato.ops.core.literals import in_range
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, dense
from ostinato.ops.rules.gather import require_all
from ostinato.ops.rules.windows import (
    checked_moves,
    inside_data,
    is_padded,
    output_sizes,
    read_windows,
    window_load,
    without_padding,
)
from ostinato.program.expr import (
    FLOATS,
    Access,
    Const,
    Expr,
    Extent,
    Index,
    Load,
    cast,
    constant,
    dtype_of,
    op,
    select,
    sized,
)
from ostinato.program.kernel import Reduce, Store, identity
from ostinato.sizes.dims import Size, is_nonnegative, product
from ostinato.sizes.strides import Shape, dense_strides

# Taps up to which one pass takes them all: results of a pass along each axis go through memory, and
# 2 x 2 x 2 taps take 1.2 of the time so (`benchmarks.versions --onnx`, 16 x 16 x 32 x 32).
_MOST_AT_ONCE = 8
# All integers up to this are floats of 32 bits.
_MOST_COUNTED = 1 << 24


@lowers("MaxPool")
def lower_max_pool(context: Context) -> Value | list[Value]:
    """The maximum below each position of a window, and where it is; padding never wins.

    Positions count over all of the value, images stored by rows (storage_order=0) or by columns. Of
    equal elements the first below the window counts; -1 where nothing but padding lies below it.
    """
    x, windows = _pooled(context, dilated=context.since >= 10)
    by_columns = bool(context.attributes.int("storage_order", 0))
    lowest = identity(Reduce((), "max", constant(0, x.dtype)))
    largest = _largest(context, x, windows, lowest)
    if len(context.node.outputs) < 2 or not context.node.outputs[1].name:
        return largest
    first = _first_taps(context, x, windows, largest, lowest)
    return [largest, _positions(context, x, windows, first, by_columns)]


def _largest(context: Context, x: Tensor, windows: Sequence[Window[Size]], lowest: Const) -> Value:
    """The maximum below each position: that of maxima along one axis after the other."""
    if math.prod(window.kernel for window in windows) <= _MOST_AT_ONCE:
        return _pool(context, x, windows, "max", lowest, lambda total, _: total)
    result: Value = x
    for place, window in enumerate(windows):
        extents = result.shape[2:]
        if window != _each(extents[place]):
            along = [*map(_each, extents[:place]), window, *map(_each, extents[place + 1 :])]
            strided = context.builder.strided(result)
            if place < len(windows) - 1 and _meets_data(window):
                result = _largest_nearest(context, strided, along, place, lowest)
            else:
                result = _pool(context, strided, along, "max", lowest, lambda total, _: total)
    return result


def _meets_data(window: Window[Size]) -> bool:
    """Whether each place of a padded window without gaps has data below it, if there is any."""
    amounts = window.before, window.after + window.beyond
    known = all(isinstance(n, int) and n < window.kernel for n in amounts)
    return known and is_padded(window) and window.dilation == 1


def _largest_nearest(
    context: Context, x: Tensor, windows: Sequence[Window[Size]], place: int, lowest: Const
) -> Value:
    """The maximum below a window along one axis, where all lanes have the same elements of it.

    A tap in padding takes the element next to it, which is below the window as well: a position is
    found faster than a mask.
    """
    builder = context.builder
    window = windows[place]
    outer = builder.axes((*x.shape[:2], *output_sizes(context, windows)))
    tap = builder.axis(window.kernel, "r")
    position: Expr = Index(tap)
    row = outer[2 + place]
    if row is not None:
        position = Index(row) * window.stride + position
    position = position - window.before
    extent = x.shape[2 + place]
    position = op("min", op("max", position, constant(0, "int64")), sized(extent - 1))
    some = None if is_nonnegative(extent - 1) else Extent(extent) >= 1
    rest = [None if n == 2 + place else axis for n, axis in enumerate(outer)]
    access = builder.access(x, rest)
    index = ((position, x.strides[2 + place]),)
    element = Load(access, x.dtype, some, None if some is None else lowest, index)
    shape = (*x.shape[:2], *(w.outputs for w in windows))
    return builder.fold(shape, outer, [tap], "max", element)


def _each(extent: Size) -> Window[Size]:
    """A window of one element, at each of them."""
    return Window(1, 1, 1, 0, 0, extent, 0)


def _first_taps(
    context: Context, x: Tensor, windows: Sequence[Window[Size]], largest: Value, lowest: Const
) -> Tensor:
    """The first tap of each window that has the largest element, or the number of taps."""
    builder = context.builder
    outer = builder.axes(largest.shape)
    taps = [builder.axis(window.kernel, "r") for window in windows]
    inner = [tap for tap in taps if tap.extent != 1] or taps[:1]
    element = window_load(x, outer[0], [(outer[1], x.strides[1])], outer[2:], taps, windows, lowest)
    found = element.equals(builder.load(largest, outer))
    if x.dtype in FLOATS:
        # A NaN equals nothing, and where there is one the maximum is NaN.
        found = found | element.differs(element)
    inside = inside_data(x.shape[2:], outer[2:], taps, windows)
    if inside is not None:
        found = inside & found
    kernel: Shape = tuple(window.kernel for window in windows)
    steps, count = dense_strides(kernel), math.prod(window.kernel for window in windows)
    pairs = [(Index(tap), step) for tap, step in zip(taps, steps, strict=True) if tap in inner]
    number = _linear([place for place, _ in pairs], [step for _, step in pairs])
    none = constant(count, "int32" if count < 2**31 else "int64")
    return builder.fold(
        largest.shape, outer, inner, "min", select(found, cast(number, none.dtype), none)
    )


def _positions(
    context: Context, x: Tensor, windows: Sequence[Window[Size]], first: Tensor, by_columns: bool
) -> Tensor:
    """int64: the place of a tap of each window in the whole of the value."""
    builder = context.builder
    axes = builder.axes(first.shape)
    tap = cast(builder.load(first, axes), "int64")
    kernel: Shape = tuple(window.kernel for window in windows)
    places: list[Expr] = []
    for window, step, axis in zip(windows, dense_strides(kernel), axes[2:], strict=True):
        along = tap / step
        along = op("mod", along, constant(window.kernel, "int64"))
        along = along * window.dilation
        if axis is not None:
            moved = Index(axis) * window.stride
            along = moved + along
        places.append(along - window.before)
    spatial = x.shape[2:]
    if by_columns:
        # The first spatial axis advances fastest.
        steps = tuple(product(spatial[:i]) for i in range(len(spatial)))
    else:
        steps = dense_strides(spatial)
    outer = dense_strides((*x.shape[:2], product(spatial)))[:2]
    rows: list[Expr] = [constant(0, "int64") if a is None else Index(a) for a in axes[:2]]
    place = _linear([*rows, *places], (*outer, *steps))
    found = tap < product(kernel)
    return builder.stored(first.shape, axes, select(found, place, -1))


def _linear(places: Sequence[Expr], steps: Sequence[Size]) -> Expr:
    """The sum of places times steps."""
    terms = [
        place if step == 1 else place * step for place, step in zip(places, steps, strict=True)
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@lowers("MaxUnpool")
def lower_max_unpool(context: Context) -> Value:
    """Elements put to places in a value of zeros: counted over the whole of the result.

    `output_shape` gives the shape of the result; without it, it follows from window and pads. Of
    several elements for one place the last one stays.
    """
    builder = context.builder
    x, indices = context.input(0), context.input(1)
    if len(indices.shape) != len(x.shape):
        raise context.invalid(f"indices of shape {indices.shape} for an input of {x.shape}")
    for i, (n, wanted) in enumerate(zip(indices.shape, x.shape, strict=True)):
        builder.require.equal(n, wanted, f"axis {i} of indices and input")
    shape = _unpooled_shape(context, x.shape)
    places = builder.strided(indices)
    size = product(shape)

    within = builder.pointwise(lambda place: in_range(place, size), places)
    require_all(context, within, f"an index is out of range for an output of {size} elements")
    target = builder.empty(x.dtype, shape)
    flat = dense(x.dtype, (size,), target.buffer)
    zero = builder.axis(size)
    builder.emit.kernel([zero], [Store(builder.access(flat, [zero]), constant(0, x.dtype))])
    axes = builder.axes(x.shape)
    place = builder.load(places, axes)
    store = Store(
        Access(target.buffer, 0, ()),
        builder.load(builder.strided(x), axes),
        in_range(place, size),
        ((place, 1),),
    )
    builder.emit.kernel(axes, [store], ordered=axes)
    return target


def _unpooled_shape(context: Context, shape: Shape) -> Shape:
    rank = len(shape) - 2
    kernel = context.attributes.ints("kernel_shape")
    if rank < 1 or len(kernel) != rank:
        raise context.invalid(f"kernel_shape {list(kernel)} for an input of shape {shape}")
    moves = checked_moves(context, rank, kernel, dilated=False)
    if context.optional(2) is not None:
        given = known_sizes(context, 2, "input 'output_shape'")
        if len(given) != len(shape):
            raise context.invalid(f"output_shape has {len(given)} sizes, expected {len(shape)}")
        for i, (size, n) in enumerate(zip(given, shape, strict=True)):
            context.builder.require.nonnegative(size, f"size {i} of output_shape")
            if i < 2:
                context.builder.require.equal(size, n, f"axis {i} of output_shape and input")
        return tuple(given)
    spatial: list[Size] = []
    for i, extent in enumerate(shape[2:]):
        size = (extent - 1) * moves.strides[i] + kernel[i] - sum(moves.padding(i))
        context.builder.require.nonnegative(size, f"spatial size {i} of the output")
        spatial.append(size)
    return (*shape[:2], *spatial)


@lowers("AveragePool")
def lower_average_pool(context: Context) -> Value:
    """The mean below each position of a window, of data alone or of data and padding."""
    counts_pads = bool(context.attributes.int("count_include_pad", 0))
    x, windows = _pooled(context, dilated=context.since >= 19)

    def mean(total: Expr, count: Expr) -> Expr:
        return total / cast(count, dtype_of(total))

    return _pool(context, x, windows, "sum", constant(0, x.dtype), mean, counts_pads)


def _pooled(context: Context, dilated: bool) -> tuple[Tensor, list[Window[Size]]]:
    x = context.builder.strided(context.input(0))
    kernel = context.attributes.ints("kernel_shape")
    if len(x.shape) != len(kernel) + 2:
        raise context.invalid(f"kernel_shape {list(kernel)} for an input of shape {x.shape}")
    ceil = bool(context.attributes.int("ceil_mode", 0))
    return x, read_windows(context, x.shape[2:], kernel, dilated, ceil)


def _pool(
    context: Context,
    x: Tensor,
    windows: Sequence[Window[Size]],
    combine: str,
    padding: Const,
    finish: Callable[[Expr, Expr], Expr],
    counts_pads: bool = False,
) -> Value:
    builder = context.builder
    shape = (*x.shape[:2], *output_sizes(context, windows))
    data, given = x.shape[2:], windows
    # All lanes agree whether they are in padding of other axes than the last.
    if is_padded(windows[-1]) and all(map(_is_narrow, windows)):
        x, windows = without_padding(context, x, windows, padding.value)
    outer = builder.axes(shape)
    taps = [builder.axis(window.kernel, "r") for window in windows]
    inner = [tap for tap in taps if tap.extent != 1] or taps[:1]
    channel = [(outer[1], x.strides[1])]
    element = window_load(x, outer[0], channel, outer[2:], taps, windows, padding)
    total = builder.fold(shape, outer, inner, combine, element)
    if combine == "max":
        return total
    # It is the same for all images and channels.
    plane = (1, 1, *shape[2:])
    places = builder.axes(plane)
    inside = inside_data(data, places[2:], taps, given, counts_pads)
    size = math.prod(window.kernel for window in windows)
    if inside is None:
        return builder.pointwise(lambda t: finish(t, Extent(size)), total)
    # Floats take as many lanes as the elements, integers of 64 bits half of them.
    counted = cast(inside, "float32" if size <= _MOST_COUNTED else "int64")
    return builder.pointwise(finish, total, builder.fold(plane, places, inner, combine, counted))


def _is_narrow(window: Window[Size]) -> bool:
    """Whether the padding is narrower than the window: then it takes little memory.

    That of `auto_pad` always is, and windows of `ceil_mode` begin on data or in front of it.
    """
    amounts = window.before, window.after
    return all(n < window.span for n in amounts if isinstance(n, int))


@lowers("GlobalAveragePool", "GlobalMaxPool")
def lower_global_pool(context: Context) -> Value:
    """The mean or maximum over all spatial axes, which keep an extent of 1."""
    value, builder = context.input(0), context.builder
    axes = tuple(range(2, len(value.shape)))
    if not axes:
        raise context.invalid(f"no spatial axes in an input of shape {value.shape}")
    if context.node.op_type == "GlobalMaxPool":
        return builder.reduce(value, axes, "max")
    count = Extent(product([value.shape[i] for i in axes]))
    total = builder.reduce(value, axes, "sum")
    return builder.pointwise(lambda t: t / cast(count, dtype_of(t)), total)
