from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import numpy_helper

from ostinato.graph.size_arithmetic import fold_sizes

SIZES = {"x": ("N", 18), "deep": (2, "deep:1")}


def folded(nodes: str, constants: str = "int64[1] zero = {0}") -> dict[str, Any]:
    """What becomes an initializer of the graph of `nodes`, as a list."""
    graph = onnx.parser.parse_graph(
        f"g (float[N, 18] x, float[2, M] deep) => (int64[K] out) <{constants}>"
        f" {{ {nodes}  out = Identity(zero) }}"
    )
    before = {tensor.name for tensor in graph.initializer}
    count = fold_sizes(graph, SIZES)
    found = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name not in before}
    assert count == len(found)
    assert all(array.dtype == "int64" for array in found.values())
    assert not {name for node in graph.node for name in node.output} & found.keys()
    return {name: array.tolist() for name, array in found.items()}


def test_the_bounds_of_chunks():
    constants = "int64[1] last = {-1}, int64[1] three = {3}, int64 four = {4}, int64[1] zero = {0}"
    nodes = "s = Shape(x)  n = Gather(s, last)  m = Add(n, three)  q = Div(m, four)"
    assert folded(nodes, constants) == {"n": [18], "m": [21], "q": [5]}


def test_the_lesser_of_a_size_and_a_bound():
    constants = "int64[1] a = {20}, int64 b = {7}, int64[1] zero = {0}"
    nodes = "n = Shape <start = 1> (x)  l = Squeeze(n, zero)  m = Max(n, a)  o = Min(a, l, b)"
    assert folded(nodes, constants) == {"n": [18], "l": 18, "m": [20], "o": [7]}


def test_the_last_axes_are_made_one():
    # As the exporter over torch.export writes `flatten` behind a recurrence of two directions.
    constants = "int64[1] one = {1}, int64[1] most = {9}, int64[1] rest = {-1}, int64[1] zero = {0}"
    nodes = """
        s = Shape(deep)  front = Slice(s, zero, one)  behind = Slice(s, one, most)
        t = Shape(x)  n = Slice(t, one, most, zero, one)  m = Mul(n, front)
        r = Reshape(m, rest)  c = Concat <axis = 0> (front, r)  d = Concat <axis = 0> (behind, r)
        """
    assert folded(nodes, constants) == {
        "front": [2],
        "n": [18],
        "m": [36],
        "r": [36],
        "c": [2, 36],
    }


def test_division_rounds_to_zero():
    constants = "int64[4] a = {7, -7, 7, -7}, int64[4] b = {2, 2, -2, -2}, int64[1] zero = {0}"
    assert folded("q = Div(a, b)", constants) == {"q": [3, -3, -3, 3]}


def test_a_size_with_a_name_is_no_number():
    nodes = "s = Shape(x)  n = Gather(s, zero)  m = Add(n, zero)  w = Unsqueeze(n, zero)"
    assert folded(nodes) == {}


@pytest.mark.parametrize(
    ("constants", "node"),
    [
        ("int64[1] a = {7}", "n = Div(a, zero)"),
        ("int64[1] a = {9223372036854775807}", "n = Add(a, a)"),
        ("int64[2, 2] a = {1, 2, 3, 4}", "n = Gather <axis = 1> (a, zero)"),
        ("int64[1] a = {5}", "n = Gather(zero, a)"),
        ("int64[2, 2] a = {1, 2, 3, 4}", "n = Concat <axis = 1> (a, a)"),
        ("int64[2, 2] a = {1, 2, 3, 4}, int64[1] one = {1}", "n = Slice(a, zero, one, one)"),
        ("int64[2] a = {1, 2}, int64[2] to = {0, 1}", "n = Reshape(a, to)"),
        ("int64[2] a = {1, 2}, int64[1] to = {3}", "n = Reshape(a, to)"),
        ("int64[2] a = {1, 2}, int64[1] two = {2}", "n = Slice(a, zero, two, zero, zero)"),
        ("int32[1] a = {5}", "n = Add(a, a)"),
        ("int64[1] a = {5}", "n = other.Add(a, a)"),
        ("int64[1] a = {5}", "n = Shape <end = 1> (x)  m = Max(n, a)"),
        ("int64[2] a = {5, 5}, int64[3] b = {1, 2, 3}", "n = Add(a, b)"),
    ],
)
def test_what_is_left(constants: str, node: str):
    assert folded(node, f"{constants}, int64[1] zero = {{0}}") == {}


def test_bodies_see_the_constants_around_them():
    graph = onnx.parser.parse_graph("""
        g (int64 n, bool c, float[N, 18] x) => (float[N, 18] y) <int64[1] two = {2}> {
            four = Mul(two, two)
            y = Loop <body = f (int64 i, bool p, float[N, 18] s) => (bool p, float[N, 18] t) {
                six = Add(four, two)
                t = Slice(s, two, six)
            }> (n, c, x)
        }
        """)
    assert fold_sizes(graph, {}) == 2
    body = graph.node[0].attribute[0].g
    assert [tensor.name for tensor in body.initializer] == ["six"]
    assert [node.op_type for node in body.node] == ["Slice"]
