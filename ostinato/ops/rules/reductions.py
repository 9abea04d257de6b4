"""Ops that combine the elements along some axes: reductions and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.known_sizes import fold_reduction
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, drop_ones
from ostinato.ops.rules.casts import convert
from ostinato.ops.rules.pointwise import Unary
from ostinato.ops.rules.views import axes_of, border_of, optional_axes
from ostinato.program.expr import INTEGERS, Expr, Extent, cast, dtype_of, op, select
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, product


@dataclass(frozen=True)
class Reduction:
    """A reduction as a map before, a combination and a map after.

    finish: from the combined value and the number of elements to the result.
    in_floats: integers are finished in float64, and cut to integers then.
    """

    combine: str
    before: Unary = lambda x: x
    finish: Callable[[Expr, Size], Expr] = lambda x, _: x
    in_floats: bool = False


def square(x: Expr) -> Expr:
    """x * x."""
    return x * x


def absolute(x: Expr) -> Expr:
    """|x|."""
    return abs(x)


def summand(x: Expr) -> Expr:
    """x, in 64 bits where the sum of small integers might not fit."""
    return cast(x, "int64") if dtype_of(x) in ("int32", "uint32") else x


def centred(builder: Builder, value: Value, axes: Sequence[int]) -> tuple[Tensor, Tensor, Size]:
    """The mean along some axes, the differences from it, and of how many elements it is."""
    count = product([value.shape[axis] for axis in axes])
    total = builder.reduce(value, tuple(axes), "sum")
    mean = builder.pointwise(lambda s: divided_by_count(s, count), total)
    return mean, builder.pointwise(lambda x, m: x - m, value, mean), count


def divided_by_count(total: Expr, size: Size) -> Expr:
    """The mean from the sum."""
    return total / cast(Extent(size), dtype_of(total))


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": Reduction("sum"),
    "ReduceProd": Reduction("prod"),
    "ReduceMax": Reduction("max"),
    "ReduceMin": Reduction("min"),
    "ReduceMean": Reduction("sum", summand, divided_by_count),
    "ReduceSumSquare": Reduction("sum", square),
    "ReduceL1": Reduction("sum", absolute),
    "ReduceL2": Reduction("sum", square, lambda x, _: op("sqrt", x), in_floats=True),
    "ReduceLogSum": Reduction("sum", finish=lambda x, _: op("log", x), in_floats=True),
}
# Since these versions the axes are an input; the others follow in opset 18.
_AXES_INPUT = {"ReduceSum": 13}


def reduced_axes(context: Context, value: Value) -> tuple[int, ...]:
    """The axes to reduce; all where none are named, unless the node asks to reduce none then."""
    rank = len(value.shape)
    axes = optional_axes(context, _AXES_INPUT.get(context.node.op_type, 18))
    reduces_none = bool(context.attributes.int("noop_with_empty_axes", 0))
    if axes:
        return axes_of(context, axes, rank)
    return () if reduces_none else tuple(range(rank))


@lowers(*_REDUCTIONS)
def lower_reduction(context: Context) -> Value:
    """Sum, product, extremes and norms along axes."""
    rule, builder = _REDUCTIONS[context.node.op_type], context.builder
    value = context.input(0)
    if value.dtype == "bool" and rule.combine not in ("max", "min"):
        raise context.refuse("type bool has no native form")
    keep = context.attributes.int("keepdims", 1)
    axes = reduced_axes(context, value)

    def finished(total: Expr, count: Size) -> Expr:
        if rule.in_floats and value.dtype in INTEGERS:
            total = cast(total, "float64")
        return convert(rule.finish(total, count), value.dtype)

    if not axes:
        return builder.pointwise(lambda x: finished(rule.before(x), 1), value)
    folded = fold_reduction(context, value, axes)
    if folded is not None:
        return folded if keep else dropped(folded, axes)
    count = product([value.shape[i] for i in axes])
    combined = builder.reduce(value, axes, rule.combine, rule.before)
    result = builder.pointwise(lambda x: finished(x, count), combined)
    return result if keep else dropped(result, axes)


def dropped(value: Value, axes: tuple[int, ...]) -> Value:
    """A reduced value without its axes of extent 1."""
    result = drop_ones(value, axes)
    assert result is not None
    return result


@lowers("ReduceLogSumExp")
def lower_log_sum_exp(context: Context) -> Value:
    """log(sum(exp(x))), shifted by the maximum so that it cannot overflow.

    That of integers is computed in float64, and cut to integers.
    """
    value, builder = context.input(0), context.builder
    dtype = value.dtype
    if dtype == "bool":
        raise context.refuse("type bool has no native form")
    keep = context.attributes.int("keepdims", 1)
    axes = reduced_axes(context, value)
    if not axes:
        return value
    if dtype in INTEGERS:
        value = builder.pointwise(lambda x: cast(x, "float64"), value)
    top = _finite_maximum(builder, value, axes)
    shifted = builder.pointwise(lambda x, m: op("exp", x - m), value, top)
    total = builder.reduce(shifted, axes, "sum")
    result = builder.pointwise(lambda s, m: convert(op("log", s) + m, dtype), total, top)
    return result if keep else dropped(result, axes)


def _finite_maximum(builder: Builder, value: Value, axes: tuple[int, ...]) -> Value:
    """The maximum, with infinities replaced by 0 so that subtracting it makes no NaN."""

    def finite(x: Expr) -> Expr:
        infinite = abs(x).equals(float("inf"))
        return select(infinite, 0, x)

    return builder.pointwise(finite, builder.reduce(value, axes, "max"))


@lowers("Softmax", "LogSoftmax")
def lower_softmax(context: Context) -> Value:
    """exp(x - max) / sum(exp(x - max)) along an axis, or its logarithm."""
    value, builder = context.input(0), context.builder
    rank = len(value.shape)
    axis = context.attributes.int("axis", -1 if context.since >= 13 else 1)
    if context.since >= 13:
        axes = axes_of(context, [axis], rank)
    else:
        # The value counts as a matrix: everything from `axis` on is one axis.
        axes = tuple(range(border_of(context, axis, rank), rank))
    # NaN need not count here: it makes the sum NaN.
    top = builder.reduce(value, axes, "larger") if axes else value
    shifted = builder.pointwise(lambda x, m: x - m, value, top)
    powers = builder.pointwise(lambda x: op("exp_nonpositive", x), shifted)
    total = builder.reduce(powers, axes, "sum") if axes else powers
    if context.node.op_type == "LogSoftmax":
        logarithm = builder.pointwise(lambda s: op("log", s), total)
        return builder.pointwise(lambda x, s: x - s, shifted, logarithm)
    # One division for all elements: the sum is at least 1, so its reciprocal is an ordinary number.
    inverse = builder.pointwise(lambda s: 1 / s, total)
    return builder.pointwise(lambda x, r: x * r, powers, inverse)
