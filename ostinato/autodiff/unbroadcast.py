"""The gradient of an operand that was repeated: the sum over its copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Arithmetic, Term
from ostinato.autodiff.contributions import Dims
from ostinato.graph.writer import Operand


def unbroadcast(gradient: Term, large: Dims, small: Dims, sizes: Callable[[], Operand]) -> Term:
    """The sum over the axes along which an operand of sizes `small` is repeated in `large`.

    gradient: of sizes `large`. sizes: gives those of the operand: 1-D int64.
    """
    extra = len(large) - len(small)
    pairs = list(enumerate(zip(large[extra:], small, strict=True), extra))
    repeated = [*range(extra), *(i for i, (many, few) in pairs if few == 1 and many != 1)]
    unknown = [
        i for i, (many, few) in pairs if few is None or (isinstance(few, str) and few != many)
    ]
    if unknown:
        return _sum_to(gradient, extra, len(small), sizes())
    if not repeated:
        return gradient
    summed = gradient.sum(repeated)
    return summed if not extra else summed.reshape(sizes())


def _sum_to(gradient: Term, extra: int, rank: int, sizes: Operand) -> Term:
    """The sum of each group of elements that is one element of an operand of these sizes.

    extra: how many axes it gets in front of its own. Along each axis the number of groups is that
    of the operand, or 1: which is known at run time.
    """
    ops, few = gradient.ops, sizes
    if extra:
        few = ops.writer.concat([np.ones(extra, np.int64), few], 0, "sizes")
    many = ops.shape(gradient)
    times = ops.integers("Div", many, ops.integers("Max", few, np.array([1], np.int64)))
    summed = sum_repeats(gradient, rank + extra, times, few)
    return summed.reshape(sizes) if extra else summed


def sum_repeats(x: Term, rank: int, times: Operand, sizes: Operand, each: bool = False) -> Term:
    """The sum of all copies of a value of these sizes, which `x` repeats so often per axis.

    each: copies of an element follow one another, not copies of the axis.
    """
    ops, pair = x.ops, (sizes, times) if each else (times, sizes)
    columns = [_reshaped(ops, operand, (-1, 1)) for operand in pair]
    split = _reshaped(ops, ops.writer.concat(columns, 1, "pairs"), (-1,))
    copies = range(1 if each else 0, 2 * rank, 2)
    return x.reshape(split).sum(copies, keepdims=False)


def _reshaped(ops: Arithmetic, integers: Operand, shape: Sequence[int]) -> Operand:
    if isinstance(integers, ir.Value):
        return ops.index("Reshape", integers, np.array(shape, np.int64), role="index")
    return integers.reshape(shape)
