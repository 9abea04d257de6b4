"""The cases of Scan: models as ONNX text, each with its meaning in NumPy beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.attribute_cases import Case, text_case

Results = list[Any]

_random = np.random.default_rng(11)
S0 = _random.standard_normal(3)
T0 = _random.standard_normal(3)
X = _random.standard_normal((4, 3))
Z = _random.standard_normal((4, 3))
GRID = _random.standard_normal((2, 4, 3))
H0 = _random.standard_normal((2, 4))
FRAMES = _random.standard_normal((5, 2, 3))
W, R = (0.5 * _random.standard_normal((rows, 4)).astype(np.float32) for rows in (3, 4))

# h2 = tanh(0.5 h + v), y = -h2: the body wherever a case is not about the body.
STEP = """half = Constant<value = float {0.5}>()  a = Mul(h, half)  b = Add(a, v)
          h2 = Tanh(b)  y = Neg(h2)"""
BODY = f"body = step (float[3] h, float[3] v) => (float[3] h2, float[3] y) {{ {STEP} }}"


def recurrence(h: np.ndarray, values: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(the last state, all y) of `STEP` over `values`."""
    steps = []
    for v in values:
        h = np.tanh(0.5 * h + v)
        steps.append(-h)
    return h, np.array(steps).reshape(-1, *np.shape(h))


def _scan(
    feature: str, attributes: str, inputs: str, outputs: str, values: Any, results: Any
) -> Case:
    """A Scan of `BODY` with one scan input x."""
    return text_case(
        feature,
        f"""({inputs}) => ({outputs}) {{
            last, ys = Scan<num_scan_inputs = 1, {attributes} {BODY}>(s, x) }}""",
        {"s": S0, "x": values},
        results,
    )


def _plain_scans() -> list[Case]:
    vectors = "float[3] s, float[4, 3] x", "float[3] last, float[4, 3] ys"
    across = "float[3] s, float[3, 4] x"

    def columns(s: Any, x: Any) -> Results:
        return [*recurrence(s, x.T)]

    def backwards(s: Any, x: Any) -> Results:
        return [*recurrence(s, x[::-1])]

    def prepended(s: Any, x: Any) -> Results:
        last, ys = recurrence(s, x)
        return [last, ys[::-1]]

    def stacked_last(s: Any, x: Any) -> Results:
        last, ys = recurrence(s, x)
        return [last, ys.T]

    def all_turned(s: Any, x: Any) -> Results:
        last, ys = recurrence(s, x.T[::-1])
        return [last, ys[::-1].T]

    def forward(s: Any, x: Any) -> Results:
        return [*recurrence(s, x)]

    stacked = "float[3] last, float[3, 4] ys"
    return [
        _scan("one state, one input", "", *vectors, X, forward),
        _scan("input backwards", "scan_input_directions = [1],", *vectors, X, backwards),
        _scan("output backwards", "scan_output_directions = [1],", *vectors, X, prepended),
        _scan("input axis 1", "scan_input_axes = [1],", across, vectors[1], X.T, columns),
        _scan("output axis 1", "scan_output_axes = [1],", vectors[0], stacked, X, stacked_last),
        _scan("negative input axis", "scan_input_axes = [-1],", across, vectors[1], X.T, columns),
        _scan(
            "negative output axis", "scan_output_axes = [-1],", vectors[0], stacked, X, stacked_last
        ),
        _scan(
            "axes and directions together",
            """scan_input_axes = [1], scan_input_directions = [1],
               scan_output_axes = [1], scan_output_directions = [1],""",
            across,
            stacked,
            X.T,
            all_turned,
        ),
        _scan(
            "one step",
            "",
            "float[3] s, float[1, 3] x",
            "float[3] last, float[1, 3] ys",
            X[:1],
            forward,
        ),
        _scan(
            "no steps",
            "",
            "float[3] s, float[0, 3] x",
            "float[3] last, float[0, 3] ys",
            X[:0],
            forward,
        ),
        _scan(
            "number of steps known at run time",
            "",
            "float[3] s, float[T, 3] x",
            "float[3] last, float[T, 3] ys",
            X,
            forward,
        ),
    ]


def _matrix_cell(h: Any, x: Any) -> Results:
    steps = []
    for v in x:
        h = np.tanh(v @ W + h @ R)
        steps.append(h)
    return [h, np.stack(steps)]


def _nested_scan(s: Any, x: Any) -> Results:
    rows = []
    for row in x:
        outer = s
        s, _ = recurrence(s, row)
        rows.append(s + outer)
    return [s, np.stack(rows)]


def _versions_of_scan() -> list[Case]:
    """Scan of opset 8: a batch axis in front, and lengths."""
    source = """(float[2, 3] s, float[2, 4, 3] x) => (float[2, 3] last, float[2, 4, 3] ys) {
        last, ys = Scan<num_scan_inputs = 1, %s %s>("", s, x) }"""
    lengths = """(float[2, 3] s, float[2, 4, 3] x) => (float[2, 3] last) <int64[2] lens = {1, 3}> {
        last, ys = Scan<num_scan_inputs = 1, %s>(lens, s, x) }"""
    feeds = {"s": np.stack([S0, T0]), "x": GRID}

    def rows(s: Any, x: Any, step: int = 1) -> Results:
        results = [recurrence(h, row[::step]) for h, row in zip(s, x, strict=True)]
        return [np.stack(each) for each in zip(*results, strict=True)]

    def backwards(s: Any, x: Any) -> Results:
        return rows(s, x, -1)

    def cut(s: Any, x: Any) -> Results:
        return [np.stack([recurrence(s[0], x[0, :1])[0], recurrence(s[1], x[1, :3])[0]])]

    return [
        text_case("version 8", source % ("", BODY), feeds, rows, opset=8),
        text_case(
            "version 8, backwards", source % ("directions = [1],", BODY), feeds, backwards, opset=8
        ),
        text_case("version 8, ragged sequence_lens", lengths % BODY, feeds, cut, opset=8),
    ]


def scans() -> list[Case]:
    """Scan."""

    def swapped(s: Any, t: Any, x: Any) -> Results:
        sums = []
        for v in x:
            sums.append(s + v)
            s, t = t, s
        return [s, t, np.stack(sums)]

    def two_inputs(x: Any, z: Any) -> Results:
        return [x * z.T[::-1]]

    def captured(s: Any, x: Any, k: Any) -> Results:
        steps = []
        for v in x:
            s = np.tanh(s + v * np.exp(k))
            steps.append(s - k)
        return [s, np.stack(steps)]

    def passed(s: Any, x: Any, k: Any) -> Results:
        return [x[-1], np.concatenate([s[None], x[:-1]]), np.tile(k, (4, 1))]

    def counted(n: Any, x: Any) -> Results:
        return [n + x.sum(), n + np.concatenate([[0], np.cumsum(x)[:-1]])]

    return [
        *_plain_scans(),
        text_case(
            "several states",
            """(float[3] s, float[3] t, float[4, 3] x) => (float[3] p, float[3] q, float[4, 3] ys) {
                p, q, ys = Scan<num_scan_inputs = 1,
                    body = step (float[3] u, float[3] w, float[3] v)
                    => (float[3] w2, float[3] u2, float[3] y) {
                        w2 = Identity(w)  u2 = Identity(u)  y = Add(u, v) }>(s, t, x) }""",
            {"s": S0, "t": T0, "x": X},
            swapped,
        ),
        text_case(
            "several inputs, no state",
            """(float[4, 3] x, float[3, 4] z) => (float[4, 3] ys) {
                ys = Scan<num_scan_inputs = 2, scan_input_axes = [0, 1],
                    scan_input_directions = [0, 1], body = step (float[3] u, float[3] v)
                    => (float[3] y) { y = Mul(u, v) }>(x, z) }""",
            {"x": X, "z": Z.T},
            two_inputs,
        ),
        text_case(
            "no output but the state",
            f"""(float[3] s, float[4, 3] x) => (float[3] last) {{
                last = Scan<num_scan_inputs = 1, body = step (float[3] h, float[3] v)
                    => (float[3] h2) {{ {STEP} }}>(s, x) }}""",
            {"s": S0, "x": X},
            lambda s, x: [recurrence(s, x)[0]],
        ),
        text_case(
            "captured values",
            """(float[3] s, float[4, 3] x, float[3] k) => (float[3] last, float[4, 3] ys) {
                e = Exp(k)
                last, ys = Scan<num_scan_inputs = 1, body = step (float[3] h, float[3] v)
                    => (float[3] h2, float[3] y) {
                        a = Mul(v, e)  b = Add(h, a)  h2 = Tanh(b)  y = Sub(h2, k) }>(s, x) }""",
            {"s": S0, "x": X, "k": T0},
            captured,
        ),
        text_case(
            "body outputs that are inputs or captured",
            """(float[3] s, float[4, 3] x, float[3] k)
                => (float[3] last, float[4, 3] before, float[4, 3] ks) {
                last, before, ks = Scan<num_scan_inputs = 1, body = step (float[3] h, float[3] v)
                    => (float[3] v2, float[3] h2, float[3] k2) {
                        v2 = Identity(v)  h2 = Identity(h)  k2 = Identity(k) }>(s, x) }""",
            {"s": S0, "x": X, "k": T0},
            passed,
        ),
        text_case(
            "an input that is read twice",
            """(float[3] s, float[4, 3] x) => (float[3] last) {
                last = Scan<num_scan_inputs = 1, body = step (float[3] h, float[3] v)
                    => (float[3] h2) { a = Add(v, v)  h2 = Add(h, a) }>(s, x) }""",
            {"s": S0, "x": X},
            lambda s, x: [s + 2 * x.sum(0)],
        ),
        text_case(
            "integer state",
            """(int64 n, int64[4] x) => (int64 last, int64[4] before) {
                last, before = Scan<num_scan_inputs = 1, body = step (int64 c, int64 v)
                    => (int64 c2, int64 y) { c2 = Add(c, v)  y = Identity(c) }>(n, x) }""",
            {"n": 3, "x": [1, -2, 5, 7]},
            counted,
        ),
        text_case(
            "a cell with matrix products",
            """(float[2, 4] h, float[5, 2, 3] x)
                => (float[2, 4] last, float[5, 2, 4] ys) {
                last, ys = Scan<num_scan_inputs = 1, body = step (float[2, 4] g, float[2, 3] v)
                    => (float[2, 4] g2, float[2, 4] y) {
                        p = MatMul(v, w)  q = MatMul(g, r)  a = Add(p, q)
                        g2 = Tanh(a)  y = Identity(g2) }>(h, x) }""",
            {"h": H0, "x": FRAMES},
            _matrix_cell,
            constants={"w": W, "r": R},
        ),
        text_case(
            "nested",
            f"""(float[3] s, float[2, 4, 3] x) => (float[3] last, float[2, 3] ys) {{
                last, ys = Scan<num_scan_inputs = 1, body = rows (float[3] u, float[4, 3] row)
                    => (float[3] u2, float[3] out) {{
                        u2, all = Scan<num_scan_inputs = 1, {BODY}>(u, row)
                        out = Add(u2, u) }}>(s, x) }}""",
            {"s": S0, "x": GRID},
            _nested_scan,
        ),
        *_versions_of_scan(),
    ]
