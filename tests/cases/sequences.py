"""Cases of sequences and optionals; those that models take or return are in tests/ops."""

from __future__ import annotations

from tests.cases.case import Case, In, text

SIZES = ({"N": 3, "T": 5}, {"N": 1, "T": 1}, {"N": 4, "T": 0}, {"N": 0, "T": 2})
POSITIONS = tuple({"i": i} for i in (0, 2, -1, -3))


def editing() -> list[Case]:
    return [
        text(
            "Sequence-edit",
            """
            g (float[2, 3] a, float[1, 3] b, float[4, 3] c) => (float[M, 3] y, int64 n)
               <int64 first = {0}, int64 last = {-1}, int64[1] one = {1}> {
                empty = SequenceEmpty ()
                s0 = SequenceInsert (empty, a)
                s1 = SequenceInsert (s0, b, first)
                s2 = SequenceInsert (s1, c, last)
                s3 = SequenceInsert (s2, a, one)
                s4 = SequenceErase (s3, first)
                s5 = SequenceErase (s4)
                y = ConcatFromSequence <axis = 0> (s5)
                n = SequenceLength (s4)
            }
            """,
        ),
        text(
            "Sequence-types",
            """
            g (float16[2] a, bool[3] b, double[2] c, int64[2] d) => (
                float16[2, 2] h, bool[3] p, double[4] q, int64[2, 1] r) <int64 at = {-1}> {
                s = SequenceConstruct (a, a)
                h = ConcatFromSequence <axis = -1, new_axis = 1> (s)
                e = SequenceEmpty <dtype = 9> ()
                f = SequenceInsert (e, b)
                p = SequenceAt (f, at)
                t = SequenceConstruct (c, c)
                q = ConcatFromSequence <axis = 0> (t)
                u = SequenceConstruct (d)
                r = ConcatFromSequence <axis = 1, new_axis = 1> (u)
            }
            """,
        ),
        text(
            "Sequence-runtime-sizes",
            """
            g (float[N, T] a, float[2, T] b) => (float[M, T] y, float[N, T, 2] z, float[N, T] w)
               <int64 at = {2}> {
                s = SequenceConstruct (a, b, a)
                y = ConcatFromSequence <axis = 0> (s)
                t = SequenceConstruct (a, a)
                z = ConcatFromSequence <axis = 2, new_axis = 1> (t)
                w = SequenceAt (s, at)
            }
            """,
            sizes=SIZES,
        ),
        text(
            "Sequence-at-run-time",
            """
            g (float[N, 2] a, float[N, 2] b, int64 i) => (float[N, 2] y) {
                s = SequenceConstruct (a, b, a)
                y = SequenceAt (s, i)
            }
            """,
            sizes=tuple({"N": n, **p} for n in (3, 1) for p in POSITIONS),
            inputs={"i": In((), "int64", values=["i"])},
        ),
        text(
            "Sequence-map",
            """
            g (float[2] a, float[1] b, float[3] c) => (float[6] y, int64 last, float[6] z)
               <int64 two = {2}> {
                s = SequenceConstruct (a, b, c)
                t, l = SequenceMap (s, b) <body = step (float[N] x, float[1] k) => (
                    float[N] u, int64[1] n) {
                    twice = Add (x, k)
                    u = Mul (twice, k)
                    n = Shape (x)
                }>
                y = ConcatFromSequence <axis = 0> (t)
                m = SequenceAt (l, two)
                last = Squeeze (m)
                z = ConcatFromSequence <axis = 0> (s)
            }
            """,
        ),
    ]


def splitting() -> list[Case]:
    return [
        text(
            "Sequence-split",
            """
            g (float[7, 2] x, float[N, 3] w) => (float[7, 2] a, float[2, 7] b, int64 n, int64 m,
               float[3, N] c) <int64 three = {3}, int64[3] sizes = {4, 0, 3}, int64 one = {1}> {
                s = SplitToSequence (x, three)
                a = ConcatFromSequence <axis = 0> (s)
                t = SplitToSequence <axis = -1, keepdims = 0> (x)
                b = ConcatFromSequence <axis = 0, new_axis = 1> (t)
                u = SplitToSequence <keepdims = 0> (x, sizes)
                n = SequenceLength (u)
                e = SequenceAt (u, one)
                m = Size (e)
                v = SplitToSequence <axis = 1, keepdims = 0> (w)
                c = ConcatFromSequence <axis = 0, new_axis = 1> (v)
            }
            """,
            sizes=({"N": 3}, {"N": 1}, {"N": 0}),
        ),
        text(
            "Sequence-split-runtime",
            """
            g (float[N, 2] x, int64[2] sizes) => (float[A, 2] a, float[B, 2] b)
               <int64 zero = {0}, int64 one = {1}> {
                s = SplitToSequence (x, sizes)
                a = SequenceAt (s, zero)
                b = SequenceAt (s, one)
            }
            """,
            sizes=tuple({"N": a + b, "a": a, "b": b} for a, b in ((2, 3), (0, 4), (0, 0))),
            inputs={"sizes": In((2,), "int64", values=["a", "b"])},
        ),
    ]


def branches() -> list[Case]:
    return [
        text(
            "Sequence-if",
            """
            g (bool c, float[N] a, float[2] b) => (float[N] y, float[2] z, int64 n)
               <int64 zero = {0}, int64 one = {1}> {
                s, o = If (c) <
                    then_branch = t () => (seq(float[K]) p, float[N] v) {
                        d = Neg (a)
                        p = SequenceConstruct (a, b)
                        v = Optional (d)
                    },
                    else_branch = f () => (seq(float[K]) p, float[N] v) {
                        n = Neg (a)  m = Neg (b)
                        p = SequenceConstruct (n, m)
                        v = Optional (a)
                    }>
                y1 = SequenceAt (s, zero)
                has = OptionalHasElement (o)
                y2 = OptionalGetElement (o)
                y3 = Cast <to = 1> (has)
                y4 = Add (y1, y2)
                y = Mul (y4, y3)
                z = SequenceAt (s, one)
                n = SequenceLength (s)
            }
            """,
            sizes=tuple({"N": n, "c": c} for n in (3, 1) for c in (0, 1)),
            inputs={"c": In((), "bool", values=["c"])},
            witness=False,  # onnxruntime gives no optional to a branch of another type
        ),
        text(
            "Optional-empty",
            """
            g (float[N] a) => (bool has, float[N] y) {
                none = Optional <type : type_proto = float[N]> ()
                some = Optional (a)
                copy = Identity (some)
                y = OptionalGetElement (copy)
                has = OptionalHasElement (none)
            }
            """,
            sizes=({"N": 3}, {"N": 0}),
        ),
    ]


def loops() -> list[Case]:
    swap = """
        s = SequenceConstruct (x, y0)
        t = Loop ({trips}, {go}, s) <body = step (int64 i, bool c, seq(float[N, 2]) p) => (
            bool k, seq(float[N, 2]) q) {{
            a = SequenceAt (p, zero)
            b = SequenceAt (p, one)
            d = Add (a, b)
            q = SequenceConstruct (b, d)
            k = Identity (c)
        }}>
        y = ConcatFromSequence <axis = 0> (t)
    """
    head = "<int64 zero = {0}, int64 one = {1}, int64 five = {5}, bool yes = {1}>"
    sizes = tuple({"N": n, "k": k} for n in (3, 0) for k in (0, 1, 4))
    return [
        text(
            "Sequence-state-of-a-loop",
            f"g (float[N, 2] x, float[N, 2] y0) => (float[M, 2] y) {head} {{"
            + swap.format(trips="five", go="yes")
            + "}",
            sizes=({"N": 3}, {"N": 1}, {"N": 0}),
        ),
        text(
            "Sequence-state-run-time-steps",
            f"g (float[N, 2] x, float[N, 2] y0, int64 steps) => (float[M, 2] y) {head} {{"
            + swap.format(trips="steps", go="yes")
            + "}",
            sizes=sizes,
            inputs={"steps": In((), "int64", values=["k"])},
        ),
        text(
            "Sequence-grows-in-a-loop",
            """
            g (float[7, 2] x) => (float[15, 2] y, float[5, 2] sums, int64 n)
               <int64 zero = {0}, int64 one = {1}, int64 five = {5}, bool yes = {1},
                int64[1] start = {0}, int64[1] axis = {0}> {
                e = SequenceEmpty ()
                t, sums = Loop (five, yes, e) <body = step (
                    int64 i, bool c, seq(float[K, 2]) p
                ) => (bool k, seq(float[K, 2]) q, float[2] sum) {
                    next = Add (i, one)
                    end = Unsqueeze (next, axis)
                    rows = Slice (x, start, end)
                    q = SequenceInsert (p, rows)
                    sum = ReduceSum <keepdims = 0> (rows, axis)
                    k = Identity (c)
                }>
                y = ConcatFromSequence <axis = 0> (t)
                n = SequenceLength (t)
            }
            """,
            length=5,
        ),
        text(
            "Loop-growing-state",
            """
            g (float[1, 2] x) => (float[M, 2] y) <int64 three = {3}, bool yes = {1}> {
                y = Loop (three, yes, x) <body = step (int64 i, bool c, float[R, 2] p) => (
                    bool k, float[Q, 2] q) {
                    q = Concat <axis = 0> (p, p)
                    k = Identity (c)
                }>
            }
            """,
        ),
        text(
            "Loop-ended-by-its-number",
            """
            g (float[3] x) => (float[3] y, float[M, 3] rows)
               <bool yes = {1}, int64 two = {2}, int64 most = {9}> {
                y, rows = Loop (most, yes, x) <body = step (int64 i, bool c, float[3] p) => (
                    bool k, float[3] q, float[3] r) {
                    q = Add (p, p)
                    r = Identity (p)
                    k = Less (i, two)
                }>
            }
            """,
        ),
    ]


CASES = [*editing(), *splitting(), *branches(), *loops()]
