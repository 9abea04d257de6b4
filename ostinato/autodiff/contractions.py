"""Gradients of matrix products."""

from __future__ import annotations

from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates
from ostinato.passes.recurrent_writer import Operand


@differentiates("MatMul")
def _matmul(context: Context) -> None:
    """`Y = A B`: `dA = dY Bᵀ` and `dB = Aᵀ dY`, summed over the axes that were broadcast."""
    a, b = context.given(0), context.given(1)
    dims = context.dims(a), context.dims(b)
    if min(map(len, dims)) < 2:
        raise context.refuse("has no gradient for vectors: give them an axis of size 1")
    outer = context.dims(context.node.outputs[0])[:-2]
    given = context.gradient()
    if context.wants(0):
        product = context.op("MatMul", [given, _turned(context, 1)])
        context.give(0, context.unbroadcast(product, (*outer, *dims[0][-2:]), a))
    if context.wants(1) and len(dims[1]) == 2:
        context.give_product(1, context.input(0), given)
    elif context.wants(1):
        product = context.op("MatMul", [_turned(context, 0), given])
        context.give(1, context.unbroadcast(product, (*outer, *dims[1][-2:]), b))


def _turned(context: Context, index: int) -> Operand:
    """Input `index` with its last two axes exchanged."""
    rank = context.rank(context.given(index))
    return context.transpose(context.input(index), [*range(rank - 2), rank - 1, rank - 2])
