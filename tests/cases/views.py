"""Cases of ops that only look at memory in another way, and of chains of them."""

from __future__ import annotations

import numpy as np

from tests.cases.case import BATCHES, Case, In, Sizes, ints, node, text, weights

TIMES: tuple[Sizes, ...] = ({"T": 5}, {"T": 1}, {"T": 0}, {"T": 40}, {"T": 12})
LARGEST = 2**63 - 1


def slices() -> list[Case]:
    x = In((5, 7))
    table: dict[str, tuple[tuple[int, ...], ...]] = {
        "plain": ((1, 2), (4, 5)),
        "axes": ((2,), (5,), (1,)),
        "negative-axis": ((2,), (5,), (-1,)),
        "negative-bounds": ((-3,), (-1,), (0,)),
        "beyond": ((-99, 2), (99, 1000)),
        "step": ((0, 1), (5, 7), (0, 1), (2, 3)),
        "reverse": ((-1,), (-(2**63),), (1,), (-1,)),
        "reverse-step": ((99, 4), (-99, 0), (1, 0), (-2, -3)),
        "largest": ((1,), (LARGEST,), (0,)),
        "largest-step": ((1,), (LARGEST,), (0,), (LARGEST,)),
        "empty": ((3,), (3,), (0,)),
        "crossed": ((4,), (1,), (0,)),
        "crossed-reverse": ((1,), (4,), (0,), (-1,)),
        "start-beyond": ((9,), (12,), (0,)),
        "reverse-before-the-front": ((-99,), (-(2**63),), (0,), (-1,)),
        "reverse-step-before-the-front": ((-99, -10), (-98, -9), (0, 1), (-2, -3)),
    }
    cases = [
        node(name, "Slice", x, *(ints(*part) for part in parts)) for name, parts in table.items()
    ]
    for name, parts in table.items():
        shifted = [ints(*parts[0]), ints(*parts[1]), *(ints(*part) for part in parts[2:])]
        cases.append(node(f"runtime-{name}", "Slice", In(("T", 9)), *shifted, sizes=TIMES))
    cases += [
        node(
            "attributes", "Slice", x, opset=9, ranks=[2], starts=[1, -3], ends=[4, 99], axes=[1, 0]
        ),
        node("attributes-no-axes", "Slice", x, opset=9, ranks=[2], starts=[1], ends=[4]),
        node("int32", "Slice", x, np.array([1], np.int32), np.array([3], np.int32)),
        node("no-axes-but-steps", "Slice", x, ints(0, 6), ints(5, 0), None, ints(2, -2)),
    ]
    return cases


def shapes() -> list[Case]:
    x = In((2, 3, 4))
    cases = [
        node("zero-and-rest", "Reshape", x, ints(0, -1)),
        node("flat", "Reshape", x, ints(-1)),
        node("split", "Reshape", x, ints(2, 3, 2, 2)),
        node("to-scalar", "Reshape", In((1, 1)), np.zeros(0, np.int64)),
        node("from-scalar", "Reshape", In(()), ints(1, 1)),
        node("allowzero", "Reshape", In((0, 3)), ints(3, 0), allowzero=1),
        node("empty", "Reshape", In((0, 3)), ints(0, 3, 1)),
        node("old", "Reshape", x, opset=4, ranks=[2], shape=[4, -1], witness=False),
        node("runtime", "Reshape", In(("T", 6)), ints(0, 2, 3), sizes=TIMES),
        node("runtime-rest", "Reshape", In(("T", 2, 3)), ints(-1, 6), sizes=TIMES),
        node("runtime-inner", "Reshape", In((2, "T", 3)), ints(2, -1), sizes=TIMES),
        node(
            "runtime-divided",
            "Reshape",
            In(("T", 2)),
            ints(-1, 4),
            sizes=({"T": 4}, {"T": 0}, {"T": 38}),
        ),
        node("axis1", "Flatten", x),
        *(node(f"axis{a}", "Flatten", x, axis=a) for a in (0, 2, 3, -1, -3)),
        node("runtime", "Flatten", In((2, "T", 3)), axis=2, sizes=TIMES),
        node("default", "Transpose", x),
        node("perm", "Transpose", x, perm=[1, 2, 0]),
        node("runtime", "Transpose", In(("T", 3, 2)), perm=[1, 0, 2], sizes=TIMES),
        node("empty", "Transpose", In((0, 3))),
        node("scalar", "Transpose", In(())),
        node("bool", "Transpose", In((9, 17), "bool")),
        node("int8", "Transpose", In((33, 17), "int8", high=99)),
        node("f64", "Transpose", In((9, 5), "float64")),
        node("square", "Transpose", In((40, 40))),
        node("first", "Unsqueeze", x, ints(0)),
        node("mixed", "Unsqueeze", x, ints(-1, 1)),
        node("old", "Unsqueeze", x, opset=11, axes=[3, 0]),
        node("scalar", "Unsqueeze", In(()), ints(0)),
        node("all", "Squeeze", In((1, 3, 1))),
        node("axes", "Squeeze", In((1, 3, 1)), ints(-1)),
        node("old", "Squeeze", In((1, 3, 1)), opset=11, axes=[0, 2]),
        node("none", "Squeeze", In((2, 3)), opset=11),
        node("runtime", "Squeeze", In(("T", 1, 2)), ints(1), sizes=TIMES),
        node("up", "Expand", In((3, 1)), ints(2, 1, 4)),
        node("kept", "Expand", In((3, 4)), ints(1, 1)),
        node("scalar", "Expand", In(()), ints(2, 2)),
        node("runtime", "Expand", In(("T", 1)), ints(1, 5), sizes=TIMES),
        node("empty", "Expand", In((1, 3)), ints(0, 3)),
        node("none", "Identity", x),
        node("inference-12", "Dropout", x, opset=12),
        node("inference", "Dropout", x, np.float32(0.4), np.array(False), opset=13, seed=3),
        node("old", "Dropout", x, opset=7, ratio=0.1),
    ]
    return cases


def joins() -> list[Case]:
    a, b, c = In((2, 3)), In((2, 1)), In((2, 5))
    cases = [
        node("columns", "Concat", a, b, c, axis=1),
        node("rows", "Concat", In((1, 3)), a, axis=-2),
        node("one", "Concat", a, axis=0),
        node("empty-part", "Concat", a, In((2, 0)), c, axis=1),
        node("all-empty", "Concat", In((2, 0)), In((2, 0)), axis=1),
        node("constant", "Concat", a, weights(2, 2), axis=1),
        node("runtime", "Concat", In(("T", 3)), In((2, 3)), In(("T", 3)), axis=0, sizes=TIMES),
        node("runtime-rows", "Concat", In(("T", 3)), In(("T", 2)), axis=1, sizes=TIMES),
        node("int8", "Concat", In((2, 3), "int8", high=9), In((2, 9), "int8", high=9), axis=1),
        node("even", "Split", In((6, 4)), outputs=3, num_outputs=3),
        node("uneven", "Split", In((7, 4)), outputs=3, num_outputs=3),
        node("more-than-there-are", "Split", In((3, 2)), outputs=2, num_outputs=2),
        node("sizes", "Split", In((2, 9)), ints(1, 0, 8), outputs=3, axis=-1),
        node("attribute", "Split", In((2, 9)), opset=11, outputs=2, axis=1, split=[4, 5]),
        node("equal", "Split", In((4, 9)), opset=13, outputs=2),
        node("equal-old", "Split", In((4, 9)), opset=11, outputs=2),
        node("runtime", "Split", In(("T", 6)), ints(2, 4), outputs=2, axis=1, sizes=TIMES),
        node(
            "runtime-axis",
            "Split",
            In(("T", 2)),
            outputs=2,
            num_outputs=2,
            sizes=({"T": 4}, {"T": 0}, {"T": 32}),
            witness=False,
        ),
        node(
            "runtime-uneven",
            "Split",
            In(("T", 2)),
            outputs=3,
            num_outputs=3,
            sizes=({"T": 7}, {"T": 31}, {"T": 3}),
            witness=False,
        ),
    ]
    return cases


def gathers() -> list[Case]:
    x = In((5, 6))
    return [
        node("scalar", "Gather", x, np.array(2)),
        node("negative", "Gather", x, np.array(-1), axis=1),
        node("even", "Gather", x, ints(0, 2, 4)),
        node("backwards", "Gather", x, ints(3, 2, 1), axis=-1),
        node("mixed", "Gather", x, ints(0, 4, 1, 1, -5)),
        node("repeated", "Gather", x, ints(2, 2, 2)),
        node("matrix", "Gather", x, np.array([[0, 5], [2, 1]]), axis=1),
        node("none", "Gather", x, np.zeros(0, np.int64)),
        node("int32", "Gather", x, np.array([1, 0], np.int32)),
        node("runtime", "Gather", In(("T", 4)), ints(3, 1), axis=1, sizes=TIMES),
        node("last-of-runtime", "Gather", In(("T", 4)), np.array(-1), sizes=({"T": 1}, {"T": 9})),
        node(
            "both-ends-of-runtime", "Gather", In(("T", 4)), ints(0, -1), sizes=({"T": 1}, {"T": 9})
        ),
        node("of-constant", "Gather", In((3,)), np.array(1)),
        node("known-at-run-time", "Gather", x, In((3,), "int64", high=5), native=False),
    ]


def pads() -> list[Case]:
    x = In((3, 4))
    return [
        node("zeros", "Pad", x, ints(1, 0, 2, 3)),
        node("value", "Pad", x, ints(0, 1, 0, 1), np.float32(-2.5)),
        node("crop", "Pad", x, ints(-1, 2, 0, -1), np.float32(7)),
        node("crop-beyond", "Pad", x, ints(-4, 0, 4, 0), np.float32(7), witness=False),
        node("axes", "Pad", x, ints(1, 2), np.float32(1), ints(-1)),
        node("nothing", "Pad", x, ints(0, 0, 0, 0)),
        node("old", "Pad", x, opset=10, pads=[1, 0, 0, 2], value=0.5),
        node("int", "Pad", In((2, 2), "int32", high=9), ints(0, 1, 1, 0), np.int32(-3)),
        node("bool", "Pad", In((2, 2), "bool"), ints(0, 1, 1, 0), np.array(True), witness=False),
        node("infinity", "Pad", x, ints(0, 0, 0, 1), np.float32("-inf")),
        node("runtime", "Pad", In(("T", 2)), ints(1, 0, 2, 0), sizes=TIMES),
        node("single", "Pad", In((1, 1)), ints(1, 0, 0, 1)),
        node("scalar", "Pad", In(()), np.zeros(0, np.int64), witness=False),
        node("empty", "Pad", In((0, 2)), ints(1, 0, 1, 0)),
        node("reflect", "Pad", x, ints(1, 1, 1, 1), mode="reflect"),
        node("edge", "Pad", x, ints(0, 2, 0, 2), mode="edge"),
        node("wrap", "Pad", x, ints(2, 0, 0, 3), mode="wrap", opset=19),
        node("wrap-again", "Pad", x, ints(7, 0, 0, 9), mode="wrap", opset=19),
        node("reflect-again", "Pad", x, ints(5, 0, 3, 8), mode="reflect", witness=False),
        node("wrap-again-runtime", "Pad", In(("T", 2)), ints(4, 1, 2, 3), mode="wrap", opset=19,
             sizes=({"T": 9}, {"T": 3}, {"T": 1})),
        node("reflect-again-runtime", "Pad", In((1, "T")), ints(0, 4, 1, 2), mode="reflect",
             sizes=({"T": 9}, {"T": 2}, {"T": 1}), witness=False),
    ]  # fmt: skip


def of_shapes() -> list[Case]:
    return [
        node("whole", "Shape", In(("T", 3)), sizes=TIMES),
        node("part", "Shape", In((2, "T", 3)), start=-2, end=-1, sizes=TIMES),
        node("beyond", "Shape", In((2, "T", 3)), start=-9, end=9, sizes=TIMES),
        node("crossed", "Shape", In((2, "T", 3)), start=2, end=1, sizes=TIMES),
        node("runtime", "Size", In((2, "T", 3)), sizes=TIMES),
        text(
            "reshape-by-shape",
            """agraph (float[N, T, 6] x) => (float[M, 6] y, float[N, T, 2, 3] z) {
                s = Shape(x)  n = Slice(s, zero, two)  m = ReduceProd(n)
                flat = Concat<axis = 0>(m, six)  y = Reshape(x, flat)
                w = Slice(s, zero, two)  back = Concat<axis = 0>(w, pair)  z = Reshape(y, back)
            }""",
            ({"N": 2, "T": 3}, {"N": 1, "T": 9}),
            constants={"zero": ints(0), "two": ints(2), "six": ints(6), "pair": ints(2, 3)},
        ),
        text(
            "constant-by-shape",
            """agraph (float[N, T] x) => (float[N, T] y, float z) {
                s = Shape(x)  c = Reshape(table, s)  y = Add(x, c)  z = ReduceSum<keepdims = 0>(c)
            }""",
            ({"N": 2, "T": 6}, {"N": 4, "T": 3}),
            constants={"table": np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)},
        ),
        text(
            "sizes-in-arithmetic",
            """agraph (float[T, 4] x) => (float[U, 4] y, int64[1] n, float[T, 4] scaled) {
                s = Shape<end = 1>(x)  half = Div(s, two)  last = Sub(s, half)
                y = Slice(x, half, s)  n = Mul(last, two)
                f = Cast<to = 1>(s)  scaled = Div(x, f)
            }""",
            TIMES,
            constants={"two": ints(2)},
        ),
        text(
            "wrapping-constants",
            """agraph (int32[1] x) => (int32[1] y, int8[2] z) {
                big = Mul(a, a)  y = Add(x, big)  z = Cast<to = 3>(b)
            }""",
            constants={"a": np.array([65537], np.int32), "b": ints(300, -300)},
        ),
        text(
            "one-constant-two-types",
            """agraph (int64[3] x, int32[3] v) => (int64[3] y, int32[3] z) {
                narrow = Cast<to = 6>(c)  y = Add(x, c)  z = Add(v, narrow)
            }""",
            constants={"c": ints(3, 1, 2)},
        ),
        text(
            "negative-bound-from-a-size",
            """agraph (float[T, 4] x) => (float[U, 4] y, float[V, 4] z) {
                s = Shape<end = 1>(x)  before = Sub(s, seven)
                y = Slice(x, before, s)  z = Slice(x, zero, before)
            }""",
            TIMES,
            constants={"seven": ints(7), "zero": ints(0)},
        ),
    ]


def chains() -> list[Case]:
    return [
        text(
            "views-of-views",
            """agraph (float[4, 6, 5] x) => (float[5, 12] y, float[2, 5, 3] z) {
                t = Transpose<perm = [2, 0, 1]>(x)  r = Relu(t)
                u = Slice(r, one, two, last)  v = Reshape(u, shape)
                a, b = Split<axis = 1>(v, halves)  y = Concat<axis = 1>(b, a)
                n = Neg(t)  w = Slice(n, back, far, all, minus)  z0 = Transpose<perm = [1, 0, 2]>(w)
                z = Exp(z0)
            }""",
            constants={
                "one": ints(1),
                "two": ints(4),
                "last": ints(2),
                "shape": ints(5, 12),
                "halves": ints(5, 7),
                "back": ints(99, 5),
                "far": ints(0, -99),
                "all": ints(1, 2),
                "minus": ints(-2, -2),
            },
            native=True,
        ),
        text(
            "nested-concat",
            """agraph (float[N, 3] a, float[N, 2] b, float[N, 4] c)
                => (float[N, 9] y, float[N, 5] z) {
                ab = Concat<axis = 1>(a, b)  t = Tanh(c)  y0 = Concat<axis = 1>(ab, t)
                y = Mul(y0, y0)  z = Slice(y0, three, eight, axis)
            }""",
            BATCHES,
            constants={"three": ints(2), "eight": ints(7), "axis": ints(1)},
            batch=True,
        ),
        text(
            "concat-of-one-value-twice",
            """agraph (float[3, 4] x) => (float[3, 16] y) {
                s = Sigmoid(x)  a = Concat<axis = 1>(s, s)  y = Concat<axis = 1>(a, x, s)
            }""",
        ),
        text(
            "squeeze-the-joined-axis",
            """agraph (float[1, 4] x, float[0, 4] none) => (float[4] y) {
                a = Concat<axis = 0>(x, none)  y = Squeeze(a, zero)
            }""",
            constants={"zero": ints(0)},
        ),
        text(
            "expand-then-reshape",
            """agraph (float[3, 1, 2] x) => (float[3, 8] y, float[12, 2] z) {
                e = Expand(x, wide)  y = Reshape(e, flat)  n = Neg(e)  z = Reshape(n, tall)
            }""",
            constants={"wide": ints(3, 4, 2), "flat": ints(3, 8), "tall": ints(12, 2)},
        ),
        text(
            "pad-between-pointwise",
            """agraph (float[N, 6] x) => (float[N, 8] y) {
                e = Exp(x)  p = Pad(e, ends, one)  y = Log(p)
            }""",
            BATCHES,
            constants={"ends": ints(0, 1, 0, 1), "one": np.float32(1)},
            ulps=6,
            length=2,
            batch=True,
        ),
        text(
            "reversed-twice",
            """agraph (float[T, 2] x) => (float[T, 2] y) {
                a = Slice(x, last, far, zero, minus)  b = Neg(a)
                y = Slice(b, last, far, zero, minus)
            }""",
            TIMES,
            constants={
                "last": ints(-1),
                "far": ints(-(2**63)),
                "zero": ints(0),
                "minus": ints(-1),
            },
        ),
    ]


CASES = [*slices(), *shapes(), *joins(), *gathers(), *pads(), *of_shapes(), *chains()]
