"""Loops whose steps compute sizes from data: a state, or what floats of a state are."""

from __future__ import annotations

from dataclasses import replace

from tests.cases.case import Case, In, text

# The body is given the floats `a`, the number `kk`, 0 to 4, and `k`, the same with an axis.
BODIES = {
    "slices": """last = Neg(k)  further = Add(k, two1)
        u = Slice(x, zero1, k, ax)  v = Slice(x, k, further, ax)  w = Slice(x, last, far, ax)
        h = Concat<axis = 0>(u, v, w)""",
    "slice-of-floats": """f = ReduceMax<keepdims = 0>(a)  g = Cast<to = 7>(f)
        gk = Unsqueeze(g, ax)  h = Slice(x, zero1, gk, ax)""",
    "ranges": """d = Add(kk, one)  u = Range(zero, twelve, d)  v = Range(d, twelve, one)
        w = Gather<axis = 0>(a, kk4)  uv = Concat<axis = 0>(u, v)  uf = Cast<to = 1>(uv)
        h = Mul(uf, w)""",
    "expanded": """m = Concat<axis = 0>(k, four1)  u = Expand(a, m)
        v = ConstantOfShape<value = float[1] {2.0}>(m)  h = Mul(u, v)""",
    "largest": """e = Add(k, one1)  u = Reshape(x, flat)  v, places = TopK(u, e)
        w = Cast<to = 1>(places)  h = Mul(v, w)""",
    "padded": """back = Neg(kk4)  m = Concat<axis = 0>(back, k)  u = Pad(a, m)  v = Tile(u, k)
        h = Relu(v)""",
    "hot": """u = Cast<to = 7>(a)  d = Add(kk, one)  h = OneHot(u, d, values)""",
    "chosen": """g = Greater(a, limit)  z = NonZero(g)  zf = Cast<to = 1>(z)
        c4 = Compress<axis = 0>(a, g)  h = Mul(c4, zf)""",
    "attended": """e = Add(k, one1)  g = Slice(x, zero1, e, ax)  l = MatMul(g, a)
        p = Softmax<axis = 0>(l)  h = MatMul(p, g)""",
    "branches": """e = Mod(kk, two)  even = Equal(e, zero)  h = If(even)<
        then_branch = yes () => (float[A] u) { r = Range(zero, kk, one)  u = Cast<to = 1>(r) },
        else_branch = no () => (float[B] v) {
            d = Add(k, two1)  v = ConstantOfShape<value = float[1] {3.0}>(d) }>""",
    "collected": """unused, h = Loop<body = inner (int64 j, bool cj, float[4] s2) =>
        (bool co2, float[4] so2, float[4] r2) {
            co2 = Identity(cj)  fj = Cast<to = 1>(j)  so2 = Add(s2, fj)  r2 = Identity(so2)
        }>(kk, ci, a)""",
    "grown": """so = Slice(a, zero1, k, ax)
        h = Loop<body = inner (int64 j, bool cj, float[M] s2) => (bool co2, float[M2] so2) {
            co2 = Identity(cj)  r3 = Range(zero, j, one)  f3 = Cast<to = 1>(r3)
            so2 = Concat<axis = 0>(s2, f3)
        }>(kk, ci, so)""",
    "pieces": """e = Add(k, one1)  g = Slice(x, zero1, e, ax)
        pieces = SplitToSequence<axis = 0, keepdims = 0>(g)  h = SequenceAt(pieces, kk)""",
    "counted-as-well": """j = Add(i, kk)  jk = Unsqueeze(j, ax)  h = Slice(x, zero1, jk, ax)""",
}


def _loop(name: str, body: str) -> Case:
    return text(
        f"measured-{name}",
        f"""agraph (int64 n, float[N, 4] x, float[4] s0) => (float[4] s, int64 kl, float[T] r) {{
            go = Constant<value = bool {{1}}>()  far = Constant<value_ints = [100]>()
            four1 = Constant<value_ints = [4]>()  flat = Constant<value_ints = [-1]>()
            zero1 = Constant<value_ints = [0]>()  one1 = Constant<value_ints = [1]>()
            two1 = Constant<value_ints = [2]>()  ax = Constant<value_ints = [0]>()
            zero = Constant<value = int64 {{0}}>()  one = Constant<value = int64 {{1}}>()
            two = Constant<value = int64 {{2}}>()  three = Constant<value = int64 {{3}}>()
            five = Constant<value = int64 {{5}}>()  twelve = Constant<value = int64 {{12}}>()
            half = Constant<value = float {{0.5}}>()  limit = Constant<value = float {{0.2}}>()
            values = Constant<value_floats = [0.5, 2.0]>()
            s, kl, r = Loop<body = b (int64 i, bool ci, float[4] a, int64 kk) =>
                (bool co, float[4] ao, int64 ko, float q) {{
                    co = Identity(ci)  k = Unsqueeze(kk, ax)  kk4 = Min(k, two1)
                    {body}
                    q = ReduceSum<keepdims = 0>(h)  t = Tanh(q)  ah = Mul(a, half)  ao = Add(ah, t)
                    kt = Mul(kk, three)  k1 = Add(kt, one)  ko = Mod(k1, five)
                }}>(n, go, s0, two)
        }}""",
        inputs={
            "n": In((), "int64", values=["K"]),
            "x": In(("N", 4)),
            "s0": In((4,)),
        },
        sizes=({"N": 9, "K": 6}, {"N": 6, "K": 0}),
        length=64,
    )


def _network(name: str, graph: str, **sizes: int) -> Case:
    constants = """go = Constant<value = bool {1}>()  far = Constant<value_ints = [100]>()
        zero1 = Constant<value_ints = [0]>()  one1 = Constant<value_ints = [1]>()
        zero = Constant<value = int64 {0}>()  one = Constant<value = int64 {1}>()
        axis = Constant<value_ints = [0]>()  half = Constant<value = float {0.5}>()
        tenth = Constant<value = float {0.1}>()  none = ConstantOfShape(zero1)"""
    inputs = {
        "n": In((), "int64", values=["n"]),
        "k": In((), "int64", values=["k"]),
        "links": In(("N", "N"), low=0, high=2, dtype="int64"),
    }
    return text(
        f"measured-{name}",
        graph.replace("CONSTANTS", constants),
        (sizes,),
        inputs=inputs,
        length=64,
    )


NETWORKS = [
    _network(
        "last-rows-by-data",
        """agraph (int64 n, float[L, 4] x) => (float[K, 4] y, float[T] r) { CONSTANTS
            y, r = Loop<body = b (int64 i, bool c, float[M, 4] s) =>
                (bool co, float[N, 4] so, float q) {
                    co = Identity(c)  g = Greater(s, tenth)  gi = Cast<to = 7>(g)
                    count = ReduceSum<keepdims = 0>(gi)  more = Add(count, one)  kept = Neg(more)
                    start = Unsqueeze(kept, axis)  back = Constant<value_ints = [-1]>()
                    last = Slice(s, back, far, axis)  e = Sin(last)  u = Concat<axis = 0>(s, e)
                    so = Slice(u, start, far, axis)  q = ReduceSum<keepdims = 0>(so)
            }>(n, go, x)
        }""",
        n=6,
        L=3,
    ),
    _network(
        "beams-that-end",
        """agraph (int64 n, float[6, 3] x) => (float[K, 3] y, float[T] r) { CONSTANTS
            y, r = Loop<body = b (int64 i, bool c, float[M, 3] s) =>
                (bool co, float[N, 3] so, float q) {
                    co = Identity(c)  a = ReduceSum<keepdims = 0>(s, one1)  g = Greater(a, tenth)
                    kept = Compress<axis = 0>(s, g)  q = ReduceSum<keepdims = 0>(kept)
                    t = Sin(kept)  so = Concat<axis = 0>(t, kept)
            }>(n, go, x)
        }""",
        n=4,
    ),
    _network(
        "raised-by-a-branch",
        """agraph (float[2] x, int64 k) => (float[K] y, int64 cc) { CONSTANTS
            a, y, cc = Loop<body = b (int64 i, bool c, float[2] a, float[M] s, int64 counter) =>
                (bool co, float[2] ao, float[N] so, int64 raised) {
                    ah = Add(a, half)  ao = Sin(ah)  q = ReduceSum<keepdims = 0>(ao)
                    g = Greater(q, tenth)
                    raised = If(g)<then_branch = yes () => (int64 u) { u = Add(counter, one) },
                        else_branch = no () => (int64 v) { v = Identity(counter) }>
                    q1 = Unsqueeze(q, axis)  so = Concat<axis = 0>(s, q1)  co = Less(raised, k)
            }>("", go, x, none, zero)
        }""",
        k=4,
    ),
    _network(
        "without-trip-counts",
        """agraph (float[2] x, int64 k) => (float[K] y, int64 cc) { CONSTANTS
            a, y, cc = Loop<body = b (int64 i, bool c, float[2] a, float[M] s, int64 counter) =>
                (bool co, float[2] ao, float[N] so, int64 raised) {
                    ah = Add(a, half)  ao = Sin(ah)  raised = Add(counter, one)
                    so, unused = Loop<body = b2 (int64 j, bool c2, float[M2] s2, float[2] a2) =>
                        (bool co2, float[N2] so2, float[2] ao2) {
                            a3 = Add(a2, half)  ao2 = Sin(a3)  q = ReduceSum<keepdims = 0>(ao2)
                            q1 = Unsqueeze(q, axis)  so2 = Concat<axis = 0>(s2, q1)
                            co2 = Less(j, counter)
                    }>("", go, s, ao)
                    co = Less(raised, k)
            }>("", go, x, none, zero)
        }""",
        k=4,
    ),
    _network(
        "collected-by-data",
        """agraph (int64 n, float[9] x) => (float[2] y, float[T, U] r) { CONSTANTS
            pair = Constant<value_ints = [2]>()  x2 = Slice(x, zero1, pair, axis)
            y, r = Loop<body = b (int64 i, bool c, float[2] s) =>
                (bool co, float[2] so, float[V] q) {
                    co = Identity(c)  g = Greater(x, tenth)  chosen = Compress<axis = 0>(x, g)
                    sum = ReduceSum<keepdims = 0>(s)  q = Mul(chosen, sum)  so = Sin(s)
            }>(n, go, x2)
        }""",
        n=3,
    ),
    _network(
        "mask-along-two-axes",
        """agraph (int64 n, float[L, L] mask, float[L, 3] x) => (float[K, K2] m, float[K, 3] y) {
            CONSTANTS
            m, y = Loop<body = b (int64 i, bool c, float[M, M2] s, float[R, 3] rows) =>
                (bool co, float[N, N2] so, float[R2, 3] ro) {
                    co = Identity(c)  t = Transpose(rows)  l0 = MatMul(rows, t)  l = Add(l0, s)
                    w = Softmax<axis = 1>(l)  a = MatMul(w, rows)
                    back = Constant<value_ints = [-1]>()  last = Gather<axis = 0>(a, back)
                    ro = Concat<axis = 0>(rows, last)  ends = Constant<value_ints = [0, 0, 1, 1]>()
                    so = Pad(s, ends)
            }>(n, go, mask, x)
        }""",
        n=5,
        L=2,
    ),
    _network(
        "queue-of-a-search",
        """agraph (int64[N, N] links) => (int64[K] order) { CONSTANTS
            size = Shape<end = 1>(links)  unseen = ConstantOfShape<value = int64[1] {0}>(size)
            seen = ScatterElements<axis = 0>(unseen, zero1, one1)
            nobody = Slice(zero1, zero1, zero1, axis)
            order, v, q = Loop<body = b (int64 i, bool c, int64[A] o, int64[V] v, int64[Q] q) =>
                (bool co, int64[A2] oo, int64[V] vo, int64[Q2] qo) {
                    now = Gather<axis = 0>(q, zero1)  rest = Slice(q, one1, far, axis)
                    oo = Concat<axis = 0>(o, now)  row = Gather<axis = 0>(links, now)
                    flat = Squeeze(row, axis)  linked = Greater(flat, zero)
                    new = Equal(v, zero)  both = And(linked, new)  z = NonZero(both)
                    found = Squeeze(z, axis)  count = Shape(found)  ones = Expand(one, count)
                    vo = ScatterElements<axis = 0>(v, found, ones)
                    qo = Concat<axis = 0>(rest, found)  left = Size(qo)  co = Greater(left, zero)
            }>("", go, nobody, seen, zero1)
        }""",
        N=7,
    ),
]

CASES = [
    replace(case, at_once=True)
    for case in (*(_loop(name, body) for name, body in BODIES.items()), *NETWORKS)
]
