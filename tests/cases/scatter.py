"""Cases of indexed movement."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Case, In, ints, node, text

X = In((3, 5, 4))
SIZES = ({"N": 3, "T": 6}, {"N": 1, "T": 1}, {"N": 2, "T": 0}, {"N": 5, "T": 37})


def places(*shape: int | str, high: int, low: int | None = None, dtype: str = "int64") -> In:
    """Indices for an axis of `high` elements; half of them count back unless `low` is given."""
    return In(shape, dtype, low=-high if low is None else low, high=high)


def gathers() -> list[Case]:
    return [
        node("rows", "GatherElements", X, places(2, 5, 4, high=3)),
        node("middle", "GatherElements", X, places(3, 7, 4, high=5), axis=1),
        node("last", "GatherElements", X, places(3, 5, 1, high=4, dtype="int32"), axis=-1),
        node("fewer", "GatherElements", X, places(2, 3, 9, high=4), axis=2, witness=False),
        node("known", "GatherElements", X, np.array([[[0], [-1], [2]]]), axis=1, witness=False),
        node("bool", "GatherElements", In((7,), "bool"), places(20, high=7)),
        node("int8", "GatherElements", In((7,), "int8", high=99), places(20, high=7), opset=11),
        node("half", "GatherElements", In((7,), "float16"), places(20, high=7)),
        node(
            "runtime", "GatherElements", In(("N", 4, "T")), places("N", 3, "T", high=4),
            axis=1, sizes=SIZES, batch=True,
        ),
        node("one", "GatherND", X, places(6, 2, 1, high=3)),
        node("two", "GatherND", X, places(6, 2, high=3)),
        node("all", "GatherND", X, places(2, 6, 3, high=3, dtype="int64"), opset=11),
        node("batch", "GatherND", X, places(3, 6, 1, high=5), batch_dims=1),
        node("batches", "GatherND", X, places(3, 5, 1, high=4), batch_dims=2),
        node("known", "GatherND", X, np.array([[0, -1], [2, 3]])),
        node("bool", "GatherND", In((3, 7), "bool"), places(9, 2, high=3)),
        node("half", "GatherND", In((3, 7), "float16"), places(9, 1, high=3)),
        node(
            "runtime", "GatherND", In(("N", 4, "T")), places("N", 3, 1, high=4),
            batch_dims=1, sizes=SIZES, batch=True,
        ),
        node("unknown-extent", "Gather", In(("T", 40)), np.array([[2, 0], [1, -1]]),
             sizes=({"T": 6}, {"T": 3})),
        node("many-known", "Gather", In((12, 5)), ints(*(n * n % 12 for n in range(20)), -3)),
        node("many-known-columns", "Gather", In(("T", 12)), ints(*(n * n % 12 for n in range(20))),
             axis=1, sizes=({"T": 6}, {"T": 0})),
        node("wide-rows", "Gather", In((7, 40)), places(3, 2, high=7)),
        node("columns", "Gather", In((7, 40)), places(5, high=40), axis=1),
        text(
            "gather-what-is-computed",
            """agraph (float[N, 8] x, int64[N, 5] i) => (float[N, 5] y) {
                e = Exp(x)  g = GatherElements<axis = 1>(e, i)  y = Neg(g)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 20}),
            inputs={"i": places("N", 5, high=8)},
            batch=True,
        ),
    ]  # fmt: skip


def scatters() -> list[Case]:
    elements = (X, places(3, 7, 4, high=5), In((3, 7, 4)))
    slices = (X, places(9, 1, high=3), In((9, 5, 4)))
    repeated = {"witness": False}
    return [
        # Which of several updates of one place stays is left open by the documents.
        node("rows", "ScatterElements", X, places(2, 5, 4, high=3), In((2, 5, 4)), **repeated),
        node("middle", "ScatterElements", *elements, axis=1, **repeated),
        node("empty-and-known", "ScatterElements", np.zeros((0, 3), np.float32),
             In((0, 2), "int64"), In((0, 2)), axis=1),
        node("once", "ScatterElements", X, np.array([[[1, 0, 3]]]), In((1, 1, 3)), axis=2),
        node("old", "ScatterElements", X, np.array([[[1, 0, 3]]]), In((1, 1, 3)), axis=2, opset=11),
        node("older", "Scatter", X, np.array([[[1, 0, 3]]]), In((1, 1, 3)), axis=2, opset=9),
        *(
            node(
                f"{how}-{dtype}", "ScatterElements", In((5, 3), dtype, high=9),
                places(8, 3, high=5, dtype="int32"), In((8, 3), dtype, low=1, high=4),
                reduction=how, opset=18, length=8,
                # onnxruntime takes -0 and 0 for equal, and has no kernels for other integers.
                witness=dtype != "int8",
            )
            for how in ("add", "mul", "min", "max")
            for dtype in ("float32", "float64", "int64", "int8")
        ),
        node("last-axis", "ScatterElements", In((4, 6)), places(4, 9, high=6), In((4, 9)),
             axis=1, reduction="add", opset=16, length=9),
        node("half", "ScatterElements", In((6,), "float16"), places(9, high=6),
             In((9,), "float16"), reduction="max", opset=18, witness=False),
        node("bool", "ScatterElements", In((6,), "bool"), ints(3, 1), In((2,), "bool")),
        node("nothing", "ScatterElements", X, places(0, 5, 4, high=3), In((0, 5, 4))),
        node(
            "runtime", "ScatterElements", In(("N", 4, "T")), places("N", 6, "T", high=4),
            In(("N", 6, "T")), axis=1, reduction="add", sizes=SIZES, batch=True, opset=18, length=6,
        ),
        node("rows", "ScatterND", *slices, **repeated),
        node("add", "ScatterND", *slices, reduction="add", opset=18, length=9),
        node("mul", "ScatterND", *slices, reduction="mul", opset=16, length=9),
        node("min", "ScatterND", *slices, reduction="min", opset=18),
        node("max", "ScatterND", *slices, reduction="max", opset=18),
        node("elements", "ScatterND", In((4, 6)), places(3, 5, 2, high=4), In((3, 5)),
             reduction="add", opset=18, length=15),
        node("known", "ScatterND", X, np.array([[2, 0], [0, -1]]), In((2, 4))),
        node("int", "ScatterND", In((4,), "int64"), ints(3, 1).reshape(2, 1), In((2,), "int64")),
        node("bool", "ScatterND", In((4,), "bool"), ints(3, 1).reshape(2, 1), In((2,), "bool")),
        node("slice", "ScatterND", In((6, 4)), np.arange(1, 6, 2).reshape(3, 1), In((3, 4))),
        node("slice-add", "ScatterND", In((6, 4)), np.arange(4, 1, -1).reshape(3, 1), In((3, 4)),
             reduction="add", opset=18),
        node("block", "ScatterND", In((5, 6)), np.stack(np.indices((2, 3)), -1) + 1, In((2, 3))),
        node("twice", "ScatterND", In((5, 2)), np.ones((3, 1), int), In((3, 2)), reduction="add",
             opset=18),
        node("slice", "ScatterElements", In((5, 6)), np.tile(np.arange(4, 0, -1), (5, 1)),
             In((5, 4)), axis=1, opset=18),
        node("slice-max", "ScatterElements", In((5, 6)), np.repeat([[1], [2]], 6, 1), In((2, 6)),
             reduction="max", opset=18),
        node("everything", "ScatterND", In((4,)), np.zeros((1, 0), np.int64), In((1, 4))),
        node(
            "runtime", "ScatterND", In((5, "T")), places("N", 1, high=5), In(("N", "T")),
            reduction="add", sizes=SIZES, opset=18, length=5,
        ),
        text(
            "scatter-between-pointwise",
            """agraph (float[6, N] x, int64[4, 1] i, float[4, N] u)
                => (float[6, N] y, float[6, N] z) {
                e = Exp(x)  v = Neg(u)  s = ScatterND<reduction = "add">(e, i, v)
                y = Mul(s, e)  z = Relu(s)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 40}),
            inputs={"i": places(4, 1, high=6)},
            length=4,
        ),
        text(
            "assign-to-slices",
            """agraph (float[6, N] x, float[2, N] u, float[3, N] v)
                => (float[6, N] y, float[6, N] z, float[N, 6] w) {
                e = Exp(x)  s = ScatterND(e, i, u)  t = ScatterND<reduction = "mul">(s, j, v)
                y = Mul(t, e)  z = Neg(e)  w = Transpose(t)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 40}),
            constants={"i": np.array([[1], [3]]), "j": np.array([[4], [3], [2]])},
        ),
        text(
            "rows-of-a-later-axis",
            """agraph (float[2, 6, N] x, int64[3, 1] i, float[3, 2, N] u)
                => (float[2, 6, N] y, float[6, 2, N] z, float[N, 2, 6] w) {
                e = Exp(x)  f = Transpose<perm = [1, 0, 2]>(e)  g = Neg(u)
                s = ScatterND(f, i, g)  r = ScatterND<reduction = "add">(f, i, u)
                y = Transpose<perm = [1, 0, 2]>(s)  z = Identity(r)
                c = Tanh(s)  w = Transpose<perm = [2, 1, 0]>(c)
            }""",
            ({"N": 3}, {"N": 1}, {"N": 40}),
            inputs={"i": places(3, 1, high=6)},
            length=3,
        ),
        text(
            "a-cache-of-fixed-length",
            """agraph (float[2, 6, 3] s, int64[T, 1] i, float[T, 2, 1, 3] u)
                => (float[2, 6, 3] last, float[T, 2, 3] all) {
                last, all = Scan<num_scan_inputs = 2, body = step
                    (float[2, 6, 3] h, int64[1] p, float[2, 1, 3] v)
                    => (float[2, 6, 3] next, float[2, 3] out) {
                    q = Unsqueeze(p, zero)  f = Transpose<perm = [1, 0, 2]>(h)
                    w = Transpose<perm = [1, 0, 2]>(v)  n = ScatterND(f, q, w)
                    next = Transpose<perm = [1, 0, 2]>(n)
                    k = ReduceSum<keepdims = 0>(next, one)  out = Tanh(k)
                }>(s, i, u)
            }""",
            ({"T": 5}, {"T": 1}, {"T": 0}),
            constants={"zero": np.array([0]), "one": np.array([1])},
            inputs={"i": places("T", 1, high=6)},
            length=20,
        ),
        text(
            "scatter-in-a-loop",
            """agraph (float[6] s, int64[T, 2] i, float[T, 2] u)
                => (float[6] last, float[T, 6] all) {
                last, all = Scan<num_scan_inputs = 2, body = step
                    (float[6] h, int64[2] j, float[2] v) => (float[6] next, float[6] out) {
                    next = ScatterElements<reduction = "add">(h, j, v)
                    out = Tanh(next)
                }>(s, i, u)
            }""",
            ({"T": 5}, {"T": 1}, {"T": 0}),
            inputs={"i": places("T", 2, high=6)},
            length=10,
        ),
        text(
            "stores-in-a-chain",
            """agraph (float[6, 5] s, int64[T, 2, 1] i, int64[T, 1, 1] j, float[T, 1, 5] u)
                => (float[6, 5] last, float[T, 1, 5] all) {
                last, all = Scan<num_scan_inputs = 3, body = step
                    (float[6, 5] h, int64[2, 1] p, int64[1, 1] q, float[1, 5] v)
                    => (float[6, 5] next, float[1, 5] out) {
                    a = GatherND(h, q)  b = Add(a, v)  f = ScatterND(h, q, b)
                    c = GatherND(f, p)  d = Tanh(c)  g = ScatterND(f, p, d)
                    k = ReduceSum<keepdims = 1>(c, zero)  m = Neg(k)
                    next = ScatterND<reduction = "add">(g, q, m)  out = Add(m, v)
                }>(s, i, j, u)
            }""",
            ({"T": 5}, {"T": 1}, {"T": 0}),
            constants={"zero": np.array([0])},
            inputs={"i": places("T", 2, 1, high=6), "j": places("T", 1, 1, high=6)},
            length=20,
        ),
        text(
            "stores-beside-older-values",
            """agraph (float[6, 5] s, float[6, 5] r, int64[T, 1, 1] i, int64[T, 1, 1] j,
                    float[T, 1, 5] u)
                => (float[6, 5] last, float[6, 5] other, float[T, 6, 5] all, float[T, 1, 5] old) {
                last, other, all, old = Scan<num_scan_inputs = 3, body = step
                    (float[6, 5] h, float[6, 5] w, int64[1, 1] p, int64[1, 1] q, float[1, 5] v)
                    => (float[6, 5] next, float[6, 5] swapped, float[6, 5] kept, float[1, 5] out) {
                    f = ScatterND(h, p, v)  g = ScatterND(f, q, v)  a = GatherND(f, q)
                    b = GatherND(h, p)  c = Add(a, b)  k = ScatterND(w, q, c)
                    next = ScatterND(k, p, b)  kept = Identity(f)  swapped = Tanh(g)
                    out = Neg(c)
                }>(s, r, i, j, u)
            }""",
            ({"T": 5}, {"T": 1}, {"T": 0}),
            inputs={"i": places("T", 1, 1, high=6), "j": places("T", 1, 1, high=6)},
            length=20,
        ),
        text(
            "stores-of-loops-in-loops",
            """agraph (float[6, 5] s, int64[T, 3, 1, 1] i, float[T, 3, 1, 5] u)
                => (float[6, 5] last, float[T, 3, 1, 5] all) {
                last, all = Scan<num_scan_inputs = 2, body = outer
                    (float[6, 5] h, int64[3, 1, 1] p, float[3, 1, 5] v)
                    => (float[6, 5] next, float[3, 1, 5] rows) {
                    g, rows = Scan<num_scan_inputs = 2, body = inner
                        (float[6, 5] k, int64[1, 1] q, float[1, 5] w)
                        => (float[6, 5] following, float[1, 5] row) {
                        row = GatherND(k, q)  a = ScatterND(k, q, w)
                        following = ScatterND(a, first, row)
                    }>(h, p, v)
                    t = Tanh(rows)  z = ReduceSum<keepdims = 0>(t, zero)
                    next = ScatterND(g, second, z)
                }>(s, i, u)
            }""",
            ({"T": 5}, {"T": 1}, {"T": 0}),
            constants={
                "first": np.array([[0]]), "second": np.array([[1]]), "zero": np.array([0]),
            },
            inputs={"i": places("T", 3, 1, 1, high=6)},
            length=20,
        ),
    ]  # fmt: skip


def caches() -> list[Case]:
    cache, update = In((2, 3, 8, 4)), In((2, 3, 3, 4))
    return [
        node("linear", "TensorScatter", cache, update, ints(2, 5), opset=24, witness=False),
        node("start", "TensorScatter", cache, update, opset=24, witness=False),
        node("circular", "TensorScatter", cache, update, ints(2, 7), opset=24, mode="circular",
             witness=False),
        node("rows", "TensorScatter", In((2, 8, 4)), In((2, 3, 4)), ints(5, 0), opset=24, axis=1,
             witness=False),
        node(
            "runtime", "TensorScatter", In(("N", 9, "T")), In(("N", 3, "T")),
            places("N", high=6, low=0), opset=24, witness=False, batch=True, sizes=SIZES,
        ),
    ]  # fmt: skip


CASES = [*gathers(), *scatters(), *caches()]
