"""MaxRoiPool: the largest elements of parts of images, each cut into the same number of bins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, at, slice_axis
from ostinato.ops.rules.gather import require_all, without_axes
from ostinato.program.expr import (
    Axis,
    Expr,
    Index,
    Load,
    cast,
    constant,
    dtype_of,
    literal,
    op,
    select,
    sized,
)
from ostinato.program.kernel import Reduce, Store, identity
from ostinato.records import dataclass
from ostinato.sizes.dims import Size
from ostinato.sizes.strides import Shape

# The tallest images of which maxima of several rows are kept: eight times their memory.
MOST_ROWS = 128


@dataclass(frozen=True)
class Bounds:
    """int32[regions, bins]: the first element of each bin along one axis, and the one behind it."""

    first: Tensor
    end: Tensor

    def of(self, region: Axis) -> Bounds:
        """The bins of a single region."""
        return Bounds(at(self.first, 0, region, 0, 1), at(self.end, 0, region, 0, 1))

    def holds(self, builder: Builder, place: Axis, bin_: Axis | None) -> Expr:
        """Whether an element belongs to a bin."""
        first, end = builder.load(self.first, (bin_,)), builder.load(self.end, (bin_,))
        number = cast(Index(place), "int32")
        return (number >= first) & (number < end)


@dataclass(frozen=True)
class Windows:
    """Maxima of 1, 2, 4, .. rows of images from each row on, and the two that make up each bin.

    tables: [powers of two, images, channels, rows, columns]. power, low, high: int64[regions,
    bins]: which maxima, and the first rows of both. They overlap, which changes no maximum.
    """

    tables: Tensor
    power: Tensor
    low: Tensor
    high: Tensor

    def of(self, region: Axis) -> Windows:
        """Those of a single region."""
        own = (at(t, 0, region, 0, 1) for t in (self.power, self.low, self.high))
        return Windows(self.tables, *own)


def _windows(builder: Builder, x: Tensor, rows: Bounds) -> Windows | None:
    """Computes the maxima once for all regions; None for images that are too tall."""
    height = x.shape[2]
    if not isinstance(height, int) or not 1 < height <= MOST_ROWS:
        return None
    tables = builder.empty(x.dtype, (height.bit_length(), *x.shape))
    count = height.bit_length()
    levels = [without_axes(slice_axis(tables, 0, i, 1, 1), 0) for i in range(count)]
    builder.copy(x, levels[0])
    for i, (narrow, wide) in enumerate(itertools.pairwise(levels)):
        # Rows near the end are the first of no whole window, and never read.
        whole = height - (2 << i) + 1
        axes = builder.axes((*x.shape[:2], whole, x.shape[3]))
        halves = [
            builder.load(slice_axis(narrow, 2, start, 1, whole), axes) for start in (0, 1 << i)
        ]
        target = builder.access(slice_axis(wide, 2, 0, 1, whole), axes)
        builder.emit.kernel(axes, [Store(target, op("max", *halves))])

    def power(first: Expr, end: Expr) -> Expr:
        total: Expr = constant(0, "int64")
        for i in range(1, len(levels)):
            longer = end - first >= (1 << i)
            total = total + cast(longer, "int64")
        return total

    powers = builder.pointwise(power, rows.first, rows.end)
    high = builder.pointwise(
        lambda end, p: cast(end, "int64") - (constant(1, "int64") << p),
        rows.end,
        powers,
    )
    low = builder.pointwise(lambda first: cast(first, "int64"), rows.first)
    return Windows(tables, powers, low, high)


@lowers("MaxRoiPool")
def lower_max_roi_pool(context: Context) -> Value:
    """The maximum of each bin of regions of images; 0 for a bin without elements.

    Corners are rounded to whole elements, halves away from zero, and belong to the region.
    """
    builder = context.builder
    x, regions = builder.strided(context.input(0)), builder.strided(context.input(1))
    bins, scale = context.attributes.ints("pooled_shape"), context.float("spatial_scale")
    if len(x.shape) != 4 or len(regions.shape) != 2:
        raise context.invalid(f"inputs of shapes {x.shape} and {regions.shape}")
    if len(bins) != 2 or min(bins) < 1:
        raise context.invalid(f"pooled_shape {list(bins)}, expected two positive numbers")
    builder.require.equal(regions.shape[1], 5, "numbers of a region")
    columns = [without_axes(slice_axis(regions, 1, i, 1, 1), 1) for i in range(5)]

    def is_image(number: Expr) -> Expr:
        known = cast(number, "int64") < x.shape[0]
        return (number >= 0) & known

    what = f"the index of an image is out of range for {x.shape[0]} images"
    require_all(context, builder.pointwise(is_image, columns[0]), what)
    images = builder.pointwise(lambda number: cast(number, "int64"), columns[0])
    rows, width = (
        _bounds(builder, columns[2 - i], columns[4 - i], bins[i], x.shape[2 + i], scale)
        for i in (0, 1)
    )
    windows = _windows(builder, x, rows)
    result = builder.empty(x.dtype, (regions.shape[0], x.shape[1], *bins))
    # All regions at once would need memory for the maxima of the rows of all of them.
    with builder.emit.loop(regions.shape[0]) as loop:
        image, own = at(images, 0, loop.axis, 0, 1), (rows.of(loop.axis), width.of(loop.axis))
        near = None if windows is None else windows.of(loop.axis)
        pooled = _pooled(builder, x, image, own, near, result.shape[1:])
        builder.copy(pooled, at(result, 0, loop.axis, 0, 1))
    return result


def _bounds(
    builder: Builder, low: Tensor, high: Tensor, bins: int, extent: Size, scale: float
) -> Bounds:
    """The bins between two corners of each region along an axis of this many elements."""

    def rounded(corner: Expr) -> Expr:
        scaled = corner * scale
        size = abs(scaled)
        whole = op("floor", size)
        is_more = size - whole >= 0.5
        whole = select(is_more, whole + 1, whole)
        return select(scaled < 0, -whole, whole)

    bounds = []
    for is_end in (False, True):
        axes = builder.axes((low.shape[0], bins))
        begin, last = (rounded(builder.load(corner, axes[:1])) for corner in (low, high))
        one, zero = literal(1, begin), literal(0, begin)
        length = op("max", last - begin + one, one)
        size = length / bins
        number: Expr = constant(0, "int64") if axes[1] is None else Index(axes[1])
        if is_end:
            number = number + 1
        edge = op("ceil" if is_end else "floor", cast(number, dtype_of(size)) * size)
        place = op("min", edge + begin, cast(sized(extent), dtype_of(size)))
        # As many lanes as floats have.
        place = cast(op("max", place, zero), "int32")
        bounds.append(builder.stored((low.shape[0], bins), axes, place))
    return Bounds(*bounds)


def _pooled(
    builder: Builder,
    x: Tensor,
    image: Tensor,
    bounds: tuple[Bounds, Bounds],
    windows: Windows | None,
    shape: Shape,
) -> Tensor:
    """The maxima [channels, rows, columns] of the bins of one region."""
    rows, columns = bounds
    lowest = identity(Reduce((), "max", constant(0, x.dtype)))
    axes = builder.axes((*shape[:2], x.shape[3]))
    if windows is not None:
        value = _two_windows(builder, windows, image, rows, axes)
        lines = builder.stored((*shape[:2], x.shape[3]), axes, value)
    else:
        place = builder.axis(x.shape[2], "r")
        within = without_axes(x, 0)
        element = Load(
            builder.access(within, (axes[0], place, axes[2])),
            x.dtype,
            rows.holds(builder, place, axes[1]),
            lowest,
            ((builder.load(image, ()), x.strides[0]),),
        )
        lines = builder.fold((*shape[:2], x.shape[3]), axes, [place], "max", element)
    axes, place = builder.axes(shape), builder.axis(x.shape[3], "r")
    inside = columns.holds(builder, place, axes[2])
    taken = select(inside, builder.load(lines, (*axes[:2], place)), lowest)
    largest = builder.fold(shape, axes, [place], "max", taken)
    axes = builder.axes(shape)
    filled = [
        builder.load(bound.first, (axis,)) < builder.load(bound.end, (axis,))
        for bound, axis in zip(bounds, axes[1:], strict=True)
    ]
    value = builder.load(largest, axes)
    return builder.stored(shape, axes, select(op("and", *filled), value, 0))


def _two_windows(
    builder: Builder, windows: Windows, image: Tensor, rows: Bounds, axes: Sequence[Axis | None]
) -> Expr:
    """The maximum of the rows of a bin in one column of a channel."""
    tables = windows.tables
    plane = without_axes(without_axes(slice_axis(tables, 3, 0, 1, 1), 3), 0)
    access = builder.access(without_axes(plane, 0), (axes[0], axes[2]))
    filled = builder.load(rows.first, axes[1:2]) < builder.load(rows.end, axes[1:2])
    lowest = identity(Reduce((), "max", constant(0, tables.dtype)))
    levels = builder.load(windows.power, axes[1:2]), builder.load(image, ())
    loads = []
    for row in (windows.low, windows.high):
        places = (*levels, builder.load(row, axes[1:2]))
        strides = (*tables.strides[:2], tables.strides[3])
        index = tuple(zip(places, strides, strict=True))
        loads.append(Load(access, tables.dtype, filled, lowest, index))
    return op("max", *loads)
