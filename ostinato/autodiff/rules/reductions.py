"""Gradients of sums, means and other reductions, of running sums and of softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Factor, Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates


@dataclass(frozen=True)
class Reduced:
    """Axes of a reduction, counted from the front, and whether the result keeps them."""

    context: Context
    axes: tuple[int, ...]
    keeps: bool

    def kept(self, value: Term) -> Term:
        """A value of the shape of the result, with axes of size 1 where it was reduced."""
        if self.keeps or not self.axes:
            return value
        return value.unsqueeze(self.axes)

    def given(self) -> Term:
        """The gradient, with axes of size 1."""
        return self.kept(self.context.gradient())

    def result(self) -> Term:
        """The result, with axes of size 1."""
        return self.kept(self.context.y)


def reduced(context: Context) -> Reduced:
    """Read the axes of a reduction of opset 18 or later."""
    keeps = context.rank(context.node.outputs[0]) == context.rank(context.given(0))
    return Reduced(context, context.mixed(), keeps)


def count(context: Context, axes: tuple[int, ...]) -> Factor:
    """Count the elements of input 0 along `axes`, a scalar of the writer's type."""
    value = context.given(0)
    dims = [context.dims(value)[axis] for axis in axes]
    known = [size for size in dims if isinstance(size, int)]
    if len(known) == len(dims):
        return context.writer.scalar(math.prod(known))
    writer, index = context.writer, ir.DataType.INT64
    sizes = writer.take(context.ops.shape(context.x), axes, 0, "sizes")
    number = writer.op("ReduceProd", [sizes], "count", {"keepdims": 0}, index)
    return context.ops.op("Cast", [number], "divisor", {"to": context.writer.dtype})


@differentiates("ReduceSum")
def _sum(context: Context) -> None:
    """The gradient itself, repeated."""
    context.give(0, _repeated(context, reduced(context).given()))


@differentiates("ReduceMean", "GlobalAveragePool")
def _mean(context: Context) -> None:
    """The gradient divided by the number of elements, repeated."""
    of = reduced(context)
    part = of.given() / count(context, of.axes)
    context.give(0, _repeated(context, part))


def _repeated(context: Context, kept: Term) -> Term:
    return kept.op("Expand", context.sizes(context.given(0)))


@differentiates("ReduceMax", "ReduceMin", "GlobalMaxPool")
def _extreme(context: Context) -> None:
    """The elements that are the extreme share its gradient equally."""
    of = reduced(context)
    taken = context.x.equals(of.result())
    ones = taken.cast(context.writer.dtype)
    share = of.given() / ones.sum(of.axes)
    context.give(0, taken.where(share, 0.0))


@differentiates("ReduceProd")
def _product(context: Context) -> None:
    """The product of the other elements.

    It is the quotient of the product by the element where no element is 0. Otherwise it is 0,
    but for a single 0: for that one it is the product of the elements that are not 0.
    """
    of, x = reduced(context), context.x
    zero = x.equals(0.0)
    nonzero = zero.where(1.0, x)
    ones = zero.cast(context.writer.dtype)
    zeros = ones.sum(of.axes)
    product = nonzero
    if of.axes:
        product = nonzero.op("ReduceProd", np.array(of.axes, np.int64))
    scaled = of.given() * product
    single = zeros.equals(1.0).where(scaled, 0.0)
    without = zeros.equals(0.0).where(scaled, 0.0)
    context.give(0, zero.where(single, without / nonzero))


@differentiates("ReduceL1")
def _l1(context: Context) -> None:
    """The gradient with the sign of the element."""
    of = reduced(context)
    context.give(0, context.x.op("Sign") * of.given())


@differentiates("ReduceL2")
def _l2(context: Context) -> None:
    """The element divided by the norm, 0 where that is 0."""
    of = reduced(context)
    norm = of.result()
    scale = norm.equals(0.0).where(0.0, of.given() / norm)
    context.give(0, context.x * scale)


@differentiates("ReduceSumSquare")
def _sum_square(context: Context) -> None:
    """Twice the element."""
    of = reduced(context)
    context.give(0, context.x * (of.given() * 2.0))


@differentiates("ReduceLogSum")
def _log_sum(context: Context) -> None:
    """The gradient divided by the sum, repeated."""
    of = reduced(context)
    inverse = (-of.result()).op("Exp")
    context.give(0, _repeated(context, of.given() * inverse))


@differentiates("ReduceLogSumExp")
def _log_sum_exp(context: Context) -> None:
    """The softmax of the elements."""
    of = reduced(context)
    power = (context.x - of.result()).op("Exp")
    context.give(0, power * of.given())


@differentiates("CumSum")
def _cum_sum(context: Context) -> None:
    """The running sum of the gradient from the other end."""
    exclusive, reverse = (context.attributes.int(name, 0) for name in ("exclusive", "reverse"))
    given, how = context.gradient(), {"exclusive": exclusive, "reverse": 1 - reverse}
    context.give(0, given.op("CumSum", context.input(1), **how))


@differentiates("Softmax")
def _softmax(context: Context) -> None:
    """dX = Y (dY - sum(dY Y))."""
    y, given = context.y, context.gradient()
    total = (given * y).sum(context.mixed())
    context.give(0, y * (given - total))


@differentiates("LogSoftmax")
def _log_softmax(context: Context) -> None:
    """dX = dY - exp(Y) sum(dY)."""
    y, given = context.y, context.gradient()
    total = given.sum(context.mixed())
    context.give(0, given - y.op("Exp") * total)


@differentiates("Hardmax")
def _hardmax(context: Context) -> None:
    """Zero: the result is constant in between its jumps."""
    context.axis(-1)
