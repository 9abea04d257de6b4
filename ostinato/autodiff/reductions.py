"""Gradients of sums, means and other reductions."""

from __future__ import annotations

import numpy as np

from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates
from ostinato.passes.recurrent_writer import Operand


def reduced_axes(context: Context) -> tuple[int, ...]:
    """The axes that a reduction of opset 18 or later sums over, from the front; reads all of it."""
    rank = context.rank(context.given(0))
    context.attributes.int("keepdims", 1)
    nothing = context.attributes.int("noop_with_empty_axes", 0)
    if context.has(1):
        axes = context.constant(1)
        if axes is None:
            raise context.refuse("the axes are only known at run time")
        chosen = tuple(int(axis) % rank for axis in axes)
        if chosen:
            return chosen
    return () if nothing else tuple(range(rank))


def spread(context: Context, axes: tuple[int, ...]) -> Operand:
    """The sizes of input 0 with ones at `axes`: the shape of the result if it kept its axes."""
    dims = context.dims(context.given(0))
    if all(isinstance(size, int) or i in axes for i, size in enumerate(dims)):
        return np.array([1 if i in axes else size for i, size in enumerate(dims)], np.int64)
    pieces: list[Operand] = [
        np.array([1 if i in axes else size], np.int64)
        if i in axes or isinstance(size, int)
        else context.writer.size(context.input(0), i)
        for i, size in enumerate(dims)
    ]
    return context.writer.concat(pieces, 0, "sizes")


@differentiates("ReduceSum")
def _reduce_sum(context: Context) -> None:
    axes = reduced_axes(context)
    kept = context.reshape(context.gradient(), spread(context, axes))
    context.give(0, context.op("Expand", [kept, context.sizes(context.given(0))]))
