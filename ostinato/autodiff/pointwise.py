"""Gradients of operators that work on each element alone."""

from __future__ import annotations

from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates


@differentiates("Add", "Sum")
def _add(context: Context) -> None:
    for index in range(len(context.node.inputs)):
        context.give_broadcast(index, context.gradient())


@differentiates("Sub")
def _sub(context: Context) -> None:
    context.give_broadcast(0, context.gradient())
    if context.wants(1):
        context.give_broadcast(1, context.neg(context.gradient()))


@differentiates("Mul")
def _mul(context: Context) -> None:
    for index in (0, 1):
        if context.wants(index):
            other = context.input(1 - index)
            context.give_broadcast(index, context.mul(context.gradient(), other))


@differentiates("Sigmoid")
def _sigmoid(context: Context) -> None:
    y = context.output()
    slope = context.mul(y, context.sub(1.0, y))
    context.give(0, context.mul(context.gradient(), slope))


@differentiates("Tanh")
def _tanh(context: Context) -> None:
    y = context.output()
    slope = context.sub(1.0, context.mul(y, y))
    context.give(0, context.mul(context.gradient(), slope))


@differentiates("Identity")
def _identity(context: Context) -> None:
    context.give(0, context.gradient())
