"""Ops around Lp norms and local energy: pools, normalisations over neighbours, Col2Im."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from ostinato.limits import MOST_WINDOW
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.known_sizes import known_ints, known_sizes
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, advance, dense, slice_axis
from ostinato.ops.rules.padding import within
from ostinato.ops.rules.pointwise import floats
from ostinato.ops.rules.reductions import absolute, centred, divided_by_count, square
from ostinato.ops.rules.views import axes_of, axis_of, reshape
from ostinato.ops.rules.windows import output_sizes, read_windows, terms_of, window_load
from ostinato.program.expr import (
    Access,
    Axis,
    Expr,
    Extent,
    Index,
    Load,
    constant,
    literal,
    op,
    select,
)
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, ceildiv, floordiv, product

# Powers up to this one are products.
_MOST_FACTORS = 8
# Keeps a value without variance from being divided by 0.
_LEAST_DEVIATION = 1e-9


def _power(x: Expr, p: int) -> Expr:
    """|x| ** p."""
    if p == 2:
        return square(x)
    if p <= _MOST_FACTORS:
        return reduce(lambda total, factor: total * factor, [absolute(x)] * p)
    return op("pow", absolute(x), literal(p, x))


def _root(total: Expr, p: int) -> Expr:
    """total ** (1 / p)."""
    if p == 1:
        return total
    return op("sqrt", total) if p == 2 else op("pow", total, literal(1 / p, total))


def _order(context: Context, op_since: int) -> int:
    """The attribute `p`, an integer since this version of the operator."""
    if context.since < op_since:
        raise context.refuse("a fractional 'p' has no native form")
    p: int = context.attributes.int("p", 2)
    if p < 1:
        raise context.invalid(f"attribute 'p' is {p}")
    return p


@lowers("LpNormalization")
def lower_lp_normalization(context: Context) -> Value:
    """Values divided by their norm along an axis; 0 where the norm is 0."""
    value, builder = floats(context, 0), context.builder
    p = _order(context, 1)
    if p > 2:
        raise context.invalid(f"attribute 'p' is {p}, expected 1 or 2")
    axis = axis_of(context, context.attributes.int("axis", -1), len(value.shape))
    total = builder.reduce(value, (axis,), "sum", lambda x: _power(x, p))

    def divided(x: Expr, t: Expr) -> Expr:
        norm = _root(t, p)
        zero = literal(0, x)
        return select(norm.equals(zero), zero, x / norm)

    return builder.pointwise(divided, value, total)


@lowers("GlobalLpPool")
def lower_global_lp_pool(context: Context) -> Value:
    """The norm over all spatial axes, which keep an extent of 1."""
    value, builder = floats(context, 0), context.builder
    p = _order(context, 2)
    axes = tuple(range(2, len(value.shape)))
    if not axes:
        raise context.invalid(f"no spatial axes in an input of shape {value.shape}")
    total = builder.reduce(value, axes, "sum", lambda x: _power(x, p))
    return builder.pointwise(lambda t: _root(t, p), total)


@lowers("LpPool")
def lower_lp_pool(context: Context) -> Value:
    """The norm of what lies below each position of a window; padding counts as 0."""
    p, builder = _order(context, 2), context.builder
    x = builder.strided(floats(context, 0))
    kernel = context.attributes.ints("kernel_shape")
    if len(x.shape) != len(kernel) + 2:
        raise context.invalid(f"kernel_shape {list(kernel)} for an input of shape {x.shape}")
    ceil = bool(context.attributes.int("ceil_mode", 0))
    windows = read_windows(context, x.shape[2:], kernel, context.since >= 18, ceil)
    shape = (*x.shape[:2], *output_sizes(context, windows))
    outer = builder.axes(shape)
    taps = [builder.axis(window.kernel, "r") for window in windows]
    channel = [(outer[1], x.strides[1])]
    element = window_load(x, outer[0], channel, outer[2:], taps, windows, constant(0, x.dtype))
    total = builder.fold(shape, outer, taps, "sum", _power(element, p))
    return builder.pointwise(lambda t: _root(t, p), total)


@lowers("LRN")
def lower_local_response(context: Context) -> Value:
    """x / (bias + alpha / size * s) ** beta; s sums the squares of neighbouring channels."""
    builder = context.builder
    x = builder.strided(floats(context, 0))
    size = context.attributes.int("size")
    alpha, beta, bias = (context.float(name) for name in ("alpha", "beta", "bias"))
    if len(x.shape) < 2 or not 1 <= size <= MOST_WINDOW:
        raise context.invalid(f"size {size} for an input of shape {x.shape}")
    before, after = (size - 1) // 2, size // 2
    axes: list[Axis | None] = list(builder.axes(x.shape))
    channel = axes[1] = builder.axis(x.shape[1])
    tap = builder.axis(size, "r")
    shifted = Tensor(x.dtype, x.shape, advance(x, -before * x.strides[1]), x.strides)
    access = builder.access(shifted, axes)
    access = Access(access.buffer, access.offset, (*access.terms, (tap, x.strides[1])))
    inside: Expr | None = None
    for condition in within(Index(channel) + Index(tap), before, x.shape[1], after):
        inside = condition if inside is None else inside & condition
    other = None if inside is None else constant(0, x.dtype)
    total = builder.fold(x.shape, axes, [tap], "sum", square(Load(access, x.dtype, inside, other)))

    def response(value: Expr, s: Expr) -> Expr:
        scaled = bias + alpha / size * s
        return value / op("pow", scaled, literal(beta, s))

    return builder.pointwise(response, x, total)


@lowers("MeanVarianceNormalization")
def lower_mean_variance(context: Context) -> Value:
    """(x - mean) / deviation along some axes."""
    value, builder = floats(context, 0), context.builder
    if context.since < 9:
        raise context.refuse("the form before opset 9 has no native form")
    axes = axes_of(context, context.attributes.ints("axes", (0, 2, 3)), len(value.shape))
    _, differences, count = centred(builder, value, axes)
    squares = builder.reduce(differences, axes, "sum", square)

    def normal(x: Expr, s: Expr) -> Expr:
        deviation = op("sqrt", divided_by_count(s, count))
        return x / (deviation + _LEAST_DEVIATION)

    return builder.pointwise(normal, differences, squares)


@lowers("Col2Im")
def lower_col2im(context: Context) -> Value:
    """Blocks of an image added up where they overlap: [n, c * block, blocks] to [n, c, image..].

    Each element of the image sums, in order of the places within a block, what the blocks that
    cover it hold for it.
    """
    builder = context.builder
    x = builder.strided(context.input(0))
    image, blocks, before = _read_blocks(context, x)
    rank = len(blocks)
    channels = floordiv(x.shape[1], product([block.places for block in blocks]))
    sizes = [*(block.places for block in blocks), *(block.count for block in blocks)]
    columns = builder.strided(reshape(context, x, (x.shape[0], channels, *sizes)))
    steps = zip(columns.strides[2 : 2 + rank], columns.strides[2 + rank :], strict=True)
    along = [
        _covering(builder, place, count, *axis)
        for (place, count), axis in zip(steps, zip(image, before, blocks, strict=True), strict=True)
    ]
    outer = builder.axes((x.shape[0], channels))
    points = [*outer, *(axis for one in along for axis in one.axes)]
    pairs = [
        *zip(outer, columns.strides[:2], strict=True),
        *(t for one in along for t in one.terms),
    ]
    index = tuple(term for one in along for term in one.index)
    inside = reduce(lambda left, right: left & right, [one.inside for one in along])
    access = replace(columns.address, terms=columns.address.terms + terms_of(pairs))
    element = Load(access, x.dtype, inside, constant(0, x.dtype), index)
    places = [axis.extent for one in along for axis in one.axes]
    taps = [one.tap for one in along]
    sums = builder.fold((x.shape[0], channels, *places), points, taps, "sum", element)
    whole = [product([axis.extent for axis in one.axes]) for one in along]
    result = dense(x.dtype, (x.shape[0], channels, *whole), sums.buffer)
    for i, one in enumerate(along):
        result = slice_axis(result, 2 + i, one.first, 1, image[i])
    return result


def _read_blocks(
    context: Context, columns: Tensor
) -> tuple[list[Size], list[Blocks], tuple[int, ...]]:
    """The sizes of the image, its blocks along each axis, and the padding before it."""
    image = known_sizes(context, 1, "input 'image_shape'")
    places = known_ints(context, 2, "input 'block_shape'")
    rank = len(places)
    strides = context.attributes.ints("strides", (1,) * rank)
    dilations = context.attributes.ints("dilations", (1,) * rank)
    pads = context.attributes.ints("pads", (0,) * (2 * rank))
    lengths = (len(image), len(strides), len(dilations), len(pads) / 2)
    if any(n != rank for n in lengths) or min((*dilations, 1)) < 1 or min((*pads, 0)) < 0:
        raise context.invalid(
            f"image_shape {image}, strides {list(strides)}, dilations {list(dilations)}, pads "
            f"{list(pads)}: expected {rank} of each, as of block_shape, and {2 * rank} pads"
        )
    if len(columns.shape) != 3 or min((*places, *strides), default=0) < 1:
        raise context.invalid(f"blocks {places} of an image {image} in columns {columns.shape}")
    blocks = []
    for i in range(rank):
        span = (places[i] - 1) * dilations[i] + 1
        count = floordiv(image[i] + pads[i] + pads[i + rank] - span, strides[i]) + 1
        blocks.append(Blocks(places[i], count, strides[i], dilations[i]))
    return image, blocks, tuple(pads[:rank])


@dataclass(frozen=True)
class Blocks:
    """Along an axis of an image, blocks of this many places each, `stride` apart."""

    places: int
    count: Size
    stride: int
    dilation: int


@dataclass(frozen=True)
class Covering:
    """The blocks that cover an element of an axis of an image.

    axes: that count the elements, of which the image begins at `first`. tap: counts the blocks that
    may cover an element, by their place there. terms, index: the address of what they hold for it,
    as in a Load. inside: whether there is such a block.
    """

    axes: tuple[Axis, ...]
    first: int
    tap: Axis
    terms: tuple[tuple[Axis, Size], ...]
    index: tuple[tuple[Expr, Size], ...]
    inside: Expr


def _covering(
    builder: Builder, own: Size, next_block: Size, extent: Size, pad: int, blocks: Blocks
) -> Covering:
    """The blocks that cover the elements of an axis; strides are those of places and of blocks.

    Element `q * stride + r` of the padded axis is place `r + j * stride` of block `q - j`.
    """
    if blocks.dilation > 1:
        return _covering_dilated(builder, own, next_block, extent, pad, blocks)
    step = blocks.stride
    start, rest = builder.axis(ceildiv(extent + pad, step)), builder.axis(step)
    tap = builder.axis(-(-blocks.places // step), "r")
    number = Index(start) - Index(tap)
    inside = number >= 0
    inside = inside & (number < Extent(blocks.count))
    if blocks.places % step:
        place = Index(rest) + Index(tap) * step
        inside = inside & (place < blocks.places)
    terms = (start, next_block), (rest, own), (tap, own * step - next_block)
    return Covering((start, rest), pad, tap, terms, (), inside)


def _covering_dilated(
    builder: Builder, own: Size, next_block: Size, extent: Size, pad: int, blocks: Blocks
) -> Covering:
    """The same by a test of every place of a block."""
    axis, tap = builder.axis(extent), builder.axis(blocks.places, "r")
    start = Index(axis) + pad - Index(tap) * blocks.dilation  # fmt: skip
    step = constant(blocks.stride, "int64")
    number = start / step
    inside = (number * step).equals(start)
    inside = inside & (start >= 0)
    inside = inside & (number < Extent(blocks.count))
    return Covering((axis,), 0, tap, ((tap, own),), ((number, next_block),), inside)
