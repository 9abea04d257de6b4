from __future__ import annotations

import onnx_ir as ir
import pytest

from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.graph.linear_index import STEP, Indices
from ostinato.model.load import load_model
from ostinato.sizes.dims import Size, symbol
from tests.golden import parse

T = symbol("T")
K = STEP


CONSTANTS = """int64 zero = {0}, int64 one = {1}, int64[1] units = {1}, int64[1] zeros = {0},
    int64[1] two = {2}, int64[2] pair = {4, 5}, int64[1] back = {-1}, int32 small = {7},
    int64 huge = {9223372036854775807}, float half = {0.5}, int64[2] turned = {2, 0},
    bool no = {0}"""


def single(body: str, opset: int = 17) -> Size | None:
    model = load_model(
        parse(
            f"g (float[T, N, 5] x, int64 k, int64[V] v) => (int64 y) <{CONSTANTS}> {{ {body} }}",
            opset,
        )
    )
    indices = Indices(infer_sizes(model))
    indices.declare(model.graph.inputs[1], K)
    return indices.single(model.graph.outputs[0])


@pytest.mark.parametrize(
    ("body", "form"),
    [
        ("y = Identity(one)", 1),
        ("s = Shape(x)  y = Gather(s, zero)", T),
        ("s = Shape(x)  w = Gather(s, back)  y = Squeeze(w)", 5),
        ("s = Shape(x)  w = Gather(s, turned)  z = Gather(w, units)  y = Squeeze(z)", T),
        ("s = Shape(x)  w = Slice(s, zeros, units)  y = Squeeze(w)", T),
        ("s = Shape(x)  w = Slice(s, back, zeros, zeros, back)  y = Gather(w, zero)", 5),
        ("s = Shape <start = 0, end = 1> (x)  y = Squeeze(s)", T),
        ("s = Shape <start = -3, end = -2> (x)  y = Squeeze(s)", T),
        ("s = Shape(v)  y = Squeeze(s)", symbol("V")),
        (
            "s = Shape(x)  w = Gather(s, zero)  z = Cast <to = 6> (w)  r = Add(z, small)"
            "  y = Cast <to = 7> (r)",
            T + 7,
        ),
        ("a = Unsqueeze(k, zeros)  b = Concat <axis = 0> (a, pair)  y = Gather(b, zero)", K),
        ("a = Unsqueeze(k, zeros)  b = Sub(pair, a)  y = Gather(b, one)", 5 - K),
        ("a = Neg(k)  b = Mul(a, one)  y = Mul(one, b)", -K),
        ("a = Unsqueeze(k, zeros)  y = Reshape(a, v)", K),
        ("a = Where(no, huge, k)  y = Identity(a)", K),
        ("t = Equal(k, one)  n = And(t, no)  y = Where(n, one, k)", K),
        ("y = Div(k, one)", K),
        ("a = Gather(v, zero)  b = Sub(a, a)  y = Add(b, k)", K),
        ("n = Shape(v)  t = Equal(n, back)  a = Where(t, units, n)  y = Squeeze(a)", symbol("V")),
    ],
)
def test_what_is_linear(body: str, form: Size):
    assert single(body) == form


@pytest.mark.parametrize(
    "body",
    [
        "y = Mul(k, k)",
        "a = Unsqueeze(k, zeros)  b = Div(a, two)  y = Squeeze(b)",
        "y = ReduceSum(v)",
        "y = Identity(huge)",
        "f = Cast <to = 1> (k)  y = Cast <to = 7> (f)",
        "s = Shape(x)  y = Gather(s, k)",
        "y = Squeeze(v)",
        "t = Equal(k, one)  y = Where(t, one, k)",
        "a = Gather(v, zero)  y = Add(a, one)",
        "a = Cast <to = 3> (k)  y = Cast <to = 7> (a)",
    ],
)
def test_what_is_not(body: str):
    assert single(body) is None


def test_long_expressions_end():
    adds = "  ".join(f"a{i + 1} = Add(a{i}, one)" for i in range(5000))
    assert single(f"a0 = Add(k, one)  {adds}  y = Add(a5000, one)") is None


def numbers(nodes: str, constants: str = "") -> dict[str, list[int]]:
    """What the named results are, where all elements are numbers."""
    graph = f"""
        g (float[N, 18] x, float[2, M] deep) => (int64[K] out)
          <{constants + ", " if constants else ""}int64[1] zero = {{0}}>
        {{ {nodes}  out = Identity(zero) }}
        """
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": 18, "other": 1]> {graph}')
    indices = Indices(infer_sizes(model))
    values = [value for node in model.graph for value in node.outputs if value.name != "out"]
    return {str(v.name): found for v in values if (found := indices.numbers(v)) is not None}


def test_the_bounds_of_chunks():
    constants = "int64[1] last = {-1}, int64[1] three = {3}, int64 four = {4}"
    nodes = "s = Shape(x)  n = Gather(s, last)  m = Add(n, three)  q = Div(m, four)"
    assert numbers(nodes, constants) == {"n": [18], "m": [21], "q": [5]}


def test_the_lesser_of_a_size_and_a_bound():
    constants = "int64[1] a = {20}, int64 b = {7}, int64[1] huge = {9223372036854775807}"
    nodes = """
        n = Shape <start = 1> (x)  l = Squeeze(n, zero)  m = Max(n, a)  o = Min(a, l, b)
        h = Min(huge, n)
        """
    assert numbers(nodes, constants) == {"n": [18], "l": [18], "m": [20], "o": [7], "h": [18]}


def test_the_last_axes_are_made_one():
    # As the exporter over torch.export writes `flatten` behind a recurrence of two directions.
    constants = "int64[1] one = {1}, int64[1] most = {9}, int64[1] rest = {-1}"
    nodes = """
        s = Shape(deep)  front = Slice(s, zero, one)  behind = Slice(s, one, most)
        t = Shape(x)  n = Slice(t, one, most, zero, one)  m = Mul(n, front)
        r = Reshape(m, rest)  c = Concat <axis = 0> (front, r)  d = Concat <axis = 0> (behind, r)
        """
    found = numbers(nodes, constants)
    assert found == {"front": [2], "n": [18], "m": [36], "r": [36], "c": [2, 36]}


def test_division_rounds_to_zero():
    constants = "int64[4] a = {7, -7, 7, -7}, int64[4] b = {2, 2, -2, -2}"
    assert numbers("q = Div(a, b)", constants) == {"q": [3, -3, -3, 3]}


def test_a_size_with_a_name_is_no_number():
    assert numbers("s = Shape(x)  n = Gather(s, zero)  m = Add(n, zero)") == {}


@pytest.mark.parametrize(
    ("constants", "node"),
    [
        ("int64[1] a = {7}", "n = Div(a, zero)"),
        ("int64[1] a = {9223372036854775807}", "n = Add(a, a)"),
        ("int32[1] a = {2147483647}", "n = Add(a, a)"),
        ("int64[2, 2] a = {1, 2, 3, 4}", "n = Gather <axis = 1> (a, zero)"),
        ("int64[1] a = {5}", "n = Gather(zero, a)"),
        ("int64[2, 2] a = {1, 2, 3, 4}", "n = Concat <axis = 1> (a, a)"),
        ("int64[2, 2] a = {1, 2, 3, 4}, int64[1] one = {1}", "n = Slice(a, zero, one, one)"),
        ("int64[2, 1] a = {1, 2}, int64[1, 2] b = {1, 2}", "n = Add(a, b)"),
        ("int64[2] a = {1, 2}, int64[1] two = {2}", "n = Slice(a, zero, two, zero, zero)"),
        ("int64[1] a = {5}", "n = other.Add(a, a)"),
        ("int64[1] a = {5}", "n = Shape <end = 1> (x)  m = Max(n, a)"),
        ("int64[2] a = {5, 5}, int64[3] b = {1, 2, 3}", "n = Add(a, b)"),
    ],
)
def test_what_is_no_number(constants: str, node: str):
    assert numbers(node, constants) == {}


@pytest.mark.parametrize(
    ("slices", "opset", "form"),
    [
        ("Slice(s, zeros, units)", 17, T),
        ("Slice(s, back, zeros, zeros, back)", 17, 5),
        ('Slice(s, two, units, "", back)', 17, 5),
        ("Slice <starts = [0], ends = [1]> (s)", 9, T),
        ("Slice <starts = [0], ends = [1], axes = [0]> (s)", 9, T),
        ("Slice(s, v, units)", 17, None),
    ],
)
def test_slices_at_constant_bounds(slices: str, opset: int, form: Size | None):
    assert single(f"s = Shape(x)  w = {slices}  y = Gather(w, zero)", opset) == form
