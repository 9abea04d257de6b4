"""Cases of whole graphs: scans, cells written out, stacked layers, and odd ways to use values."""

from __future__ import annotations

import itertools

import numpy as np

from tests.cases.case import BATCHES, Case, In, Sizes, ints, node, text, weights

SEQUENCES: tuple[Sizes, ...] = ({"S": 4}, {"S": 1}, {"S": 0}, {"S": 23})


def scans() -> list[Case]:
    cases = []
    for axis, back, out_axis, out_back in itertools.product((0, 1, -1), (0, 1), (0, 1), (0, 1)):
        shape = "S, 5" if axis == 0 else "5, S"
        out = "S, 5" if out_axis == 0 else "5, S"
        cases.append(
            text(
                f"scan-axis{axis}-{back}-out{out_axis}-{out_back}",
                f"""agraph (float[5] s, float[{shape}] x) => (float[5] last, float[{out}] y) {{
                    last, y = Scan<num_scan_inputs = 1, scan_input_axes = [{axis}],
                        scan_input_directions = [{back}], scan_output_axes = [{out_axis}],
                        scan_output_directions = [{out_back}],
                        body = step (float[5] h, float[5] v) => (float[5] next, float[5] o) {{
                            t = Tanh(h)  next = Add(t, v)  o = Mul(next, h)
                        }}>(s, x)
                }}""",
                SEQUENCES,
                length=8,
            )
        )
    cases += [
        text(
            "scan-two-states-swapped",
            """agraph (float[3] a, float[3] b, float[S, 3] x)
                => (float[3] p, float[3] q, float[S, 3] y) {
                p, q, y = Scan<num_scan_inputs = 1, body = step (float[3] u, float[3] v, float[3] e)
                    => (float[3] v2, float[3] u2, float[3] o) {
                        v2 = Identity(v)  u2 = Identity(u)  o = Add(u, e)
                    }>(a, b, x)
            }""",
            SEQUENCES,
        ),
        text(
            "scan-state-unchanged",
            """agraph (float[3] a, float[S, 3] x) => (float[3] p, float[S, 3] y) {
                p, y = Scan<num_scan_inputs = 1, body = step (float[3] u, float[3] e)
                    => (float[3] u2, float[3] o) { u2 = Identity(u)  o = Mul(u, e) }>(a, x)
            }""",
            SEQUENCES,
        ),
        text(
            "scan-element-is-the-state",
            """agraph (float[3] a, float[S, 3] x) => (float[3] p, float[S, 3] y) {
                p, y = Scan<num_scan_inputs = 1, body = step (float[3] u, float[3] e)
                    => (float[3] u2, float[3] o) { u2 = Identity(e)  o = Identity(u) }>(a, x)
            }""",
            SEQUENCES,
        ),
        text(
            "scan-without-states",
            """agraph (float[S, 3] x, float[S] w) => (float[S, 3] y, float[S] z) {
                y, z = Scan<num_scan_inputs = 2, body = step (float[3] e, float f)
                    => (float[3] o, float r) {
                        o = Mul(e, f)  r = ReduceSum<keepdims = 0>(o)
                    }>(x, w)
            }""",
            SEQUENCES,
            length=4,
        ),
        text(
            "scan-captures-and-shared-weights",
            """agraph (float[N, 6] h0, float[S, N, 4] x, float[6] bias)
                => (float[N, 6] h, float[S, N, 6] y) {
                c = Exp(bias)
                h, y = Scan<num_scan_inputs = 1, body = step (float[N, 6] s, float[N, 4] e)
                    => (float[N, 6] s2, float[N, 6] o) {
                        p = MatMul(e, w)  q = MatMul(s, r)  a = Add(p, q)  b = Add(a, c)
                        s2 = Tanh(b)  o = Sub(s2, c)
                    }>(h0, x)
            }""",
            tuple({**s, "N": n} for s, n in itertools.product(SEQUENCES, (2, 1, 0, 17))),
            constants={"w": weights(4, 6), "r": 0.3 * weights(6, 6)},
            batch=True,
            states={"h0": "h"},
            length=40,
        ),
        text(
            "image-of-any-size",
            """agraph (float[N, 4, H, W] x) => (float[N, 8, R, C] y) {
                a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, first)  b = Relu(a)
                c = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(b)
                d = Conv<pads = [1, 1, 1, 1]>(c, square)  e = Relu(d)
                f = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(e)
                g = Conv<pads = [1, 1, 1, 1]>(f, square)
                h = ConvTranspose<strides = [2, 2]>(g, larger)  both = Concat<axis = 1>(h, e)
                y = Conv<pads = [1, 1, 1, 1]>(both, last)
            }""",
            tuple({"N": n, "H": h, "W": w} for n, h, w in ((1, 16, 8), (2, 9, 15), (1, 32, 31))),
            constants={
                "first": 0.2 * weights(48, 4, 3, 3),
                "square": 0.1 * weights(48, 48, 3, 3),
                "larger": 0.2 * weights(48, 48, 2, 2),
                "last": 0.1 * weights(8, 96, 3, 3),
            },
            batch=True,
            length=900,
        ),
        text(
            "scan-of-images",
            """agraph (float[N, 16, 5, 4] h0, float[S, N, 2, 5, 4] x)
                => (float[N, 16, 5, 4] h, float[S, N, 16, 5, 4] y) {
                h, y = Scan<num_scan_inputs = 1,
                    body = step (float[N, 16, 5, 4] s, float[N, 2, 5, 4] e)
                        => (float[N, 16, 5, 4] s2, float[N, 16, 5, 4] o) {
                        both = Concat<axis = 1>(e, s)
                        g = Conv<pads = [1, 1, 1, 1]>(both, gates)
                        rz = Sigmoid(g)  r, z = Split<axis = 1, num_outputs = 2>(rz)
                        kept = Mul(r, s)  again = Concat<axis = 1>(e, kept)
                        c = Conv<pads = [1, 1, 1, 1]>(again, candidate)  n = Tanh(c)
                        d = Sub(s, n)  m = Mul(z, d)  s2 = Add(n, m)  o = Identity(s2)
                    }>(h0, x)
            }""",
            tuple({"S": s, "N": n} for s, n in ((3, 1), (2, 3), (0, 2), (1, 1))),
            constants={
                "gates": 0.2 * weights(32, 18, 3, 3),
                "candidate": 0.2 * weights(16, 18, 3, 3),
            },
            batch=True,
            states={"h0": "h"},
            length=320,
        ),
        text(
            "scan-in-scan",
            """agraph (float[2] s, float[S, T, 2] x) => (float[2] last, float[S, T, 2] y) {
                last, y = Scan<num_scan_inputs = 1, body = rows (float[2] u, float[T, 2] e)
                    => (float[2] u2, float[T, 2] o) {
                        u2, o = Scan<num_scan_inputs = 1, scan_input_directions = [1],
                            body = cell (float[2] g, float[2] f) => (float[2] g2, float[2] k) {
                                m = Mul(g, f)  g2 = Sin(m)  k = Add(g2, u)
                            }>(u, e)
                    }>(s, x)
            }""",
            ({"S": 3, "T": 4}, {"S": 0, "T": 2}, {"S": 2, "T": 0}, {"S": 1, "T": 1}),
            length=8,
        ),
        text(
            "scan-counts",
            """agraph (int64 n, int64[S] x) => (int64 last, int64[S] y) {
                last, y = Scan<num_scan_inputs = 1, body = step (int64 c, int64 e)
                    => (int64 c2, int64 o) { c2 = Add(c, e)  o = Mul(c, e) }>(n, x)
            }""",
            SEQUENCES,
            inputs={"x": In(("S",), "int64", low=-9, high=9), "n": In((), "int64", high=5)},
        ),
    ]
    return cases


def loops() -> list[Case]:
    collatz = """body (int64 i, bool go, int64 n, int64 count) => (bool on, int64 n2, int64 c2) {
        half = Div(n, two)  triple = Mul(n, three)  odd = Add(triple, one)
        rest = Mod(n, two)  even = Equal(rest, zero)  n2 = Where(even, half, odd)
        c2 = Add(count, one)  done = Equal(n2, one)  on = Not(done)
    }"""
    numbers = {name: np.array(i) for i, name in enumerate(("zero", "one", "two", "three"))}
    fixed = """body (int64 i, bool go, float[4] s) => (bool on, float[4] s2, float[4] y) {
        on = Identity(go)  f = Cast<to = 1>(i)  a = Add(s, f)  s2 = Sin(a)  y = Mul(s2, x)
    }"""
    return [
        text(
            "while",
            f"""agraph (int64 n, bool go) => (int64 last, int64 steps) {{
                last, steps = Loop<body = {collatz}>( , go, n, zero)
            }}""",
            constants=numbers,
            inputs={"n": In((), "int64", values=[27]), "go": In((), "bool", values=[True])},
        ),
        text(
            "never",
            f"""agraph (int64 n, bool go) => (int64 last, int64 steps) {{
                last, steps = Loop<body = {collatz}>( , go, n, zero)
            }}""",
            constants=numbers,
            inputs={"n": In((), "int64", values=[27]), "go": In((), "bool", values=[False])},
        ),
        text(
            "conditions-of-two-ranks",
            """agraph (float[1, 1] a, float[T] b, float[1] c, int64 n) => (int64 count) {
                yes = Constant<value = bool {1}>()  none = Constant<value = int64 {0}>()
                off = Constant<value = bool {0}>()  one = Constant<value = int64 {1}>()
                zero = Constant<value = float {0.0}>()
                count = Loop<body = body (int64 i, bool go, int64 k) => (bool on, int64 k2) {
                    on = Identity(go)  x = Gather(b, i)  p = Greater(x, c)
                    both = If(p) <
                        then_branch = t () => (bool[A] r) {
                            q = Less(x, a)
                            r = If(q) <
                                then_branch = tt () => (bool[1] u) { u = Greater(c, zero) },
                                else_branch = te () => (bool v) { v = Identity(off) }>
                        },
                        else_branch = e () => (bool[1, 1] w) { w = Greater(x, a) }>
                    kept = Cast<to = 9>(both)
                    k2 = If(kept) <
                        then_branch = yt () => (int64 m) { m = Add(k, one) },
                        else_branch = ye () => (int64 o) { o = Identity(k) }>
                }>(n, yes, none)
            }""",
            inputs={
                "a": In((1, 1), values=[0.5]),
                "b": In(("T",), values=[-1.0, 0.2, 0.4, 0.9, 0.05, 0.3]),
                "c": In((1,), values=[0.1]),
                "n": In((), "int64", values=["T"]),
            },
            sizes=({"T": 6}, {"T": 9}),
            ulps=0,
        ),
        # `while i < 50 and bool(r > limit)` in TorchScript: the flag is a vector in one branch.
        text(
            "goes-on-by-two-ranks",
            """agraph (float[1] a, float[1] limit) => (float[1] last, int64 steps) {
                yes = Constant<value = bool {1}>()  none = Constant<value = int64 {0}>()
                one = Constant<value = int64 {1}>()  most = Constant<value = int64 {50}>()
                off = Constant<value = bool {0}>()  half = Constant<value = float {0.5}>()
                last, steps = Loop<body = body (int64 i, bool go, float[1] r, int64 k)
                    => (bool[A] on, float[1] r2, int64 k2) {
                    r2 = Mul(r, half)  k2 = Add(k, one)  more = Less(k2, most)
                    on = If(more) <
                        then_branch = t () => (bool[1] u) { u = Greater(r2, limit) },
                        else_branch = e () => (bool v) { v = Identity(off) }>
                }>( , yes, a, none)
            }""",
            inputs={"a": In((1,), values=[8.0]), "limit": In((1,), values=[0.3])},
            ulps=0,
        ),
        # `while node != end: node = next[node, end]` in TorchScript: a scalar becomes a vector.
        text(
            "walks-by-an-element-of-two-ranks",
            """agraph (int64[S, S] next, int64 begin, int64 end) => (int64[P] path) {
                flat = Constant<value_ints = [-1]>()  one = Constant<value_ints = [1]>()
                there = Equal(begin, end)  go = Not(there)  first = Reshape(begin, one)
                path, last = Loop<body = body (int64 i, bool c, int64[A] p, int64 node)
                    => (bool on, int64[B] p2, int64[1] node2) {
                    width = Shape<start = 1>(next)  start = Mul(node, width)
                    place = Add(start, end)  steps = Reshape(next, flat)
                    node2 = Gather(steps, place)
                    p2 = Concat<axis = 0>(p, node2)  arrived = Equal(node2, end)  on = Not(arrived)
                }>( , go, first, begin)
            }""",
            inputs={
                "next": In((3, 3), "int64", values=[0, 1, 1, 0, 1, 2, 0, 1, 2]),
                "begin": In((), "int64", values=[0]),
                "end": In((), "int64", values=[2]),
            },
            ulps=0,
        ),
        # What paddle2onnx makes of a decoder: results begin as scalars, flags become vectors.
        text(
            "results-that-steps-set",
            """agraph (float[2, T] x, float limit) => (float[2, T] y, float[2, S] r, bool[W] end) {
                yes = Constant<value = bool {1}>()  most = Constant<value = int64 {9}>()
                off = Constant<value = bool {0}>()  nothing = Constant<value = float {0.0}>()
                none = Constant<value_ints = [0]>()
                y, r, end = Loop<body = body (int64 i, bool go, float[2, A] h, float p, bool stop)
                    => (bool on, float[2, B] h2, float[2, C] p2, bool[1] stop2) {
                    h2 = Sin(h)  p2 = Exp(h2)
                    total = ReduceMax<keepdims = 0>(h2)  is_small = Less(total, limit)
                    ends = If(is_small) <
                        then_branch = t () => (bool u) { u = Constant<value = bool {1}>() },
                        else_branch = e () => (bool[1] v) {
                            as_number = Cast<to = 7>(stop)  same = Add(as_number, none)
                            v = Cast<to = 9>(same)
                        }>
                    number = Cast<to = 7>(ends)  joined = Add(number, none)
                    stop2 = Cast<to = 9>(joined)  goes = Not(ends)  both = And(go, goes)
                    last = Cast<to = 7>(both)  vector = Add(last, none)  on = Cast<to = 9>(vector)
                }>(most, yes, x, nothing, off)
            }""",
            inputs={
                "x": In((2, "T"), values=[0.3, 1.5, -0.2, 0.7]),
                "limit": In((), values=[0.6]),
            },
            sizes=({"T": 3}, {"T": 1}, {"T": 9}),
            length=9,
        ),
        text(
            "one-row-at-a-size",
            """agraph (float[T, 4] x, int64 n) => (float[1, 4] y, float[S, 1, 4] all) {
                yes = Constant<value = bool {1}>()  one = Constant<value_ints = [1]>()
                sizes = Shape<start = 0, end = 1>(x)  last = Sub(sizes, one)
                h = Slice(x, last, sizes)  first = Sub(h, h)
                y, all = Loop<body = body (int64 i, bool go, float[A, 4] s) =>
                    (bool on, float[1, 4] s2, float[1, 4] r) {
                    on = Identity(go)  u = Gather(x, i)  v = Mul(u, s)  w = Add(v, h)
                    s2 = Tanh(w)  r = Identity(w)
                }>(n, yes, first)
            }""",
            inputs={"x": In(("T", 4)), "n": In((), "int64", values=["T"])},
            sizes=({"T": 5}, {"T": 1}, {"T": 2}),
        ),
        text(
            "while-at-most",
            f"""agraph (int64 n, bool go, int64 most) => (int64 last, int64 steps) {{
                last, steps = Loop<body = {collatz}>(most, go, n, zero)
            }}""",
            constants=numbers,
            inputs={
                "n": In((), "int64", values=[27]),
                "go": In((), "bool", values=[True]),
                "most": In((), "int64", values=[9]),
            },
        ),
        *(
            text(
                f"counted-{count}",
                f"""agraph (float[4] s, float[4] x) => (float[4] last, float[{count}, 4] y) {{
                    last, y = Loop<body = {fixed}>(count, , s)
                }}""",
                constants={"count": np.array(count)},
                length=8,
            )
            for count in (1, 3)
        ),
        text(
            "counted-by-a-size",
            f"""agraph (float[4] s, float[4] x, float[S, 2] z) => (float[4] last, float[S, 4] y) {{
                shape = Shape<start = 0, end = 1>(z)  count = Squeeze(shape)
                last, y = Loop<body = {fixed}>(count, , s)
            }}""",
            ({"S": 4}, {"S": 1}, {"S": 11}),
            # What the sine is taken of is as large as the number of the step.
            length=512,
        ),
        text(
            "slices-by-number",
            """agraph (float[5] s, float[S, 5] x) => (float[5] last) {
                shape = Shape<start = 0, end = 1>(x)  count = Squeeze(shape)
                last = Loop<body = body (int64 i, bool go, float[5] h) => (bool on, float[5] h2) {
                    on = Identity(go)  e = Gather(x, i)  t = Tanh(h)  h2 = Add(t, e)
                }>(count, , s)
            }""",
            ({"S": 4}, {"S": 1}, {"S": 0}, {"S": 11}),
            length=16,
        ),
    ]


CELL = """
    gates = MatMul(joined, w)  biased = Add(gates, b)
    i0, g0, f0, o0 = Split<axis = 1, num_outputs = 4>(biased)
    i = Sigmoid(i0)  g = Tanh(g0)  f1 = Add(f0, one)  f = Sigmoid(f1)  o = Sigmoid(o0)
    keep = Mul(c, f)  new = Mul(i, g)  c2 = Add(keep, new)  t = Tanh(c2)  h2 = Mul(t, o)
"""


def cells() -> list[Case]:
    constants = {"w": 0.4 * weights(15, 40), "b": weights(40), "one": np.float32(1)}
    sizes = tuple({"S": s, "N": n} for s, n in ((4, 2), (1, 1), (0, 2), (23, 3)))
    return [
        text(
            "written-out-cell",
            f"""agraph (float[N, 5] x, float[N, 10] h, float[N, 10] c)
                => (float[N, 10] h2, float[N, 10] c2) {{
                joined = Concat<axis = 1>(x, h) {CELL}
            }}""",
            BATCHES,
            constants=constants,
            batch=True,
            length=40,
        ),
        text(
            "written-out-cell-in-scan",
            f"""agraph (float[S, N, 5] x, float[N, 10] h0, float[N, 10] c0)
                => (float[N, 10] hn, float[N, 10] cn, float[S, N, 10] y) {{
                hn, cn, y = Scan<num_scan_inputs = 1,
                    body = step (float[N, 10] h, float[N, 10] c, float[N, 5] e)
                    => (float[N, 10] h2, float[N, 10] c2, float[N, 10] out) {{
                        joined = Concat<axis = 1>(e, h) {CELL} out = Identity(h2)
                    }}>(h0, c0, x)
            }}""",
            sizes,
            constants=constants,
            batch=True,
            states={"h0": "hn", "c0": "cn"},
            length=200,
        ),
        text(
            "frame-by-frame-lstm",
            """agraph (float[1, 1, 8] x, float[1, 1, 6] h, float[1, 1, 6] c)
                => (float[1, 1, 4] y, float[1, 1, 6] h2, float[1, 1, 6] c2) {
                seq, h2, c2 = LSTM<hidden_size = 6>(x, w, r, b, , h, c)
                flat = Squeeze(seq, one)  p = MatMul(flat, v)  y = Sigmoid(p)
            }""",
            constants={
                "w": weights(1, 24, 8),
                "r": weights(1, 24, 6),
                "b": weights(1, 48),
                "v": weights(6, 4),
                "one": ints(1),
            },
            length=100,
            witness=True,
        ),
        text(
            "stacked-layers",
            """agraph (float[S, N, 5] x, float[1, N, 8] h0, float[1, N, 8] g0)
                => (float[S, N, 3] y, float[1, N, 8] hn, float[1, N, 8] gn) {
                a, hn = GRU<hidden_size = 8, linear_before_reset = 1>(x, w1, r1, b1, , h0)
                b = Squeeze(a, axis)
                c, gn = GRU<hidden_size = 8>(b, w2, r2, , , g0)
                d = Squeeze(c, axis)  e = MatMul(d, v)  y = Tanh(e)
            }""",
            sizes,
            constants={
                "w1": 0.4 * weights(1, 24, 5),
                "r1": 0.4 * weights(1, 24, 8),
                "b1": weights(1, 48),
                "w2": 0.4 * weights(1, 24, 8),
                "r2": 0.4 * weights(1, 24, 8, seed=1),
                "v": weights(8, 3),
                "axis": ints(1),
            },
            batch=True,
            states={"h0": "hn", "g0": "gn"},
            length=200,
        ),
    ]


def odd_uses() -> list[Case]:
    return [
        text(
            "constant-output",
            "agraph (float[N] x) => (float[2] c, float[N] y) { c = Identity(k)  y = Neg(x) }",
            BATCHES,
            constants={"k": weights(2)},
        ),
        text(
            "only-constants",
            "agraph () => (float[40] c, int64[3] d) { c = Tanh(k)  d = Neg(i) }",
            constants={"k": weights(40), "i": ints(1, 2, 3)},
        ),
        text(
            "input-is-output",
            "agraph (float[N, 2] x) => (float[N, 2] y) { y = Identity(x) }",
            BATCHES,
        ),
        text(
            "view-of-input-is-output",
            "agraph (float[N, 2] x) => (float[2, N] y) { y = Transpose(x) }",
            BATCHES,
        ),
        text(
            "one-value-twice",
            """agraph (float[N] x) => (float[N] y, float[N] z, float[N] w) {
                y = Exp(x)  z = Identity(y)  w = Exp(x)
            }""",
            BATCHES,
            ulps=2,
        ),
        text(
            "output-is-read-again",
            "agraph (float[N] x) => (float[N] y, float[N] z) { y = Exp(x)  z = Neg(y) }",
            BATCHES,
            ulps=2,
            batch=True,
        ),
        text(
            "unused-input",
            "agraph (float[N] x, float[N, 3] a, int64[M] b) => (float[N] y) { y = Neg(x) }",
            tuple({**s, "M": 2} for s in BATCHES),
        ),
        text(
            "unused-results",
            """agraph (float[4, 6] x) => (float[4, 2] b) {
                a, b, c = Split<axis = 1, num_outputs = 3>(x)  d = Exp(c)
            }""",
        ),
        text(
            "fallback-in-the-middle",
            """agraph (float[N, 4] x) => (float[N, 4] y, float[N, 4] e) {
                e = Exp(x)  c = CumSum(e, one)  y = Log(c)
            }""",
            BATCHES,
            constants={"one": np.array(1, np.int64)},
            native=False,
            length=8,
        ),
        text(
            "fallback-between-views",
            """agraph (float[N, 4] x) => (float[2, N] y) {
                a, b = Split<axis = 1, num_outputs = 2>(x)  t = Transpose(b)
                c = CumSum<reverse = 1>(t, zero)  y = Mul(c, t)
            }""",
            BATCHES,
            constants={"zero": np.array(0, np.int64)},
            native=False,
            length=4,
        ),
        text(
            "run-time-condition",
            """agraph (bool go, float[3] x) => (float[3] y) {
                y = If<then_branch = yes () => (float[3] a) { a = Exp(x) },
                       else_branch = no () => (float[3] b) { b = Neg(x) }>(go)
            }""",
            native=False,
            ulps=4,
        ),
        node(
            "large",
            "Add",
            In(("N", 64)),
            weights(64),
            sizes=({"N": 1000}, {"N": 1}),
            ulps=0.5,
            batch=False,
        ),
    ]


CASES = [*scans(), *loops(), *cells(), *odd_uses()]
