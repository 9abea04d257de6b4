"""Gradients of sums, means and other reductions, of running sums and of softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates
from ostinato.graph.writer import Operand


@dataclass(frozen=True)
class Reduced:
    """Axes of a reduction, counted from the front, and whether the result keeps them."""

    context: Context
    axes: tuple[int, ...]
    keeps: bool

    def kept(self, value: ir.Value) -> ir.Value:
        """A value of the shape of the result, with axes of size 1 where it was reduced."""
        if self.keeps or not self.axes:
            return value
        return self.context.ops.unsqueeze(value, self.axes)

    def given(self) -> ir.Value:
        """The gradient, with axes of size 1."""
        return self.kept(self.context.gradient())

    def result(self) -> ir.Value:
        """The result, with axes of size 1."""
        return self.kept(self.context.output())


def reduced(context: Context) -> Reduced:
    """Read the axes of a reduction of opset 18 or later."""
    keeps = context.rank(context.node.outputs[0]) == context.rank(context.given(0))
    return Reduced(context, context.mixed(), keeps)


def count(context: Context, axes: tuple[int, ...]) -> Operand:
    """Count the elements of input 0 along `axes`, a scalar of the writer's type."""
    value = context.given(0)
    dims = [context.dims(value)[axis] for axis in axes]
    known = [size for size in dims if isinstance(size, int)]
    if len(known) == len(dims):
        return context.writer.scalar(math.prod(known))
    index = ir.DataType.INT64
    shape = context.ops.op("Shape", [context.input(0)], "shape", dtype=index)
    sizes = context.writer.value(context.writer.take(shape, axes, 0, "sizes"), "sizes")
    number = context.ops.op("ReduceProd", [sizes], "count", {"keepdims": 0}, index)
    return context.ops.op("Cast", [number], "divisor", {"to": context.writer.dtype})


def mean(context: Context, x: ir.Value, axes: tuple[int, ...]) -> ir.Value:
    """The mean over `axes`, which keep a size of 1."""
    return context.ops.op("ReduceMean", [x, np.array(axes, np.int64)]) if axes else x


@differentiates("ReduceSum")
def _sum(context: Context) -> None:
    """The gradient itself, repeated."""
    context.give(0, _repeated(context, reduced(context).given()))


@differentiates("ReduceMean")
def _mean(context: Context) -> None:
    """The gradient divided by the number of elements, repeated."""
    of = reduced(context)
    part = context.ops.div(of.given(), count(context, of.axes))
    context.give(0, _repeated(context, part))


def _repeated(context: Context, kept: ir.Value) -> ir.Value:
    return context.ops.op("Expand", [kept, context.sizes(context.given(0))])


@differentiates("ReduceMax", "ReduceMin")
def _extreme(context: Context) -> None:
    """The elements that are the extreme share its gradient equally."""
    of = reduced(context)
    taken = context.ops.compare("Equal", context.input(0), of.result())
    ones = context.ops.op("Cast", [taken], None, {"to": context.writer.dtype})
    share = context.ops.div(of.given(), context.ops.sum(ones, of.axes))
    context.give(0, context.ops.where(taken, share, 0.0))


@differentiates("ReduceProd")
def _product(context: Context) -> None:
    """The product of the other elements.

    It is the quotient of the product by the element where no element is 0. Otherwise it is 0,
    but for a single 0: for that one it is the product of the elements that are not 0.
    """
    of, x = reduced(context), context.input(0)
    zero = context.ops.compare("Equal", x, 0.0)
    nonzero = context.ops.where(zero, 1.0, x)
    ones = context.ops.op("Cast", [zero], None, {"to": context.writer.dtype})
    zeros = context.ops.sum(ones, of.axes)
    product = nonzero
    if of.axes:
        product = context.ops.op("ReduceProd", [nonzero, np.array(of.axes, np.int64)])
    scaled = context.ops.mul(of.given(), product)
    single = context.ops.where(context.ops.compare("Equal", zeros, 1.0), scaled, 0.0)
    without = context.ops.where(context.ops.compare("Equal", zeros, 0.0), scaled, 0.0)
    context.give(0, context.ops.where(zero, single, context.ops.div(without, nonzero)))


@differentiates("ReduceL1")
def _l1(context: Context) -> None:
    """The gradient with the sign of the element."""
    of = reduced(context)
    context.give(0, context.ops.mul(context.ops.op("Sign", [context.input(0)]), of.given()))


@differentiates("ReduceL2")
def _l2(context: Context) -> None:
    """The element divided by the norm, 0 where that is 0."""
    of = reduced(context)
    norm = of.result()
    scale = context.ops.where(
        context.ops.compare("Equal", norm, 0.0), 0.0, context.ops.div(of.given(), norm)
    )
    context.give(0, context.ops.mul(context.input(0), scale))


@differentiates("ReduceSumSquare")
def _sum_square(context: Context) -> None:
    """Twice the element."""
    of = reduced(context)
    context.give(0, context.ops.mul(context.input(0), context.ops.mul(of.given(), 2.0)))


@differentiates("ReduceLogSum")
def _log_sum(context: Context) -> None:
    """The gradient divided by the sum, repeated."""
    of = reduced(context)
    inverse = context.ops.op("Exp", [context.ops.neg(of.result())])
    context.give(0, _repeated(context, context.ops.mul(of.given(), inverse)))


@differentiates("ReduceLogSumExp")
def _log_sum_exp(context: Context) -> None:
    """The softmax of the elements."""
    of = reduced(context)
    power = context.ops.op("Exp", [context.ops.sub(context.input(0), of.result())])
    context.give(0, context.ops.mul(power, of.given()))


@differentiates("CumSum")
def _cum_sum(context: Context) -> None:
    """The running sum of the gradient from the other end."""
    attributes = {
        "exclusive": context.attributes.int("exclusive", 0),
        "reverse": 1 - context.attributes.int("reverse", 0),
    }
    summed = context.ops.op("CumSum", [context.gradient(), context.input(1)], None, attributes)
    context.give(0, summed)


@differentiates("Softmax")
def _softmax(context: Context) -> None:
    """dX = Y (dY - sum(dY Y))."""
    y, given = context.output(), context.gradient()
    total = context.ops.sum(context.ops.mul(given, y), context.mixed())
    context.give(0, context.ops.mul(y, context.ops.sub(given, total)))


@differentiates("LogSoftmax")
def _log_softmax(context: Context) -> None:
    """dX = dY - exp(Y) sum(dY)."""
    y, given = context.output(), context.gradient()
    total = context.ops.sum(given, context.mixed())
    context.give(0, context.ops.sub(given, context.ops.mul(context.ops.op("Exp", [y]), total)))


@differentiates("Hardmax")
def _hardmax(context: Context) -> None:
    """Zero: the result is constant in between its jumps."""
    context.axis(-1)
