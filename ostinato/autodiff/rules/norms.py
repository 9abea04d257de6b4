"""Gradients of normalisations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates
from ostinato.autodiff.rules.pointwise import square
from ostinato.autodiff.rules.reductions import mean

# The operator adds it to deviations, so that none is divided by 0.
_LEAST_DEVIATION = 1e-9

Axes = tuple[int, ...]


def _inverse_root(context: Context, x: ir.Value, axes: Axes) -> ir.Value:
    """1 / sqrt(mean(x ** 2) + epsilon) along the axes, which keep a size of 1."""
    variance = mean(context, square(context, x), axes)
    root = context.ops.op("Sqrt", [context.ops.add(variance, context.float("epsilon"))])
    return context.ops.op("Reciprocal", [root])


def _normal(context: Context, x: ir.Value, axes: Axes) -> tuple[ir.Value, ir.Value]:
    """(x - mean) / deviation along the axes, and 1 / deviation."""
    centred = context.ops.sub(x, mean(context, x, axes))
    inverse = _inverse_root(context, centred, axes)
    return context.ops.mul(centred, inverse), inverse


def _through(
    context: Context, given: ir.Value, normal: ir.Value, inverse: ir.Value, axes: Axes
) -> ir.Value:
    """The gradient of x from that of `normal` = (x - mean) / deviation.

    https://arxiv.org/abs/1502.03167, section 3, with the terms gathered.
    """
    rest = context.ops.sub(given, mean(context, given, axes))
    return context.ops.mul(context.ops.sub(rest, _along(context, given, normal, axes)), inverse)


def _along(context: Context, given: ir.Value, normal: ir.Value, axes: Axes) -> ir.Value:
    """The part of the gradient that changes the deviation, which the result does not show."""
    return context.ops.mul(normal, mean(context, context.ops.mul(given, normal), axes))


def _refuse_statistics(context: Context) -> None:
    for index in range(1, len(context.node.outputs)):
        if context.has_gradient(index):
            raise context.refuse(f"output {index} has no gradient")


def _give_scale_and_bias(context: Context, given: ir.Value, normal: ir.Value) -> None:
    """For a scale and a bias that were broadcast to the result."""
    if context.wants(1):
        context.give_broadcast(1, context.ops.mul(given, normal))
    context.give_broadcast(2, given)


@differentiates("LayerNormalization")
def _layer_normalization(context: Context) -> None:
    """Through mean and deviation, which are computed again."""
    _refuse_statistics(context)
    context.attributes.int("stash_type", 1)
    given, axes = context.gradient(), context.mixed()
    normal, inverse = _normal(context, context.input(0), axes)
    if context.wants(0):
        scaled = context.ops.mul(given, context.input(1))
        context.give(0, _through(context, scaled, normal, inverse, axes))
    _give_scale_and_bias(context, given, normal)


@differentiates("RMSNormalization")
def _rms_normalization(context: Context) -> None:
    """Through the root of the mean square, which is computed again."""
    context.attributes.int("stash_type", 1)
    given, axes, x = context.gradient(), context.mixed(), context.input(0)
    inverse = _inverse_root(context, x, axes)
    normal = context.ops.mul(x, inverse)
    if context.wants(0):
        scaled = context.ops.mul(given, context.input(1))
        rest = context.ops.sub(scaled, _along(context, scaled, normal, axes))
        context.give(0, context.ops.mul(rest, inverse))
    _give_scale_and_bias(context, given, normal)


def _per_channel(context: Context, index: int, rank: int) -> ir.Value:
    """A vector over axis 1 of a value of `rank` axes, with axes of size 1 behind it."""
    return context.ops.unsqueeze(context.input(index), range(1, rank - 1))


def _over_channels(context: Context, x: ir.Value, rank: int) -> ir.Value:
    """The sums over all axes but 1."""
    return context.ops.sum(x, [0, *range(2, rank)], keepdims=False)


def _instances(context: Context) -> int:
    """The rank of input 0."""
    rank = context.rank(context.given(0))
    if rank < 2:
        raise context.refuse(f"has no gradient for a value of rank {rank}")
    return rank


@differentiates("InstanceNormalization")
def _instance_normalization(context: Context) -> None:
    """Through mean and deviation of each channel, which are computed again."""
    given, rank = context.gradient(), _instances(context)
    axes = context.mixed()
    normal, inverse = _normal(context, context.input(0), axes)
    if context.wants(0):
        scaled = context.ops.mul(given, _per_channel(context, 1, rank))
        context.give(0, _through(context, scaled, normal, inverse, axes))
    _give_channels(context, given, normal, rank)


def _give_channels(context: Context, given: ir.Value, normal: ir.Value, rank: int) -> None:
    """For a scale and a bias of each channel."""
    if context.wants(1):
        context.give(1, _over_channels(context, context.ops.mul(given, normal), rank))
    if context.wants(2):
        context.give(2, _over_channels(context, given, rank))


@differentiates("GroupNormalization")
def _group_normalization(context: Context) -> None:
    """Through mean and deviation of each group, which are computed again; of opset 21 or later."""
    context.attributes.int("stash_type", 1)
    rank, x = _instances(context), context.input(0)
    groups = np.array([0, context.attributes.int("num_groups"), -1], np.int64)
    sizes = context.sizes(context.given(0))
    normal, inverse = _normal(context, context.ops.op("Reshape", [x, groups]), (2,))
    given = context.gradient()
    if context.wants(0):
        scaled = context.ops.mul(given, _per_channel(context, 1, rank))
        grouped = context.ops.op("Reshape", [scaled, groups])
        through = _through(context, grouped, normal, inverse, (2,))
        context.give(0, context.ops.reshape(through, sizes))
    _give_channels(context, given, context.ops.reshape(normal, sizes), rank)


@differentiates("BatchNormalization")
def _batch_normalization(context: Context) -> None:
    """With given statistics, which get gradients too; in training through those of the batch."""
    context.float("momentum")
    given, rank = context.gradient(), _instances(context)
    scale = _per_channel(context, 1, rank)
    if context.attributes.int("training_mode", 0):
        _refuse_statistics(context)
        axes = (0, *range(2, rank))
        normal, inverse = _normal(context, context.input(0), axes)
        if context.wants(0):
            scaled = context.ops.mul(given, scale)
            context.give(0, _through(context, scaled, normal, inverse, axes))
        _give_channels(context, given, normal, rank)
        return
    variance = context.ops.add(_per_channel(context, 4, rank), context.float("epsilon"))
    inverse = context.ops.op("Reciprocal", [context.ops.op("Sqrt", [variance])])
    scaled = context.ops.mul(given, context.ops.mul(scale, inverse))
    context.give(0, scaled)
    if context.wants(2):
        context.give(2, _over_channels(context, given, rank))
    if context.wants(3):
        context.give(3, context.ops.neg(_over_channels(context, scaled, rank)))
    if context.wants(1) or context.wants(4):
        centred = context.ops.sub(context.input(0), _per_channel(context, 3, rank))
        slope = context.ops.mul(context.ops.mul(given, centred), inverse)
        context.give(1, _over_channels(context, slope, rank))
        slope = context.ops.mul(context.ops.mul(scaled, centred), context.ops.div(-0.5, variance))
        context.give(4, _over_channels(context, slope, rank))


@differentiates("LpNormalization")
def _lp_normalization(context: Context) -> None:
    """Y = X / norm: dX = (dY - N sum(dY Y)) / norm with N the slope of the norm.

    0 where the norm is 0.
    """
    p, axes = context.attributes.int("p", 2), context.mixed()
    x, y, given = context.input(0), context.output(), context.gradient()
    if p == 1:
        norm, slope = context.ops.sum(context.ops.op("Abs", [x]), axes), context.ops.op("Sign", [x])
    else:
        norm, slope = context.ops.op("Sqrt", [context.ops.sum(square(context, x), axes)]), y
    total = context.ops.sum(context.ops.mul(given, y), axes)
    found = context.ops.div(context.ops.sub(given, context.ops.mul(slope, total)), norm)
    context.give(0, context.ops.where(context.ops.compare("Equal", norm, 0.0), 0.0, found))


@differentiates("GlobalLpPool")
def _global_lp_pool(context: Context) -> None:
    """dX = dY sign(X) (|X| / Y)^(p - 1), 0 where Y is 0."""
    p, x, y = context.attributes.int("p", 2), context.input(0), context.output()
    share = context.ops.where(context.ops.compare("Equal", y, 0.0), 0.0, context.ops.div(x, y))
    power = context.ops.op("Pow", [context.ops.op("Abs", [share]), context.writer.scalar(p - 1)])
    slope = context.ops.mul(context.ops.op("Sign", [share]), power)
    context.give(0, context.ops.mul(slope, context.gradient()))


@differentiates("MeanVarianceNormalization")
def _mean_variance_normalization(context: Context) -> None:
    """Y = C / (D + e) with C = X - mean and D the deviation, where e keeps it from being 0."""
    axes, given, x = context.mixed(), context.gradient(), context.input(0)
    centred = context.ops.sub(x, mean(context, x, axes))
    deviation = context.ops.op("Sqrt", [mean(context, square(context, centred), axes)])
    divisor = context.ops.add(deviation, _LEAST_DEVIATION)
    constant = context.ops.compare("Equal", deviation, 0.0)
    unit = context.ops.where(constant, 0.0, context.ops.div(centred, deviation))
    changed = context.ops.mul(unit, mean(context, context.ops.mul(given, context.output()), axes))
    rest = context.ops.sub(given, mean(context, given, axes))
    context.give(0, context.ops.div(context.ops.sub(rest, changed), divisor))


@differentiates("LRN")
def _local_response(context: Context) -> None:
    """Y = X S^-b with S = bias + a W(X²), W the mean over a window of channels.

    dX = dY S^-b - 2 a b X V(dY X S^(-b - 1)), where V is W with the window mirrored.
    """
    alpha, beta, bias = (context.float(name) for name in ("alpha", "beta", "bias"))
    size, rank = context.attributes.int("size"), _instances(context)
    before, after = (size - 1) // 2, size // 2
    given, x = context.gradient(), context.input(0)
    window = _window(context, square(context, x), size, (before, after), rank)
    s = context.ops.add(context.ops.mul(window, alpha), bias)
    power = context.ops.op("Pow", [s, context.writer.scalar(-beta)])
    direct = context.ops.mul(given, power)
    inner = context.ops.div(context.ops.mul(direct, x), s)
    neighbours = _window(context, inner, size, (after, before), rank)
    indirect = context.ops.mul(context.ops.mul(x, 2 * alpha * beta), neighbours)
    context.give(0, context.ops.sub(direct, indirect))


def _window(context: Context, x: ir.Value, size: int, around: Sequence[int], rank: int) -> ir.Value:
    """The mean over `size` neighbours along axis 1, of which those that are not there count 0."""
    zeros = [0] * (rank - 2)
    attributes = {
        "kernel_shape": [size, *[1] * (rank - 2)],
        "pads": [around[0], *zeros, around[1], *zeros],
        "count_include_pad": 1,
    }
    pooled = context.ops.op("AveragePool", [context.ops.unsqueeze(x, [1])], attributes=attributes)
    return context.ops.squeeze(pooled, [1])
