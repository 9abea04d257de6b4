"""Cases of MatMul, Gemm and Conv."""

from __future__ import annotations

import numpy as np

from tests.cases.case import BATCHES, Case, In, node, text, weights


def matmuls() -> list[Case]:
    cases = [
        node("vectors", "MatMul", In((5,)), In((5,)), length=5),
        node("vector-matrix", "MatMul", In((5,)), In((5, 3)), length=5),
        node("matrix-vector", "MatMul", In((4, 5)), In((5,)), length=5),
        node("batched", "MatMul", In((2, 4, 5)), In((2, 5, 6)), length=5),
        node("batched-by-vector", "MatMul", In((2, 4, 5)), In((5,)), length=5),
        node("vector-by-batched", "MatMul", In((4,)), In((2, 4, 5)), length=4),
        node("broadcast", "MatMul", In((2, 1, 4, 5)), In((3, 5, 6)), length=5),
        node("broadcast-constant", "MatMul", In((3, 4, 5)), weights(5, 20), length=5),
        node("constant-left", "MatMul", weights(4, 5), In((5, 7)), length=5),
        node("constants", "MatMul", weights(4, 5), weights(5, 7), length=5),
        node("no-terms", "MatMul", In((3, 0)), In((0, 4))),
        node("no-rows", "MatMul", In((0, 3)), In((3, 4)), length=3),
        node("no-columns", "MatMul", In((2, 3)), In((3, 0)), length=3),
        node(
            "runtime-inner",
            "MatMul",
            In((3, "T")),
            In(("T", 9)),
            length=40,
            sizes=({"T": 4}, {"T": 1}, {"T": 40}, {"T": 0}),
            witness=False,
        ),
        node(
            "runtime-vector",
            "MatMul",
            In((3, "T")),
            In(("T",)),
            length=100,
            sizes=({"T": 100}, {"T": 1}, {"T": 0}),
            witness=False,
        ),
        # Sizes of which copies of the operands pay, and few rows with which they do not.
        node(
            "shared-by-many-rows",
            "MatMul",
            In(("N", 100)),
            In((100, 90)),
            length=100,
            sizes=({"N": 70}, {"N": 1}, {"N": 64}, {"N": 0}),
            batch=True,
        ),
        node(
            "shared-across",
            "Gemm",
            In(("N", 100)),
            In((90, 100)),
            length=100,
            sizes=({"N": 5}, {"N": 3}, {"N": 0}),
            transB=1,
        ),
        node(
            "sum-over-many-rows",
            "Gemm",
            In(("N", 70)),
            In(("N", 100)),
            length=130,
            sizes=({"N": 130}, {"N": 1}, {"N": 0}),
            transA=1,
            witness=False,
        ),
        node("tall", "MatMul", In(("N", 90)), weights(90, 3), sizes=BATCHES, batch=True, length=90),
        node(
            "runtime-columns",
            "MatMul",
            In((3, 5)),
            In((5, "T")),
            length=5,
            sizes=({"T": 4}, {"T": 1}, {"T": 40}, {"T": 0}),
            witness=False,
        ),
        node("f64", "MatMul", In((6, 9), "float64"), weights(9, 21, dtype="float64"), length=9),
        node(
            "f64-narrow", "MatMul", In((6, 9), "float64"), weights(9, 3, dtype="float64"), length=9
        ),
        node(
            "int32",
            "MatMul",
            In((3, 9), "int32", low=-9, high=9),
            In((9, 5), "int32", low=-9, high=9),
        ),
        node(
            "int64",
            "MatMul",
            In((3, 9), "int64", low=-9, high=9),
            In((9, 1), "int64", low=-9, high=9),
        ),
        node(
            "uint32",
            "MatMul",
            In((2, 3), "uint32", high=9),
            In((3, 2), "uint32", high=9),
            witness=False,
        ),
    ]
    for n in range(1, 9):
        cases.append(
            node(
                f"n{n}",
                "MatMul",
                In(("N", 37)),
                weights(37, n),
                sizes=BATCHES,
                batch=True,
                length=37,
            )
        )
    for n in (16, 31, 64, 100):
        cases.append(
            node(
                f"n{n}",
                "MatMul",
                In(("N", 17)),
                weights(17, n),
                sizes=BATCHES,
                batch=True,
                length=17,
            )
        )
    cases += [
        node("row", "MatMul", In((1, 70)), weights(70, 48), length=70),
        node("many-rows", "MatMul", In((300, 8)), weights(8, 40), length=8),
        node(
            "runtime-operands",
            "MatMul",
            In(("N", 6)),
            In((6, 33)),
            sizes=BATCHES,
            batch=False,
            length=6,
        ),
    ]
    return cases


def gemms() -> list[Case]:
    cases = []
    for a in (0, 1):
        for b in (0, 1):
            left = In((5, 4) if a else (4, 5))
            right = weights(*((7, 5) if b else (5, 7)))
            cases.append(
                node(
                    f"transA{a}-transB{b}",
                    "Gemm",
                    left,
                    right,
                    weights(7),
                    transA=a,
                    transB=b,
                    alpha=0.5,
                    beta=2.0,
                    length=6,
                )
            )
    x, w = In(("N", 9)), weights(9, 20)
    cases += [
        node("no-bias", "Gemm", x, w, sizes=BATCHES, batch=True, length=9),
        node("scalar-bias", "Gemm", In((3, 5)), weights(5, 2), np.float32(0.5), length=6),
        node("column-bias", "Gemm", In((3, 5)), weights(5, 2), In((3, 1)), length=6),
        node("matrix-bias", "Gemm", In((3, 5)), weights(5, 2), In((3, 2)), length=6),
        node("old", "Gemm", In((3, 5)), weights(5, 2), In((2,)), opset=9, length=6),
        node(
            "integers",
            "Gemm",
            In((3, 5), "int32", low=-9, high=9),
            In((5, 2), "int32", low=-9, high=9),
            In((2,), "int32", low=-9, high=9),
            alpha=0.5,
            beta=1.25,
            witness=False,
        ),
        node("beta-zero", "Gemm", In((3, 5)), weights(5, 2), weights(2), beta=0.0, length=6),
        node("alpha-only", "Gemm", In((3, 5)), In((5, 2)), alpha=-1.5, length=6),
        node(
            "transB",
            "Gemm",
            x,
            weights(20, 9),
            weights(20),
            transB=1,
            sizes=BATCHES,
            batch=True,
            length=10,
        ),
        node(
            "f64",
            "Gemm",
            In((3, 5), "float64"),
            weights(5, 20, dtype="float64"),
            weights(20, dtype="float64"),
            length=6,
        ),
    ]
    return cases


def convolutions() -> list[Case]:
    def one(
        name: str,
        shape: tuple[int | str, ...],
        weight: tuple[int, ...],
        bias: bool = True,
        **rest: object,
    ) -> Case:
        operands = [In(shape), weights(*weight), *([weights(weight[0], seed=1)] * bias)]
        return node(
            name, "Conv", *operands, length=float(np.prod(weight[1:])) + 1, opset=11, **rest
        )

    cases = [
        one("1d", (2, 3, 9), (4, 3, 3)),
        one(
            "1d-stride-dilation-pads",
            (2, 3, 17),
            (4, 3, 3),
            strides=[2],
            dilations=[3],
            pads=[4, 1],
        ),
        one("1d-1x1", (2, 3, 9), (20, 3, 1)),
        one("2d", (1, 3, 7, 8), (5, 3, 3, 2), bias=False),
        one(
            "2d-everything",
            (2, 4, 9, 8),
            (6, 2, 3, 2),
            group=2,
            strides=[2, 1],
            dilations=[1, 2],
            pads=[1, 0, 2, 1],
            kernel_shape=[3, 2],
        ),
        one("2d-depthwise", (1, 6, 7, 7), (6, 1, 3, 3), group=6, pads=[1, 1, 1, 1]),
        one("2d-depthwise-multiplier", (1, 3, 5, 5), (6, 1, 3, 3), group=3),
        one(
            "2d-depthwise-strided",
            (2, 20, 9, 12),
            (20, 1, 3, 3),
            group=20,
            strides=[2, 2],
            pads=[1, 1, 1, 1],
        ),
        one("2d-rows-a-page-apart", (1, 64, 5, 14), (8, 64, 3, 3), pads=[1, 1, 1, 1]),
        one("2d-1x1", (2, 8, 3, 5), (16, 8, 1, 1)),
        one("2d-1x1-stride", (1, 4, 5, 5), (3, 4, 1, 1), strides=[2, 2]),
        one("2d-whole", (2, 3, 4, 5), (7, 3, 4, 5)),
        one("3d", (1, 2, 4, 5, 6), (3, 2, 2, 3, 2), strides=[1, 2, 1], pads=[0, 1, 0, 1, 0, 1]),
        one("wide", (1, 2, 70), (3, 2, 5), pads=[2, 2]),
        one("pads-beyond", (1, 1, 2), (1, 1, 3), pads=[5, 5], bias=False),
        one("batch", ("N", 2, 9), (3, 2, 3), sizes=BATCHES, batch=True, pads=[1, 1]),
        one("runtime", (1, 2, "T"), (17, 2, 3), sizes=({"T": 3}, {"T": 40}, {"T": 9}), strides=[2]),
        one(
            "runtime-pads",
            (1, 2, "T"),
            (17, 2, 3),
            sizes=({"T": 1}, {"T": 40}, {"T": 9}),
            pads=[1, 1],
        ),
        one(
            "runtime-same",
            (1, 2, "T"),
            (3, 2, 4),
            sizes=({"T": 1}, {"T": 40}, {"T": 9}),
            auto_pad="SAME_UPPER",
            strides=[3],
        ),
        one(
            "runtime-channels-first",
            (1, 2, "H", "W"),
            (3, 2, 3, 3),
            sizes=({"H": 3, "W": 5}, {"H": 9, "W": 3}, {"H": 20, "W": 20}),
        ),
    ]
    cases += [
        one(
            "winograd",
            ("N", 64, 9, 8),
            (50, 64, 3, 3),
            sizes=BATCHES,
            batch=True,
            pads=[1, 1, 0, 1],
        ),
        one("winograd-four", ("N", 32, 14, 15), (40, 32, 3, 3), sizes=BATCHES, pads=[2, 0, 1, 2]),
        one("winograd-two-four", ("N", 64, 6, 24), (50, 64, 3, 3), sizes=BATCHES, pads=[1] * 4),
        one("winograd-one-axis", (1, 64, 9, 11), (48, 64, 3, 3), strides=[2, 1], pads=[1, 1, 1, 1]),
        one(
            "winograd-groups",
            ("N", 64, 9, 7),
            (64, 64, 5, 6),
            sizes=BATCHES,
            batch=True,
            pads=[2, 2, 2, 3],
        ),
        one(
            "winograd-far-taps",
            (1, 24, 21, 20),
            (32, 24, 13, 11),
            strides=[2, 1],
            pads=[3, 5, 2, 5],
        ),
        one(
            "winograd-phases",
            ("N", 48, 21, "T"),
            (40, 48, 5, 2),
            sizes=({"N": 1, "T": 9}, {"N": 3, "T": 2}, {"N": 1, "T": 33}),
            strides=[2, 1],
            pads=[2, 1, 2, 0],
        ),
        one("winograd-3d", (1, 64, 3, 8, 10), (64, 64, 2, 3, 3), auto_pad="SAME_LOWER"),
    ]
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        for stride in (1, 2, 3):
            cases.append(
                one(
                    f"{pad}-{stride}",
                    (1, 2, 10, 7),
                    (3, 2, 3, 2),
                    auto_pad=pad,
                    strides=[stride, stride],
                )
            )
    cases += [
        node("f64", "Conv", In((1, 3, 6), "float64"), weights(20, 3, 2, dtype="float64"), length=6),
        node("runtime-weights", "Conv", In((1, 3, 6)), In((5, 3, 2)), In((5,)), length=7),
        one(
            "same-dilated",
            (1, 2, 11),
            (3, 2, 3),
            auto_pad="SAME_UPPER",
            dilations=[2],
            witness=False,
        ),
    ]
    return cases


def epilogues() -> list[Case]:
    return [
        text(
            "attention-scores",
            """agraph (float[N, T, 2, 5] q, float[N, K, 2, 5] k) => (float[N, 2, T, K] y) {
                a = Transpose<perm = [0, 2, 1, 3]>(q)  b = Transpose<perm = [0, 2, 3, 1]>(k)
                p = MatMul(a, b)  y = Mul(p, half)
            }""",
            (
                {"N": 2, "T": 7, "K": 19},
                {"N": 3, "T": 1, "K": 40},
                {"N": 1, "T": 4, "K": 1},
                {"N": 2, "T": 5, "K": 0},
                {"N": 0, "T": 5, "K": 3},
            ),
            constants={"half": np.float32(0.5)},
            length=5,
        ),
        text(
            "attention-scores-of-a-past",
            """agraph (float[N, 2, P, 5] past, float[N, 2, T, 5] new, float[N, 2, T, 5] q)
            => (float[N, 2, T, S] y, float[N, 2, S, 5] keys) {
                keys = Concat<axis = 2>(past, new)  kt = Transpose<perm = [0, 1, 3, 2]>(keys)
                y = MatMul(q, kt)
            }""",
            (
                {"N": 2, "P": 9, "T": 1},
                {"N": 1, "P": 0, "T": 6},
                {"N": 2, "P": 17, "T": 5},
                {"N": 0, "P": 3, "T": 5},
                {"N": 1, "P": 3, "T": 0},
            ),
            length=5,
        ),
        text(
            "windows-between-products",
            """agraph (float[N, 8, 9, 9] x) => (float[N, 5, 5, 5] y) {
                a = Conv(x, wide)  c = Clip(a, zero, six)
                d = Conv<group = 24, strides = [2, 2], pads = [1, 1, 1, 1]>(c, window)
                e = Conv<group = 24, strides = [2, 2], pads = [2, 2, 2, 2]>(c, large)
                p = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(c)
                s = Sum(d, e, p)  y = Conv(s, narrow)
            }""",
            ({"N": 1}, {"N": 3}),
            constants={
                "wide": weights(24, 8, 1, 1),
                "zero": np.float32(0),
                "six": np.float32(6),
                "window": weights(24, 1, 3, 3, seed=1),
                "large": weights(24, 1, 5, 5, seed=2),
                "narrow": weights(5, 24, 1, 1, seed=3),
            },
            length=9 * 26 * 25,
        ),
        text(
            "winograd-residual",
            """agraph (float[N, 64, 10, 8] x) => (float[N, 64, 10, 8] y) {
                a = Conv<pads = [1, 1, 1, 1]>(x, first, bias)  b = Relu(a)
                c = Conv<pads = [1, 1, 1, 1]>(b, second)  d = Add(c, x)  y = Relu(d)
            }""",
            ({"N": 1}, {"N": 3}),
            constants={
                "first": weights(64, 64, 3, 3),
                "bias": weights(64, seed=1),
                "second": weights(64, 64, 3, 3, seed=2),
            },
            length=2 * 64 * 9 * 25,
        ),
        text(
            "product-of-a-transpose",
            """agraph (double[9, 11] a, double[33, 11] b) => (double[9, 33] y) {
                t = Transpose<perm = [1, 0]>(b)  y = MatMul(a, t)
            }""",
            length=11,
        ),
        text(
            "gated-projection",
            """agraph (float[N, 12] x) => (float[N, 20] y) {
                p = MatMul(x, w)  b = Add(p, bias)  a, g = Split<axis = 1, num_outputs = 2>(b)
                s = Sigmoid(g)  y = Mul(a, s)
            }""",
            BATCHES,
            constants={"w": weights(12, 40), "bias": weights(40)},
            batch=True,
            length=13,
        ),
        text(
            "siblings-share-an-operand",
            """agraph (float[N, 12] x) => (float[N, 20] y, float[N, 20] z) {
                a = MatMul(x, w)  b = MatMul(x, v)  y = Tanh(a)  z = Mul(a, b)
            }""",
            BATCHES,
            constants={"w": weights(12, 20), "v": weights(12, 20, seed=1)},
            batch=True,
            length=24,
        ),
        text(
            "concatenated-operand",
            """agraph (float[N, 5] x, float[N, 7] h) => (float[N, 20] y) {
                xh = Concat<axis = 1>(x, h)  p = MatMul(xh, w)  y = Relu(p)
            }""",
            BATCHES,
            constants={"w": weights(12, 20)},
            batch=True,
            length=12,
        ),
        text(
            "chain-of-layers",
            """agraph (float[N, 9] x) => (float[N, 3] y) {
                a = Gemm<transB = 1>(x, w1, b1)  b = Relu(a)  c = MatMul(b, w2)  d = Tanh(c)
                e = MatMul(d, w3)  y = Softmax<axis = 1>(e)
            }""",
            BATCHES,
            constants={
                "w1": weights(33, 9),
                "b1": weights(33),
                "w2": 0.1 * weights(33, 17),
                "w3": weights(17, 3),
            },
            batch=True,
            length=64,
        ),
        text(
            "attention",
            """agraph (float[T, 16] q, float[S, 16] k, float[S, 8] v) => (float[T, 8] y) {
                kt = Transpose<perm = [1, 0]>(k)  s = MatMul(q, kt)  d = Div(s, four)
                p = Softmax<axis = -1>(d)  y = MatMul(p, v)
            }""",
            ({"T": 3, "S": 5}, {"T": 1, "S": 1}, {"T": 20, "S": 33}, {"T": 0, "S": 2}),
            constants={"four": np.float32(4)},
            length=100,
        ),
        text(
            "keys-of-few-queries",
            """agraph (float[2, 1, 20] q, float[2, R, 20] r, float[2, P, 20] k)
                    => (float[2, 1, P] y, float[2, R, P] z) {
                t = Transpose<perm = [0, 2, 1]>(k)  y = MatMul(q, t)  z = MatMul(r, t)
            }""",
            (
                {"R": 2, "P": 1},
                {"R": 3, "P": 5},
                {"R": 1, "P": 33},
                {"R": 7, "P": 64},
                {"R": 4, "P": 0},
            ),
            length=20,
        ),
        # What the heads hand from product to product exceeds the second-level cache.
        text(
            "attention-in-blocks",
            """agraph (float[3, T, 4] q, float[3, S, 4] k, float[3, S, 4] v) => (float[3, T, 4] y) {
                kt = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(q, kt)
                p = Softmax<axis = -1>(s)  y = MatMul(p, v)
            }""",
            ({"T": 311, "S": 300}, {"T": 24, "S": 3}, {"T": 0, "S": 2}),
            length=310,
        ),
        text(
            "attention-in-blocks-of-known-size",
            """agraph (float[3, 311, 4] q, float[3, 300, 4] k, float[3, 300, 4] v)
                => (float[3, 311, 4] y) {
                kt = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(q, kt)
                p = Softmax<axis = -1>(s)  y = MatMul(p, v)
            }""",
            ({},),
            length=310,
        ),
        text(
            "product-plus-product",
            """agraph (float[N, 6] x) => (float[N, 18] y) {
                a = MatMul(x, w)  e = Exp(x)  b = MatMul(e, v)  y = Add(a, b)
            }""",
            BATCHES,
            constants={"w": weights(6, 18), "v": weights(6, 18, seed=2)},
            batch=True,
            length=20,
        ),
    ]


CASES = [*matmuls(), *gemms(), *convolutions(), *epilogues()]
