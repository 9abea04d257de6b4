"""DeformConv: a convolution whose taps lie at places that another operand moves.

The elements below all taps are interpolated once, channel by channel; their products with the
weights are then summed as those of a convolution are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ostinato.graph.windows import Window
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, dense, slice_axis
from ostinato.ops.rules.gather import without_axes
from ostinato.ops.rules.sampling import (
    MOST_TAPS,
    Sampling,
    along_channels,
    interpolated,
    loads_at,
    taps_around,
)
from ostinato.ops.rules.windows import biased, given_kernel, output_sizes, read_windows
from ostinato.program.expr import Axis, Expr, Index, cast, constant, dtype_of, literal, op, sized
from ostinato.sizes.dims import Size, product
from ostinato.sizes.strides import Shape

# Elements beyond an end count as zeros, and places are counted in elements.
_SAMPLING = Sampling(taps=2, padding="zeros", corners=True)


@lowers("DeformConv")
def lower_deform_conv(context: Context) -> Value:
    """Convolution of values between elements: offsets say how far each tap is moved."""
    builder = context.builder
    source, weight = context.input(0), context.input(1)
    kernel = given_kernel(context, source, weight)
    windows = read_windows(context, source.shape[2:], kernel)
    group, parts = (context.attributes.int(name, 1) for name in ("group", "offset_group"))
    filters, depth = weight.shape[:2]
    if not isinstance(filters, int) or not isinstance(depth, int):
        raise context.refuse("weights of a run-time shape have no native form")
    if 2 ** len(kernel) > MOST_TAPS:
        raise context.refuse(f"{2 ** len(kernel)} elements to each place have no native form")
    channels = depth * group
    if group < 1 or filters % group or parts < 1 or channels % parts:
        raise context.invalid(
            f"{filters} filters in {group} groups, and offsets for {channels} channels in {parts}"
        )
    builder.require.equal(source.shape[1], channels, "channels of the input and the weights")
    spatial = output_sizes(context, windows)
    shape = (source.shape[0], parts, *kernel, *spatial)
    offsets = _moved(context, 2, shape, len(kernel))
    mask = None if context.optional(4) is None else _moved(context, 4, shape)
    x = replace(
        builder.strided(source), shape=(source.shape[0], channels, *source.shape[2:]), known=None
    )
    x = builder.reshaped(x, (x.shape[0], parts, channels // parts, *x.shape[2:]))
    places = _places(context, offsets, shape, windows, x.shape[3:])
    columns = along_channels(
        builder,
        x,
        2,
        2 ** len(kernel) * product(shape[2:]),
        lambda x: _interpolated(context, x, places, mask, shape),
    )
    per_group = filters // group
    full = (source.shape[0], group, per_group, *spatial)
    outer = builder.axes(full)
    inner = [builder.axis(n, "r") for n in (depth, *kernel)]
    left = dense(columns.dtype, (full[0], group, depth, *kernel, *spatial), columns.buffer)
    right = builder.reshaped(builder.strided(weight), (group, per_group, depth, *kernel))
    total = builder.contract(
        full,
        outer,
        [axis for axis in inner if axis.extent != 1] or inner[:1],
        builder.load(left, (*outer[:2], *inner, *outer[3:])),
        builder.load(right, (*outer[1:3], *inner)),
    )
    result = builder.reshaped(total, (full[0], filters, *spatial))
    return biased(context, result, context.optional(3))


def _moved(context: Context, position: int, shape: Shape, rank: int = 0) -> Tensor:
    """Offsets, with an axis for the `rank` components behind the taps, or the mask without it.

    shape: batch, groups, taps and places. The operand has one axis for groups, taps, components.
    """
    builder, value = context.builder, context.builder.strided(context.input(position))
    taps = (len(shape) - 2) // 2
    apart = (*shape[: 2 + taps], *([rank] if rank else []), *shape[2 + taps :])
    joined = (shape[0], product(apart[1 : len(apart) - taps]), *shape[2 + taps :])
    if len(value.shape) != len(joined):
        raise context.invalid(f"input {position} of shape {value.shape}, expected {joined}")
    for i, (n, wanted) in enumerate(zip(value.shape, joined, strict=True)):
        builder.require.equal(n, wanted, f"axis {i} of input {position}")
    return builder.reshaped(replace(value, shape=joined, known=None), apart)


def _places(
    context: Context, offsets: Tensor, shape: Shape, windows: Sequence[Window[Size]], extents: Shape
) -> list[Tensor]:
    """For each spatial axis the places of all taps, in elements."""
    builder, rank = context.builder, len(windows)
    places = []
    for i, (window, extent) in enumerate(zip(windows, extents, strict=True)):
        axes = builder.axes(shape)
        component = slice_axis(offsets, 2 + rank, i, 1, 1)
        offset = builder.load(without_axes(component, 2 + rank), axes)
        start = _start(window, axes[2 + i], axes[2 + rank + i])
        place = cast(start, dtype_of(offset)) + offset
        # What is far away is as good as two elements away: no integer is too small for its place.
        place = op("min", place, cast(sized(extent), dtype_of(place)))
        place = op("max", place, literal(-2, place))
        places.append(builder.stored(shape, axes, place))
    return places


def _start(window: Window[Size], tap: Axis | None, position: Axis | None) -> Expr:
    """Compute the position of a tap of a window before its offset is added."""
    start: Expr = constant(0, "int64") - window.before
    for axis, step in ((position, window.stride), (tap, window.dilation)):
        if axis is not None:
            start = start + Index(axis) * step
    return start


def _interpolated(
    context: Context, x: Tensor, places: Sequence[Tensor], mask: Tensor | None, shape: Shape
) -> Tensor:
    """The values at all places: batch, groups, channels of a group, taps, places."""
    builder = context.builder
    axes = builder.axes((*shape[:2], x.shape[2], *shape[2:]))
    near = (*axes[:2], *axes[3:])
    taps = [
        taps_around(builder.load(place, near), extent, _SAMPLING, x.dtype)
        for place, extent in zip(places, x.shape[3:], strict=True)
    ]
    value = interpolated(taps, loads_at(builder, x, axes[:3], x.dtype))
    if mask is not None:
        value = value * builder.load(mask, near)
    return builder.stored((*shape[:2], x.shape[2], *shape[2:]), axes, value)
