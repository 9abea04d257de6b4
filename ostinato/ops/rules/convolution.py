"""Convolution."""

from __future__ import annotations

from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Value
from ostinato.ops.rules.windows import biased, convolve, given_kernel, read_windows
from ostinato.ops.rules.winograd import convolve_pairs, in_pairs


@lowers("Conv")
def lower_conv(context: Context) -> Value:
    """Convolution over any number of spatial axes: strided, dilated, grouped, padded with zeros."""
    source, weight, bias = context.input(0), context.input(1), context.optional(2)
    kernel = given_kernel(context, source, weight)
    windows = read_windows(context, source.shape[2:], kernel)
    group = context.attributes.int("group", 1)
    pairs = in_pairs(context, weight, windows, group)
    if pairs is None:
        result = convolve(context, source, weight, windows, group)
    else:
        result = convolve_pairs(context, context.builder.strided(source), pairs)
    return biased(context, result, bias)
