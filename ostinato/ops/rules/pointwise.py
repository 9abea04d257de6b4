"""Ops that compute each element from the elements at the same place, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from ostinato.graph.facts import facts_of
from ostinato.ops.core.known_sizes import fold_sizes
from ostinato.ops.core.progressions import computed
from ostinato.ops.core.quotients import followed
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.singles import scalar
from ostinato.ops.core.tensor import Tensor, Value, insert_ones
from ostinato.ops.rules.casts import convert
from ostinato.program.expr import (
    FLOATS,
    ITEM_BYTES,
    Expr,
    cast,
    constant,
    dtype_of,
    literal,
    op,
    select,
)
from ostinato.sizes.dims import Size, maximum, minimum

# A kernel takes this many operands of a Sum; it goes on in the next one.
_MOST_OPERANDS = 64

Unary = Callable[[Expr], Expr]
Binary = Callable[[Expr, Expr], Expr]


def relu(x: Expr) -> Expr:
    """max(x, 0)."""
    return op("max", x, literal(0, x))


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; NaN stays NaN."""
    zero = literal(0, x)
    # Only 0, of either sign, and NaN are left: the sum of -0 and 0 is 0.
    rest = x + zero if dtype_of(x) in FLOATS else x
    positive = select(x > zero, 1, rest)
    if dtype_of(x).startswith("uint"):
        return positive
    return select(x < zero, -1, positive)


def erf(x: Expr) -> Expr:
    """The error function; of integers it is cut off, which leaves 1 where float64 rounds to it."""
    dtype = dtype_of(x)
    return op("erf", x) if dtype in FLOATS else cast(op("erf", cast(x, "float64")), dtype)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|)) so that it neither overflows nor cancels."""
    return relu(x) + op("log1p", op("exp", -abs(x)))


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """max(0, min(1, alpha * x + beta))."""
    line = alpha * x + beta
    return op("max", literal(0, x), op("min", literal(1, x), line))


def is_nan(x: Expr) -> Expr:
    """Whether x is not a number."""
    return x.differs(x)


def elu(x: Expr, alpha: float) -> Expr:
    """x, or alpha * (exp(x) - 1) where x is negative."""
    negative = alpha * op("expm1", x)
    return select(x < 0, negative, x)


def celu(x: Expr, alpha: float) -> Expr:
    """x, or alpha * (exp(x / alpha) - 1) where x is negative."""
    inner = op("expm1", x / alpha)
    return select(x < 0, alpha * inner, x)


def shrink(x: Expr, lambd: float, bias: float) -> Expr:
    """x + bias below -lambd, x - bias above lambd, else 0; the first that holds."""
    above = x > lambd
    high = select(above, x - bias, 0)
    below = x < -lambd
    return select(below, x + bias, high)


def remainder(a: Expr, b: Expr) -> Expr:
    """Remainder of integer division toward zero: the sign is that of `a`; 0 of division by 0."""
    rest = a - a / b * b
    return select(b.equals(0), 0, rest)


def shifted_right(x: Expr, count: Expr) -> Expr:
    """x / 2 ** count, rounded down; the fill alone where the type has no such count."""
    moved = op("shr", x, count)
    if dtype_of(x).startswith("uint"):
        return moved
    filled = ~op("shr", ~x, count)
    return select(x < 0, filled, moved)


def _unary(name: str) -> Unary:
    return lambda x: op(name, x)


def _binary(name: str) -> Binary:
    return lambda a, b: op(name, a, b)


_UNARY: dict[str, Unary] = {
    **{
        name: _unary(name.lower())
        for name in (
            "Abs Neg Sqrt Exp Log Sigmoid Tanh Floor Ceil Sin Cos Tan Sinh Cosh "
            "Asin Acos Atan Asinh Acosh Atanh Not"
        ).split()
    },
    "BitwiseNot": _unary("not"),
    "Erf": erf,
    "Round": _unary("rint"),
    "Relu": relu,
    "Reciprocal": lambda x: 1 / x,
    "Sign": sign,
    "Softplus": softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "HardSwish": lambda x: x * hard_sigmoid(x, 1 / 6, 0.5),
    "Mish": lambda x: x * op("tanh", softplus(x)),
    "IsNaN": is_nan,
}

_BINARY: dict[str, Binary] = {
    **{name: _binary(name.lower()) for name in "Add Sub Mul Div And Or Xor".split()},
    "BitwiseAnd": _binary("and"),
    "BitwiseOr": _binary("or"),
    "BitwiseXor": _binary("xor"),
    "Equal": _binary("eq"),
    "Less": _binary("lt"),
    "LessOrEqual": _binary("le"),
    "Greater": _binary("gt"),
    "GreaterOrEqual": _binary("ge"),
}

# Functions of one operand and of float attributes of these names.
_PARAMETRIC: dict[str, tuple[Callable[..., Expr], tuple[str, ...]]] = {
    "LeakyRelu": (lambda x, alpha: select(x < 0, alpha * x, x), ("alpha",)),
    "Elu": (elu, ("alpha",)),
    "Selu": (lambda x, alpha, gamma: gamma * elu(x, alpha), ("alpha", "gamma")),
    "Celu": (celu, ("alpha",)),
    "ThresholdedRelu": (lambda x, alpha: select(x > alpha, x, 0), ("alpha",)),
    "HardSigmoid": (hard_sigmoid, ("alpha", "beta")),
    "Swish": (lambda x, alpha: x * op("sigmoid", alpha * x), ("alpha",)),
    "Shrink": (shrink, ("lambd", "bias")),
}


def floats(context: Context, position: int) -> Value:
    """An operand, refused unless it is of a native floating type."""
    value = context.input(position)
    if value.dtype not in FLOATS:
        raise context.refuse(f"type {value.dtype} has no native form")
    return value


def aligned(context: Context, left: Value, right: Value) -> Value:
    """The right operand as broadcasting aligns it; before opset 7 attributes say how."""
    if context.since >= 7:
        return right
    axis = context.attributes.int("axis", None)
    if not context.attributes.int("broadcast", 0):
        if axis is not None or len(left.shape) != len(right.shape):
            raise context.invalid("the shapes differ and attribute 'broadcast' is not set")
        for i, (a, b) in enumerate(zip(left.shape, right.shape, strict=True)):
            context.builder.require.equal(a, b, f"axis {i} of the operands")
        return right
    rank, missing = len(right.shape), len(left.shape) - len(right.shape)
    start = missing if axis is None else axis % max(len(left.shape), 1)
    if not 0 <= start <= missing:
        raise context.invalid(f"attribute 'axis' is {axis}: the right operand does not fit there")
    return insert_ones(right, tuple(range(rank, rank + missing - start)))


@lowers(*_UNARY)
def lower_unary(context: Context) -> Value:
    """Functions of one operand."""
    value, name = context.input(0), context.node.op_type
    folded = fold_sizes(context, [value], value.dtype)
    if folded is not None:
        return folded
    result = context.builder.pointwise(_UNARY[name], value)
    return followed(context, [value], computed(context, [value], result))


@lowers(*_BINARY)
def lower_binary(context: Context) -> Value:
    """Arithmetic, comparison and logic of two operands."""
    left = context.input(0)
    right = aligned(context, left, context.input(1))
    name = context.node.op_type
    dtype = "bool" if facts_of(name).tests else left.dtype
    folded = fold_sizes(context, [left, right], dtype)
    if folded is not None:
        return folded
    result = context.builder.pointwise(_BINARY[name], left, right)
    return followed(context, [left, right], computed(context, [left, right], result))


@lowers("BitShift")
def lower_bit_shift(context: Context) -> Value:
    """Bits moved to the left, where they get lost, or arithmetically to the right."""
    direction = context.attributes.string("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise context.invalid(f"attribute 'direction' is {direction!r}")
    function = shifted_right if direction == "RIGHT" else _binary("shl")
    return context.builder.pointwise(function, context.input(0), context.input(1))


@lowers("Mod")
def lower_mod(context: Context) -> Value:
    """Remainder of the divisor's sign, or with fmod=1 of the dividend's: exact for floats too."""
    fmod = context.attributes.int("fmod", 0)
    left, right = context.input(0), context.input(1)
    if left.dtype in FLOATS:
        if not fmod and context.since < 28:
            raise context.invalid("attribute 'fmod' must be 1 for floating types")
        return context.builder.pointwise(_binary("fmod" if fmod else "floor_mod"), left, right)
    folded = None if fmod else fold_sizes(context, [left, right], left.dtype)
    if folded is not None:
        return folded
    return context.builder.pointwise(remainder if fmod else _binary("mod"), left, right)


@lowers("Sum", "Max", "Min", "Mean")
def lower_variadic(context: Context) -> Value:
    """Sum, maximum, minimum or mean of any number of operands, from left to right."""
    values, name = context.all_inputs(), context.node.op_type
    if len(values) == 2:
        folded = fold_sizes(context, values, values[0].dtype)
        if folded is not None:
            return folded
    step = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}[name]

    def combine(*args: Expr) -> Expr:
        return reduce(_binary(step), args)

    def finish(*args: Expr) -> Expr:
        total = combine(*args)
        return total / len(values) if name == "Mean" else total

    total = values[0]
    starts = range(1, max(len(values), 2), _MOST_OPERANDS)
    for start in starts:
        function = finish if start == starts[-1] else combine
        operands = values[start : start + _MOST_OPERANDS]
        total = context.builder.pointwise(function, total, *operands)
    return total


@lowers("Where")
def lower_where(context: Context) -> Value:
    """Elements of the second operand where the first is true, else of the third."""
    condition, yes, no = (context.input(i) for i in range(3))
    folded = fold_sizes(context, [condition, yes, no], yes.dtype)
    if folded is not None:
        return folded
    return context.builder.pointwise(select, condition, yes, no)


@lowers("Clip")
def lower_clip(context: Context) -> Value:
    """min(max(x, low), high), bounds from inputs (opset 11) or attributes."""
    value, builder = context.input(0), context.builder
    low: Value | None
    high: Value | None
    if context.since >= 11:
        low, high = scalar(context, 1, "min"), scalar(context, 2, "max")
    elif context.since >= 6:
        low, high = (_limit(context, value, context.float(name)) for name in ("min", "max"))
    else:
        limits = (context.attributes.float(name, None) for name in ("min", "max"))
        low, high = (None if n is None else _limit(context, value, n) for n in limits)
    sizes = _clamped(context, value, (low, high))
    if sizes is not None:
        return sizes
    for bound, function in ((low, _binary("max")), (high, _binary("min"))):
        if bound is not None:
            value = builder.pointwise(function, value, bound)
    return value


def _clamped(context: Context, value: Value, bounds: Sequence[Value | None]) -> Tensor | None:
    """Sizes between bounds as sizes; None if the node needs a kernel."""
    given = [(bound, function) for bound, function in zip(bounds, (maximum, minimum), strict=True)]
    present = [(bound, function) for bound, function in given if bound is not None]

    def arithmetic(size: Size, *limits: Size) -> Size:
        for limit, (_, function) in zip(limits, present, strict=True):
            size = function(size, limit)
        return size

    operands = [value, *(bound for bound, _ in present)]
    return fold_sizes(context, operands, value.dtype, arithmetic)


def _limit(context: Context, value: Value, limit: float) -> Value:
    return context.builder.constant(np.array(limit, value.dtype))


@lowers(*_PARAMETRIC)
def lower_parametric(context: Context) -> Value:
    """Functions of one operand with float attributes."""
    function, names = _PARAMETRIC[context.node.op_type]
    given = {name: context.float(name) for name in names}
    return context.builder.pointwise(lambda x: function(x, **given), floats(context, 0))


@lowers("PRelu")
def lower_prelu(context: Context) -> Value:
    """x, or slope * x where x is negative; the slope is broadcast to the shape of x."""
    value, slope = context.input(0), context.input(1)
    if context.since < 7 and len(slope.shape) == 1 and slope.shape != (1,):
        # One slope for each channel.
        slope = insert_ones(slope, tuple(range(1, len(value.shape) - 1)))
    slope = context.builder.expanded(slope, value.shape, one_way=True)
    return context.builder.pointwise(lambda x, s: select(x < 0, s * x, x), value, slope)


@lowers("Gelu")
def lower_gelu(context: Context) -> Value:
    """x * Phi(x), exactly through erf or with the tanh approximation."""
    approximate = context.attributes.string("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise context.invalid(f"attribute 'approximate' is {approximate!r}")

    def gelu(x: Expr) -> Expr:
        if approximate == "none":
            inner = op("erf", x * math.sqrt(0.5))
        else:
            cube = x * x * x
            line = x + 0.044715 * cube
            inner = op("tanh", math.sqrt(2 / math.pi) * line)
        half = 0.5 * x
        return half * (1 + inner)

    return context.builder.pointwise(gelu, context.input(0))


# Powers that are products.
_PRODUCTS: dict[float, Unary] = {
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
}


@lowers("Pow")
def lower_pow(context: Context) -> Value:
    """base ** exponent in the base's type; constant exponents 2 and 3 become products."""
    base = context.input(0)
    exponent = aligned(context, base, context.input(1))
    if exponent.known is not None and exponent.known.size == 1:
        power = _PRODUCTS.get(float(exponent.known.reshape(-1)[0]))
        if power is not None:
            shape = context.builder.broadcasting.shape(base.shape, exponent.shape)
            return context.builder.pointwise(power, context.builder.expanded(base, shape))
    function = _power if _converts_exactly(exponent, base.dtype) else _wide_power
    if base.dtype not in FLOATS:
        function = _mixed_power if exponent.dtype in FLOATS else _whole_power
        known = exponent.known
        if exponent.dtype not in FLOATS and known is not None and known.dtype != object:
            function = partial(_whole_power, largest=int(known.max(initial=0)))
    return context.builder.pointwise(function, base, exponent)


def _converts_exactly(exponent: Value, dtype: str) -> bool:
    """float32 holds no integers beyond 2 ** 24, and less of a float64 exponent."""
    if dtype in ("float64", exponent.dtype) or exponent.dtype in (
        "int8",
        "uint8",
        "int16",
        "uint16",
    ):
        return True
    if exponent.known is None or exponent.known.dtype == object:
        return False
    wide = exponent.known.astype(np.float64)
    return bool(np.all(wide.astype(np.float32) == wide))


def _power(base: Expr, exponent: Expr) -> Expr:
    return op("pow", base, cast(exponent, dtype_of(base)))


def _wide_power(base: Expr, exponent: Expr) -> Expr:
    return cast(_power(cast(base, "float64"), exponent), dtype_of(base))


def _whole_power(base: Expr, exponent: Expr, largest: int | None = None) -> Expr:
    """Integers: repeated squaring, which wraps; 1 / base ** -exponent is rounded toward zero.

    largest: what no exponent exceeds, if that is known. Of n bits, odd numbers to the power of
    2 ** (n - 2) are 1 (they form a group of this exponent), and even ones to the power of n are 0:
    so n - 2 bits of the exponent tell the result, and whether it is less than n.
    """
    width = 8 * ITEM_BYTES[dtype_of(base)]
    bits = width - 2 if largest is None else min(width - 2, max(largest, 0).bit_length())
    count = cast(exponent, "int64")
    unsigned = dtype_of(exponent).startswith("uint")
    size = count if unsigned else abs(count)
    one, zero, square = literal(1, base), literal(0, base), base
    result: Expr = one
    for bit in range(bits):
        wanted = (size & (1 << bit)).differs(0)
        result = select(wanted, result * square, result)
        square = square * square
    if largest is None or largest >= width:
        # As a signed number, an exponent from 2 ** 63 on is less than 0.
        is_large = (size < 0) | (size >= width)
        is_even = (base & one).equals(zero)
        result = select(is_large & is_even, zero, result)
    odd = (count & 1).differs(0)
    if unsigned:
        return result
    # The reciprocals of all integers but 1 and -1 are less than 1.
    minus = base.equals(-1)
    plus = base.equals(one) | (minus & ~odd)
    unit = select(minus, literal(-1, base), 0)
    inverse = select(plus, one, unit)
    return select(count < 0, inverse, result)


def _mixed_power(base: Expr, exponent: Expr) -> Expr:
    """An integer to a power that is a float: exact where that is whole, else through float64."""
    wide = cast(exponent, "float64")
    whole = _whole_power(base, convert(wide, "int64"))
    power = _power(cast(base, "float64"), wide)
    # It is right to a unit in the last place: an integer as near as that is meant.
    near = power * (1 + 2.0**-52)
    is_whole = op("trunc", wide).equals(wide)
    return select(is_whole, whole, convert(near, dtype_of(base)))


@lowers("IsInf")
def lower_is_inf(context: Context) -> Value:
    """Whether x is infinite, of the signs asked for."""
    negative = context.attributes.int("detect_negative", 1)
    positive = context.attributes.int("detect_positive", 1)

    def is_inf(x: Expr) -> Expr:
        up = x.equals(math.inf) if positive else constant(False, "bool")
        down = x.equals(-math.inf) if negative else constant(False, "bool")
        return up | down

    return context.builder.pointwise(is_inf, context.input(0))
