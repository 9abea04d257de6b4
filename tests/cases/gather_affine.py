"""Cases of evenly spaced indices: what they pick is a view."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Case, In, Sizes, ints, node, text
from tests.cases.runtime_sizes import number, runs

X = In((3, 5, 4))
BATCH = ({"N": 3}, {"N": 1}, {"N": 0}, {"N": 20})
ZERO_ONE = {"zero": np.array(0), "one": np.array(1)}
# Start, limit and step of ranges over 5 elements, some of them counted from the end.
ROWS = (
    (0, 5, 1), (1, 4, 1), (4, -1, -1), (3, -1, -1), (-3, 0, 1), (-2, 2, 1), (0, -1, 1),
    (1, 5, 2), (-1, -6, -2), (2, -3, -1), (3, 3, 1), (4, 5, 9),
)  # fmt: skip


def ranges() -> list[Case]:
    """Ranges of numbers, and of values."""
    known = [
        node(
            f"affine-{n}", "Gather", In((5, 3)),
            np.arange(*row, dtype=np.int32 if n % 2 else np.int64),
        )
        for n, row in enumerate(ROWS)
    ]  # fmt: skip
    constant = [
        text(
            f"gather-of-range-{n}",
            """agraph (float[N, 5] x) => (float[N, k] y) {
                i = Range(start, limit, delta)  y = Gather<axis = 1>(x, i)
            }""",
            BATCH,
            constants=dict(zip(("start", "limit", "delta"), map(np.array, row), strict=True)),
            batch=True,
        )
        for n, row in enumerate(ROWS)
    ]
    computed: list[Case] = []
    for dtype in ("int64", "int32"):
        computed.append(
            text(
                f"gather-of-range-of-{dtype}-values",
                f"""agraph (float[T, 3] x, {dtype} a, {dtype} b, {dtype} d) => (float[k, 3] y) {{
                    i = Range(a, b, d)  y = Gather(x, i)
                }}""",
                runs("T a b d", *((5, *row) for row in ROWS), (100, 3, 99, 5), (1, 0, 1, 1)),
                inputs={name: number(name, dtype) for name in "abd"},
            )
        )
    return [*known, *constant, *computed]


def long_ranges() -> list[Case]:
    """More indices than are listed while compiling."""
    sizes: tuple[Sizes, ...] = ({"T": 100}, {"T": 81}, {"T": 400})
    return [
        text(
            "gather-of-shapes",
            """agraph (float[2, T] x)
                => (float[2, T] a, float[2, k] b, float[2, T] c, float[2, l] d) {
                s = Shape(x)  t = Gather(s, one)  m = Sub(zero, one)  last = Add(t, m)
                i = Range(zero, t, one)  a = Gather<axis = 1>(x, i)
                j = Range(one, t, two)  b = Gather<axis = -1>(x, j)
                r = Range(last, m, m)  c = Gather<axis = 1>(x, r)
                k = Neg(j)  d = Gather<axis = 1>(x, k)
            }""",
            (*sizes, {"T": 1}, {"T": 2}, {"T": 0}),
            constants={**ZERO_ONE, "two": np.array(2)},
        ),
        text(
            "gather-of-arithmetic",
            """agraph (float[T, 2] x, int64 n) => (float[n, 2] a, float[n, 2] b, float[n, 2] c) {
                i = Range(zero, n, one)
                two_i = Mul(i, two)  odd = Add(two_i, one)  a = Gather(x, odd)
                narrow = Cast<to = 6>(i)  more = Add(narrow, five)  b = Gather(x, more)
                back = Sub(minus, i)  c = Gather(x, back)
            }""",
            runs("T n", (300, 70), (300, 149), (300, 0), (7, 1)),
            inputs={"n": number("n")},
            constants={
                **ZERO_ONE,
                "two": np.array(2),
                "five": np.array(5, np.int32),
                "minus": np.array(-1),
            },
        ),
        text(
            "gather-around-the-end",
            """agraph (float[T] x) => (float[90] y, float[90] z) {
                i = Range(from, to, one)  j = Neg(i)  y = Gather(x, i)  z = Gather(x, j)
            }""",
            sizes,
            constants={**ZERO_ONE, "from": np.array(-10), "to": np.array(80)},
        ),
        text(
            "gather-of-a-constant-range",
            "agraph (float[2, T] x) => (float[2, 70] y) { y = Gather<axis = 1>(x, i) }",
            sizes,
            constants={"i": np.arange(80, 10, -1)},
        ),
        text(
            "gather-whose-sizes-are-values",
            """agraph (float[T, 3] x, int64 k, int64 n) => (float[n, 3] y, float[n, 3] z) {
                l = Add(k, n)  i = Range(k, l, one)  g = Gather(x, i)
                y = Exp(g)  f = Neg(x)  z = Gather(f, i)
            }""",
            runs("T k n", (9, 2, 5), (9, -4, 4), (9, -3, 6), (9, 0, 0), (80, 3, 70), (80, 70, 1)),
            inputs={"k": number("k"), "n": number("n")},
            constants=ZERO_ONE,
        ),
    ]


def shapes() -> list[Case]:
    """Indices of other ranks, and data that is known."""
    return [
        node("grid", "Gather", X, np.add.outer(np.arange(3), [0, 1]), axis=1),
        node("repeated-rows", "Gather", X, np.tile(np.arange(1, 4), (2, 1)), axis=2),
        node("single", "Gather", X, ints(-2), axis=1),
        node("same-again", "Gather", X, np.full((4, 2), -1), axis=1),
        text(
            "gather-windows",
            """agraph (float[2, T] x) => (float[2, w, 8] y) {
                s = Shape<start = 1>(x)  n = Sub(s, seven)  m = Squeeze(n)
                i = Range(zero, m, one)  c = Unsqueeze(i, last)  p = Add(c, places)
                y = Gather<axis = 1>(x, p)
            }""",
            ({"T": 30}, {"T": 8}, {"T": 7}),
            constants={
                **ZERO_ONE,
                "seven": ints(7),
                "last": ints(-1),
                "places": np.arange(8),
            },
        ),
        text(
            "gather-at-sizes",
            """agraph (float[T, 3] x, int64 k) => (float[3] a, float[3] b, float[k, 3] c) {
                s = Shape<end = 1>(x)  t = Squeeze(s)  half = Div(t, two)  a = Gather(x, half)
                i = Range(zero, k, one)  c = Gather(x, i)  b = Gather(x, k)
            }""",
            runs("T k", (5, 3), (9, 0), (70, 69), (2, 1)),
            inputs={"k": number("k")},
            constants={**ZERO_ONE, "two": np.array(2)},
        ),
        text(
            "gather-from-a-range",
            """agraph (float[T, 3] x, float[100, 3] table) => (float[k, 3] y, int64[k] p) {
                s = Shape<end = 1>(x)  t = Squeeze(s)  all = Range(zero, t, one)
                i = Range(one, t, two)  p = Gather(all, i)  y = Gather(table, p)
            }""",
            ({"T": 100}, {"T": 2}, {"T": 1}),
            constants={**ZERO_ONE, "two": np.array(2)},
        ),
        text(
            "range-that-is-read-besides",
            """agraph (float[T, 3] x) => (float[T, 3] y, int64[T] i, float[T] f, float[T, 3] z) {
                s = Shape<end = 1>(x)  t = Squeeze(s)  i = Range(zero, t, one)
                f = Cast<to = 1>(i)  y = Gather(x, i)  e = Exp(x)  z = Gather(e, i)
            }""",
            ({"T": 70}, {"T": 0}),
            constants=ZERO_ONE,
        ),
        text(
            "gather-of-ranges-in-bodies",
            """agraph (float[4] s, float[T, 8] x, bool go) => (float[4] last, float[T, 4] all) {
                last, all = Scan<num_scan_inputs = 1, body = step
                    (float[4] h, float[8] v) => (float[4] next, float[4] out) {
                    i = Range(zero, eight, two)  e = Gather(v, i)
                    w = If(go) <
                        then_branch = flipped () => (float[4] a) {
                            j = Range(three, minus, minus)  a = Gather(e, j)
                        },
                        else_branch = plain () => (float[4] b) { b = Gather(h, k) }>
                    next = Add(h, w)  out = Tanh(next)
                }>(s, x)
            }""",
            ({"T": 5}, {"T": 0}),
            inputs={"go": In((), "bool", values=(True,))},
            constants={
                **ZERO_ONE,
                "two": np.array(2),
                "three": np.array(3),
                "eight": np.array(8),
                "minus": np.array(-1),
                "k": ints(-4, -3, -2, -1),
            },
            length=10,
        ),
    ]


def others() -> list[Case]:
    """GatherElements and GatherND."""
    columns = {"N": In(("N", 6, "T"))}
    return [
        node("even", "GatherElements", X, np.tile([[1], [3]], (3, 1, 4)), axis=1),
        node("even-backwards", "GatherElements", In((6, 7)), np.tile(np.arange(-1, -4, -1), (6, 1)),
             axis=1),
        node("diagonal", "GatherElements", In((6, 7)), np.add.outer(np.arange(4), np.arange(3)),
             axis=1),
        text(
            "gather-elements-of-a-range",
            """agraph (float[N, 6, T] x, int64 a, int64 b) => (float[N, k, T] y) {
                i = Range(a, b, one)  j = Unsqueeze(i, ends)  s = Shape(x)
                l = Sub(b, a)  l1 = Unsqueeze(l, front)
                n = Slice(s, front, tail)  t = Slice(s, two, three)
                shape = Concat<axis = 0>(n, l1, t)  e = Expand(j, shape)
                y = GatherElements<axis = 1>(x, e)
            }""",
            runs(
                "N T a b",
                (2, 5, 1, 4), (1, 70, 0, 6), (3, 1, -4, -1), (2, 0, -2, 3), (2, 3, 2, 2),
                (2, 3, -2, 2),
            ),
            inputs={**columns, "x": In(("N", 6, "T")), "a": number("a"), "b": number("b")},
            constants={
                **ZERO_ONE, "ends": ints(0, 2), "front": ints(0), "tail": ints(1),
                "two": ints(2), "three": ints(3),
            },
        ),
        node("even", "GatherND", X, np.arange(2, -1, -1).reshape(3, 1)),
        node("even-pairs", "GatherND", X, np.stack([np.arange(3), np.arange(4, 1, -1)], -1)),
        node("even-batch", "GatherND", X, np.tile([[1], [3]], (3, 1, 1)), batch_dims=1),
        text(
            "gather-nd-of-a-range",
            """agraph (float[T, 5, 2] x, int64 a, int64 b) => (float[k, 2] y, float[k, 5, 2] z) {
                i = Range(a, b, one)  c = Unsqueeze(i, last)
                p = Mul(c, zero)  pair = Concat<axis = 1>(c, p)
                y = GatherND(x, pair)  z = GatherND(x, c)
            }""",
            runs("T a b", (5, 1, 4), (70, 0, 70), (5, -4, -1), (5, -2, 2), (5, 3, 3)),
            inputs={"a": number("a"), "b": number("b")},
            constants={**ZERO_ONE, "last": ints(-1)},
        ),
    ]  # fmt: skip


CASES = [*ranges(), *long_ranges(), *shapes(), *others()]
