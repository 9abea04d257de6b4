"""Ops that give values a mean of 0 and a variance of 1, or a mean square of 1."""

from __future__ import annotations

import numpy as np

from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, insert_ones
from ostinato.ops.rules.reductions import centred, divided_by_count, square
from ostinato.ops.rules.views import axis_of, reshape
from ostinato.program.expr import Expr, cast, dtype_of, op
from ostinato.sizes.dims import Size, exact_quotient, product

# Element types of `stash_type`, the precision of the statistics, and what computes in it.
_STASH_TYPES = {1: ("float32", "float64"), 11: ("float64",)}


def _root(context: Context, value: Value, axes: tuple[int, ...]) -> Tensor:
    """sqrt(mean(value ** 2) + epsilon) along the axes, which keep an extent of 1."""
    builder, epsilon = context.builder, context.float("epsilon")
    count = product([value.shape[i] for i in axes])
    squares = builder.reduce(value, axes, "sum", square)

    def root(total: Expr) -> Expr:
        return op("sqrt", divided_by_count(total, count) + epsilon)

    return builder.pointwise(root, squares)


def _normalized(
    context: Context, value: Value, axes: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """(value - mean) * (1 / deviation) along the axes, the mean, 1 / deviation.

    The operator documents multiply by the reciprocal too, which is one of the outputs.
    """
    builder = context.builder
    mean, differences, _ = centred(builder, value, axes)
    deviation = _root(context, differences, axes)
    inverse = builder.pointwise(lambda d: 1 / d, deviation)
    return builder.pointwise(lambda x, r: x * r, differences, inverse), mean, inverse


def _scaled(context: Context, value: Value, scale: Value, bias: Value | None) -> Value:
    builder = context.builder
    scale = builder.expanded(scale, value.shape, one_way=True)
    if bias is None:
        return builder.pointwise(lambda x, s: x * s, value, scale)
    bias = builder.expanded(bias, value.shape, one_way=True)
    return builder.pointwise(lambda x, s, b: x * s + b, value, scale, bias)


def _check_stash_type(context: Context, value: Value) -> None:
    stash = context.attributes.int("stash_type", 1)
    if value.dtype not in _STASH_TYPES.get(stash, ()):
        raise context.refuse(f"stash_type {stash} for {value.dtype} has no native form")


def _axes_from(context: Context, value: Value) -> tuple[int, ...]:
    rank = len(value.shape)
    return tuple(range(axis_of(context, context.attributes.int("axis", -1), rank), rank))


@lowers("LayerNormalization")
def lower_layer_normalization(context: Context) -> list[Value]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on."""
    value = context.input(0)
    _check_stash_type(context, value)
    normal, mean, inverse = _normalized(context, value, _axes_from(context, value))
    result = _scaled(context, normal, context.input(1), context.optional(2))
    if len(context.node.outputs) == 1:
        return [result]
    return [result, mean, inverse]


@lowers("RMSNormalization")
def lower_rms_normalization(context: Context) -> Value:
    """x / sqrt(mean(x ** 2) + epsilon) * scale over the axes from `axis` on."""
    value = context.input(0)
    _check_stash_type(context, value)
    root = _root(context, value, _axes_from(context, value))
    normal = context.builder.pointwise(lambda x, r: x / r, value, root)
    return _scaled(context, normal, context.input(1), None)


@lowers("InstanceNormalization")
def lower_instance_normalization(context: Context) -> Value:
    """Every channel of every instance normalised over its spatial axes, then scaled."""
    value = context.input(0)
    rank = _spatial_rank(context, value)
    normal, _, _ = _normalized(context, value, tuple(range(2, rank)))
    scale, bias = (_per_channel(context, i, value.shape[1], rank) for i in (1, 2))
    return _scaled(context, normal, scale, bias)


@lowers("GroupNormalization")
def lower_group_normalization(context: Context) -> Value:
    """Groups of channels normalised together; scaled by group, from opset 21 by channel."""
    value, groups = context.input(0), context.attributes.int("num_groups")
    _check_stash_type(context, value)
    rank = _spatial_rank(context, value)
    channels = value.shape[1]
    scales = context.input(1).shape
    if context.since >= 21 and len(scales) == 1 and scales != (channels,):
        # There is a scale for each channel, and its shape may say how many these are.
        context.builder.require.equal(channels, scales[0], "channels and scales")
        channels = scales[0] if isinstance(scales[0], int) else channels
        value = context.builder.reshaped(value, (value.shape[0], channels, *value.shape[2:]))
    each = exact_quotient(channels, groups) if groups > 0 else None
    if each is None:
        raise context.invalid(f"{channels} channels in {groups} groups")
    split = reshape(context, value, (value.shape[0], groups, each, *value.shape[2:]))
    normal, _, _ = _normalized(context, split, tuple(range(2, rank + 1)))
    if context.since < 21:
        scale, bias = (_per_channel(context, i, groups, rank + 1) for i in (1, 2))
        return reshape(context, _scaled(context, normal, scale, bias), value.shape)
    whole = reshape(context, normal, value.shape)
    scale, bias = (_per_channel(context, i, channels, rank) for i in (1, 2))
    return _scaled(context, whole, scale, bias)


@lowers("BatchNormalization")
def lower_batch_normalization(context: Context) -> list[Value]:
    """(x - mean) * (scale / sqrt(variance + epsilon)) + bias per channel.

    The statistics are given ones, or in training those of x; the given ones then move towards them.
    """
    value = context.input(0)
    trains = bool(context.attributes.int("training_mode", 0)) if context.since >= 14 else False
    if context.since < 7 and not context.attributes.int("is_test", 0):
        raise context.refuse("training mode before opset 14 has no native form")
    if not context.attributes.int("spatial", 1):
        raise context.refuse("statistics for each element (spatial=0) have no native form")
    momentum, epsilon = context.float("momentum"), context.float("epsilon")
    builder, rank = context.builder, len(value.shape)
    channels = value.shape[1] if rank > 1 else 1
    scale, bias, mean, variance = (
        _per_channel(context, i, channels, max(rank, 2)) for i in (1, 2, 3, 4)
    )
    updated: list[Value] = []
    if trains:
        given, (mean, variance) = (mean, variance), _moments(context, value)

        def moved(old: Expr, new: Expr) -> Expr:
            kept = old * momentum
            return kept + cast(new, dtype_of(old)) * (1 - momentum)

        for old, new in zip(given, (mean, variance), strict=True):
            nearer = builder.pointwise(moved, old, reshape(context, new, old.shape))
            updated.append(reshape(context, nearer, (channels,)))
    factor = _factor(context, scale, variance, epsilon)

    def normalize(x: Expr, m: Expr, f: Expr, b: Expr) -> Expr:
        return (x - m) * f + b

    result = builder.pointwise(normalize, value, mean, factor, bias)
    return [result, *updated][: len(context.node.outputs)]


def _moments(context: Context, value: Value) -> tuple[Tensor, Tensor]:
    """Mean and variance (of all, not of a sample) per channel; all other axes have extent 1."""
    builder, rank = context.builder, len(value.shape)
    axes = (0, *range(2, rank))
    mean, differences, count = centred(builder, value, axes)
    squares = builder.reduce(differences, axes, "sum", square)
    return mean, builder.pointwise(lambda s: divided_by_count(s, count), squares)


def _factor(context: Context, scale: Value, variance: Value, epsilon: float) -> Value:
    """scale / sqrt(variance + epsilon), computed now where both are known."""

    def formula(s: Expr, v: Expr) -> Expr:
        return s / op("sqrt", v + epsilon)

    builder, computed = context.builder, context.builder.constants.computed
    total = computed("Add", variance.known, np.array(epsilon, variance.dtype))
    factor = computed("Div", scale.known, computed("Sqrt", total))
    if factor is None:
        return builder.pointwise(formula, scale, variance)
    return builder.constant(factor)


def _spatial_rank(context: Context, value: Value) -> int:
    rank = len(value.shape)
    if rank < 3:
        raise context.invalid(f"no spatial axes in an input of shape {value.shape}")
    return rank


def _per_channel(context: Context, position: int, channels: Size, rank: int) -> Value:
    """A vector over channels, with axes of extent 1 behind it as far as a value of `rank` has."""
    vector = context.input(position)
    if len(vector.shape) != 1:
        raise context.invalid(f"input {position} has {len(vector.shape)} axes, expected 1")
    context.builder.require.equal(vector.shape[0], channels, f"input {position} and the channels")
    return insert_ones(vector, tuple(range(1, rank - 1)))
