"""Resize and Upsample: one axis at a time, by tables of positions and weights.

An output element is a sum of `weight * element` over a few taps (`taps`). The tables are computed
while compiling where sizes are known, else by a kernel of their own: the same expressions either
way, so both give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ostinato.limits import MOST_BYTES
from ostinato.ops.core.builder import LONGEST_TABLE
from ostinato.ops.core.known_sizes import known_sizes
from ostinato.ops.core.quantized import quantized
from ostinato.ops.core.quotients import known_ratios
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, progression_of, slice_axis
from ostinato.ops.rules.taps import (
    CROP,
    Ratio,
    Resampling,
    Stretch,
    inside_of,
    rounding_along,
    taps_of,
)
from ostinato.ops.rules.views import axis_of
from ostinato.ops.rules.windows import terms_of
from ostinato.program.evaluate import evaluate
from ostinato.program.expr import (
    FLOATS,
    Axis,
    Expr,
    Extent,
    Index,
    Load,
    cast,
    constant,
    dtype_of,
    op,
    select,
    walk,
)
from ostinato.program.kernel import Store
from ostinato.sizes.conditions import choose, is_less
from ostinato.sizes.dims import Size, floordiv, minimum
from ostinato.sizes.strides import Shape

# The floats that hold integers exactly, or, of 64 bits, most nearly.
_WIDE = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16"), "float32"),
    **dict.fromkeys(("int32", "uint32", "int64", "uint64"), "float64"),
}
_TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    CROP,
)
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
# Scales of this form times an extent are exact in float32, so that run-time sizes can be computed.
_LARGEST_RATIO = 1 << 10


@lowers("Resize")
def lower_resize(context: Context) -> Value:
    """The value sampled at other places along some axes: nearest, linear or cubic."""
    value = context.input(0)
    attributes = context.attributes
    mode = attributes.string("mode", "nearest")
    if context.since < 11:
        scales = _scales(context, 1, len(value.shape))
        stretches = [_scaled(context, n, s) for n, s in zip(value.shape, scales, strict=True)]
        return _resampled(context, value, stretches, Resampling(mode, rounding=None))
    how = Resampling(
        mode,
        attributes.string("coordinate_transformation_mode", "half_pixel"),
        attributes.string("nearest_mode", "round_prefer_floor"),
        context.float("cubic_coeff_a"),
        bool(attributes.int("antialias", 0)),
        bool(attributes.int("exclude_outside", 0)),
        context.float("extrapolation_value"),
    )
    return _resampled(context, value, _stretches(context, value.shape, how), how)


@lowers("Upsample")
def lower_upsample(context: Context) -> Value:
    """Resize without offsets: output `i` lies at `i / scale`, nearest rounds down."""
    value = context.input(0)
    mode = context.attributes.string("mode", "nearest")
    if context.since >= 9:
        scales = _scales(context, 1, len(value.shape))
    elif context.since >= 7:
        scales = list(context.attributes.floats("scales"))
    else:
        scales = [1.0, 1.0, *(context.attributes.float(f"{n}_scale") for n in ("height", "width"))]
    if len(scales) != len(value.shape):
        raise context.invalid(f"{len(scales)} scales for an input of shape {value.shape}")
    stretches = [_scaled(context, n, s) for n, s in zip(value.shape, scales, strict=True)]
    how = Resampling("linear" if mode == "bilinear" else mode)
    return _resampled(context, value, stretches, how)


def _stretches(context: Context, shape: Shape, how: Resampling) -> list[Stretch]:
    """Read sizes, scales and regions of each axis from the operands of Resize."""
    rank = len(shape)
    named = context.attributes.ints("axes", None)
    axes = [axis_of(context, axis, rank) for axis in (range(rank) if named is None else named)]
    policy = context.attributes.string("keep_aspect_ratio_policy", "stretch")
    roi, scales, sizes = context.optional(1), context.optional(2), context.optional(3)
    result = [Stretch(extent, extent, 1.0) for extent in shape]
    if sizes is not None and sizes.shape != (0,):
        found = _sized(
            context, [shape[i] for i in axes], known_sizes(context, 3, "'sizes'"), policy
        )
    elif scales is not None:
        given = _scales(context, 2, len(axes))
        found = [_scaled(context, shape[i], s, 2) for i, s in zip(axes, given, strict=True)]
    else:
        raise context.invalid("neither scales nor sizes are given")
    for axis, stretch in zip(axes, found, strict=True):
        result[axis] = stretch
    if how.transform == CROP:
        if roi is None or roi.known is None:
            reason = "input 'roi' is only known at run time"
            raise context.unknown(reason, 1, needs_constants=True)
        ends = [float(v) for v in roi.known.reshape(-1)]
        if len(ends) != 2 * len(axes):
            raise context.invalid(f"input 'roi' has {len(ends)} elements for {len(axes)} axes")
        for i, axis in enumerate(axes):
            old = result[axis]
            start, end = ends[i], ends[i + len(axes)]
            result[axis] = Stretch(old.extent, old.outputs, old.scale, start, end)
    return result


def _scales(context: Context, position: int, count: int) -> list[float | Ratio]:
    known = known_ratios(context.builder, context.input(position))
    if known is None:
        reason = "input 'scales' is only known at run time"
        raise context.unknown(reason, position, needs_constants=True)
    if len(known) != count:
        raise context.invalid(f"{len(known)} scales for {count} axes")
    return [Ratio(*one, is_given=True) if isinstance(one, tuple) else one for one in known]


def _scaled(context: Context, extent: Size, scale: float | Ratio, position: int = 1) -> Stretch:
    """An axis by its scale: `floor(extent * scale)` outputs, the product rounded to float32."""
    if isinstance(scale, Ratio):
        return _stretched(context, extent, scale, position)
    if not 0 < scale < math.inf:
        raise context.invalid(f"a scale is {scale}")
    if isinstance(extent, int):
        with np.errstate(over="ignore"):
            outputs = np.floor(np.float32(extent) * np.float32(scale))
        if outputs > MOST_BYTES:
            raise context.invalid(f"scale {scale} makes {outputs} elements of {extent}")
        return Stretch(extent, int(outputs), scale)
    ratio = Fraction(scale)
    if max(ratio.numerator, ratio.denominator) > _LARGEST_RATIO:
        return Stretch(extent, _rounded_product(context, extent, scale), scale)
    return Stretch(extent, floordiv(extent * ratio.numerator, ratio.denominator), scale)


def _stretched(context: Context, extent: Size, scale: Ratio, position: int) -> Stretch:
    """An axis by the quotient of a size and its own: that many outputs, but for rounding."""
    if extent - scale.extent != 0:
        reason = "input 'scales' is only known at run time"
        raise context.unknown(reason, position, needs_constants=True)
    require, outputs = context.builder.require, scale.outputs
    for size in (extent, outputs):
        require.nonnegative(size - 1, "a scale is no positive number")
    # Both roundings together make it larger by at most 3 / 2**24 of it.
    most = outputs + floordiv(outputs, 1 << 22)
    product = cast(Extent(extent), "float32") * scale.quotient("float32")
    found = context.builder.sizes.computed(cast(op("floor", product), "int64"), most, "scaled size")
    if not context.builder.guarded:
        return Stretch(extent, found, scale)
    for difference in (found - outputs, outputs - found):
        require.guard_now(difference, "scales whose product with the size is another one")
    return Stretch(extent, outputs, scale)


def _rounded_product(context: Context, extent: Size, scale: float) -> Size:
    """`floor(extent * scale)`, the product rounded to float32: a size that a kernel computes."""
    bound = floordiv(extent * (math.floor(scale * _LARGEST_RATIO) + 1), _LARGEST_RATIO) + 1
    exact = cast(Extent(extent), "float32") * scale
    value = cast(op("floor", exact), "int64")
    return context.builder.sizes.computed(value, bound, "scaled size")


def _sized(
    context: Context, extents: Sequence[Size], sizes: Sequence[Size], policy: str
) -> list[Stretch]:
    """Axes by their sizes, which `policy` can reduce to one common scale."""
    if len(sizes) != len(extents):
        raise context.invalid(f"{len(sizes)} sizes for {len(extents)} axes")
    sizes = [context.builder.sizes.defined(size, "a size") for size in sizes]
    if policy == "stretch":
        return [Stretch(n, size) for n, size in zip(extents, sizes, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        raise context.invalid(f"attribute 'keep_aspect_ratio_policy' is {policy!r}")
    scale = Ratio(sizes[0], extents[0])
    for extent in extents:
        context.builder.require.nonzero(extent, "an axis without elements has no aspect ratio")
    for size, extent in zip(sizes[1:], extents[1:], strict=True):
        # Fractions are compared exactly.
        one, other = size * scale.extent, scale.outputs * extent
        wins = is_less(one, other) if policy == "not_larger" else is_less(other, one)
        scale = Ratio(choose(wins, size, scale.outputs), choose(wins, extent, scale.extent))
    return [
        Stretch(n, context.builder.sizes.defined(scale.nearest(n), "a size"), scale)
        for n in extents
    ]


def _resampled(
    context: Context, value: Value, stretches: Sequence[Stretch], how: Resampling
) -> Value:
    """The value with every axis stretched: the last axis first, while it is still short.

    Integers are interpolated in floats, rounded to the nearest and kept within their type.
    """
    if how.mode in ("linear", "cubic") and value.dtype in _WIDE:
        pointwise, dtype = context.builder.pointwise, value.dtype
        wide = pointwise(lambda x: cast(x, _WIDE[dtype]), value)
        result = _resampled(context, wide, stretches, how)
        return pointwise(lambda x: _whole(x, dtype), result)
    _check(context, value, how)
    context.builder.limits.memory(value.dtype, tuple(stretch.outputs for stretch in stretches))
    x = context.builder.strided(value)
    if how.antialias and any(stretch.known_scale is None for stretch in stretches):
        # It decides how many elements an output is made of.
        reason = "antialias with a scale only known at run time has no native form"
        raise context.unknown(reason, 3, needs_constants=True)
    repeats = [_repeats(stretch, how) for stretch in stretches]
    for axis in reversed(range(len(stretches))):
        if repeats[axis] == 1 and not stretches[axis].keeps:
            x = _along(context, x, axis, stretches[axis], how)
    if how.transform == CROP:
        return _filled_outside(context, x, stretches, how)
    return _repeated(context, x, repeats)


def _whole(x: Expr, dtype: str) -> Expr:
    """x as an integer: the nearest, ties to even, kept within the type."""
    limits = np.iinfo(dtype)
    if limits.max <= np.iinfo("int32").max:
        return quantized(x, None, dtype)
    # The greatest integer of 64 bits is no float: all floats below the next one are kept.
    beyond = float(int(limits.max) + 1)
    low, high = constant(limits.min, "float64"), constant(np.nextafter(beyond, 0), "float64")
    whole = op("rint", x)
    kept = op("max", op("min", whole, high), low)
    is_kept = whole < beyond
    return select(is_kept, cast(kept, dtype), limits.max)


def _check(context: Context, value: Value, how: Resampling) -> None:
    if how.mode not in ("nearest", "linear", "cubic"):
        raise context.invalid(f"attribute 'mode' is {how.mode!r}")
    if how.transform not in _TRANSFORMS:
        raise context.invalid(f"attribute 'coordinate_transformation_mode' is {how.transform!r}")
    if how.rounding not in (None, *_ROUNDINGS):
        raise context.invalid(f"attribute 'nearest_mode' is {how.rounding!r}")
    if how.mode != "nearest" and value.dtype not in FLOATS:
        raise context.refuse(f"{how.mode} interpolation of {value.dtype} has no native form")


# Repeated elements


def _repeats(stretch: Stretch, how: Resampling) -> int:
    """Count equal outputs in a row, where that is the same number everywhere."""
    scale = stretch.known_scale
    centred = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
    even = (how.transform == "asymmetric" and rounding_along(stretch, how) == "floor") or (
        how.transform in centred and how.rounding in _ROUNDINGS[:2]
    )
    if how.mode != "nearest" or not even or scale is None or not scale.is_integer():
        return 1
    return int(scale) if stretch.outputs - stretch.extent * int(scale) == 0 else 1


def _repeated(context: Context, x: Tensor, repeats: Sequence[int]) -> Tensor:
    if max(repeats, default=1) == 1:
        return x
    shape: list[Size] = []
    strides: list[Size] = []
    for extent, stride, count in zip(x.shape, x.strides, repeats, strict=True):
        shape += [extent, count]
        strides += [stride, 0]
    view = Tensor(x.dtype, tuple(shape), x.base, tuple(strides))
    result = tuple(n * count for n, count in zip(x.shape, repeats, strict=True))
    return context.builder.reshaped(view, result)


# Tables


def _along(context: Context, x: Tensor, axis: int, stretch: Stretch, how: Resampling) -> Tensor:
    """The value resampled along one axis."""
    builder = context.builder
    builder.require.nonnegative(
        stretch.extent - minimum(stretch.outputs, 1), f"axis {axis} has no elements to resample"
    )
    dtype = "float64" if x.dtype == "float64" else "float32"
    place = builder.axis(stretch.outputs)
    taps = taps_of(stretch, how, cast(Index(place), dtype))
    positions = _table(context, place, [tap.position for tap in taps])
    weights = [tap.weight for tap in taps if tap.weight is not None]

    shape = (*x.shape[:axis], stretch.outputs, *x.shape[axis + 1 :])
    axes = builder.axes(shape)
    others = (*axes[:axis], *axes[axis + 1 :])
    rest = Tensor(
        x.dtype,
        x.shape[:axis] + x.shape[axis + 1 :],
        x.base,
        x.strides[:axis] + x.strides[axis + 1 :],
    )
    tap_axis = builder.axis(len(taps), "r")
    access, stride = builder.access(rest, others), x.strides[axis]
    line = progression_of(positions)
    if line is not None:
        # As where an image is made a whole number of times smaller.
        steps = zip((tap_axis, axes[axis]), line.steps, strict=True)
        terms = access.terms + terms_of([(a, step * stride) for a, step in steps])
        moved = replace(access, offset=access.offset + line.start * stride, terms=terms)
        element = Load(moved, x.dtype)
    else:
        position = builder.load(positions, (tap_axis, axes[axis]))
        element = Load(access, x.dtype, index=((position, stride),))
    if not weights:
        return builder.stored(shape, axes, element)
    weight = builder.load(_table(context, place, weights), (tap_axis, axes[axis]))
    return builder.contract(shape, axes, (tap_axis,), element, weight)


def _filled_outside(
    context: Context, x: Tensor, stretches: Sequence[Stretch], how: Resampling
) -> Tensor:
    """`how.fill` in place of what lies outside of the value along any axis."""
    builder = context.builder
    axes = builder.axes(x.shape)
    element = builder.load(x, axes)
    dtype = "float64" if x.dtype == "float64" else "float32"
    for axis, stretch in zip(axes, stretches, strict=True):
        if not stretch.keeps:
            place = builder.axis(stretch.outputs)
            inside = inside_of(stretch, how, cast(Index(place), dtype))
            table = _row(_table(context, place, [inside]), 0)
            element = select(builder.load(table, (axis,)), element, how.fill)
    return builder.stored(x.shape, axes, element)


def _table(context: Context, place: Axis, rows: Sequence[Expr]) -> Tensor:
    """[row, place]: each expression at every point of the axis."""
    builder, extent = context.builder, place.extent
    if isinstance(extent, int) and extent <= LONGEST_TABLE and not _reads_sizes(rows):
        points = np.arange(extent)
        arrays = [np.broadcast_to(evaluate(row, lambda _: points), (extent,)) for row in rows]
        return builder.constants.placed(builder.constant(np.stack(arrays)))
    table = builder.empty(dtype_of(rows[0]), (len(rows), extent))
    stores = [
        Store(builder.access(_row(table, number), (place,)), row) for number, row in enumerate(rows)
    ]
    builder.emit.kernel((place,), stores)
    return table


def _reads_sizes(rows: Sequence[Expr]) -> bool:
    return any(isinstance(node, Extent) for node in walk(*rows))


def _row(table: Tensor, number: int) -> Tensor:
    row = slice_axis(table, 0, number, 1, 1)
    return Tensor(row.dtype, row.shape[1:], row.base, row.strides[1:])
