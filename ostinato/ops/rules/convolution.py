"""Convolution."""

from __future__ import annotations

from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Value
from ostinato.ops.rules.dilated import convolve_on_data, join_phases, split_phases
from ostinato.ops.rules.windows import biased, convolve, given_kernel, output_sizes, read_windows
from ostinato.ops.rules.winograd import convolve_together
from ostinato.ops.rules.winograd_ways import winograd


@lowers("Conv")
def lower_conv(context: Context) -> Value:
    """Convolution over any number of spatial axes: strided, dilated, grouped, padded with zeros."""
    source, weight, bias = context.input(0), context.input(1), context.optional(2)
    kernel = given_kernel(context, source, weight)
    windows = read_windows(context, source.shape[2:], kernel)
    output_sizes(context, windows)  # Every form below counts on places that there are.
    group = context.attributes.int("group", 1)
    way, builder = winograd(context, weight, windows, group), context.builder
    result: Value | None = None
    if way is not None and way.images > 1:
        images = split_phases(context, builder.strided(source), windows)
        result = convolve_together(context, images, way)
        result = join_phases(builder, result, windows, source.shape[0])
    elif way is not None:
        result = convolve_together(context, builder.strided(source), way)
    elif group == 1:
        result = convolve_on_data(context, source, weight, windows)
    if result is None:
        result = convolve(context, source, weight, windows, group)
    return biased(context, result, bias)
