"""RoiAlign: parts of images, each pooled to one size.

A region is cut into bins; a bin holds samples, which lie between elements. Where the number of
samples follows from the size of the region, each region is a step of a loop, and its samples are
the steps of another one that ends when the region has no more.
"""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.limits import ENDLESS
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.literals import in_range
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, at, slice_axis
from ostinato.ops.rules.gather import require_all, without_axes
from ostinato.ops.rules.sampling import Tap, along_channels, interpolated
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

# Elements around a sample.
_TAPS = 4


@dataclass(frozen=True)
class Pooling:
    """Attributes of RoiAlign; `offset` is that of coordinates, 0.5 where pixels have a centre."""

    combine: str
    bins: tuple[int, int]
    ratio: int
    scale: float
    offset: float


@dataclass(frozen=True)
class Side:
    """Start, size and samples of regions along one axis, one element for each region.

    start: where they begin. size: that of a bin. count: samples in a bin. steps: how many of these
    can lie on the image, at most.
    """

    start: Tensor
    size: Tensor
    count: Tensor
    steps: Tensor

    def of(self, region: Axis) -> Side:
        """A single region, as scalars."""
        return Side(
            *(at(t, 0, region, 0, 1) for t in (self.start, self.size, self.count, self.steps))
        )


@dataclass(frozen=True)
class Ends:
    """Elements on both sides of samples along one axis.

    low, high: their positions, -1 for a sample beyond the image. share: the weight of the high one.
    """

    low: Tensor
    high: Tensor
    share: Tensor


@lowers("RoiAlign")
def lower_roi_align(context: Context) -> Value:
    """The mean or maximum of samples in each bin of regions of images."""
    builder, x = context.builder, context.builder.strided(context.input(0))
    regions, images = builder.strided(context.input(1)), builder.strided(context.input(2))
    how = _read(context)
    if len(x.shape) != 4 or len(regions.shape) != 2 or len(images.shape) != 1:
        raise context.invalid(f"inputs of shapes {x.shape}, {regions.shape} and {images.shape}")
    builder.require.equal(regions.shape[1], 4, "coordinates of a region")
    builder.require.equal(regions.shape[0], images.shape[0], "regions and their images")
    for i, extent in enumerate(x.shape[2:]):
        builder.require.nonnegative(extent - 1, f"size of spatial axis {i}, minus 1")
    within = builder.pointwise(lambda i: in_range(i, x.shape[0]), images)
    require_all(context, within, f"the index of an image is out of range for {x.shape[0]} images")
    sides = tuple(_side(builder, regions, 1 - i, x.shape[2 + i], how) for i in (0, 1))
    shape = (regions.shape[0], x.shape[1], *how.bins)
    samples = max(how.ratio, 1) ** 2 * how.bins[0] * how.bins[1] * regions.shape[0]
    pooled = _of_equal_numbers if how.ratio > 0 else _of_any_numbers
    return along_channels(
        builder, x, 1, _TAPS * samples, lambda x: pooled(builder, x, images, sides, shape, how)
    )


def _read(context: Context) -> Pooling:
    attributes = context.attributes
    mode = attributes.string("mode", "avg")
    bins = attributes.int("output_height", 1), attributes.int("output_width", 1)
    ratio = attributes.int("sampling_ratio", 0)
    centred = "output_half_pixel"
    if context.since >= 16:
        centred = attributes.string("coordinate_transformation_mode", "half_pixel")
    if mode not in ("avg", "max"):
        raise context.invalid(f"attribute 'mode' is {mode!r}")
    if centred not in ("half_pixel", "output_half_pixel"):
        raise context.invalid(f"attribute 'coordinate_transformation_mode' is {centred!r}")
    if min(bins) < 1 or ratio < 0:
        raise context.invalid(f"an output of {bins} bins with {ratio} samples")
    offset = 0.5 if centred == "half_pixel" else 0.0
    return Pooling(
        "max" if mode == "max" else "sum", bins, ratio, context.float("spatial_scale"), offset
    )


def _side(builder: Builder, regions: Tensor, column: int, extent: Size, how: Pooling) -> Side:
    """Axis y (column 1) or x (column 0) of regions, given as x and y of two corners."""
    bins = how.bins[1 - column]
    first, last = (without_axes(slice_axis(regions, 1, column + 2 * i, 1, 1), 1) for i in (0, 1))

    def corner(c: Expr) -> Expr:
        return c * how.scale - how.offset

    def size(a: Expr, b: Expr) -> Expr:
        length = corner(b) - corner(a)
        if not how.offset:
            # Malformed regions count as one element.
            length = op("max", length, literal(1, length))
        return length / bins

    def count(s: Expr) -> Expr:
        number = cast(op("ceil", s), "int64") if how.ratio == 0 else constant(how.ratio, "int64")
        return op("max", number, constant(0, "int64"))

    sizes = builder.pointwise(size, first, last)
    counts = builder.pointwise(count, sizes)
    most = _most(extent)
    steps = builder.pointwise(lambda n: op("min", n, most), counts)
    return Side(builder.pointwise(corner, first), sizes, counts, steps)


def _most(extent: Size) -> Expr:
    """More samples than lie on an axis: they are at least half an element apart."""
    return sized(2 * extent + 4)


def _ends(
    builder: Builder,
    shape: Shape,
    axes: Sequence[Axis | None],
    place: Expr,
    extent: Size,
) -> Ends:
    """The elements around samples at `place`, which belong to the points of `axes`."""
    last, zero = sized(extent - 1), constant(0, "int64")
    n = cast(sized(extent), dtype_of(place))
    inside = (place >= -1) & (place <= n)
    moved = op("max", place, literal(0, place))
    low = op("max", op("min", cast(moved, "int64"), last), zero)
    high = op("min", low + 1, last)
    share = moved - cast(low, dtype_of(place))
    share = select(low.equals(last), 0, share)
    none = constant(-1, "int64")
    values = (select(inside, low, none), select(inside, high, none), share)
    targets = [builder.empty(dtype_of(value), shape) for value in values]
    stores = [
        Store(builder.access(target, axes), value)
        for target, value in zip(targets, values, strict=True)
    ]
    builder.emit.kernel(axes, stores)
    return Ends(*targets)


def _place(
    builder: Builder, side: Side, region: Sequence[Axis | None], bin_: Expr, sample: Expr
) -> Expr:
    """Compute the position of a sample along an axis."""
    start, size = builder.load(side.start, region), builder.load(side.size, region)
    count = cast(builder.load(side.count, region), dtype_of(size))
    middle = cast(sample, dtype_of(size)) + 0.5
    begin = start + cast(bin_, dtype_of(size)) * size
    return begin + middle * size / count


def _sample(
    builder: Builder,
    x: Tensor,
    channel: Axis | None,
    image: Expr,
    ends: Sequence[tuple[Expr, Expr, Expr]],
    combine: str,
) -> Expr:
    """The element between four others: their weighted sum, or the largest of the four products."""
    access = builder.access(without_axes(without_axes(x, 2, 2), 0), (channel,))
    taps = []
    for low, high, share in ends:
        inside = low >= 0
        weights = 1 - share, share
        taps.append([Tap(p, inside, w) for p, w in zip((low, high), weights, strict=True)])
    known = in_range(image, x.shape[0])

    def load(chosen: Sequence[Tap]) -> Expr:
        mask = known
        for tap in chosen:
            assert tap.inside is not None
            mask = mask & tap.inside
        places = [image, *(tap.position for tap in chosen)]
        index = tuple(zip(places, (x.strides[0], *x.strides[2:]), strict=True))
        return Load(access, x.dtype, mask, constant(0, x.dtype), index)

    if combine == "sum":
        return interpolated(taps, load)
    largest: Expr | None = None
    for y in taps[0]:
        for z in taps[1]:
            assert y.weight is not None and z.weight is not None
            value = y.weight * z.weight * load((y, z))
            largest = value if largest is None else op("max", largest, value)
    assert largest is not None
    return largest


def _loaded(builder: Builder, ends: Ends, axes: Sequence[Axis | None]) -> tuple[Expr, Expr, Expr]:
    low, high, share = (builder.load(t, axes) for t in (ends.low, ends.high, ends.share))
    return low, high, share


def _of_equal_numbers(
    builder: Builder,
    x: Tensor,
    images: Tensor,
    sides: Sequence[Side],
    shape: Shape,
    how: Pooling,
) -> Tensor:
    """All bins of all regions in one kernel: each has the same number of samples."""
    tables = []
    for side, bins, extent in zip(sides, how.bins, x.shape[2:], strict=True):
        axes = [builder.axis(n) for n in (shape[0], bins, how.ratio)]
        place = _place(builder, side, axes[:1], Index(axes[1]), Index(axes[2]))
        tables.append(_ends(builder, (shape[0], bins, how.ratio), axes, place, extent))
    outer = builder.axes(shape)
    inner = [builder.axis(how.ratio, "r") for _ in (0, 1)]
    ends = [
        _loaded(builder, table, (outer[0], position, sample))
        for table, position, sample in zip(tables, outer[2:], inner, strict=True)
    ]
    image = builder.load(images, outer[:1])
    element = _sample(builder, x, outer[1], image, ends, how.combine)
    total = builder.fold(shape, outer, inner, how.combine, element)
    if how.combine == "max":
        return total
    return builder.pointwise(lambda t: t / how.ratio**2, total)


def _of_any_numbers(
    builder: Builder,
    x: Tensor,
    images: Tensor,
    sides: Sequence[Side],
    shape: Shape,
    how: Pooling,
) -> Tensor:
    """Region by region, sample by sample."""
    result = builder.empty(x.dtype, shape)
    rows, columns = sides[0].steps, sides[1].steps
    samples = builder.pointwise(lambda a, b: a * b, rows, columns)
    with builder.emit.loop(shape[0]) as regions:
        region = regions.axis
        own = [side.of(region) for side in sides]
        total, updated = (builder.empty(x.dtype, shape[1:]) for _ in range(2))
        going, still_going = (builder.empty("bool", ()) for _ in range(2))
        count = at(samples, 0, region, 0, 1)
        builder.copy(builder.expanded(_initial(builder, own, x.dtype, how), shape[1:]), total)
        builder.copy(builder.pointwise(lambda n: n > 0, count), going)
        with builder.emit.loop(ENDLESS) as loop:
            image = at(images, 0, region, 0, 1)
            element = _next(builder, x, image, own, shape, how, Index(loop.axis))
            joined = builder.pointwise(lambda t, e: op(_JOINS[how.combine], t, e), total, element)
            following = Index(loop.axis) + 1
            more = builder.pointwise(lambda n: following < n, count)
            for value, state, successor in ((joined, total, updated), (more, going, still_going)):
                builder.copy(value, successor)
                loop.carry(state, successor)
            loop.condition = going.buffer
        builder.copy(_finished(builder, total, own, how), at(result, 0, region, 0, 1))
    return result


_JOINS = {"sum": "add", "max": "max"}


def _initial(builder: Builder, sides: Sequence[Side], dtype: str, how: Pooling) -> Tensor:
    """The initial value of a bin: samples that no step reaches are 0."""
    least = identity(Reduce((), how.combine, constant(0, dtype)))

    def value(*counts: Expr) -> Expr:
        left = [n > steps for n, steps in zip(counts[:2], counts[2:], strict=True)]
        return select(op("or", *left), 0, least)

    counts, steps = [side.count for side in sides], [side.steps for side in sides]
    return builder.pointwise(value, *counts, *steps)


def _next(
    builder: Builder,
    x: Tensor,
    image: Tensor,
    sides: Sequence[Side],
    shape: Shape,
    how: Pooling,
    step: Expr,
) -> Tensor:
    """A sample of each channel and bin of one region: the rows of samples come one by one."""
    width = builder.load(sides[1].steps, ())
    samples = step / width, op("mod", step, width)
    tables = []
    for side, bins, extent, sample in zip(sides, how.bins, x.shape[2:], samples, strict=True):
        axis = builder.axis(bins)
        first = _first_sample(builder, side, Index(axis))
        place = _place(builder, side, (), Index(axis), first + sample)
        tables.append(_ends(builder, (bins,), (axis,), place, extent))
    axes = builder.axes(shape[1:])
    ends = [_loaded(builder, table, (axis,)) for table, axis in zip(tables, axes[1:], strict=True)]
    element = _sample(builder, x, axes[0], builder.load(image, ()), ends, how.combine)
    return builder.stored(shape[1:], axes, element)


def _first_sample(builder: Builder, side: Side, bin_: Expr) -> Expr:
    """The sample of a bin that the first step takes: 0, unless there are more than steps."""
    start, size, count, steps = (
        builder.load(t, ()) for t in (side.start, side.size, side.count, side.steps)
    )
    distance = size / cast(count, dtype_of(size))
    begin = start + cast(bin_, dtype_of(size)) * size
    before = op("floor", (-1 - begin) / distance)
    number = cast(before, "int64") - 1
    return op("max", op("min", number, count - steps), constant(0, "int64"))


def _finished(builder: Builder, total: Tensor, sides: Sequence[Side], how: Pooling) -> Tensor:
    """The result of a region: 0 where it has no samples."""

    def value(t: Expr, rows: Expr, columns: Expr) -> Expr:
        count = cast(rows, dtype_of(t)) * cast(columns, dtype_of(t))
        if how.combine == "max":
            return select(count.equals(0), 0, t)
        return t / op("max", count, literal(1, t))

    return builder.pointwise(value, total, *(side.count for side in sides))
