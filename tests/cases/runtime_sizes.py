"""Cases whose shapes depend on the values of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.cases.case import Array, Case, In, Sizes, ints, node, text

FAR = 2**63 - 1


def numbers(*names: str | int, dtype: str = "int64") -> In:
    """An input of as many elements, which the sizes of a run name."""
    return In((len(names),), dtype, values=names)


def number(name: str, dtype: str = "int64") -> In:
    """An input of no axes."""
    return In((), dtype, values=(name,))


def runs(names: str, *rows: Sequence[int]) -> tuple[Sizes, ...]:
    """The sizes of runs, in the order of the names."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


SLICES = [
    node(
        "start-and-end",
        "Slice",
        In(("N", 4)),
        numbers("a", "b"),
        numbers("c", "d"),
        sizes=runs(
            "N a b c d",
            (5, 0, 0, 2, 2),
            (5, -3, 1, FAR, -1),
            (5, 10, 0, 20, 3),
            (0, 0, 0, 2, 2),
            (5, -FAR - 1, -9, 9, FAR),
            (1, 1, 2, 0, 1),
        ),
    ),
    node(
        "backwards",
        "Slice",
        In(("N", 4)),
        numbers("a"),
        numbers("b"),
        ints(0),
        ints(-2),
        sizes=runs(
            "N a b",
            (5, 4, 0),
            (5, FAR, -FAR - 1),
            (5, -1, 2),
            (5, 0, 3),
            (0, 4, -1),
            (5, -9, -FAR),
            (0, -9, -FAR),
        ),
    ),
    node(
        "strided-from-int32",
        "Slice",
        In((2, "N")),
        numbers("a", dtype="int32"),
        numbers("b", dtype="int32"),
        ints(-1).astype("int32"),
        ints(3).astype("int32"),
        sizes=runs("N a b", (11, 1, 10), (11, -5, 11), (3, 0, -4)),
    ),
    text(
        "axes-and-steps",
        """agraph (float[N, 4] x, int64[1] start, int64[1] end, int64[1] axis, int64[1] step)
            => (float[a, b] y) {
            y = Slice(x, start, end, axis, step)
        }""",
        runs("N a b i s", (5, 1, 3, 0, 1), (5, 3, -9, 1, -2), (5, -2, 9, -2, 1)),
        inputs={
            "start": numbers("a"),
            "end": numbers("b"),
            "axis": numbers("i"),
            "step": numbers("s"),
        },
    ),
    text(
        "step-of-a-size",
        """agraph (float[N, T, 3] x) => (float[A, 3] y)
            <int64[2] rows = {-1, 3}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}> {
            t = Shape<start = 1, end = 2>(x)  n = Div(t, two)  last = Sub(n, one)
            flat = Reshape(x, rows)  all = Shape<end = 1>(flat)
            y = Slice(flat, last, all, zero, n)
        }""",
        runs("N T", (2, 6), (1, 3), (3, 7), (0, 9)),
        at_once=True,
    ),
]

RESHAPES = [
    node(
        "rest-and-kept",
        "Reshape",
        In(("N", 4)),
        numbers("a", "b", "c"),
        sizes=runs(
            "N a b c",
            (6, 2, -1, 2),
            (6, 0, 2, 2),
            (6, 6, 4, 1),
            (6, -1, 1, 1),
            (6, 0, 0, -1),
            (0, 0, 2, 2),
            (1, 1, 4, 1),
        ),
    ),
    node(
        "zeros-allowed",
        "Reshape",
        In(("N", 4)),
        numbers("a", "b"),
        sizes=runs("N a b", (0, 0, 7), (0, 3, 0), (2, 8, 1)),
        allowzero=1,
    ),
    node(
        "half-known-of-a-view",
        "Reshape",
        In((3, "N"), "float64"),
        numbers("a", 3),
        sizes=runs("N a", (4, 4), (4, -1), (0, -1)),
    ),
    text(
        "reshape-transposed-then-added",
        """agraph (float[N, M] x, int64[2] shape) => (float[a, b] y) {
            t = Transpose(x)  r = Reshape(t, shape)  e = Exp(r)  y = Add(e, e)
        }""",
        runs("N M a b", (3, 4, 2, 6), (3, 4, -1, 3), (1, 5, 5, 1)),
        inputs={"shape": numbers("a", "b")},
    ),
    node(
        "unsqueeze-axes",
        "Unsqueeze",
        In(("N", 3)),
        numbers("a"),
        sizes=runs("N a", (2, 0), (2, -1), (2, 1)),
        ranks=(3,),
    ),
    node(
        "reduced-axes",
        "ReduceSum",
        In(("N", 3)),
        numbers("a"),
        sizes=runs("N a", (2, 0), (2, -1), (2, 1)),
        length=3,
        ranks=(2,),
    ),
]

BROADCASTS = [
    node(
        "to-values",
        "Expand",
        In((3, 1)),
        numbers("a", "b", "c"),
        sizes=runs("a b c", (2, 1, 6), (2, 3, 6), (1, 1, 1), (0, 3, 1), (1, 3, 17)),
    ),
    node(
        "both-run-time",
        "Expand",
        In(("N", "M")),
        numbers("a", "b"),
        sizes=runs("N M a b", (3, 1, 1, 5), (3, 2, 3, 1), (1, 1, 4, 3), (1, 4, 2, 4), (0, 1, 1, 2)),
    ),
    text(
        "expanded-and-added",
        """agraph (float[N, M] x, int64[2] shape) => (float[a, b] y, float[b] total) {
            wide = Expand(x, shape)  y = Add(wide, x)
            total = ReduceSum<keepdims = 0>(y, axis)
        }""",
        runs("N M a b", (3, 1, 1, 5), (3, 2, 3, 2), (1, 1, 4, 19), (1, 20, 1, 1)),
        constants={"axis": ints(0)},
        inputs={"shape": numbers("a", "b")},
        length=4,
    ),
    text(
        "where-and-equal",
        """agraph (float[N, 1] x, int64[2] shape) => (float[a, b] y) {
            wide = Shape(x)
            keep = Equal(shape, minus)  both = Where(keep, wide, shape)  y = Expand(x, both)
        }""",
        runs("N a b", (3, -1, 4), (3, 3, -1), (1, 5, 2)),
        constants={"minus": ints(-1, -1)},
        inputs={"shape": numbers("a", "b")},
    ),
    node(
        "repeats",
        "Tile",
        In(("N", 3)),
        numbers("a", "b"),
        sizes=runs("N a b", (2, 1, 1), (2, 3, 2), (2, 0, 2), (1, 4, 1)),
    ),
]

PADS = [
    *(
        node(
            f"{mode}-by-values",
            "Pad",
            In(("N", 5)),
            numbers("a", "b", "c", "d"),
            sizes=runs("N a b c d", (4, 0, 0, 0, 0), (4, 1, 2, 0, 3), (4, 0, 4, 3, 0)),
            mode=mode,
        )
        for mode in ("constant", "edge", "reflect", "wrap")
    ),
    node(
        "removes-by-values",
        "Pad",
        In(("N", 5)),
        numbers("a", "b"),
        In((), values=(7,)),
        ints(-1),
        sizes=runs("N a b", (4, -1, 2), (4, 3, -4), (4, -2, -3), (0, 1, 1)),
    ),
    node(
        "edge-removes-by-values",
        "Pad",
        In(("N", 5)),
        numbers("a", "b", "c", "d"),
        sizes=runs("N a b c d", (4, 1, -2, -1, 3), (4, -1, -1, -1, -1)),
        mode="edge",
        witness=False,
    ),
]

MADE = [
    node(
        "of-values", "ConstantOfShape", numbers("a", "b"),
        sizes=runs("a b", (2, 3), (0, 4), (1, 1), (40, 9)),
    ),
    node(
        "up-to-a-value", "Range", number("a"), number("b"), ints(2).reshape(()),
        sizes=runs("a b", (0, 5), (-3, 4), (4, 4), (5, 1), (0, 100)),
    ),
    node(
        "any-step-int32", "Range", *(number(n, "int32") for n in "abc"),
        sizes=runs("a b c", (0, 5, 1), (5, 0, -2), (5, 0, 1), (-7, 8, 3)),
    ),
    node(
        "float-values", "Range", *(number(n, "float32") for n in "abc"), length=20,
        sizes=runs("a b c", (0, 5, 1), (5, 0, -0.3), (5, 0, 1), (0.5, 8, 0.25)),
    ),
    node(
        "double-values", "Range", *(number(n, "float64") for n in "abc"), length=20,
        sizes=runs("a b c", (0, 5, 1), (5, 0, -0.3), (5, 0, 1)),
    ),
    node(
        "by-values", "Split", In(("N", 2)), numbers("a", "b", "c"), outputs=3,
        sizes=runs("N a b c", (6, 1, 2, 3), (6, 0, 6, 0), (0, 0, 0, 0)),
    ),
    text(
        "range-of-a-cast-size",
        """agraph (float[N, 2] x) => (float[N, 2] y) {
            n = Shape<end = 1>(x)  scalar = Squeeze(n)  m = Cast<to = 6>(scalar)
            r = Range(zero, m, one)  f = Cast<to = 1>(r)
            column = Unsqueeze(f, axis)  y = Add(x, column)
        }""",
        runs("N", (5,), (1,), (0,), (70,)),
        constants={"zero": np.int32(0), "one": np.int32(1), "axis": ints(1)},
    ),
]  # fmt: skip

LENGTHS = [
    text(
        "lengths-to-mask",
        """agraph (int64[N] lengths, float[N, T] x) => (float[N, T] y, bool[N, M] mask) {
            longest = ReduceMax<keepdims = 0>(lengths)  steps = Range(zero, longest, one)
            column = Unsqueeze(lengths, last)  mask = Less(steps, column)
            m = Cast<to = 1>(mask)  y = Mul(x, m)
        }""",
        runs("N T a b c", (3, 5, 5, 2, 0), (3, 1, 1, 0, 1), (2, 7, 7, 7, 1), (1, 1, 1, 1, 1)),
        constants={"zero": np.int64(0), "one": np.int64(1), "last": ints(1)},
        inputs={"lengths": In(("N",), "int64", values=("a", "b", "c"))},
    ),
    text(
        "frames-from-lengths",
        """agraph (int32[2] lengths, float[2, T, 3] x) => (float[2, L, 3] y, int64[1] count) {
            more = Add(lengths, one)  frames = Div(more, hop)
            longest = ReduceMax<keepdims = 1>(frames)  count = Cast<to = 7>(longest)
            kept = Slice(x, start, count, axis)  y = Tanh(kept)
        }""",
        runs("T a b", (6, 5, 12), (6, 3, 4), (6, 0, 0)),
        constants={"hop": np.int32(2), "one": np.int32(1), "start": ints(0), "axis": ints(1)},
        inputs={"lengths": In((2,), "int32", values=("a", "b"))},
    ),
    text(
        "chain-of-shapes",
        """agraph (float[N, T, C] x, float[C, H] w) => (float[N, T, H] y, float[N, K, C] z) {
            s = Shape(x)  n = Gather(s, zero)  t = Gather(s, one)  c = Gather(s, two)
            rows = Mul(n, t)  flat = Concat<axis = 0>(rows, c)  matrix = Reshape(x, flat)
            product = MatMul(matrix, w)  back = Concat<axis = 0>(n, t, rest)
            y = Reshape(product, back)
            twice = Add(t, t)  double = Concat<axis = 0>(n, twice, c)  both = Concat<axis = 1>(x, x)
            z = Reshape(both, double)
        }""",
        runs("N T C H", (2, 3, 4, 5), (1, 1, 1, 1), (3, 17, 2, 9)),
        constants={"zero": ints(0), "one": ints(1), "two": ints(2), "rest": ints(-1)},
        length=4,
    ),
    # TensorFlow's Tensordot counts in 32 bits.
    text(
        "products-of-shapes-in-int32",
        """agraph (float[N, T, C] x, float[C, H] w) => (float[N, T, H] y) {
            s = Shape(x)  narrow = Cast<to = 6>(s)
            free = Gather(narrow, outer)  bound = Gather(narrow, inner)
            rows = ReduceProd<keepdims = 1>(free)  columns = ReduceProd<keepdims = 1>(bound)
            both = Concat<axis = 0>(rows, columns)  flat = Cast<to = 7>(both)
            matrix = Reshape(x, flat)  product = MatMul(matrix, w)
            last = Shape<start = -1>(w)  h = Cast<to = 6>(last)
            back = Concat<axis = 0>(free, h)  shape = Cast<to = 7>(back)
            y = Reshape(product, shape)
        }""",
        runs("N T C H", (2, 3, 4, 5), (1, 1, 1, 1), (3, 17, 2, 9)),
        constants={"outer": ints(0, 1), "inner": ints(2)},
        length=4,
    ),
    text(
        "count-of-places",
        """agraph (float[N] x) => (float[M, 2] y) {
            positive = Greater(x, zero)
            each = Cast<to = 7>(positive)  n = ReduceSum<keepdims = 1>(each)
            shape = Concat<axis = 0>(n, two)
            y = ConstantOfShape(shape)
        }""",
        runs("N", (9,), (1,), (0,)),
        constants={"zero": np.float32(0), "two": ints(2)},
    ),
]


def looped(feeds: Mapping[str, Array]) -> list[Array]:
    """`LOOP` in float64; the oracle cannot tell the shape of what no step makes."""
    state = feeds["x"].astype(np.float64)
    count = max(int(feeds["trips"]), 0) * int(feeds.get("go", True))
    elements = []
    for i in range(count):
        state = state + i
        elements.append(np.tanh(state))
    return [state, np.reshape(elements, (count, *state.shape))]


def doubled(feeds: Mapping[str, Array]) -> list[Array]:
    """-x, -2 x, -4 x, .."""
    count = max(int(feeds["lengths"].max()), 0)
    return [-feeds["x"] * 2.0 ** np.arange(count)[:, None]]


LOOP = """agraph (int64 trips, {condition}float[N, 2] x)
    => (float[N, 2] last, float[K, N, 2] all) {{
    last, all = Loop(trips, {name}, x) <
        body = step (int64 i, bool going, float[N, 2] s)
            => (bool still, float[N, 2] t, float[N, 2] o) {{
            still = Identity(going)  f = Cast<to = 1>(i)  t = Add(s, f)  o = Tanh(t)
        }}
    >
}}"""
# As TensorFlow's converter writes a recurrence: comparisons take floats only.
WHILE = """agraph (float[T, N, 3] x, float[N, 3] h, float[3, 3] w)
    => (float[N, 3] last, float[K, N, 3] all) {
    s = Shape(x)  n = Cast<to = 6>(s)  part = Slice(n, first, second)  length = Squeeze(part, first)
    below = Cast<to = 1>(length)  go = Less(none, below)
    end, kept, last, all = Loop("", go, start, length, h) <
        body = step (int64 i, bool going, int32 k, int32 limit, float[N, 3] s)
            => (bool still, int32 m, int32 limit, float[N, 3] t, float[N, 3] o) {
            m = Add(k, one)  e = Gather<axis = 0>(x, k)
            a = MatMul(e, w)  b = Add(a, s)  t = Tanh(b)  o = Identity(t)
            c = Cast<to = 1>(m)  l = Cast<to = 1>(limit)  still = Less(c, l)
        }
    >
}"""
LOOPS = [
    text(
        "while-below-a-size",
        WHILE,
        runs("T N", (7, 2), (1, 1), (23, 3)),
        constants={
            "first": ints(0),
            "second": ints(1),
            "none": np.float32(0),
            "start": np.int32(0),
            "one": np.int32(1),
        },
        length=8,
    ),
    text(
        "trip-count",
        LOOP.format(condition="", name=""),
        runs("N n", (3, 4), (3, 0), (3, -2), (1, 1), (0, 3)),
        inputs={"trips": number("n")},
        expected=looped,
        # Without a step, onnxruntime gives axes of the elements that have a name an extent of 0.
        witness=False,
    ),
    text(
        "trip-count-and-condition",
        LOOP.format(condition="bool go, ", name="go"),
        runs("N n c", (3, 4, 1), (3, 4, 0), (3, 0, 1)),
        inputs={"trips": number("n"), "go": number("c", "bool")},
        expected=looped,
        # Without a step, onnxruntime gives axes of the elements that have a name an extent of 0.
        witness=False,
    ),
    text(
        "element-of-a-step",
        """agraph (int64 trips, float[5, 2] x) => (float[1, 2] last, float[K, 1, 2] all) {
            last, all = Loop(trips, , zero) <
                body = step (int64 i, bool going, float[1, 2] s)
                    => (bool still, float[1, 2] t, float[1, 2] o) {
                    still = Identity(going)  behind = Add(i, one)
                    start = Unsqueeze(i, front)  end = Unsqueeze(behind, front)
                    row = Slice(x, start, end, front)  t = Add(s, row)  o = Identity(t)
                }
            >
        }""",
        runs("n", (5,), (2,), (1,)),
        constants={"one": np.int64(1), "front": ints(0), "zero": np.zeros((1, 2), "float32")},
        inputs={"trips": number("n")},
        length=5,
    ),
    text(
        "trip-count-of-data",
        """agraph (int64[N] lengths, float[2] x) => (float[K, 2] all) {
            most = ReduceMax<keepdims = 0>(lengths)
            last, all = Loop(most, , x) <
                body = step (int64 i, bool going, float[2] s)
                    => (bool still, float[2] t, float[2] o) {
                    still = Identity(going)  t = Add(s, s)  o = Neg(s)
                }
            >
        }""",
        runs("N a b", (2, 3, 1), (2, 0, 0), (1, 5, 0)),
        inputs={"lengths": In(("N",), "int64", values=("a", "b"))},
        expected=doubled,
    ),
]

ONE = {"S": 1}
PAIR, BYTES = In((3, 4)), In((3, 4), "uint8", high=9)
# Operands of which only a run tells that they have one element, or two.
FEW = [
    node("of-one", "CumSum", PAIR, In(("S",), "int64", values=[1]), sizes=(ONE,), length=4),
    node("by-one", "Pad", PAIR, ints(0, 1, 2, 0), In(("S",)), sizes=(ONE,)),
    node("by-one", "Clip", PAIR, In(("S",)), None, sizes=(ONE,), ulps=0, witness=False),
    node("of-two", "OneHot", ints(2, 0), np.array(4), In(("S",)), sizes=({"S": 2},)),
    node("by-one", "NonMaxSuppression", In((1, 9, 4)), In((1, 1, 9)),
         In(("S",), "int64", values=[4]), In(("S",), values=[0.5]), In(("S",)), sizes=(ONE,)),
    *(node(f"one-or-each-{axis}", op, x, In(("S",), values=[0.5, 2.0]), axis=axis,
           sizes=(ONE, {"S": extent}))
      for axis, extent in ((0, 3), (1, 4))
      for op, x in (("QuantizeLinear", In((3, 4), scale=9)), ("DequantizeLinear", BYTES))),
    *(node(f"one-or-each-{place}", "MatMulInteger", BYTES, In((4, 5), "uint8", high=9),
           *[None] * place, In(("S",), "uint8", high=9), opset=10, sizes=(ONE, {"S": extent}),
           witness=False)
      for place, extent in ((0, 3), (1, 5))),
]  # fmt: skip

CASES: list[Case] = [
    *SLICES, *RESHAPES, *BROADCASTS, *PADS, *MADE, *LENGTHS, *LOOPS, *FEW,
]  # fmt: skip
