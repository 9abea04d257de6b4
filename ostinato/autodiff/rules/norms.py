"""Gradients of normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ostinato.autodiff.arithmetic import Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates

# The operator adds it to deviations, so that none is divided by 0.
_LEAST_DEVIATION = 1e-9

Axes = tuple[int, ...]


def _inverse_root(context: Context, x: Term, axes: Axes) -> Term:
    """1 / sqrt(mean(x ** 2) + epsilon) along the axes, which keep a size of 1."""
    variance = x.squared().mean(axes)
    return (variance + context.float("epsilon")).op("Sqrt").op("Reciprocal")


def _normal(context: Context, x: Term, axes: Axes) -> tuple[Term, Term]:
    """(x - mean) / deviation along the axes, and 1 / deviation."""
    centred = x - x.mean(axes)
    inverse = _inverse_root(context, centred, axes)
    return centred * inverse, inverse


def _through(context: Context, given: Term, normal: Term, inverse: Term, axes: Axes) -> Term:
    """The gradient of x from that of `normal` = (x - mean) / deviation.

    https://arxiv.org/abs/1502.03167, section 3, with the terms gathered.
    """
    rest = given - given.mean(axes)
    return (rest - _along(given, normal, axes)) * inverse


def _along(given: Term, normal: Term, axes: Axes) -> Term:
    """The part of the gradient that changes the deviation, which the result does not show."""
    return normal * (given * normal).mean(axes)


def _refuse_statistics(context: Context) -> None:
    for index in range(1, len(context.node.outputs)):
        if context.has_gradient(index):
            raise context.refuse(f"output {index} has no gradient")


def _give_scale_and_bias(context: Context, given: Term, normal: Term) -> None:
    """Give gradients to a scale and a bias that were broadcast to the result."""
    if context.wants(1):
        context.give_broadcast(1, given * normal)
    context.give_broadcast(2, given)


@differentiates("LayerNormalization")
def _layer_normalization(context: Context) -> None:
    """Through mean and deviation, which are computed again."""
    _refuse_statistics(context)
    context.attributes.int("stash_type", 1)
    given, axes = context.gradient(), context.mixed()
    normal, inverse = _normal(context, context.x, axes)
    if context.wants(0):
        scaled = given * context.input(1)
        context.give(0, _through(context, scaled, normal, inverse, axes))
    _give_scale_and_bias(context, given, normal)


@differentiates("RMSNormalization")
def _rms_normalization(context: Context) -> None:
    """Through the root of the mean square, which is computed again."""
    context.attributes.int("stash_type", 1)
    given, axes, x = context.gradient(), context.mixed(), context.x
    inverse = _inverse_root(context, x, axes)
    normal = x * inverse
    if context.wants(0):
        scaled = given * context.input(1)
        rest = scaled - _along(scaled, normal, axes)
        context.give(0, rest * inverse)
    _give_scale_and_bias(context, given, normal)


def _per_channel(context: Context, index: int, rank: int) -> Term:
    """A vector over axis 1 of a value of `rank` axes, with axes of size 1 behind it."""
    return context.input(index).unsqueeze(range(1, rank - 1))


def _over_channels(x: Term, rank: int) -> Term:
    """The sums over all axes but 1."""
    return x.sum([0, *range(2, rank)], keepdims=False)


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
    normal, inverse = _normal(context, context.x, axes)
    if context.wants(0):
        scaled = given * _per_channel(context, 1, rank)
        context.give(0, _through(context, scaled, normal, inverse, axes))
    _give_channels(context, given, normal, rank)


def _give_channels(context: Context, given: Term, normal: Term, rank: int) -> None:
    """Give gradients to a scale and a bias of each channel."""
    if context.wants(1):
        context.give(1, _over_channels(given * normal, rank))
    if context.wants(2):
        context.give(2, _over_channels(given, rank))


@differentiates("GroupNormalization")
def _group_normalization(context: Context) -> None:
    """Through mean and deviation of each group, which are computed again; of opset 21 or later."""
    context.attributes.int("stash_type", 1)
    rank, x = _instances(context), context.x
    groups = np.array([0, context.attributes.int("num_groups"), -1], np.int64)
    sizes = context.sizes(context.given(0))
    normal, inverse = _normal(context, x.op("Reshape", groups), (2,))
    given = context.gradient()
    if context.wants(0):
        scaled = given * _per_channel(context, 1, rank)
        grouped = scaled.op("Reshape", groups)
        through = _through(context, grouped, normal, inverse, (2,))
        context.give(0, through.reshape(sizes))
    _give_channels(context, given, normal.reshape(sizes), rank)


@differentiates("BatchNormalization")
def _batch_normalization(context: Context) -> None:
    """With given statistics, which get gradients too; in training through those of the batch."""
    context.float("momentum")
    given, rank = context.gradient(), _instances(context)
    scale = _per_channel(context, 1, rank)
    if context.attributes.int("training_mode", 0):
        _refuse_statistics(context)
        axes = (0, *range(2, rank))
        normal, inverse = _normal(context, context.x, axes)
        if context.wants(0):
            scaled = given * scale
            context.give(0, _through(context, scaled, normal, inverse, axes))
        _give_channels(context, given, normal, rank)
        return
    variance = _per_channel(context, 4, rank) + context.float("epsilon")
    inverse = variance.op("Sqrt").op("Reciprocal")
    scaled = given * (scale * inverse)
    context.give(0, scaled)
    if context.wants(2):
        context.give(2, _over_channels(given, rank))
    if context.wants(3):
        context.give(3, -_over_channels(scaled, rank))
    if context.wants(1) or context.wants(4):
        centred = context.x - _per_channel(context, 3, rank)
        slope = given * centred * inverse
        context.give(1, _over_channels(slope, rank))
        slope = scaled * centred * (-0.5 / variance)
        context.give(4, _over_channels(slope, rank))


@differentiates("LpNormalization")
def _lp_normalization(context: Context) -> None:
    """Y = X / norm: dX = (dY - N sum(dY Y)) / norm with N the slope of the norm.

    0 where the norm is 0.
    """
    p, axes = context.attributes.int("p", 2), context.mixed()
    x, y, given = context.x, context.y, context.gradient()
    if p == 1:
        norm, slope = x.op("Abs").sum(axes), x.op("Sign")
    else:
        norm, slope = x.squared().sum(axes).op("Sqrt"), y
    total = (given * y).sum(axes)
    found = (given - slope * total) / norm
    context.give(0, norm.equals(0.0).where(0.0, found))


@differentiates("GlobalLpPool")
def _global_lp_pool(context: Context) -> None:
    """dX = dY sign(X) (|X| / Y)^(p - 1), 0 where Y is 0."""
    p, x, y = context.attributes.int("p", 2), context.x, context.y
    share = y.equals(0.0).where(0.0, x / y)
    power = share.op("Abs").op("Pow", p - 1)
    slope = share.op("Sign") * power
    context.give(0, slope * context.gradient())


@differentiates("MeanVarianceNormalization")
def _mean_variance_normalization(context: Context) -> None:
    """Y = C / (D + e) with C = X - mean and D the deviation, where e keeps it from being 0."""
    axes, given, x = context.mixed(), context.gradient(), context.x
    centred = x - x.mean(axes)
    deviation = centred.squared().mean(axes).op("Sqrt")
    divisor = deviation + _LEAST_DEVIATION
    constant = deviation.equals(0.0)
    unit = constant.where(0.0, centred / deviation)
    changed = unit * (given * context.y).mean(axes)
    rest = given - given.mean(axes)
    context.give(0, (rest - changed) / divisor)


@differentiates("LRN")
def _local_response(context: Context) -> None:
    """Y = X S^-b with S = bias + a W(X²), W the mean over a window of channels.

    dX = dY S^-b - 2 a b X V(dY X S^(-b - 1)), where V is W with the window mirrored.
    """
    alpha, beta, bias = (context.float(name) for name in ("alpha", "beta", "bias"))
    size, rank = context.attributes.int("size"), _instances(context)
    before, after = (size - 1) // 2, size // 2
    given, x = context.gradient(), context.x
    window = _window(x.squared(), size, (before, after), rank)
    s = window * alpha + bias
    power = s.op("Pow", -beta)
    direct = given * power
    inner = direct * x / s
    neighbours = _window(inner, size, (after, before), rank)
    indirect = x * (2 * alpha * beta) * neighbours
    context.give(0, direct - indirect)


def _window(x: Term, size: int, around: Sequence[int], rank: int) -> Term:
    """The mean over `size` neighbours along axis 1, of which those that are not there count 0."""
    zeros = [0] * (rank - 2)
    attributes: dict[str, Any] = {
        "kernel_shape": [size, *[1] * (rank - 2)],
        "pads": [around[0], *zeros, around[1], *zeros],
        "count_include_pad": 1,
    }
    pooled = x.unsqueeze([1]).op("AveragePool", **attributes)
    return pooled.squeeze([1])
