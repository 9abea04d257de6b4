"""Gradients of operators that work on each element alone.

Where a function has no derivative, the value is the one that PyTorch takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates

Slope: TypeAlias = "Callable[[Context, ir.Value], ir.Value]"
"""From the gradient of the result to that of the only operand."""


def square(context: Context, x: ir.Value) -> ir.Value:
    """x * x."""
    return context.ops.mul(x, x)


def _sqrt(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.div(context.ops.mul(given, 0.5), context.output())


def _reciprocal(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.neg(context.ops.mul(given, square(context, context.output())))


def _sigmoid(context: Context, given: ir.Value) -> ir.Value:
    y = context.output()
    return context.ops.mul(given, context.ops.mul(y, context.ops.sub(1.0, y)))


def _tanh(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.mul(given, context.ops.sub(1.0, square(context, context.output())))


def _tan(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.mul(given, context.ops.add(square(context, context.output()), 1.0))


def _by_function(op_type: str) -> Slope:
    """The derivative is another operator of the operand."""
    return lambda c, given: c.ops.mul(given, c.ops.op(op_type, [c.input(0)]))


def _cos(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.neg(_by_function("Sin")(context, given))


def _asin(context: Context, given: ir.Value) -> ir.Value:
    rest = context.ops.sub(1.0, square(context, context.input(0)))
    return context.ops.div(given, context.ops.op("Sqrt", [rest]))


def _acos(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.neg(_asin(context, given))


def _atan(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.div(given, context.ops.add(square(context, context.input(0)), 1.0))


def _asinh(context: Context, given: ir.Value) -> ir.Value:
    total = context.ops.add(square(context, context.input(0)), 1.0)
    return context.ops.div(given, context.ops.op("Sqrt", [total]))


def _acosh(context: Context, given: ir.Value) -> ir.Value:
    rest = context.ops.sub(square(context, context.input(0)), 1.0)
    return context.ops.div(given, context.ops.op("Sqrt", [rest]))


def _atanh(context: Context, given: ir.Value) -> ir.Value:
    return context.ops.div(given, context.ops.sub(1.0, square(context, context.input(0))))


def _erf(context: Context, given: ir.Value) -> ir.Value:
    bell = context.ops.op("Exp", [context.ops.neg(square(context, context.input(0)))])
    return context.ops.mul(given, context.ops.mul(bell, 2 / math.sqrt(math.pi)))


def _softsign(context: Context, given: ir.Value) -> ir.Value:
    size = context.ops.add(context.ops.op("Abs", [context.input(0)]), 1.0)
    return context.ops.div(given, square(context, size))


def _mish(context: Context, given: ir.Value) -> ir.Value:
    """y = x t with t = tanh(softplus(x)): dy/dx = t + x (1 - t²) sigmoid(x)."""
    x = context.input(0)
    t = context.ops.op("Tanh", [context.ops.op("Softplus", [x])])
    inner = context.ops.mul(
        context.ops.sub(1.0, square(context, t)), context.ops.op("Sigmoid", [x])
    )
    return context.ops.mul(given, context.ops.add(t, context.ops.mul(x, inner)))


def _swish(context: Context, given: ir.Value) -> ir.Value:
    """y = x s with s = sigmoid(a x): dy/dx = s + a x s (1 - s)."""
    x, alpha = context.input(0), context.float("alpha")
    line = context.ops.mul(x, alpha)
    s = context.ops.op("Sigmoid", [line])
    slope = context.ops.mul(s, context.ops.add(context.ops.mul(line, context.ops.sub(1.0, s)), 1.0))
    return context.ops.mul(given, slope)


def _gelu(context: Context, given: ir.Value) -> ir.Value:
    """y = x Phi(x), whose derivative is Phi(x) + x phi(x), or the tanh approximation of it."""
    x = context.input(0)
    if context.attributes.string("approximate", "none") == "none":
        inner = context.ops.op("Erf", [context.ops.mul(x, math.sqrt(0.5))])
        bell = context.ops.op("Exp", [context.ops.mul(square(context, x), -0.5)])
        slope = context.ops.mul(bell, math.sqrt(2 / math.pi))
    else:
        factor = math.sqrt(2 / math.pi)
        squared = square(context, x)
        line = context.ops.add(context.ops.mul(squared, factor * 0.044715), factor)
        inner = context.ops.op("Tanh", [context.ops.mul(x, line)])
        line = context.ops.add(context.ops.mul(squared, 3 * factor * 0.044715), factor)
        slope = context.ops.mul(context.ops.sub(1.0, square(context, inner)), line)
    whole = context.ops.add(context.ops.add(inner, 1.0), context.ops.mul(x, slope))
    return context.ops.mul(given, context.ops.mul(whole, 0.5))


def _above(context: Context, limit: float, given: Term, other: Term) -> ir.Value:
    """`given` where the operand is larger than `limit`, else `other`."""
    return context.ops.where(context.ops.compare("Greater", context.input(0), limit), given, other)


def _relu(context: Context, given: ir.Value) -> ir.Value:
    """The result is positive where the operand is: one value fewer to remember."""
    return context.ops.where(context.ops.compare("Greater", context.output(), 0.0), given, 0.0)


def _leaky_relu(context: Context, given: ir.Value) -> ir.Value:
    return _above(context, 0.0, given, context.ops.mul(given, context.float("alpha")))


def _elu(context: Context, given: ir.Value) -> ir.Value:
    power = context.ops.op("Exp", [context.input(0)])
    low = context.ops.mul(given, context.ops.mul(power, context.float("alpha")))
    return _above(context, 0.0, given, low)


def _selu(context: Context, given: ir.Value) -> ir.Value:
    return _elu(context, context.ops.mul(given, context.float("gamma")))


def _celu(context: Context, given: ir.Value) -> ir.Value:
    power = context.ops.op("Exp", [context.ops.div(context.input(0), context.float("alpha"))])
    return _above(context, 0.0, given, context.ops.mul(given, power))


def _thresholded_relu(context: Context, given: ir.Value) -> ir.Value:
    return _above(context, context.float("alpha"), given, 0.0)


def _hard_sigmoid(context: Context, given: ir.Value) -> ir.Value:
    y = context.output()
    rising = _both(
        context, context.ops.compare("Greater", y, 0.0), context.ops.compare("Less", y, 1.0)
    )
    context.float("beta")
    return context.ops.where(rising, context.ops.mul(given, context.float("alpha")), 0.0)


def _hard_swish(context: Context, given: ir.Value) -> ir.Value:
    middle = context.ops.mul(given, context.ops.add(context.ops.mul(context.input(0), 1 / 3), 0.5))
    rising = context.ops.where(context.ops.compare("Less", context.input(0), 3.0), middle, given)
    return _above(context, -3.0, rising, 0.0)


def _shrink(context: Context, given: ir.Value) -> ir.Value:
    context.float("bias")
    limit, x = context.float("lambd"), context.input(0)
    low = context.ops.where(context.ops.compare("Less", x, -limit), given, 0.0)
    return _above(context, limit, given, low)


def _both(context: Context, a: ir.Value, b: ir.Value) -> ir.Value:
    return context.ops.op("And", [a, b], dtype=ir.DataType.BOOL)


SLOPES: dict[str, Slope] = {
    "Abs": lambda c, given: c.ops.mul(given, c.ops.op("Sign", [c.input(0)])),
    "Acos": _acos,
    "Acosh": _acosh,
    "Asin": _asin,
    "Asinh": _asinh,
    "Atan": _atan,
    "Atanh": _atanh,
    "Celu": _celu,
    "Cos": _cos,
    "Cosh": _by_function("Sinh"),
    "Elu": _elu,
    "Erf": _erf,
    "Exp": lambda c, given: c.ops.mul(given, c.output()),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Log": lambda c, given: c.ops.div(given, c.input(0)),
    "Mish": _mish,
    "Neg": lambda c, given: c.ops.neg(given),
    "Reciprocal": _reciprocal,
    "Relu": _relu,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _sigmoid,
    "Sin": _by_function("Cos"),
    "Sinh": _by_function("Cosh"),
    "Softplus": _by_function("Sigmoid"),
    "Softsign": _softsign,
    "Sqrt": _sqrt,
    "Swish": _swish,
    "Tan": _tan,
    "Tanh": _tanh,
    "ThresholdedRelu": _thresholded_relu,
}


@differentiates(*SLOPES)
def _unary(context: Context) -> None:
    """The derivative; where there is none, the value that PyTorch takes."""
    context.give(0, SLOPES[context.op_type](context, context.gradient()))


@differentiates("Floor", "Ceil", "Round", "Sign")
def _steps(context: Context) -> None:
    """Zero: the functions are constant in between their jumps."""


@differentiates("Cast", "CastLike")
def _cast(context: Context) -> None:
    """The gradient, converted back."""
    for name, default in (("to", 0), ("saturate", 1)):
        context.attributes.int(name, default)
    context.attributes.string("round_mode", "up")
    if context.wants(0):
        dtype = context.given(0).dtype
        context.give(0, context.ops.op("Cast", [context.gradient()], None, {"to": dtype}, dtype))


@differentiates("Dropout")
def _dropout(context: Context) -> None:
    """The gradient itself in inference; in training what the mask lets through, scaled."""
    context.attributes.int("seed", None)
    given = context.gradient()
    training = context.constant(2) if context.has(2) else np.array(False)
    if training is None:
        raise context.refuse("whether it trains is only known at run time")
    if training.any():
        outputs = context.node.outputs
        if len(outputs) < 2 or not outputs[1].name:
            raise context.refuse("has a gradient in training only where its mask is an output")
        keep = context.ops.sub(1.0, context.input(1)) if context.has(1) else 0.5
        given = context.ops.where(context.output(1), context.ops.div(given, keep), 0.0)
    context.give(0, given)


@differentiates("Add", "Sum", "Mean")
def _add(context: Context) -> None:
    """The gradient itself, for means divided by the number of operands."""
    given, count = context.gradient(), len(context.node.inputs)
    if context.op_type == "Mean" and count > 1:
        given = context.ops.div(given, float(count))
    for index in range(count):
        context.give_broadcast(index, given)


@differentiates("Sub")
def _sub(context: Context) -> None:
    """The gradient itself, and its negative."""
    context.give_broadcast(0, context.gradient())
    if context.wants(1):
        context.give_broadcast(1, context.ops.neg(context.gradient()))


@differentiates("Mul")
def _mul(context: Context) -> None:
    """The gradient times the other operand."""
    for index in (0, 1):
        if context.wants(index):
            other = context.input(1 - index)
            context.give_broadcast(index, context.ops.mul(context.gradient(), other))


@differentiates("Div")
def _div(context: Context) -> None:
    """Y = A / B: dA = dY / B and dB = -dA Y."""
    part = context.ops.div(context.gradient(), context.input(1))
    context.give_broadcast(0, part)
    if context.wants(1):
        context.give_broadcast(1, context.ops.neg(context.ops.mul(part, context.output())))


@differentiates("Mod")
def _mod(context: Context) -> None:
    """The gradient itself for the dividend; none for the divisor."""
    context.attributes.int("fmod", 0)
    if context.wants(1):
        raise context.refuse("has no gradient for the divisor")
    context.give_broadcast(0, context.gradient())


@differentiates("Pow")
def _pow(context: Context) -> None:
    """Y = A ^ B: dA = dY B A^(B - 1), 0 where B is 0; dB = dY Y log A, 0 where A is 0 <= B."""
    given = context.gradient()
    if context.wants(0):
        context.give_broadcast(0, context.ops.mul(given, _power_slope(context)))
    if context.wants(1):
        base, dtype = context.input(0), context.given(1).dtype
        slope = context.ops.mul(context.output(), context.ops.op("Log", [base]))
        positive = context.ops.compare("GreaterOrEqual", _exponent(context), 0.0)
        flat = _both(context, context.ops.compare("Equal", base, 0.0), positive)
        found = context.ops.mul(given, context.ops.where(flat, 0.0, slope))
        if dtype != context.writer.dtype:
            found = context.ops.op("Cast", [found], None, {"to": dtype}, dtype)
        context.give_broadcast(1, found)


def _power_slope(context: Context) -> ir.Value:
    """The derivative by the base."""
    base, known = context.input(0), context.constant(1)
    if known is not None and not (known == 0).any():
        known = known.astype(context.writer.dtype.numpy())
        power = base if (known == 2).all() else context.ops.op("Pow", [base, known - 1])
        return context.ops.mul(power, known)
    exponent = _exponent(context)
    power = context.ops.op("Pow", [base, context.ops.sub(exponent, 1.0)])
    flat = context.ops.compare("Equal", exponent, 0.0)
    return context.ops.where(flat, 0.0, context.ops.mul(power, exponent))


def _exponent(context: Context) -> ir.Value:
    """The exponent in the type of the base."""
    dtype = context.writer.dtype
    if context.given(1).dtype == dtype:
        return context.input(1)
    return context.ops.op("Cast", [context.input(1)], None, {"to": dtype})


@differentiates("Max", "Min")
def _extreme(context: Context) -> None:
    """The operands that are the extreme share its gradient equally."""
    given, count = context.gradient(), len(context.node.inputs)
    if count == 1:
        context.give(0, given)
        return
    y = context.output()
    taken = [context.ops.compare("Equal", context.input(i), y) for i in range(count)]
    dtype = context.writer.dtype
    shares = [context.ops.op("Cast", [mask], None, {"to": dtype}) for mask in taken]
    share = context.ops.div(given, context.ops.op("Sum", shares))
    for index, mask in enumerate(taken):
        if context.wants(index):
            context.give_broadcast(index, context.ops.where(mask, share, 0.0))


@differentiates("Where")
def _where(context: Context) -> None:
    """The gradient where the operand was taken, else 0."""
    for index in (1, 2):
        if context.wants(index):
            choice = (context.gradient(), 0.0) if index == 1 else (0.0, context.gradient())
            context.give_broadcast(index, context.ops.where(context.input(0), *choice))


@differentiates("PRelu")
def _prelu(context: Context) -> None:
    """Y = X where X is positive, else S X: dX = dY or dY S, dS = 0 or dY X."""
    given = context.gradient()
    if context.wants(0):
        context.give(0, _above(context, 0.0, given, context.ops.mul(given, context.input(1))))
    if context.wants(1):
        part = _above(context, 0.0, 0.0, context.ops.mul(given, context.input(0)))
        context.give_broadcast(1, part)


@differentiates("Clip")
def _clip(context: Context) -> None:
    """The gradient within the bounds, and for a bound the gradients where it was taken."""
    given, x = context.gradient(), context.input(0)
    low, high = (context.input(i) if context.has(i) else None for i in (1, 2))
    below = None if low is None else context.ops.compare("Less", x, low)
    above = None if high is None else context.ops.compare("Greater", x, high)
    inside = given
    for outside in (below, above):
        if outside is not None:
            inside = context.ops.where(outside, 0.0, inside)
    context.give(0, inside)
    if below is not None and context.wants(1):
        part = context.ops.where(below, given, 0.0)
        if low is not None and high is not None:
            part = context.ops.where(context.ops.compare("Less", low, high), part, 0.0)
        context.give_broadcast(1, part)
    if above is not None and context.wants(2):
        taken = above
        if low is not None and high is not None:
            crossed = context.ops.compare("Less", high, low)
            taken = context.ops.op("Or", [above, crossed], dtype=ir.DataType.BOOL)
        context.give_broadcast(2, context.ops.where(taken, given, 0.0))
