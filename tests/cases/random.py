"""Cases of random numbers: seeds, steps of loops, numbers of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from tests.cases.case import Array, Case, In, Sizes, node, text, weights
from tests.oracle.random import normal, uniform, words

SIZES: tuple[Sizes, ...] = ({"N": 5}, {"N": 1}, {"N": 0}, {"N": 41})
DOUBLE, HALF = TensorProto.DOUBLE, TensorProto.FLOAT16


def draws() -> list[Case]:
    """Nodes with seeds; onnxruntime has another generator."""
    shares = In((3, 7), values=[0.0, 1.0, 0.5, 0.1, 0.9])
    return [
        node("float", "RandomNormal", shape=[3, 50], seed=3.0, mean=1.0, scale=2.0, witness=False,
             length=8),
        node("double", "RandomNormal", shape=[101], seed=0.0, dtype=DOUBLE, witness=False,
             length=4),
        node("like", "RandomNormalLike", In(("N", 3)), seed=-2.5, sizes=SIZES, witness=False,
             length=8),
        node("half", "RandomUniform", shape=[40], seed=1.0, dtype=HALF, low=-1.0, opset=22,
             witness=False),
        node("double", "RandomUniformLike", In((4, 5)), seed=1.0, dtype=DOUBLE, high=3.0,
             witness=False),
        node("like", "RandomUniformLike", In(("N",), "int64"), seed=1.0, sizes=SIZES, dtype=1,
             witness=False),
        node("float", "Bernoulli", shares, seed=4.0, opset=15, witness=False),
        node("bool", "Bernoulli", shares, seed=4.0, dtype=TensorProto.BOOL, witness=False),
        node("ints", "Multinomial", In((3, 9), scale=2.0), seed=1.0, sample_size=30,
             witness=False),
        node("one", "Multinomial", In((2, 1)), seed=1.0, dtype=7, witness=False),
        node("training", "Dropout", In((3, 11)), np.float32(0.3), np.array(True), opset=13,
             seed=5, outputs=2, witness=False),
        node("training-runtime", "Dropout", In(("N", 4)), In((), values=[0.25]),
             In((), "bool", values=[True]), seed=6, outputs=2, sizes=SIZES, witness=False),
        node("inference-runtime", "Dropout", In((2, 4)), In((), values=[0.25]),
             In((), "bool", values=[False]), outputs=2, opset=12),
        node("mask", "Dropout", In((2, 4)), outputs=2, opset=13),
        node("mask-old", "Dropout", In((2, 4)), outputs=2, opset=7, ranks=[2, 2], witness=False),
    ]  # fmt: skip


LOOP = """agraph (float[3] h) => (float[3] last, float[4, 3] y, float[3] after) {
    last, y = Loop(four, yes, h) <body = b (int64 i, bool c, float[3] s)
        => (bool c2, float[3] s2, float[3] o) {
            c2 = Identity(c)  o = RandomNormal<shape = [3]>()  s2 = Add(s, o)
        }>
    after = RandomUniform<shape = [3]>()
}"""
NESTED = """agraph (float[2] h, float[S, T] x) => (float[2] last, float[S, T, 2] y) {
    last, y = Scan<num_scan_inputs = 1, body = rows (float[2] u, float[T] e)
        => (float[2] u2, float[T, 2] o) {
            u2, o = Scan<num_scan_inputs = 1, scan_input_directions = [1],
                body = cell (float[2] g, float f) => (float[2] g2, float[2] k) {
                    k = RandomUniformLike<seed = 9.0>(g)  m = Mul(k, f)  g2 = Add(g, m)
                }>(u, e)
        }>(h, x)
}"""
ONCE = """agraph (float[3] h) => (float[1, 3] y) {
    last, y = Loop(one, yes, h) <body = b (int64 i, bool c, float[3] s)
        => (bool c2, float[3] s2, float[3] o) {
            c2 = Identity(c)  o = RandomNormal<shape = [3]>()  s2 = Add(s, o)
        }>
}"""


GROWING = """agraph (float[2] x) => (float[8] y) {
    y = Loop(three, yes, x) <body = b (int64 i, bool c, float[k] s) => (bool c2, float[n] s2) {
        c2 = Identity(c)  r = RandomUniformLike(x)  s2 = Concat<axis = 0>(s, r)
    }>
}"""


def _growing(feeds: Mapping[str, Array]) -> list[Array]:
    return [np.concatenate([feeds["x"], *(uniform(words(2, None, steps=[i])) for i in range(3))])]


def _loop(feeds: Mapping[str, Array]) -> list[Array]:
    # The node of the main graph comes first.
    rows = np.stack([normal(words(3, None, 2, [i])) for i in range(4)])
    return [feeds["h"] + rows.sum(0), rows, uniform(words(3, None, 1))]


def _nested(feeds: Mapping[str, Array]) -> list[Array]:
    x, state = feeds["x"].astype(np.float64), feeds["h"].astype(np.float64)
    y = np.zeros((*x.shape, 2))
    for i, j in np.ndindex(*x.shape):
        y[i, j] = uniform(words(2, 9.0, steps=[i, j]))
        state = state + y[i, j] * x[i, -1 - j]
    return [state, y]


def _once(feeds: Mapping[str, Array]) -> list[Array]:
    return [normal(words(3, None, 1, [0]))[None]]


def _several(feeds: Mapping[str, Array]) -> list[Array]:
    return [uniform(words(5, None, i + 1)) for i in range(2)]


def steps() -> list[Case]:
    constants = {"four": np.array(4), "one": np.array(1), "yes": np.array(True)}
    used: Sequence[str] = ("four", "yes"), ("one", "yes")
    first, second = ({name: constants[name] for name in names} for names in used)
    sizes: tuple[Sizes, ...] = ({"S": 3, "T": 2}, {"S": 1, "T": 1}, {"S": 2, "T": 0})
    return [
        text("random-loop", LOOP, constants=first, expected=_loop, witness=False, length=8),
        text("random-once", ONCE, constants=second, expected=_once, witness=False, length=8),
        text(
            "random-growing",
            GROWING,
            constants={"three": np.array(3), "yes": np.array(True)},
            expected=_growing,
            witness=False,
        ),
        text("random-nested", NESTED, sizes, expected=_nested, witness=False, length=8),
        text(
            "random-several",
            """agraph (float[5] x) => (float[5] a, float[5] b) {
                a = RandomUniformLike(x)  b = RandomUniformLike(x)
            }""",
            expected=_several,
            witness=False,
        ),
        text(
            "random-dropout-fused",
            """agraph (float[N, 6] x) => (float[N, 4] y) {
                h = MatMul(x, w)  d = Dropout<seed = 3>(h, ratio, yes)  y = Tanh(d)
            }""",
            SIZES,
            constants={"w": weights(6, 4), "ratio": np.float32(0.5), "yes": np.array(True)},
            witness=False,
            length=6,
        ),
    ]


CASES = [*draws(), *steps()]
