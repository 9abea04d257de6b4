"""Cases of Lp norms, local energy and blocks of images."""

from __future__ import annotations

from tests.cases.case import Case, In, ints, node

X = In((2, 5, 6, 7))
SIZES = ({"N": 3, "T": 9}, {"N": 1, "T": 4}, {"N": 2, "T": 40})


def norms() -> list[Case]:
    return [
        node("default", "LpNormalization", X),
        node("one", "LpNormalization", X, axis=1, p=1),
        node("double", "LpNormalization", In((3, 4), "float64"), axis=0),
        node("zero", "LpNormalization", In((2, 3), values=[0.0, -0.0, 0.0, 1.0, -2.0, 2.0]),
             opset=22, witness=False),
        node("runtime", "LpNormalization", In(("N", "T")), sizes=SIZES, batch=True),
        node("default", "GlobalLpPool", X, length=6),
        node("three", "GlobalLpPool", X, p=3, length=6, ulps=8),
        node("default", "LpPool", X, kernel_shape=[2, 2]),
        node("one", "LpPool", X, kernel_shape=[3, 1], p=1, pads=[1, 0, 1, 0], length=3),
        node("three", "LpPool", X, kernel_shape=[2, 3], p=3, strides=[2, 1], ulps=8),
        node("line", "LpPool", In((2, 3, 11)), kernel_shape=[3], strides=[2],
             auto_pad="SAME_LOWER"),
        node("dilated", "LpPool", X, kernel_shape=[2, 2], dilations=[2, 3], ceil_mode=1, opset=18,
             witness=False),
        node("old", "LpPool", X, kernel_shape=[2, 2], opset=2),
        node("runtime", "LpPool", In(("N", 3, "T")), kernel_shape=[3], sizes=SIZES, batch=True),
        node("default", "LRN", X, size=3, ulps=8),
        node("even", "LRN", X, size=4, alpha=0.5, beta=0.6, bias=2.0, ulps=8, witness=False),
        node("wide", "LRN", X, size=9, alpha=0.5, ulps=8),
        node("one", "LRN", X, size=1, alpha=0.5, ulps=8),
        node("runtime", "LRN", In(("N", 6, "T", 2)), size=3, sizes=SIZES, batch=True, ulps=8),
        node("default", "MeanVarianceNormalization", X, length=2, ranks=(4,)),
        node("axes", "MeanVarianceNormalization", In((3, 50)), axes=[1], length=4),
        node("runtime", "MeanVarianceNormalization", In(("N", 3, "T")), axes=[-1], sizes=SIZES,
             batch=True, length=4),
    ]  # fmt: skip


def blocks() -> list[Case]:
    return [
        node("plain", "Col2Im", In((1, 5, 5)), ints(5, 5), ints(1, 5)),
        node("overlap", "Col2Im", In((2, 12, 12)), ints(4, 5), ints(2, 2), length=4),
        node("strides", "Col2Im", In((1, 9, 4)), ints(5, 5), ints(3, 3), strides=[2, 2], length=4),
        node("pads", "Col2Im", In((1, 5, 15)), ints(5, 5), ints(1, 5), pads=[0, 1, 0, 1], length=5),
        node("dilations", "Col2Im", In((1, 4, 5)), ints(6, 6), ints(2, 2), dilations=[1, 5],
             length=4),
        node("ragged", "Col2Im", In((2, 10, 4)), ints(14), ints(5), strides=[3], pads=[1, 1],
             length=2),
        node("apart", "Col2Im", In((1, 4, 3)), ints(8), ints(2), strides=[3]),
        node("line", "Col2Im", In((2, 8, 7)), ints(13), ints(4), strides=[2], pads=[1, 2],
             length=4, witness=False),
        node("space", "Col2Im", In((1, 10, 12)), ints(3, 4, 5), ints(1, 1, 5), pads=[0] * 6),
    ]  # fmt: skip


CASES = [*norms(), *blocks()]
