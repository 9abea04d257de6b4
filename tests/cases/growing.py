"""Loops whose states change their size: rows that come and go, sequences, sizes of their own."""

from __future__ import annotations

from dataclasses import replace

from tests.cases.case import Case, In, Sizes, text

COUNTS: tuple[Sizes, ...] = ({"K": 0, "L": 2}, {"K": 1, "L": 0}, {"K": 7, "L": 3})
COUNT = In((), "int64", values=["K"])
LIMIT = In((), values=[3.0])
ROWS = {"n": COUNT, "x": In((2, "L")), "p": In((2, 1))}


# What a step computes from its number: sizes of all kinds.
COUNTED = {
    "range": "v = Range(zero, j, one)  h = Cast<to = 1>(v)",
    "slice": "h = Slice(x, ax, k)",
    "slice-in-steps": "h = Slice(x, ax, far, ax, k)",
    "slice-in-steps-back": "m = Neg(k)  h = Slice(x, far, ax, ax, m)",
    "float-range": "f = Cast<to = 1>(j)  h = Range(half, f, half)",
    "slice-behind": "h = Slice(x, k, far, ax)",
    "expand": "m = Concat<axis = 0>(k, four)  h = Expand(a, m)",
    "filled": "h = ConstantOfShape<value = float[1] {2.0}>(k)",
    "largest": "v = Reshape(x, flat)  h, places = TopK(v, k)",
    "padded": "m = Concat<axis = 0>(k, k)  h = Pad(a, m)",
    "repeated": "h = Tile(a, k)",
    "reshaped": "v = Slice(x, ax, k)  h = Reshape(v, pairs)",
    "branches": """e = Mod(i, two)  even = Equal(e, zero)  h = If(even)<
        then_branch = yes () => (float[A, 4] u) { u = Slice(x, ax, k) },
        else_branch = no () => (float[B, 4] v) { v = Concat<axis = 0>(x, x) }>""",
}


def _loop(name: str, body: str, ends: str = "co = Identity(ci)", trips: str = "n") -> Case:
    """A state of two rows and a run-time extent, and a number that each step computes from it."""
    inputs = ROWS if "limit" not in ends else {**ROWS, "limit": LIMIT}
    if not trips:
        inputs = {k: v for k, v in inputs.items() if k != "n"}
    declared = ", ".join(
        f"{'int64' if one.dtype == 'int64' else 'float'}"
        f"{'[' + ', '.join(map(str, one.shape)) + ']' if one.shape else ''} {key}"
        for key, one in inputs.items()
    )
    return text(
        f"growing-{name}",
        f"""agraph ({declared}) => (float[2, B] y, float[T] m) {{
            go = Constant<value = bool {{1}}>()
            axis = Constant<value_ints = [1]>()
            two = Constant<value_ints = [2]>()
            first = Constant<value_ints = [0]>()
            far = Constant<value_ints = [9223372036854775807]>()
            y, m = Loop<body = b (int64 i, bool ci, float[2, M] s) =>
                (bool co, float[2, N] so, float r) {{
                    f = Cast<to = 1>(i)
                    e = Add(p, f)
                    {ends}
                    {body}
                    q = Mul(so, so)
                    r = ReduceSum<keepdims = 0>(q)
                }}>({trips}, go, x)
        }}""",
        inputs=inputs,
        sizes=COUNTS,
        length=64,
    )


_CASES = [
    _loop("behind", "so = Concat<axis = 1>(s, e)"),
    _loop("in-front", "so = Concat<axis = -1>(e, s)"),
    _loop("several", "so = Concat<axis = 1>(s, e, p)"),
    _loop("copied", "u = Concat<axis = 1>(s, e)  so = Mul(u, u)"),
    _loop(
        "transposed",
        """st = Transpose(s)  et = Transpose(e)  u = Concat<axis = 0>(st, et)
        so = Transpose(u)""",
    ),
    _loop(
        "stacked",
        """v, w = Split<axis = 0, num_outputs = 2>(s)
        a, b = Split<axis = 0, num_outputs = 2>(e)  k = Concat<axis = 1>(v, a)
        m = ReduceMean(k, axis)  c = Add(m, b)  l = Concat<axis = 1>(w, c)
        so = Concat<axis = 0>(k, l)""",
    ),
    _loop(
        "weighted",
        """w = Constant<value_floats = [4.0, 3.0, -2.0, 5.0, 1.0, -1.0, 2.0, 6.0, 3.0, 1.0, 2.0]>()
        d = Shape<start = 1>(s)  v = Slice(w, first, d, first)  z = Mul(s, v)
        m = ReduceSum(z, axis)  u = Tanh(m)  c = Add(e, u)  so = Concat<axis = 1>(s, c)""",
    ),
    _loop(
        "of-floats",
        """none = Squeeze(first)  step = Squeeze(axis)  d = Shape<start = 1>(s)  l = Squeeze(d)
        a = Cast<to = 1>(none)  b = Cast<to = 1>(l)  c = Cast<to = 1>(step)  v = Range(a, b, c)
        z = Mul(s, v)  u = ReduceSum(z, axis)  w = Tanh(u)  so = Concat<axis = 1>(s, w)""",
    ),
    _loop("ended", "so = Concat<axis = 1>(s, e)", "co = Less(f, limit)"),
    _loop("only-ended", "so = Concat<axis = 1>(s, e)", "co = Less(f, limit)", ""),
    _loop("ended-in-front", "so = Concat<axis = 1>(e, s)", "co = Less(f, limit)"),
    _loop(
        "window", "u = Concat<axis = 1>(s, e)  start = Neg(two)  so = Slice(u, start, far, axis)"
    ),
    _loop("shrinking", "one = Constant<value_ints = [1]>()  so = Slice(s, one, far, axis)"),
    _loop(
        "chosen",
        """half = Constant<value = float {0.5}>()  row = ReduceSum<keepdims = 0>(s, first)
        k = Less(row, half)  so = Compress<axis = 1>(s, k)""",
    ),
    _loop(
        "sometimes",
        """two0 = Squeeze(two)  rest = Mod(i, two0)  zero = Squeeze(first)  even = Equal(rest, zero)
        so = If(even) <then_branch = yes () => (float[2, P] a) { a = Concat<axis = 1>(s, e) },
            else_branch = no () => (float[2, Q] d) { d = Identity(s) }>""",
    ),
    _loop(
        "attended",
        """st = Transpose(s)  k = MatMul(st, e)  w = Softmax<axis = 0>(k)  v = MatMul(s, w)
        g = Add(v, e)  so = Concat<axis = 1>(s, g)""",
    ),
    _loop(
        "nested",
        """three = Constant<value = int64 {3}>()
        so = Loop<body = inner (int64 j, bool cj, float[2, M2] s2) => (bool co2, float[2, N2] so2) {
            co2 = Identity(cj)  fj = Cast<to = 1>(j)  ej = Mul(e, fj)
            so2 = Concat<axis = 1>(s2, ej)
        }>(three, ci, s)""",
    ),
    text(
        "growing-by-what-grows",
        """agraph (int64 n, float[2] x) => (float[B, 2] y, float[C, 2] w) {
            go = Constant<value = bool {1}>()  none = Constant<value_ints = [0, 2]>()
            e = ConstantOfShape(none)
            y, w = Loop<body = b (int64 i, bool ci, float[M, 2] s, float[N, 2] r) =>
                (bool co, float[P, 2] so, float[Q, 2] ro) {
                    co = Identity(ci)  axis = Constant<value_ints = [0]>()
                    row = Unsqueeze(x, axis)
                    so = Concat<axis = 0>(s, row)  ro = Concat<axis = 0>(r, so)
                }>(n, go, e, e)
        }""",
        inputs={"n": COUNT, "x": In((2,))},
        sizes=COUNTS,
    ),
    text(
        "growing-beams",
        """agraph (int64 n, int64[3, L] x, int64[3] order) => (int64[3, B] y) {
            go = Constant<value = bool {1}>()  axis = Constant<value_ints = [1]>()
            y = Loop<body = b (int64 i, bool ci, int64[3, M] s) => (bool co, int64[3, N] so) {
                co = Identity(ci)  kept = Gather<axis = 0>(s, order)
                o = Unsqueeze(order, axis)  e = Add(o, i)  so = Concat<axis = 1>(kept, e)
            }>(n, go, x)
        }""",
        inputs={
            "n": COUNT,
            "x": In((3, "L"), "int64", high=100),
            "order": In((3,), "int64", values=[2, 0, 0]),
        },
        sizes=COUNTS,
    ),
    text(
        "growing-masked",
        """agraph (int64 n, float[2, L] x, float[M] mask) => (float[2, B] y, float[T, 2] z) {
            go = Constant<value = bool {1}>()
            y, z = Loop<body = b (int64 i, bool ci, float[2, M] s) =>
                (bool co, float[2, N] so, float[2] v) {
                    co = Identity(ci)  axis = Constant<value_ints = [1]>()  f = Cast<to = 1>(i)
                    r = ReduceSum(s, axis)  e = Add(r, f)  so = Concat<axis = 1>(s, e)
                    seen = Mul(so, mask)  v = ReduceMax<keepdims = 0>(seen, axis)
                }>(n, go, x)
        }""",
        inputs={"n": COUNT, "x": In((2, "L")), "mask": In(("M",))},
        sizes=({"K": 3, "L": 2, "M": 1}, {"K": 1, "L": 2, "M": 3}, {"K": 4, "L": 0, "M": 1}),
        length=64,
    ),
    text(
        "growing-sequence",
        """agraph (int64 n, float[2] x) => (float[T, 2] y, float[U] z, int64 count) {
            go = Constant<value = bool {1}>()  e = SequenceConstruct(x)
            s = Loop<body = b (int64 i, bool ci, seq(float[2]) q) => (bool co, seq(float[2]) qo) {
                co = Identity(ci)  a = ConcatFromSequence<axis = 0, new_axis = 1>(q)
                axis = Constant<value_ints = [0]>()  m = ReduceSum<keepdims = 0>(a, axis)
                place = Constant<value = int64 {-1}>()  last = SequenceAt(q, place)
                half = Constant<value = float {0.5}>()  mh = Mul(m, half)  v = Add(last, mh)
                qo = SequenceInsert(q, v)
            }>(n, go, e)
            y = ConcatFromSequence<axis = 0, new_axis = 1>(s)
            z = ConcatFromSequence<axis = 0>(s)
            count = SequenceLength(s)
        }""",
        inputs={"n": COUNT, "x": In((2,))},
        sizes=COUNTS,
        length=64,
    ),
    text(
        "growing-pieces",
        """agraph (int64 n, float[3, T] x) => (float[2, U] y, float[K] sums, int64 count) {
            go = Constant<value = bool {1}>()  e = SequenceEmpty()
            w = Constant<value = float[2, 3] {1.5, -1.0, 0.25, -0.5, 2.0, 1.0}>()
            s, sums = Loop<body = b (int64 i, bool ci, seq(float[2, A]) q) => (
                bool co, seq(float[2, B]) qo, float sum) {
                co = Identity(ci)
                size = Shape<start = 1>(x)  one = Constant<value_ints = [1]>()
                zero = Constant<value_ints = [0]>()  first = Reshape(i, one)
                next = Add(first, one)  end = Mod(next, size)
                part = Slice(x, zero, end, one)  piece = MatMul(w, part)
                qo = SequenceInsert(q, piece)
                two = Constant<value = int64 {2}>()  half = Div(i, two)
                seen = SequenceAt(qo, half)  sum = ReduceSum<keepdims = 0>(seen)
            }>(n, go, e)
            y = ConcatFromSequence<axis = 1>(s)
            count = SequenceLength(s)
        }""",
        inputs={"n": In((), "int64", values=[4]), "x": In((3, "T"))},
        sizes=({"T": 3}, {"T": 6}, {"T": 1}),
        length=64,
    ),
    text(
        "growing-no-elements",
        """agraph (float[M, K] x) => (float[M, K] y, float[T, M, K] rows) {
            go = Constant<value = bool {1}>()
            y, rows = Loop<body = b (int64 i, bool ci, float[M, K] s) =>
                (bool co, float[M, K] so, float[M, K] r) {
                    one = Constant<value = int64 {1}>()  co = Less(i, one)
                    so = Tanh(s)  r = Identity(s)
            }>("", go, x)
        }""",
        inputs={"x": In(("M", "K"))},
        sizes=({"M": 2, "K": 3}, {"M": 0, "K": 3}),
    ),
    text(
        "growing-swapped",
        """agraph (int64 n, float[L] x, float[3] w) => (float[A] y, float[B] z) {
            go = Constant<value = bool {1}>()
            y, z = Loop<body = b (int64 i, bool c, float[M] s, float[N] r) =>
                (bool co, float[P] so, float[Q] ro) {
                    co = Identity(c)  m = ReduceSum<keepdims = 1>(s)  e = Sin(m)
                    so = Identity(r)  ro = Concat<axis = 0>(s, e)
                }>(n, go, x, w)
        }""",
        inputs={"n": COUNT, "x": In(("L",)), "w": In((3,))},
        sizes=COUNTS,
        length=64,
    ),
    text(
        "growing-in-front-of-an-inner-loop",
        """agraph (int64 n, float[L] x) => (float[A] y, float[B] z) {
            go = Constant<value = bool {1}>()
            y, z = Loop<body = outer (int64 i, bool c, float[M] s, float[N] r) =>
                (bool co, float[P] so, float[Q] ro) {
                    co = Identity(c)
                    s1 = Loop<body = inner (int64 j, bool c2, float[U] u) =>
                        (bool c3, float[V] v) {
                            c3 = Identity(c2)  m = ReduceSum<keepdims = 1>(u)  f = Cast<to = 1>(j)
                            e = Add(m, f)  t = Sin(e)  v = Concat<axis = 0>(t, u)
                        }>(i, c, s)
                    half = Constant<value_floats = [0.5]>()
                    so = Concat<axis = 0>(s1, half)  ro = Concat<axis = 0>(r, s1)
                }>(n, go, x, x)
        }""",
        inputs={"n": COUNT, "x": In(("L",))},
        sizes=COUNTS,
        length=64,
    ),
    text(
        "growing-or-shrinking",
        """agraph (int64 n, float[L, 2] x) => (float[A, 2] y) {
            go = Constant<value = bool {1}>()
            y = Loop<body = b (int64 i, bool c, float[M, 2] s) => (bool co, float[N, 2] so) {
                co = Identity(c)  three = Constant<value = int64 {3}>()  m = Mod(i, three)
                one = Constant<value_ints = [1]>()  axis = Constant<value_ints = [0]>()
                back = Constant<value_ints = [-1]>()  far = Constant<value_ints = [99]>()
                two = Constant<value = int64 {2}>()  last = Equal(m, two)
                so = If(last)<
                    then_branch = yes () => (float[P, 2] v) { v = Slice(s, one, far, axis) },
                    else_branch = no () => (float[Q, 2] w) {
                        l = Slice(s, back, far, axis)  t = Tanh(l)  w = Concat<axis = 0>(s, t) }>
            }>(n, go, x)
        }""",
        inputs={"n": COUNT, "x": In(("L", 2))},
        sizes=COUNTS,
        length=64,
    ),
    text(
        "growing-seen-through-a-window",
        """agraph (int64 n, float[2, L] x) => (float[2, A] y, float[T, 2, 2] w) {
            go = Constant<value = bool {1}>()  back = Constant<value_ints = [-1]>()
            back2 = Constant<value_ints = [-2]>()  axis = Constant<value_ints = [1]>()
            far = Constant<value_ints = [99]>()
            y, w = Loop<body = b (int64 i, bool c, float[2, M] s) =>
                (bool co, float[2, N] so, float[2, K] window) {
                    co = Identity(c)  l = Slice(s, back, far, axis)  e = Sin(l)
                    so = Concat<axis = 1>(s, e)  window = Slice(so, back2, far, axis)
                }>(n, go, x)
        }""",
        inputs={"n": COUNT, "x": In((2, "L"))},
        sizes=({"K": 5, "L": 1}, {"K": 1, "L": 3}),
        length=64,
    ),
    text(
        "growing-by-one-or-two",
        """agraph (int64 n, float[L] x) => (float[A] y) {
            go = Constant<value = bool {1}>()  two = Constant<value_ints = [2]>()
            y = Loop<body = b (int64 i, bool c, float[M] s) => (bool co, float[N] so) {
                co = Identity(c)  one = Constant<value_ints = [1]>()
                m = ReduceSum<keepdims = 1>(s)  half = Constant<value_floats = [0.5]>()
                g = Greater(m, half)  k = Where(g, two, one)  t = Cos(m)  e = Expand(t, k)
                so = Concat<axis = 0>(s, e)
            }>(n, go, x)
        }""",
        inputs={"n": COUNT, "x": In(("L",))},
        sizes=COUNTS,
        length=64,
    ),
    text(
        "growing-along-two-axes-until-a-condition-ends-it",
        """agraph (float[L, M] x, int64 n) => (float[A, B] y, float[T] r) {
            go = Constant<value = bool {1}>()
            y, r = Loop<body = b (int64 i, bool c, float[P, Q] s) =>
                (bool co, float[U, V] so, float q) {
                    co = Less(i, n)  last = Constant<value_ints = [1]>()
                    first = Constant<value_ints = [0]>()
                    m = ReduceSum(s, last)  t = Sin(m)  u = Concat<axis = 1>(s, t)
                    top = ReduceMax(u, first)  so = Concat<axis = 0>(top, u)
                    q = ReduceSum<keepdims = 0>(so)
                }>("", go, x)
        }""",
        inputs={"n": COUNT, "x": In(("L", "M"))},
        sizes=({"K": 4, "L": 2, "M": 3}, {"K": 0, "L": 1, "M": 1}),
        length=64,
    ),
    text(
        "growing-and-given-as-it-is",
        """agraph (float[3, M, 3] x) => (float[3, N, 3] y, float[T, 3, N, 3] rows) {
            go = Constant<value = bool {1}>()
            y, rows = Loop<body = b (int64 i, bool ci, float[3, P, 3] s) =>
                (bool co, float[3, P, 3] so, float[3, Q, 3] r) {
                    one = Constant<value = int64 {1}>()  co = Less(i, one)
                    so = Identity(s)  t = Transpose<perm = [1, 0, 2]>(s)  r = Add(s, t)
            }>("", go, x)
        }""",
        inputs={"x": In((3, "M", 3))},
        sizes=({"M": 3}, {"M": 1}),
    ),
    text(
        "growing-until-a-condition-ends-it-then-cut",
        """agraph (int64 n, float[80, 1] x, float limit) => (float[80, A] y) {
            go = Constant<value = bool {1}>()  none = Constant<value = float[80, 0] {}>()
            axis = Constant<value_ints = [1]>()  back = Constant<value_ints = [-1]>()
            first = Constant<value_ints = [0]>()
            s = Loop<body = b (int64 i, bool c, float[80, M] si) => (bool co, float[80, N] so) {
                f = Cast<to = 1>(i)  e = Add(x, f)  so = Concat<axis = 1>(si, e)
                co = Less(f, limit)
            }>(n, go, none)
            y = Slice(s, first, back, axis)
        }""",
        inputs={"n": COUNT, "x": In((80, 1)), "limit": LIMIT},
        sizes=COUNTS,
    ),
    text(
        "broadcast-until-a-condition-ends-it",
        """agraph (float[N, M] x, float limit) => (float[A, B] y, float[T, A, B] z) {
            n = Constant<value = int64 {9}>()  go = Constant<value = bool {1}>()
            y, s = Loop<body = b (int64 i, bool c, float[K, L] v) =>
                (bool co, float[K, Q] o, float[K, L] e) {
                    k = Constant<value = float[3] {1.0, 2.0, 3.0}>()  t = Add(v, k)
                    o = Tanh(t)  e = Softmax<axis = 1>(v)
                    f = Cast<to = 1>(i)  co = Less(f, limit)
            }>(n, go, x)
            z = Exp(s)
        }""",
        inputs={"x": In(("N", "M")), "limit": LIMIT},
        sizes=({"N": 2, "M": 3}, {"N": 0, "M": 3}),
    ),
    text(
        "shrinking-to-nothing",
        """agraph (int64 n, float[1, 2] x) => (float[A, 2] y, float[T] r) {
            go = Constant<value = bool {1}>()
            y, r = Loop<body = b (int64 i, bool c, float[M, 2] s) =>
                (bool co, float[N, 2] so, float q) {
                    co = Identity(c)  q = ReduceSum<keepdims = 0>(s)
                    one = Constant<value_ints = [1]>()  axis = Constant<value_ints = [0]>()
                    far = Constant<value_ints = [99]>()  so = Slice(s, one, far, axis)
            }>(n, go, x)
        }""",
        inputs={"n": COUNT, "x": In((1, 2))},
        sizes=({"K": 3}, {"K": 0}),
    ),
    *(
        text(
            f"counted-{name}",
            f"""agraph (int64 n, float[N, 4] x, float[4] s0) => (float[4] s, float[T] r) {{
                go = Constant<value = bool {{1}}>()  far = Constant<value_ints = [100]>()
                four = Constant<value_ints = [4]>()  flat = Constant<value_ints = [-1]>()
                pairs = Constant<value_ints = [-1, 2]>()  two = Constant<value = int64 {{2}}>()
                half = Constant<value = float {{0.5}}>()
                s, r = Loop<body = b (int64 i, bool c, float[4] a) =>
                    (bool co, float[4] ao, float q) {{
                        co = Identity(c)  ax = Constant<value_ints = [0]>()
                        one = Constant<value = int64 {{1}}>()
                        zero = Constant<value = int64 {{0}}>()
                        j = Add(i, one)  k = Unsqueeze(j, ax)  {body}
                        q = ReduceSum<keepdims = 0>(h)  w = Mul(a, half)  ao = Add(w, q)
                    }}>(n, go, s0)
            }}""",
            inputs={"n": COUNT, "x": In(("N", 4)), "s0": In((4,))},
            sizes=({"N": 9, "K": 0}, {"N": 9, "K": 6}, {"N": 3, "K": 7}),
            length=64,
        )
        for name, body in COUNTED.items()
    ),
]

CASES = [replace(case, at_once=True) for case in _CASES]
