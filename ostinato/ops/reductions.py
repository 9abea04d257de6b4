"""Ops that combine the elements along some axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ostinato.ops.builder import Builder, literal
from ostinato.ops.pointwise import Unary
from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Value, drop_ones
from ostinato.ops.views import axes_of, native, optional_axes
from ostinato.program.dims import Size, product
from ostinato.program.expr import FLOATS, Expr, Extent, cast, dtype_of, op


@dataclass(frozen=True)
class Reduction:
    """A reduction as a map before, a combination and a map after.

    finish: from the combined value and the number of elements to the result.
    """

    combine: str
    before: Unary = lambda x: x
    finish: Callable[[Expr, Size], Expr] = lambda x, _: x
    float_only: bool = False


def square(x: Expr) -> Expr:
    """x * x."""
    return op("mul", x, x)


def absolute(x: Expr) -> Expr:
    """|x|."""
    return op("abs", x)


def divided_by_count(total: Expr, size: Size) -> Expr:
    """The mean from the sum."""
    return op("div", total, cast(Extent(size), dtype_of(total)))


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": Reduction("sum"),
    "ReduceProd": Reduction("prod"),
    "ReduceMax": Reduction("max"),
    "ReduceMin": Reduction("min"),
    "ReduceMean": Reduction("sum", finish=divided_by_count, float_only=True),
    "ReduceSumSquare": Reduction("sum", square),
    "ReduceL1": Reduction("sum", absolute),
    "ReduceL2": Reduction("sum", square, lambda x, _: op("sqrt", x), float_only=True),
    "ReduceLogSum": Reduction("sum", finish=lambda x, _: op("log", x), float_only=True),
}
# Since these versions the axes are an input; the others follow in opset 18.
AXES_INPUT = {"ReduceSum": 13}


def reduced_axes(context: Context, value: Value) -> tuple[int, ...] | None:
    """The axes to reduce, all by default; None when the node asks to do nothing without axes."""
    rank = len(value.shape)
    axes = optional_axes(context, 1, AXES_INPUT.get(context.node.op_type, 18))
    noop = context.attributes.int("noop_with_empty_axes", 0)
    if not axes:
        return None if noop else tuple(range(rank))
    return axes_of(context, axes, rank)


@lowers(*REDUCTIONS)
def lower_reduction(context: Context) -> Value:
    """Sum, product, extremes and norms along axes."""
    rule = REDUCTIONS[context.node.op_type]
    value = native(context, context.input(0))
    if value.dtype == "bool" or (rule.float_only and value.dtype not in FLOATS):
        raise context.refuse(f"type {value.dtype} has no native form")
    keep = context.attributes.int("keepdims", 1)
    axes = reduced_axes(context, value)
    context.attributes.finish()
    builder = context.builder
    if axes is None:
        return builder.pointwise(lambda x: rule.finish(rule.before(x), 1), value)
    count = product([value.shape[i] for i in axes])
    if not axes:
        return builder.pointwise(lambda x: rule.finish(rule.before(x), 1), value)
    combined: Value = builder.reduce(value, axes, rule.combine, rule.before)
    combined = builder.pointwise(lambda x: rule.finish(x, count), combined)
    return combined if keep else _dropped(combined, axes)


def _dropped(value: Value, axes: tuple[int, ...]) -> Value:
    dropped = drop_ones(value, axes)
    assert dropped is not None
    return dropped


@lowers("ReduceLogSumExp")
def lower_log_sum_exp(context: Context) -> Value:
    """log(sum(exp(x))), shifted by the maximum so that it cannot overflow."""
    value = native(context, context.input(0))
    if value.dtype not in FLOATS:
        raise context.refuse(f"type {value.dtype} has no native form")
    keep = context.attributes.int("keepdims", 1)
    axes = reduced_axes(context, value)
    context.attributes.finish()
    if not axes:
        return value
    builder = context.builder
    top = finite_maximum(builder, value, axes)
    shifted = builder.pointwise(lambda x, m: op("exp", op("sub", x, m)), value, top)
    total = builder.reduce(shifted, axes, "sum", lambda x: x)
    result = builder.pointwise(lambda s, m: op("add", op("log", s), m), total, top)
    return result if keep else _dropped(result, axes)


def finite_maximum(builder: Builder, value: Value, axes: tuple[int, ...]) -> Value:
    """The maximum, with infinities replaced by 0 so that subtracting it makes no NaN."""

    def finite(x: Expr) -> Expr:
        infinite = op("eq", op("abs", x), literal(float("inf"), x))
        return op("select", infinite, literal(0, x), x)

    return builder.pointwise(finite, builder.reduce(value, axes, "max", lambda x: x))


@lowers("Softmax", "LogSoftmax")
def lower_softmax(context: Context) -> Value:
    """exp(x - max) / sum(exp(x - max)) along an axis, or its logarithm."""
    value = native(context, context.input(0))
    if value.dtype not in FLOATS:
        raise context.refuse(f"type {value.dtype} has no native form")
    rank = len(value.shape)
    axis = context.attributes.int("axis", -1 if context.since >= 13 else 1)
    context.attributes.finish()
    (first,) = axes_of(context, [axis], rank)
    # Before opset 13 the value counts as a matrix: everything from `axis` on is one axis.
    axes = (first,) if context.since >= 13 else tuple(range(first, rank))
    builder = context.builder
    top = builder.reduce(value, axes, "max", lambda x: x)
    if context.node.op_type == "LogSoftmax":
        shifted = builder.pointwise(lambda x, m: op("sub", x, m), value, top)
        total = builder.reduce(shifted, axes, "sum", lambda x: op("exp", x))
        return builder.pointwise(lambda x, s: op("sub", x, op("log", s)), shifted, total)
    powers = builder.pointwise(lambda x, m: op("exp", op("sub", x, m)), value, top)
    total = builder.reduce(powers, axes, "sum", lambda x: x)
    return builder.pointwise(lambda x, s: op("div", x, s), powers, total)


@lowers("LayerNormalization")
def lower_layer_normalization(context: Context) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on."""
    value = native(context, context.input(0))
    if value.dtype not in FLOATS or context.attributes.int("stash_type", 1) != 1:
        raise context.refuse(f"type {value.dtype} with this stash_type has no native form")
    rank = len(value.shape)
    (first,) = axes_of(context, [context.attributes.int("axis", -1)], rank)
    epsilon = context.attributes.float("epsilon", 1e-5)
    context.attributes.finish()
    if len(context.node.outputs) > 1:
        raise context.refuse("outputs 'Mean' and 'InvStdDev' have no native form")
    axes = tuple(range(first, rank))
    builder = context.builder
    count = product([value.shape[i] for i in axes])
    total = builder.reduce(value, axes, "sum", lambda x: x)
    mean = builder.pointwise(lambda s: divided_by_count(s, count), total)
    centred = builder.pointwise(lambda x, m: op("sub", x, m), value, mean)
    squares = builder.reduce(centred, axes, "sum", square)
    deviation = builder.pointwise(
        lambda s: op("sqrt", op("add", divided_by_count(s, count), literal(epsilon, s))), squares
    )
    normal = builder.pointwise(lambda x, d: op("div", x, d), centred, deviation)
    scaled = builder.pointwise(lambda x, s: op("mul", x, s), normal, context.input(1))
    bias = context.optional(2)
    if bias is None:
        return scaled
    return builder.pointwise(lambda x, b: op("add", x, b), scaled, bias)
