"""GridSample: values at places that another operand names, between elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.literals import polynomial
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.ops.rules.casts import convert
from ostinato.ops.rules.gather import without_axes
from ostinato.program.expr import (
    FLOATS,
    Axis,
    Expr,
    Load,
    cast,
    constant,
    dtype_of,
    literal,
    op,
    select,
    sized,
)
from ostinato.program.nodes import Branch
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, is_nonnegative, product

# Taps along one axis; the modes of version 16 have other names.
_MODES = {"nearest": 1, "linear": 2, "cubic": 4}
_OLD_MODES = {"nearest": 1, "bilinear": 2, "bicubic": 4}
_PADDINGS = ("zeros", "border", "reflection")
# Points are computed from at most this many elements.
MOST_TAPS = 256
# Channels from which on lanes run along them: a vector of AVX2.
LEAST_CHANNELS = 8
# The coefficient of the cubic kernel: that of PyTorch, which the operator follows.
_CUBIC = -0.75


@dataclass(frozen=True)
class Sampling:
    """Padding and interpolation of GridSample: its attributes."""

    taps: int
    padding: str
    corners: bool


@dataclass(frozen=True)
class Tap:
    """An element along one axis: its position, whether it exists, and its weight."""

    position: Expr
    inside: Expr | None
    weight: Expr | None


@lowers("GridSample")
def lower_grid_sample(context: Context) -> Value:
    """The value at the places in `grid`, between -1 and 1 along each axis, the last axis first."""
    builder = context.builder
    x, grid = builder.strided(context.input(0)), builder.strided(context.input(1))
    how, rank = _read(context), len(x.shape) - 2
    if rank < 1 or len(grid.shape) != rank + 2:
        raise context.invalid(f"a grid of shape {grid.shape} for an input of shape {x.shape}")
    if context.since < 20 and rank != 2:
        raise context.invalid(f"an input of {rank + 2} axes, expected 4")
    if how.taps**rank > MOST_TAPS:
        raise context.refuse(f"{how.taps**rank} elements to each output have no native form")
    if how.taps > 1 and x.dtype == "bool":
        raise context.refuse("interpolation of bool has no native form")
    builder.require.equal(grid.shape[0], x.shape[0], "batches of input and grid")
    builder.require.equal(grid.shape[-1], rank, "length of the vectors in the grid")
    spatial, places = x.shape[2:], grid.shape[1:-1]
    if how.padding != "zeros":
        for i, extent in enumerate(spatial):
            builder.require.nonnegative(extent - 1, f"size of spatial axis {i}, minus 1")
    coordinates = [
        builder.pointwise(
            lambda g, n=extent: _coordinate(g, n, how),
            _component(grid, rank - 1 - i),
        )
        for i, extent in enumerate(spatial)
    ]
    wide = x.dtype if how.taps == 1 or x.dtype in FLOATS else _wide(x.dtype)
    shape = (x.shape[0], x.shape[1], *places)

    def sampled(x: Tensor) -> Tensor:
        axes = builder.axes(shape)
        taps = [
            taps_around(builder.load(coordinate, (axes[0], *axes[2:])), extent, how, wide)
            for coordinate, extent in zip(coordinates, spatial, strict=True)
        ]
        result = interpolated(taps, loads_at(builder, x, axes[:2], wide))
        return builder.stored(shape, axes, result if wide == x.dtype else convert(result, x.dtype))

    return along_channels(builder, x, 1, how.taps**rank * product(places), sampled)


def along_channels(
    builder: Builder, x: Tensor, channels: int, reads: Size, compute: Callable[[Tensor], Tensor]
) -> Tensor:
    """What is computed from the values, with those of all channels beside each other if that pays.

    A place is then computed once for all of them, and lanes take neighbours instead of gathering.
    reads: of how many elements of a channel, those that are read several times included. Where
    only a run tells, it decides.
    """
    count, spatial = x.shape[channels], product(x.shape[channels + 1 :])
    if not isinstance(count, int) or count < LEAST_CHANNELS or x.strides[channels] == 1:
        return compute(x)
    if is_nonnegative(reads - spatial):
        return compute(_channels_last(builder, x, channels))
    if is_nonnegative(spatial - reads):
        return compute(x)
    with builder.emit.block([]) as few:
        result = compute(x)
    with builder.emit.block([]) as many:
        builder.copy(compute(_channels_last(builder, x, channels)), result)
    pays = builder.stored((), (), sized(reads) >= spatial)
    builder.emit.append(Branch(pays.buffer, tuple(many), tuple(few)))
    return result


def _channels_last(builder: Builder, x: Tensor, channels: int) -> Tensor:
    """A copy whose elements at one place lie beside each other."""
    order = (*range(channels), *range(channels + 1, len(x.shape)), channels)
    made = builder.empty(x.dtype, tuple(x.shape[axis] for axis in order))
    strides = tuple(made.strides[order.index(axis)] for axis in range(len(order)))
    result = replace(made, shape=x.shape, strides=strides)
    builder.copy(x, result)
    return result


def _wide(dtype: str) -> str:
    """The float type in which integers are interpolated."""
    return "float32" if dtype in ("int8", "uint8", "int16", "uint16") else "float64"


def _read(context: Context) -> Sampling:
    attributes = context.attributes
    modes = _OLD_MODES if context.since < 20 else _MODES
    mode = attributes.string("mode", list(modes)[1])
    padding = attributes.string("padding_mode", "zeros")
    if mode not in modes:
        raise context.invalid(f"attribute 'mode' is {mode!r}, expected one of {list(modes)}")
    if padding not in _PADDINGS:
        raise context.invalid(f"attribute 'padding_mode' is {padding!r}")
    return Sampling(modes[mode], padding, bool(attributes.int("align_corners", 0)))


def _component(grid: Tensor, number: int) -> Tensor:
    """One component of all vectors."""
    last = len(grid.shape) - 1
    return without_axes(slice_axis(grid, last, number, 1, 1), last)


def _coordinate(g: Expr, extent: Size, how: Sampling) -> Expr:
    """The place in elements: rounded for the nearest one, and moved inside where taps are not."""
    n = cast(sized(extent), dtype_of(g))
    one, half = literal(1, g), literal(0.5, g)
    if how.corners:
        # -1 and 1 are the centres of the outer elements, else their outer edges.
        x = (g + one) * half * (n - one)
        low, high = literal(0, g), n - one
    else:
        x = ((g + one) * n - one) * half
        low, high = literal(-0.5, g), n - half
    if how.taps == 1:
        x = op("rint", x)
    if how.padding == "reflection":
        return _reflected(x, low, high)
    if how.padding == "border" and how.taps < 4:
        return op("min", op("max", x, literal(0, g)), n - one)
    return x


def _reflected(x: Expr, low: Expr, high: Expr) -> Expr:
    """A place thrown back at both ends until it lies between them."""
    below = x < low
    span = high - low
    beyond = select(below, low - x, x - high)
    times = op("floor", beyond / span)
    rest = beyond - times * span
    half = times * 0.5
    even = op("floor", half).equals(half)
    rises = ~(below ^ even)
    moved = select(rises, low + rest, high - rest)
    # An axis of one element has no room between the centres of its ends.
    moved = select(span > 0, moved, low)
    return select(below | (x > high), moved, x)


def taps_around(x: Expr, extent: Size, how: Sampling, wide: str) -> list[Tap]:
    """The elements along one axis that a place uses; weights are of type `wide`."""
    base = op("floor", x)
    first, share = cast(base, "int64"), x - base
    weights: list[Expr | None] = [None]
    if how.taps == 2:
        weights = [1 - share, share]
    elif how.taps == 4:
        weights = _cubic(share)
    taps = []
    for offset, weight in enumerate(weights, -1 if how.taps == 4 else 0):
        position = first + offset if offset else first
        inside = None
        if how.padding == "zeros":
            inside = position >= 0
            inside = inside & (position < extent)
            # A NaN is at no place.
            inside = inside & x.equals(x)
        else:
            position = _clamped(position, extent, how)
        taps.append(Tap(position, inside, None if weight is None else cast(weight, wide)))
    return taps


def _clamped(position: Expr, extent: Size, how: Sampling) -> Expr:
    """A position that is at most two elements beyond an end, or anywhere for a border, moved in."""
    last = sized(extent - 1)
    zero: Expr = constant(0, "int64")
    if how.padding == "reflection" and how.taps == 4:
        turn = sized(2 * (extent - 1) if how.corners else 2 * extent - 1)
        mirrored = turn - position
        position = select(position > last, mirrored, position)
        mirrored = (zero if how.corners else constant(-1, "int64")) - position
        position = select(position < zero, mirrored, position)
    return op("max", op("min", position, last), zero)


def _cubic(t: Expr) -> list[Expr | None]:
    """Weights of four taps (Keys, "Cubic Convolution Interpolation", 1981), t behind the second."""
    one = literal(1, t)

    def near(x: Expr) -> Expr:
        return polynomial(x, _CUBIC + 2, -_CUBIC - 3, 0, 1)

    def far(x: Expr) -> Expr:
        return polynomial(x, _CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)

    rest = one - t
    return [far(t + one), near(t), near(rest), far(rest + one)]


def loads_at(
    builder: Builder, x: Tensor, batch: Sequence[Axis | None], wide: str
) -> Callable[[Sequence[Tap]], Expr]:
    """Reads the element of a tap along each axis behind those of `batch`, 0 outside."""
    lead = len(batch)
    access = builder.access(without_axes(x, lead, len(x.shape) - lead), batch)

    def load(taps: Sequence[Tap]) -> Expr:
        index = tuple((tap.position, s) for tap, s in zip(taps, x.strides[lead:], strict=True))
        mask: Expr | None = None
        for tap in taps:
            if tap.inside is not None:
                mask = tap.inside if mask is None else mask & tap.inside
        other = None if mask is None else constant(0, x.dtype)
        return cast(Load(access, x.dtype, mask, other, index), wide)

    return load


def interpolated(
    taps: Sequence[Sequence[Tap]], load: Callable[[Sequence[Tap]], Expr], *chosen: Tap
) -> Expr:
    """The weighted sum over all taps, axis by axis: those of the last axis are added first."""
    if not taps:
        return load(chosen)
    total: Expr | None = None
    for tap in taps[0]:
        value = interpolated(taps[1:], load, *chosen, tap)
        if tap.weight is None:
            return value
        total = tap.weight * value if total is None else op("fma", tap.weight, value, total)
    assert total is not None
    return total
