"""The cases of Loop and If: models as ONNX text, each with its meaning in NumPy beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.attribute_cases import Case, text_case
from benchmarks.attribute_scans import BODY, S0, T0, X, recurrence

Results = list[Any]


def _loop(
    feature: str,
    inputs: str,
    body: str,
    results: Callable[..., Results],
    feeds: dict[str, Any] | None = None,
    outputs: str = "float[3] last",
    extra: str = "",
    **options: Any,
) -> Case:
    """A Loop over the inputs `inputs`; `body` is `(state inputs) => (outputs) { nodes }`.

    The graph has inputs s [3], x [4, 3] and `extra`, and constants four, zero, minus and yes.
    """
    names = ", ".join(text.split()[-1] for text in outputs.split("; "))
    text = f"""(float[3] s, float[4, 3] x{extra}) => ({outputs.replace(";", ",")})
        <int64 four = {{4}}, int64 zero = {{0}}, int64 minus = {{-2}}, bool yes = {{1}}> {{
        {names} = Loop<body = step {body}>({inputs}) }}"""
    return text_case(feature, text, {"s": S0, "x": X, **(feeds or {})}, results, **options)


HALVED = """half = Constant<value = float {0.5}>()  a = Mul(h, half)  v = Gather(x, i)
            b = Add(a, v)  h2 = Tanh(b)"""
COUNTED = f"(int64 i, bool c, float[3] h) => (bool c2, float[3] h2) {{ c2 = Identity(c) {HALVED} }}"
DOUBLED = """two = Constant<value = float {2.0}>()  limit = Constant<value = float {10.0}>()
             h2 = Mul(h, two)  m = Abs(h2)  top = ReduceMax<keepdims = 0>(m)
             c2 = Less(top, limit)"""
WHILE = f"(int64 i, bool c, float[3] h) => (bool c2, float[3] h2) {{ {DOUBLED} }}"
COLLECT = f"""(int64 i, bool c, float[3] h) => (bool c2, float[3] h2, float[3] y) {{
              c2 = Identity(c) {HALVED}  y = Neg(h2) }}"""


def doubled(s: np.ndarray, most: int = 1000) -> list[np.ndarray]:
    """The states of `WHILE`, which doubles until an element reaches 10, at most `most` times."""
    states = [s]
    while len(states) <= most:
        states.append(2 * states[-1])
        if np.abs(states[-1]).max() >= 10:
            break
    return states


STEPS = len(doubled(S0.astype(np.float32))) - 1


def _conditions_of_loops() -> list[Case]:
    def counted(s: Any, x: Any, n: int = 4) -> Results:
        return [recurrence(s, x[:n])[0]]

    def while_true(s: Any, x: Any) -> Results:
        return [doubled(s)[-1]]

    def unchanged(s: Any, x: Any, n: int = 0) -> Results:
        return [s]

    count = {"extra": ", int64 n"}
    return [
        _loop(
            "trip count", 'four, "", s', COUNTED.replace("Identity(c)", "Identity(yes)"), counted
        ),
        _loop("trip count and a true condition", "four, yes, s", COUNTED, counted),
        _loop("trip count known at run time", "n, yes, s", COUNTED, counted, {"n": 3}, **count),
        _loop("condition", '"", yes, s', WHILE, while_true),
        _loop(
            "trip count and condition, the count ends it",
            "n, yes, s",
            WHILE,
            lambda s, x, n: [doubled(s, n)[-1]],
            {"n": 2},
            **count,
        ),
        _loop(
            "trip count and condition, the condition ends it",
            "n, yes, s",
            WHILE,
            lambda s, x, n: [doubled(s, n)[-1]],
            {"n": 50},
            **count,
        ),
        _loop("neither, the condition of the body ends it", '"", "", s', WHILE, while_true),
        _loop(
            "trip count alone, the body turns the condition false",
            'four, "", s',
            COUNTED.replace("Identity(c)", "Less(i, minus)"),
            counted,
            other=lambda s, x: counted(s, x, 1),
            reading="the condition of the body ends the loop",
        ),
        _loop("trip count 0", "zero, yes, s", COUNTED, unchanged),
        _loop("trip count 0 known at run time", "n, yes, s", COUNTED, unchanged, {"n": 0}, **count),
        _loop("negative trip count", "minus, yes, s", COUNTED, unchanged),
        text_case(
            "condition false from the start",
            f"""(float[3] s, float[4, 3] x, float k) => (float[3] last)
                <int64 four = {{4}}, float zero = {{0.0}}> {{
                go = Greater(k, zero)
                last = Loop<body = step {COUNTED}>(four, go, s) }}""",
            {"s": S0, "x": X, "k": -1},
            lambda s, x, k: [s],
        ),
    ]


def _outputs_of_loops() -> list[Case]:
    last, vectors = "float[3] last", "float[4, 3] ys"
    grows = """(int64 i, bool c, float[K] g) => (bool c2, float[M] g2) {
        c2 = Identity(c)  g2 = Concat<axis = 0>(g, s) }"""
    collected = """(int64 i, bool c, seq(float[3]) q) => (bool c2, seq(float[3]) q2) {
        c2 = Identity(c)  v = Gather(x, i)  q2 = SequenceInsert(q, v) }"""
    return [
        _loop(
            "outputs of vectors",
            "four, yes, s",
            COLLECT,
            lambda s, x: [*recurrence(s, x)],
            outputs=f"{last}; {vectors}",
        ),
        text_case(
            "outputs of scalars and matrices",
            """(float[4, 3] x) => (float[4] a, float[4, 1, 3] b) <int64 n = {4}, bool yes = {1}> {
                a, b = Loop<body = step (int64 i, bool c) => (bool c2, float p, float[1, 3] q) {
                    c2 = Identity(c)  v = Gather(x, i)  p = ReduceSum<keepdims = 0>(v)
                    axis = Constant<value_ints = [0]>()  q = Unsqueeze(v, axis) }>(n, yes) }""",
            {"x": X},
            lambda x: [x.sum(1), x[:, None]],
        ),
        text_case(
            "outputs of a loop that a condition ends",
            f"""(float[3] s) => (float[3] last, float[{STEPS}, 3] ys) <bool yes = {{1}}> {{
                last, ys = Loop<body = step (int64 i, bool c, float[3] h)
                    => (bool c2, float[3] h2, float[3] y) {{ {DOUBLED}  y = Neg(h2) }}>("", yes, s)
            }}""",
            {"s": S0},
            lambda s: [doubled(s)[-1], -np.stack(doubled(s)[1:])],
        ),
        text_case(
            "outputs of no trips",
            f"""(float[3] s, float[4, 3] x, int64 n) => (float[3] last, float[0, 3] ys)
                <bool yes = {{1}}> {{ last, ys = Loop<body = step {COLLECT}>(n, yes, s) }}""",
            {"s": S0, "x": X, "n": 0},
            lambda s, x, n: [s, np.zeros((0, 3))],
        ),
        text_case(
            "values that grow",
            f"""(float[3] s) => (float[12] last) <int64 n = {{3}}, bool yes = {{1}}> {{
                last = Loop<body = step {grows}>(n, yes, s) }}""",
            {"s": S0},
            lambda s: [np.tile(s, 4)],
        ),
        text_case(
            "sequences",
            f"""(float[4, 3] x) => (float[12] all) <int64 n = {{4}}, bool yes = {{1}}> {{
                empty = SequenceEmpty<dtype = 1>()
                q = Loop<body = step {collected}>(n, yes, empty)
                all = ConcatFromSequence<axis = 0>(q) }}""",
            {"x": X},
            lambda x: [x.ravel()],
        ),
    ]


def _bodies_of_loops() -> list[Case]:
    def powers(s: Any, k: Any) -> Results:
        return [s * np.exp(3 * k), np.exp(k)]

    def nested(s: Any, x: Any) -> Results:
        for _ in range(2):
            s = recurrence(s, x)[0] + s
        return [s]

    return [
        text_case(
            "captured values",
            """(float[3] s, float[3] k) => (float[3] last, float[3] e)
                <int64 n = {3}, bool yes = {1}> {
                e = Exp(k)
                last = Loop<body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h2) {
                    c2 = Identity(c)  h2 = Mul(h, e) }>(n, yes, s) }""",
            {"s": S0, "k": T0},
            powers,
        ),
        text_case(
            "several states, the iteration number",
            """(float[3] s, float[3] t) => (float[3] p, float[3] q)
                <int64 n = {3}, bool yes = {1}> {
                p, q = Loop<body = step (int64 i, bool c, float[3] u, float[3] w)
                    => (bool c2, float[3] w2, float[3] u2) {
                        c2 = Identity(c)  f = Cast<to = 1>(i)  w2 = Add(w, f)  u2 = Identity(u)
                    }>(n, yes, s, t) }""",
            {"s": S0, "t": T0},
            lambda s, t: [t + 2, s + 1],
        ),
        text_case(
            "nested",
            f"""(float[3] s, float[4, 3] x) => (float[3] last)
                <int64 two = {{2}}, int64 four = {{4}}, bool yes = {{1}}> {{
                last = Loop<body = rows (int64 j, bool d, float[3] u) => (bool d2, float[3] u2) {{
                    d2 = Identity(d)  w = Loop<body = step {COUNTED}>(four, yes, u)
                    u2 = Add(w, u) }}>(two, yes, s) }}""",
            {"s": S0, "x": X},
            nested,
        ),
        text_case(
            "Scan in the body",
            f"""(float[3] s, float[4, 3] x) => (float[3] last)
                <int64 n = {{2}}, bool yes = {{1}}> {{
                last = Loop<body = rows (int64 j, bool d, float[3] u) => (bool d2, float[3] u2) {{
                    d2 = Identity(d)  w, all = Scan<num_scan_inputs = 1, {BODY}>(u, x)
                    u2 = Add(w, u) }}>(n, yes, s) }}""",
            {"s": S0, "x": X},
            nested,
        ),
        text_case(
            "If in the body",
            """(float[3] s) => (float[3] last) <int64 n = {3}, int64 one = {1}, bool yes = {1}> {
                last = Loop<body = step (int64 i, bool c, float[3] h) => (bool c2, float[3] h2) {
                    c2 = Identity(c)  odd = Equal(i, one)
                    h2 = If<then_branch = a () => (float[3] p) { p = Neg(h) },
                            else_branch = b () => (float[3] q) { q = Tanh(h) }>(odd) }>(n, yes, s)
            }""",
            {"s": S0},
            lambda s: [np.tanh(-np.tanh(s))],
        ),
    ]


def _if(
    feature: str,
    yes: str,
    no: str,
    feed: float,
    results: Callable[..., Results],
    outputs: str = "float[3] y",
    condition: str = "go = Greater(k, zero)",
    after: str = "",
) -> Case:
    """An If on k > 0; `yes` and `no` are `(outputs) { nodes }` and may capture k and x [3].

    after: nodes that make the output out of what the If gives, r.
    """
    names = "r" if after else ", ".join(text.split()[-1] for text in outputs.split("; "))
    return text_case(
        feature,
        f"""(float[3] x, float k) => ({outputs.replace(";", ",")}) <float zero = {{0.0}}> {{
            {condition}
            {names} = If<then_branch = yes () => {yes}, else_branch = no () => {no}>(go)
            {after} }}""",
        {"x": S0, "k": feed},
        results,
    )


def ifs() -> list[Case]:
    """If."""
    exp, neg = "(float[3] p) { p = Exp(x) }", "(float[3] q) { q = Neg(x) }"
    pair = "(float[2] p) { two = Constant<value_ints = [0, 2]>()  p = Gather(x, two) }"
    nested = """(float[3] p) { big = Constant<value = float {5.0}>()  more = Greater(k, big)
        p = If<then_branch = a () => (float[3] r) { r = Exp(x) },
               else_branch = b () => (float[3] t) { t = Tanh(x) }>(more) }"""

    def exponential(x: Any, k: Any) -> Results:
        return [np.exp(x)]

    def negative(x: Any, k: Any) -> Results:
        return [-x]

    return [
        _if(
            "constant condition",
            exp,
            neg,
            1,
            exponential,
            condition="go = Constant<value = bool {1}>()",
        ),
        _if("condition known at run time, true", exp, neg, 1, exponential),
        _if("condition known at run time, false", exp, neg, -1, negative),
        _if(
            "condition of shape [1]",
            exp,
            neg,
            1,
            exponential,
            condition="""one = Constant<value_ints = [1]>()  k1 = Reshape(k, one)
                         go = Greater(k1, zero)""",
        ),
        _if("branches of different sizes", pair, neg, 1, lambda x, k: [x[[0, 2]]], "float[K] y"),
        _if(
            "branches of different ranks",
            "(float p) { p = ReduceSum<keepdims = 0>(x) }",
            neg,
            1,
            lambda x, k: [x.sum()],
            "float y",
            after="y = ReduceSum<keepdims = 0>(r)",
        ),
        _if(
            "several outputs",
            "(float[3] p, float r) { p = Exp(x)  r = Exp(k) }",
            "(float[3] q, float t) { q = Neg(x)  t = Neg(k) }",
            -2,
            lambda x, k: [-x, -k],
            "float[3] y; float z",
        ),
        _if(
            "a branch that gives a captured value",
            "(float[3] p) { p = Identity(x) }",
            neg,
            1,
            lambda x, k: [x],
        ),
        _if(
            "only the branch taken runs",
            exp,
            "(float[3] q) { n = Cast<to = 7>(k)  v = Gather(x, n)  q = Mul(x, v) }",
            99,
            exponential,
        ),
        _if("nested", nested, neg, 2, lambda x, k: [np.tanh(x)]),
        text_case(
            "sequences",
            """(float[3] x, float k) => (float[6] y) <float zero = {0.0}> {
                go = Greater(k, zero)
                q = If<then_branch = a () => (seq(float[3]) p) {
                           e = Exp(x)  p = SequenceConstruct(x, e) },
                       else_branch = b () => (seq(float[3]) r) { r = SequenceConstruct(x) }>(go)
                y = ConcatFromSequence<axis = 0>(q) }""",
            {"x": S0, "k": 1},
            lambda x, k: [np.concatenate([x, np.exp(x)])],
        ),
    ]


def loops() -> list[Case]:
    """Loop."""
    return [*_conditions_of_loops(), *_outputs_of_loops(), *_bodies_of_loops()]
