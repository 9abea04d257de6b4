"""Values that are known while compiling, or in part, are numbers like any others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato


def run(graph: str, feeds: dict[str, np.ndarray], *disable: str) -> list[np.ndarray]:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {graph}')
    return ostinato.InferenceSession(model, cache_dir=None, disable=disable).run(None, feeds)


def test_a_comparison_known_for_some_elements_only() -> None:
    graph = """g (float[4, T] x) => (bool[2] y) {
        s = Shape (x)
        zero = Constant <value_int = 0> ()
        first = Gather (s, zero)
        double = Add (s, s)
        y = LessOrEqual (first, double)
    }"""
    for length, expected in ((3, [True, True]), (1, [True, False])):
        (y,) = run(graph, {"x": np.ones((4, length), np.float32)})
        assert y.tolist() == expected


def test_top_k_of_a_constant_without_elements() -> None:
    graph = """g (float[2] x) => (float[2, 0] y, int64[2, 0] i) {
        c = Constant <value = float[2, 0] {}> ()
        k = Constant <value = int64[1] {0}> ()
        y, i = TopK (c, k)
    }"""
    y, i = run(graph, {"x": np.ones(2, np.float32)})
    assert y.shape == i.shape == (2, 0)


def test_what_a_loop_with_a_constant_condition_collects_is_joined() -> None:
    graph = """g (float[2] x) => (float[N, 2] y) {
        n = Constant <value_int = 4> ()
        yes = Constant <value = bool {1}> ()
        u, w = Loop (n, yes, x) <body = b (int64 i, bool c, float[2] s) =>
            (bool d, float[2] t, float[2] r) { d = Identity (c) t = Neg (s) r = Identity (t) }>
        y = Concat <axis = 0> (w, w)
    }"""
    (y,) = run(graph, {"x": np.ones(2, np.float32)}, "loop_to_scan")
    assert y[:, 0].tolist() == [-1, 1, -1, 1] * 2


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("n = Slice(s, one, two) t = Expand(n, two)", lambda n, m: (m, m)),
        ("t = Tile(s, one)", lambda n, m: (n, m)),
        ("n = Slice(s, one, two) t = Tile(n, two)", lambda n, m: (m, m)),
        ("t = Clip(s, three, four)", lambda n, m: (min(max(n, 3), 4), min(max(m, 3), 4))),
        ("t = Clip(s, , four)", lambda n, m: (min(n, 4), min(m, 4))),
        ("t = Clip(s, three)", lambda n, m: (max(n, 3), max(m, 3))),
    ],
)
def test_sizes_are_seen_through(
    nodes: str, expected: Callable[[int, int], tuple[int, int]]
) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]> g (float[N, M] x) => (float[P, Q] y)
            <int64[1] one = {{1}}, int64[1] two = {{2}}, int64 three = {{3}}, int64 four = {{4}}> {{
            s = Shape(x) {nodes} y = ConstantOfShape(t)
        }}"""
    )
    session = ostinato.InferenceSession(model, cache_dir=None, fallback=False)
    # Not one stage for the sizes and another one behind them.
    assert all(kernel["fused"] == ["y"] for kernel in session.report().kernels)
    for n, m in ((2, 5), (7, 3)):
        (y,) = session.run(None, {"x": np.zeros((n, m), np.float32)})
        assert y.shape == expected(n, m)
