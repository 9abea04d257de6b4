"""Gradients of operators that work on each element alone.

Where a function has no derivative, the value is the one that PyTorch takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ostinato.autodiff.arithmetic import Factor, Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates

Slope: TypeAlias = "Callable[[Context, Term], Term]"
"""From the gradient of the result to that of the only operand."""


def _mish(context: Context, dy: Term) -> Term:
    """y = x t with t = tanh(softplus(x)): dy/dx = t + x (1 - t²) sigmoid(x)."""
    x = context.x
    t = x.op("Softplus").op("Tanh")
    inner = (1.0 - t.squared()) * x.op("Sigmoid")
    return dy * (t + x * inner)


def _swish(context: Context, dy: Term) -> Term:
    """y = x s with s = sigmoid(a x): dy/dx = s + a x s (1 - s)."""
    line = context.x * context.float("alpha")
    s = line.op("Sigmoid")
    return dy * (s * (line * (1.0 - s) + 1.0))


def _gelu(context: Context, dy: Term) -> Term:
    """y = x Phi(x), whose derivative is Phi(x) + x phi(x), or the tanh approximation of it."""
    x = context.x
    if context.attributes.string("approximate", "none") == "none":
        inner = (x * math.sqrt(0.5)).op("Erf")
        slope = (x.squared() * -0.5).op("Exp") * math.sqrt(2 / math.pi)
    else:
        factor = math.sqrt(2 / math.pi)
        squared = x.squared()
        line = squared * (factor * 0.044715) + factor
        inner = (x * line).op("Tanh")
        line = squared * (3 * factor * 0.044715) + factor
        slope = (1.0 - inner.squared()) * line
    return dy * ((inner + 1.0 + x * slope) * 0.5)


def _above(context: Context, limit: float, given: Factor, other: Factor) -> Term:
    """`given` where the operand is larger than `limit`, else `other`."""
    return (context.x > limit).where(given, other)


def _elu(context: Context, dy: Term) -> Term:
    low = dy * (context.x.op("Exp") * context.float("alpha"))
    return _above(context, 0.0, dy, low)


def _hard_sigmoid(context: Context, dy: Term) -> Term:
    context.float("beta")
    rising = (context.y > 0.0) & (context.y < 1.0)
    return rising.where(dy * context.float("alpha"), 0.0)


def _hard_swish(context: Context, dy: Term) -> Term:
    middle = dy * (context.x * (1 / 3) + 0.5)
    rising = (context.x < 3.0).where(middle, dy)
    return _above(context, -3.0, rising, 0.0)


def _shrink(context: Context, dy: Term) -> Term:
    context.float("bias")
    limit = context.float("lambd")
    low = (context.x < -limit).where(dy, 0.0)
    return _above(context, limit, dy, low)


# In terms of the result where that is possible: one value fewer to keep.
SLOPES: dict[str, Slope] = {
    "Abs": lambda c, dy: dy * c.x.op("Sign"),
    "Acos": lambda c, dy: -(dy / (1.0 - c.x.squared()).op("Sqrt")),
    "Acosh": lambda c, dy: dy / (c.x.squared() - 1.0).op("Sqrt"),
    "Asin": lambda c, dy: dy / (1.0 - c.x.squared()).op("Sqrt"),
    "Asinh": lambda c, dy: dy / (c.x.squared() + 1.0).op("Sqrt"),
    "Atan": lambda c, dy: dy / (c.x.squared() + 1.0),
    "Atanh": lambda c, dy: dy / (1.0 - c.x.squared()),
    "Celu": lambda c, dy: _above(c, 0.0, dy, dy * (c.x / c.float("alpha")).op("Exp")),
    "Cos": lambda c, dy: -(dy * c.x.op("Sin")),
    "Cosh": lambda c, dy: dy * c.x.op("Sinh"),
    "Elu": _elu,
    "Erf": lambda c, dy: dy * ((-c.x.squared()).op("Exp") * (2 / math.sqrt(math.pi))),
    "Exp": lambda c, dy: dy * c.y,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": lambda c, dy: _above(c, 0.0, dy, dy * c.float("alpha")),
    "Log": lambda c, dy: dy / c.x,
    "Mish": _mish,
    "Neg": lambda c, dy: -dy,
    "Reciprocal": lambda c, dy: -(dy * c.y.squared()),
    "Relu": lambda c, dy: (c.y > 0.0).where(dy, 0.0),
    "Selu": lambda c, dy: _elu(c, dy * c.float("gamma")),
    "Shrink": _shrink,
    "Sigmoid": lambda c, dy: dy * (c.y * (1.0 - c.y)),
    "Sin": lambda c, dy: dy * c.x.op("Cos"),
    "Sinh": lambda c, dy: dy * c.x.op("Cosh"),
    "Softplus": lambda c, dy: dy * c.x.op("Sigmoid"),
    "Softsign": lambda c, dy: dy / (c.x.op("Abs") + 1.0).squared(),
    "Sqrt": lambda c, dy: dy * 0.5 / c.y,
    "Swish": _swish,
    "Tan": lambda c, dy: dy * (c.y.squared() + 1.0),
    "Tanh": lambda c, dy: dy * (1.0 - c.y.squared()),
    "ThresholdedRelu": lambda c, dy: _above(c, c.float("alpha"), dy, 0.0),
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
        assert dtype is not None
        context.give(0, context.gradient().cast(dtype))


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
        keep = 1.0 - context.input(1) if context.has(1) else 0.5
        given = context.output(1).where(given / keep, 0.0)
    context.give(0, given)


@differentiates("Add", "Sum", "Mean")
def _add(context: Context) -> None:
    """The gradient itself, for means divided by the number of operands."""
    given, count = context.gradient(), len(context.node.inputs)
    if context.op_type == "Mean" and count > 1:
        given = given / float(count)
    for index in range(count):
        context.give_broadcast(index, given)


@differentiates("Sub")
def _sub(context: Context) -> None:
    """The gradient itself, and its negative."""
    context.give_broadcast(0, context.gradient())
    if context.wants(1):
        context.give_broadcast(1, -context.gradient())


@differentiates("Mul")
def _mul(context: Context) -> None:
    """The gradient times the other operand."""
    for index in (0, 1):
        if context.wants(index):
            other = context.input(1 - index)
            context.give_broadcast(index, context.gradient() * other)


@differentiates("Div")
def _div(context: Context) -> None:
    """Y = A / B: dA = dY / B and dB = -dA Y."""
    part = context.gradient() / context.input(1)
    context.give_broadcast(0, part)
    if context.wants(1):
        context.give_broadcast(1, -(part * context.y))


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
        context.give_broadcast(0, given * _power_slope(context))
    if context.wants(1):
        base, dtype = context.x, context.given(1).dtype
        slope = context.y * base.op("Log")
        positive = _exponent(context) >= 0.0
        flat = base.equals(0.0) & positive
        found = given * flat.where(0.0, slope)
        if dtype is not None and dtype != context.writer.dtype:
            found = found.cast(dtype)
        context.give_broadcast(1, found)


def _power_slope(context: Context) -> Term:
    """The derivative by the base."""
    base, known = context.x, context.constant(1)
    if known is not None and not (known == 0).any():
        known = known.astype(context.writer.dtype.numpy())
        power = base if (known == 2).all() else base.op("Pow", known - 1)
        return power * known
    exponent = _exponent(context)
    power = base.op("Pow", exponent - 1.0)
    flat = exponent.equals(0.0)
    return flat.where(0.0, power * exponent)


def _exponent(context: Context) -> Term:
    """The exponent in the type of the base."""
    dtype = context.writer.dtype
    if context.given(1).dtype == dtype:
        return context.input(1)
    return context.input(1).cast(dtype)


@differentiates("Max", "Min")
def _extreme(context: Context) -> None:
    """The operands that are the extreme share its gradient equally."""
    given, count = context.gradient(), len(context.node.inputs)
    if count == 1:
        context.give(0, given)
        return
    y = context.y
    taken = [context.input(i).equals(y) for i in range(count)]
    dtype = context.writer.dtype
    shares = [mask.cast(dtype) for mask in taken]
    share = given / shares[0].op("Sum", *shares[1:])
    for index, mask in enumerate(taken):
        if context.wants(index):
            context.give_broadcast(index, mask.where(share, 0.0))


@differentiates("Where")
def _where(context: Context) -> None:
    """The gradient where the operand was taken, else 0."""
    for index in (1, 2):
        if context.wants(index):
            choice = (context.gradient(), 0.0) if index == 1 else (0.0, context.gradient())
            context.give_broadcast(index, context.x.where(*choice))


@differentiates("PRelu")
def _prelu(context: Context) -> None:
    """Y = X where X is positive, else S X: dX = dY or dY S, dS = 0 or dY X."""
    given = context.gradient()
    if context.wants(0):
        context.give(0, _above(context, 0.0, given, given * context.input(1)))
    if context.wants(1):
        part = _above(context, 0.0, 0.0, given * context.x)
        context.give_broadcast(1, part)


@differentiates("Clip")
def _clip(context: Context) -> None:
    """The gradient within the bounds, and for a bound the gradients where it was taken."""
    given, x = context.gradient(), context.x
    low, high = (context.input(i) if context.has(i) else None for i in (1, 2))
    below = None if low is None else x < low
    above = None if high is None else x > high
    inside = given
    for outside in (below, above):
        if outside is not None:
            inside = outside.where(0.0, inside)
    context.give(0, inside)
    if below is not None and context.wants(1):
        part = below.where(given, 0.0)
        if low is not None and high is not None:
            part = (low < high).where(part, 0.0)
        context.give_broadcast(1, part)
    if above is not None and context.wants(2):
        taken = above
        if low is not None and high is not None:
            crossed = high < low
            taken = above | crossed
        context.give_broadcast(2, taken.where(given, 0.0))
