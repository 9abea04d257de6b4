"""Ops that compute each element from the elements at the same place, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from ostinato.ops.builder import literal
from ostinato.ops.registry import Context, lowers
from ostinato.ops.sizes import fold_sizes
from ostinato.ops.tensor import Value
from ostinato.program.expr import DTYPES, FLOATS, INTEGERS, Expr, cast, constant, dtype_of, op

Unary = Callable[[Expr], Expr]
Binary = Callable[[Expr, Expr], Expr]


def relu(x: Expr) -> Expr:
    """max(x, 0)."""
    return op("max", x, literal(0, x))


def reciprocal(x: Expr) -> Expr:
    """1 / x."""
    return op("div", literal(1, x), x)


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; NaN stays NaN."""
    zero = literal(0, x)
    positive = op("select", op("gt", x, zero), literal(1, x), x)
    if dtype_of(x).startswith("uint"):
        return positive
    return op("select", op("lt", x, zero), literal(-1, x), positive)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|)) so that it neither overflows nor cancels."""
    return op("add", relu(x), op("log1p", op("exp", op("neg", op("abs", x)))))


def softsign(x: Expr) -> Expr:
    """x / (1 + |x|)."""
    return op("div", x, op("add", literal(1, x), op("abs", x)))


def hard_swish(x: Expr) -> Expr:
    """x * max(0, min(1, x / 6 + 0.5))."""
    return op("mul", x, hard_sigmoid(x, 1 / 6, 0.5))


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """max(0, min(1, alpha * x + beta))."""
    line = op("add", op("mul", literal(alpha, x), x), literal(beta, x))
    return op("max", literal(0, x), op("min", literal(1, x), line))


def mish(x: Expr) -> Expr:
    """x * tanh(softplus(x))."""
    return op("mul", x, op("tanh", softplus(x)))


def is_nan(x: Expr) -> Expr:
    """Whether x is not a number."""
    return op("ne", x, x)


def swish(x: Expr, alpha: float) -> Expr:
    """x * sigmoid(alpha * x)."""
    return op("mul", x, op("sigmoid", op("mul", literal(alpha, x), x)))


def _named(name: str) -> Unary:
    return lambda x: op(name, x)


UNARY: dict[str, Unary] = {
    **{
        name: _named(name.lower())
        for name in (
            "Abs Neg Sqrt Exp Log Sigmoid Tanh Erf Floor Ceil Sin Cos Tan Sinh Cosh "
            "Asin Acos Atan Asinh Acosh Atanh"
        ).split()
    },
    "Round": _named("rint"),
    "Relu": relu,
    "Reciprocal": reciprocal,
    "Sign": sign,
    "Softplus": softplus,
    "Softsign": softsign,
    "HardSwish": hard_swish,
    "Mish": mish,
}
ANY_UNARY: dict[str, Unary] = {"Not": _named("not"), "BitwiseNot": _named("not"), "IsNaN": is_nan}

NUMERIC_BINARY: dict[str, Binary] = {
    name: (lambda a, b, _name=name.lower(): op(_name, a, b)) for name in "Add Sub Mul Div".split()
}
COMPARISON: dict[str, Binary] = {
    "Equal": lambda a, b: op("eq", a, b),
    "Less": lambda a, b: op("lt", a, b),
    "LessOrEqual": lambda a, b: op("le", a, b),
    "Greater": lambda a, b: op("gt", a, b),
    "GreaterOrEqual": lambda a, b: op("ge", a, b),
}
LOGICAL: dict[str, Binary] = {
    "And": lambda a, b: op("and", a, b),
    "Or": lambda a, b: op("or", a, b),
    "Xor": lambda a, b: op("xor", a, b),
    "BitwiseAnd": lambda a, b: op("and", a, b),
    "BitwiseOr": lambda a, b: op("or", a, b),
    "BitwiseXor": lambda a, b: op("xor", a, b),
}


def operands(context: Context, expected: int | None = None) -> list[Value]:
    """The inputs, all present, of one dtype that has a native form."""
    values = [context.input(i) for i in range(expected or len(context.inputs))]
    dtypes = sorted({value.dtype for value in values})
    if len(dtypes) > 1:
        raise context.refuse(f"inputs have different types: {', '.join(dtypes)}")
    if dtypes[0] not in DTYPES:
        raise context.refuse(f"type {dtypes[0]} has no native form")
    return values


def floats(context: Context, value: Value) -> Value:
    """The value, refused unless it is of a native floating type."""
    if value.dtype not in FLOATS:
        raise context.refuse(f"type {value.dtype} has no native form")
    return value


def apply_unary(context: Context, function: Unary) -> Value:
    """Finish a rule of one operand."""
    context.attributes.finish()
    return context.builder.pointwise(function, operands(context, 1)[0])


@lowers(*UNARY)
def lower_unary(context: Context) -> Value:
    """Mathematical functions of one operand."""
    context.attributes.ints("consumed_inputs", ())
    name = context.node.op_type
    if name not in ("Abs", "Neg", "Sign", "Relu"):
        floats(context, context.input(0))
    if context.input(0).dtype == "bool":
        raise context.refuse("type bool has no native form")
    return apply_unary(context, UNARY[name])


@lowers(*ANY_UNARY)
def lower_any_unary(context: Context) -> Value:
    """Functions of one operand of any type."""
    return apply_unary(context, ANY_UNARY[context.node.op_type])


@lowers(*NUMERIC_BINARY, *COMPARISON, *LOGICAL)
def lower_binary(context: Context) -> Value:
    """Arithmetic, comparison and logic of two operands."""
    if context.since < 7:
        raise context.refuse("broadcasting by attribute (before opset 7) has no native form")
    context.attributes.finish()
    folded = fold_sizes(context)
    if folded is not None:
        return folded
    left, right = operands(context, 2)
    name = context.node.op_type
    if name in NUMERIC_BINARY and left.dtype == "bool":
        raise context.refuse("type bool has no native form")
    function = {**NUMERIC_BINARY, **COMPARISON, **LOGICAL}[name]
    return context.builder.pointwise(function, left, right)


@lowers("Mod")
def lower_mod(context: Context) -> Value:
    """Remainder: of the divisor's sign for integers, as C fmod with fmod=1."""
    fmod = context.attributes.int("fmod", 0)
    context.attributes.finish()
    left, right = operands(context, 2)
    if (left.dtype in FLOATS) != bool(fmod):
        raise context.refuse(f"fmod={fmod} for type {left.dtype} has no native form")
    return context.builder.pointwise(lambda a, b: op("mod", a, b), left, right)


@lowers("Sum", "Max", "Min", "Mean")
def lower_variadic(context: Context) -> Value:
    """Sum, maximum, minimum or mean of any number of operands, from left to right."""
    if context.since < 8:
        context.attributes.ints("consumed_inputs", ())
    context.attributes.finish()
    values = operands(context)
    name = context.node.op_type
    step = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}[name]

    def combine(*args: Expr) -> Expr:
        total = reduce(lambda a, b: op(step, a, b), args)
        return op("div", total, literal(len(args), total)) if name == "Mean" else total

    return context.builder.pointwise(combine, *values)


@lowers("Where")
def lower_where(context: Context) -> Value:
    """Elements of the second operand where the first is true, else of the third."""
    context.attributes.finish()
    condition, yes, no = (context.input(i) for i in range(3))
    if yes.dtype != no.dtype or yes.dtype not in DTYPES:
        raise context.refuse(f"types {yes.dtype} and {no.dtype} have no native form")
    return context.builder.pointwise(lambda c, a, b: op("select", c, a, b), condition, yes, no)


@lowers("Clip")
def lower_clip(context: Context) -> Value:
    """min(max(x, low), high), bounds from inputs (opset 11) or attributes."""
    value = context.input(0)
    if context.since < 11:
        limits = [context.attributes.float(name, None) for name in ("min", "max")]
        bounds = [
            None if limit is None else context.builder.constant(np.array(limit, value.dtype))
            for limit in limits
        ]
    else:
        bounds = [context.optional(1), context.optional(2)]  # type: ignore[list-item]
    context.attributes.finish()
    low, high = bounds
    if low is not None:
        value = context.builder.pointwise(lambda x, a: op("max", x, a), value, low)
    if high is not None:
        value = context.builder.pointwise(lambda x, a: op("min", x, a), value, high)
    return value


# name -> attribute defaults (None where the element type decides), and the function.
PARAMETRIC: dict[str, tuple[dict[str, float], Callable[..., Expr]]] = {
    "LeakyRelu": (
        {"alpha": 0.01},
        lambda x, alpha: op(
            "select", op("lt", x, literal(0, x)), op("mul", literal(alpha, x), x), x
        ),
    ),
    "Elu": ({"alpha": 1.0}, lambda x, alpha: _elu(x, alpha, 1.0)),
    "Selu": (
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        lambda x, alpha, gamma: _elu(x, alpha, gamma),
    ),
    "Celu": ({"alpha": 1.0}, lambda x, alpha: _celu(x, alpha)),
    "HardSigmoid": ({"alpha": 0.2, "beta": 0.5}, hard_sigmoid),
    "ThresholdedRelu": (
        {"alpha": 1.0},
        lambda x, alpha: op("select", op("gt", x, literal(alpha, x)), x, literal(0, x)),
    ),
    "Swish": ({"alpha": 1.0}, swish),
    "Shrink": ({"lambd": 0.5, "bias": 0.0}, lambda x, lambd, bias: _shrink(x, lambd, bias)),
}


def _elu(x: Expr, alpha: float, gamma: float) -> Expr:
    negative = op("mul", literal(alpha, x), op("expm1", x))
    value = op("select", op("lt", x, literal(0, x)), negative, x)
    return value if gamma == 1.0 else op("mul", literal(gamma, x), value)


def _celu(x: Expr, alpha: float) -> Expr:
    inner = op("expm1", op("div", x, literal(alpha, x)))
    return op("select", op("lt", x, literal(0, x)), op("mul", literal(alpha, x), inner), x)


def _shrink(x: Expr, lambd: float, bias: float) -> Expr:
    low = op(
        "select", op("lt", x, literal(-lambd, x)), op("add", x, literal(bias, x)), literal(0, x)
    )
    return op("select", op("gt", x, literal(lambd, x)), op("sub", x, literal(bias, x)), low)


@lowers(*PARAMETRIC)
def lower_parametric(context: Context) -> Value:
    """Functions of one operand with float attributes."""
    defaults, function = PARAMETRIC[context.node.op_type]
    context.attributes.ints("consumed_inputs", ())
    values = {name: context.attributes.float(name, d) for name, d in defaults.items()}
    floats(context, context.input(0))
    return apply_unary(context, lambda x: function(x, **values))


@lowers("PRelu")
def lower_prelu(context: Context) -> Value:
    """x, or slope * x where x is negative."""
    if context.since < 7:
        raise context.refuse("broadcasting before opset 7 has no native form")
    context.attributes.finish()
    value, slope = operands(context, 2)
    return context.builder.pointwise(
        lambda x, s: op("select", op("lt", x, literal(0, x)), op("mul", s, x), x), value, slope
    )


@lowers("Gelu")
def lower_gelu(context: Context) -> Value:
    """x * Phi(x), exactly through erf or with the tanh approximation."""
    approximate = context.attributes.string("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise context.refuse(f"attribute 'approximate' is {approximate!r}")
    floats(context, context.input(0))

    def gelu(x: Expr) -> Expr:
        if approximate == "none":
            inner = op("erf", op("mul", x, literal(math.sqrt(0.5), x)))
        else:
            cube = op("mul", op("mul", x, x), x)
            line = op("add", x, op("mul", literal(0.044715, x), cube))
            inner = op("tanh", op("mul", literal(math.sqrt(2 / math.pi), x), line))
        half = op("mul", literal(0.5, x), x)
        return op("mul", half, op("add", literal(1, x), inner))

    return apply_unary(context, gelu)


@lowers("Pow")
def lower_pow(context: Context) -> Value:
    """base ** exponent, in the base's type; 2 and 0.5 become a product and a square root."""
    context.attributes.finish()
    if context.since < 7:
        raise context.refuse("broadcasting by attribute (before opset 7) has no native form")
    base, exponent = floats(context, context.input(0)), context.input(1)
    if exponent.known is not None and exponent.known.size == 1:
        power = float(exponent.known.reshape(-1)[0])
        shortcuts: dict[float, Unary] = {
            1.0: lambda x: x,
            2.0: lambda x: op("mul", x, x),
            3.0: lambda x: op("mul", op("mul", x, x), x),
        }
        if power in shortcuts:
            shape = context.builder.broadcast(base.shape, exponent.shape)
            return context.builder.pointwise(
                shortcuts[power], context.builder.expanded(base, shape)
            )
    return context.builder.pointwise(
        lambda b, e: op("pow", b, cast(e, dtype_of(b))), base, exponent
    )


@lowers("IsInf")
def lower_is_inf(context: Context) -> Value:
    """Whether x is infinite, of the signs asked for."""
    negative = context.attributes.int("detect_negative", 1)
    positive = context.attributes.int("detect_positive", 1)
    floats(context, context.input(0))

    def is_inf(x: Expr) -> Expr:
        up = op("eq", x, literal(math.inf, x)) if positive else constant(False, "bool")
        down = op("eq", x, literal(-math.inf, x)) if negative else constant(False, "bool")
        return op("or", up, down)

    return apply_unary(context, is_inf)


@lowers("Cast")
def lower_cast(context: Context) -> Value:
    """Conversion between native number types."""
    target = context.attributes.int("to")
    context.attributes.int("saturate", 1)  # speaks of 8-bit floats only, which are refused
    context.attributes.string("round_mode", "up")
    context.attributes.finish()
    import onnx_ir as ir

    dtype = ir.DataType(target).numpy().name
    value = context.input(0)
    if dtype not in DTYPES or value.dtype not in DTYPES:
        raise context.refuse(f"from {value.dtype} to {dtype} has no native form")
    if value.dtype == dtype:
        return value
    if dtype in INTEGERS:
        folded = fold_sizes(context)
        if folded is not None:
            return context.builder.sizes(folded.known, dtype)  # type: ignore[arg-type]
    return context.builder.pointwise(lambda x: cast(x, dtype), value)
