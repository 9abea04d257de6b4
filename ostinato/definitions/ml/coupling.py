"""Probabilities of classes from those of pairs, as libsvm finds them (Wu, Lin and Weng, JMLR 2004).

Where r[i, j] is the share of class i among i and j, the shares p of all classes minimise p Q p:

    Q[i, i] = sum of r[j, i]^2 over all other j        Q[i, j] = -r[j, i] r[i, j]

They are improved one after the other, until none of Q p is far from p Q p (section 4.2). Rows of a
batch stop one by one: those that have stopped keep their shares, whatever is beside them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import Call
from ostinato.definitions.ml.forest import BOOL

# As in onnxruntime: the number of steps, and the least distance of a pair's shares from 0 and 1.
_MOST_STEPS, _LEAST = 100, 1e-7
# Each class is some nodes of a step.
_MOST_CLASSES = 32


def coupled(call: Call, scaled: ir.Value, pairs: list[tuple[int, int]]) -> ir.Value:
    """The probability of each class: `[rows, classes]`.

    scaled: for each pair, of which the first class has the share 1 - sigmoid, `[rows, pairs]`.
    """
    count = 1 + pairs[-1][1]
    if count > _MOST_CLASSES:
        raise call.refuse(f"probabilities of more than {_MOST_CLASSES} classes have no native form")
    share = call.op("Sub", 1, call.op("Sigmoid", call.op("Transpose", scaled, perm=[1, 0])))
    limits = (call.number(limit, share) for limit in (_LEAST, 1 - _LEAST))
    first = call.op("Clip", share, *limits)
    # Rows of all shares by class and class, of which those of a class itself are 0.
    shares = call.op("Concat", first, call.op("Sub", 1, first), axis=0)
    shares = call.op("Pad", shares, np.array([0, 0, 1, 0]))
    places = np.full((count, count), 2 * len(pairs))
    for number, (one, other) in enumerate(pairs):
        places[one, other], places[other, one] = number, len(pairs) + number
    against = call.op("Gather", shares, places.T, axis=0)
    products = call.op("Mul", call.op("Neg", against), call.op("Gather", shares, places, axis=0))
    squares = call.reduce("ReduceSum", call.op("Mul", against, against), [1], keepdims=True)
    own = np.eye(count, dtype=bool)[..., None]
    system = call.op("Where", own, squares, products, dtype=shares.dtype)
    size = call.op("Shape", call.slice(share, 0, 1, 0), dtype=ir.DataType.INT64)
    size = call.op("Concat", np.array([count]), call.slice(size, 1, 2, 0), axis=0)
    start = call.op("Expand", call.number(1 / count, shares), size, dtype=shares.dtype)
    steps = _Steps(system, count)
    found = call.repeat(_MOST_STEPS, call.shaped(start, count, None), steps.next)
    return call.op("Transpose", found, perm=[1, 0])


class _Steps:
    """Improves all shares once. system: Q of all rows, `[count, count, rows]`."""

    def __init__(self, system: ir.Value, count: int) -> None:
        self._system, self._count = system, count

    def next(self, call: Call, shares: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Whether any row goes on, and the shares `[count, rows]` behind a step."""
        products = call.op("Mul", self._system, shares)
        products = call.reduce("ReduceSum", products, [1], keepdims=False)
        total = call.op("Mul", shares, products)
        total = call.reduce("ReduceSum", total, [0], keepdims=True)
        off = call.op("Abs", call.op("Sub", products, total))
        error = call.reduce("ReduceMax", off, [0], keepdims=True)
        goes = call.op("GreaterOrEqual", error, 0.005 / self._count, dtype=BOOL)
        better = shares
        for place in range(self._count):
            better, products, total = self._improved(call, place, better, products, total)
        number = call.cast(goes, ir.DataType.INT32)
        any_goes = call.cast(call.reduce("ReduceMax", number, [0, 1], keepdims=False), BOOL)
        return any_goes, call.op("Where", goes, better, shares, dtype=shares.dtype)

    def _improved(
        self, call: Call, place: int, shares: ir.Value, products: ir.Value, total: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The shares with another one at `place`, Q p and p Q p of them."""
        row = call.op("Squeeze", call.slice(self._system, place, place + 1, 0), np.array([0]))
        own, product = (call.slice(x, place, place + 1, 0) for x in (row, products))
        change = call.op("Div", call.op("Sub", total, product), own)
        whole = call.op("Add", change, 1)
        here = np.zeros((self._count, 1), np.float32)
        here[place] = 1
        shares = call.op("Add", shares, call.op("Mul", change, here))
        twice = call.op("Add", call.op("Mul", change, own), call.op("Mul", product, 2))
        total = call.op("Add", total, call.op("Mul", change, twice))
        total = call.op("Div", call.op("Div", total, whole), whole)
        products = call.op("Add", products, call.op("Mul", change, row))
        return call.op("Div", shares, whole), call.op("Div", products, whole), total
