"""Cases whose sizes the run computes: NonZero, Compress, Unique, NonMaxSuppression, If."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Case, In, ints, node, text

SIZES = ({"N": 5, "M": 7}, {"N": 1, "M": 1}, {"N": 0, "M": 3}, {"N": 9, "M": 33})
FEW = In(("N", "M"), "int32")
SPECIAL = [0.0, -0.0, np.nan, 1.0, -np.inf, np.nan, 1.0, -1.0]
ROWS = In((11,), values=SPECIAL)
BOXES = In(("B", "N", 4), scale=0.4)
SCORES = In(("B", "C", "N"))
# One box for many scores that are equal, and boxes without area.
CORNERS = [0.0, 0.0, 1.0, 1.0, 0.9, 0.9, 0.1, 0.0, 0.5, 0.5, 0.5, 0.7, 2.0, 2.0, 3.0, 3.0]
IMAGES = ({"B": 2, "C": 3, "N": 20}, {"B": 1, "C": 1, "N": 1}, {"B": 2, "C": 1, "N": 0})


def chosen() -> list[Case]:
    condition = In(("N",), "bool")
    return [
        node("runtime", "NonZero", FEW, sizes=SIZES),
        node("static", "NonZero", In((3, 1, 5), "bool")),
        node("scalar", "NonZero", In((), "uint8"), ranks=(2,), witness=False),
        node("single", "NonZero", In((1,), "int64")),
        node("empty", "NonZero", In((0, 3))),
        node("special", "NonZero", In((8,), values=SPECIAL)),
        node("half", "NonZero", In((2, 3), "float16", values=[0.0, 1e-7, -0.0]), witness=False),
        node("double", "NonZero", In((2, 7), "float64", values=[0.0, 1e-300]), witness=False),
        node("rows", "Compress", In(("N", "M")), condition, axis=0, sizes=SIZES),
        node("columns", "Compress", In((3, "N")), condition, axis=-1, sizes=SIZES[:2]),
        node("all", "Compress", In((2, 3), "int8", high=9), In((6,), "bool")),
        node("short", "Compress", In((4, 3), "float64"), np.array([True, False, True]), axis=0),
        node("short-at-run-time", "Compress", In(("N", 3), "float16"), In(("C",), "bool"), axis=0,
             sizes=({"N": 5, "C": 3}, {"N": 4, "C": 4}, {"N": 3, "C": 0}), witness=False),
        node("none", "Compress", In((2, 5), "uint64"), np.zeros(5, bool), axis=1),
    ]  # fmt: skip


def unique() -> list[Case]:
    ties = In(("N",), "int8", high=6)
    columns = In((3, "N", 2), "int8", high=2)
    lengths = ({"N": 9}, {"N": 1}, {"N": 0}, {"N": 40})
    return [
        node("numbers", "Unique", ties, outputs=4, sizes=lengths),
        node("as-they-come", "Unique", ties, outputs=4, sizes=lengths, sorted=0),
        # onnxruntime takes NaN for equal to whatever it happens to be compared with.
        node("special", "Unique", ROWS, outputs=4, witness=False),
        node("special-as-they-come", "Unique", ROWS, outputs=4, sorted=0, witness=False),
        node("matrix", "Unique", In((4, 5), "int64", high=9), outputs=1),
        node("axis", "Unique", In((9, 2), high=2, values=[1.0, 0.0, 2.0]), outputs=4, axis=0),
        node("last-axis", "Unique", In(("N", "M"), "uint8", high=2), outputs=4,
             axis=-1, sorted=0, sizes=({"N": 2, "M": 9}, {"N": 1, "M": 1}, {"N": 3, "M": 20}),
             ranks=(2, 1, 1, 1)),
        node("middle-axis", "Unique", columns, outputs=4, axis=1, sizes=lengths[:2]),
        node("axis-without-elements", "Unique", In((5, 0)), outputs=4, axis=0, witness=False),
        node("bool", "Unique", In((7,), "bool"), outputs=4, witness=False),
        node("half", "Unique", In((7,), "float16", values=[1.0, 0.5, 1.0]), outputs=2,
             witness=False),
        node("empty", "Unique", In((0, 2), "uint64"), outputs=4, witness=False),
    ]  # fmt: skip


def boxes() -> list[Case]:
    share, least, most = (
        In((1,), values=[0.3]),
        In((1,), values=[-0.2]),
        In((1,), "int64", low=5, high=6),
    )
    ties = In((1, 2, 12), values=[0.5, 0.75, 0.5])
    same = In((1, 12, 4), values=CORNERS)
    few = np.array(3)
    op = "NonMaxSuppression"
    return [
        node("runtime", op, BOXES, SCORES, most, share, least, sizes=IMAGES),
        node("static", op, In((1, 30, 4)), In((1, 2, 30)), np.array(4), np.float32(0.5)),
        node("centers", op, In((1, 12, 4), values=[1.0, 0.7, 0.5, 0.9, 0.4]), In((1, 1, 12)),
             few, np.array([0.2], np.float32), least, center_point_box=1),
        node("defaults", op, In((1, 4, 4)), In((1, 1, 4))),
        node("no-box-wanted", op, In((1, 4, 4)), In((1, 1, 4)), np.array(0)),
        node("number-alone", op, In((1, 9, 4)), In((1, 1, 9)), ints(9)),
        node("ties", op, same, ties, np.array(20), np.float32(0.2), np.float32(0.1)),
        node("only-of-equal-score", op, same, ties, np.array(20), np.float32(1), np.float32(0.75)),
        node("threshold-alone", op, In((1, 9, 4)), In((1, 1, 9), values=[np.nan, 1.0, 2.0]),
             np.array(9), None, np.float32(0)),
    ]  # fmt: skip


def used() -> list[Case]:
    """Values of such sizes as operands of everything else."""
    return [
        text(
            "rows-that-are-not-zero-through-a-network",
            """agraph (float[N, 4] x, float[4, 8] w) => (float[K, 8] y, int64 n, float[K, N] s) {
                sums = ReduceSum(x, last)  positive = Greater(sums, zero)
                kept = Reshape(positive, flat)  rows = Compress<axis = 0>(x, kept)
                h = MatMul(rows, w)  y = Softmax<axis = -1>(h)
                t = Transpose<perm = [1, 0]>(x)  s = MatMul(rows, t)
                n = Size(h)
            }""",
            ({"N": 5}, {"N": 1}, {"N": 0}, {"N": 70}),
            constants={
                "last": ints(1),
                "zero": np.float32(0),
                "flat": ints(-1),
            },
            length=8,
        ),
        text(
            "sizes-of-sizes",
            """agraph (float[N] x)
                => (float[A] first, int64[B] numbers, float[C] both, float[D] d) {
                places = NonZero(x)  n = Shape<start = 1>(places)
                half = Div(n, two)  first = Slice(x, zeros, half)
                count = Squeeze(n)  numbers = Range(none, count, one)
                chosen = Squeeze(places, zeros)  values = Gather(x, chosen)
                both = Concat<axis = 0>(x, values, first)
                ones = ConstantOfShape(n)  d = Add(values, ones)
            }""",
            ({"N": 5}, {"N": 1}, {"N": 0}, {"N": 70}),
            constants={
                "two": ints(2),
                "zeros": ints(0),
                "none": np.array(0),
                "one": np.array(1),
            },
            inputs={"x": In(("N",), values=[1.0, 0.0, 2.0])},
        ),
        text(
            "two-sizes-broadcast",
            """agraph (float[N] x, bool[N] c, bool[N] e) => (float[K] y) {
                a = Compress<axis = 0>(x, c)  b = Compress<axis = 0>(x, e)  y = Add(a, b)
            }""",
            ({"N": 4}, {"N": 8}),
            inputs={
                "c": In(("N",), "bool", values=[True, True, False, True]),
                "e": In(("N",), "bool", values=[False, True, False, False, False, False, False]),
            },
        ),
        text(
            "in-a-loop",
            """agraph (float[N, 6] x, float[6] s) => (float[6] last, int64[N] counts) {
                last, counts = Scan<num_scan_inputs = 1, body = step
                    (float[6] h, float[6] r) => (float[6] next, int64 count) {
                    kept = Greater(r, h)  part = Compress<axis = 0>(r, kept)
                    sum = ReduceSum<keepdims = 0>(part)  next = Add(h, sum)
                    places = NonZero(kept)  n = Shape<start = 1>(places)  count = Squeeze(n)
                }>(s, x)
            }""",
            ({"N": 5}, {"N": 1}, {"N": 0}),
            length=8,
        ),
        text(
            "ways-of-different-sizes",
            """agraph (bool c, float[N, 3] x, bool[N] e) => (float[A, B] y, float z) {
                y = If(c) <
                    then_branch = kept () => (float[A, B] p) { p = Compress<axis = 0>(x, e) },
                    else_branch = joined () => (float[A, B] q) { q = Concat<axis = 1>(x, x) }
                >
                z = ReduceSum<keepdims = 0>(y)
            }""",
            ({"N": 5}, {"N": 1}, {"N": 6}, {"N": 2}),
            length=30,
        ),
    ]  # fmt: skip


CASES = [*chosen(), *unique(), *boxes(), *used()]
