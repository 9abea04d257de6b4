"""Convolution."""

from __future__ import annotations

from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Value
from ostinato.ops.rules.dilated import convolve_on_data, join_phases, split_phases
from ostinato.ops.rules.windows import biased, convolve, given_kernel, output_sizes, read_windows
from ostinato.ops.rules.winograd import convolve_pairs, in_pairs


@lowers("Conv")
def lower_conv(context: Context) -> Value:
    """Convolution over any number of spatial axes: strided, dilated, grouped, padded with zeros."""
    source, weight, bias = context.input(0), context.input(1), context.optional(2)
    kernel = given_kernel(context, source, weight)
    windows = read_windows(context, source.shape[2:], kernel)
    output_sizes(context, windows)  # Every form below counts on places that there are.
    group = context.attributes.int("group", 1)
    pairs, builder = in_pairs(context, weight, windows, group), context.builder
    result: Value | None = None
    if pairs is not None and pairs.images > 1:
        images = split_phases(context, builder.strided(source), windows)
        result = convolve_pairs(context, images, pairs)
        result = join_phases(builder, result, windows, source.shape[0])
    elif pairs is not None:
        result = convolve_pairs(context, builder.strided(source), pairs)
    elif group == 1:
        result = convolve_on_data(context, source, weight, windows)
    if result is None:
        result = convolve(context, source, weight, windows, group)
    return biased(context, result, bias)
