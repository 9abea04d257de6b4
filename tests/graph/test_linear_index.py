from __future__ import annotations

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
    ],
)
def test_what_is_linear(body: str, form: Size):
    assert single(body) == form


@pytest.mark.parametrize(
    "body",
    [
        "y = Mul(k, k)",
        "y = Div(k, one)",
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
