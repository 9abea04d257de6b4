"""Sizes that are computed in floats are known before a run."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from tests.oracle import ops

LIMIT = "sizes that float32 rounds"


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    """A graph of an input of N by M elements, constants, and a size that `body` computes."""
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]>'
        """
        g (float[N, M] x) => (float[K, L] y) {
            shape = Shape(x)
            zero = Constant<value_ints = [0]>()
            one = Constant<value_ints = [1]>()
            first = Constant<value_int = 0>()
            half = Constant<value_float = 0.5>()
            two = Constant<value_float = 2.0>()
            three = Constant<value_float = 3.0>()
        """ + body + "}"
    )


BODIES = {
    "floor": """
        f = Cast<to = 1>(shape) s = Mul(f, two) t = Floor(s) z = Cast<to = 7>(t)
        y = Expand(half, z)
    """,
    "ceil of a part": """
        n = Gather(shape, first) f = Cast<to = 1>(n) q = Div(f, three) p = Add(q, two)
        c = Ceil(p) i = Cast<to = 7>(c) u = Unsqueeze(i, zero) z = Concat<axis = 0>(u, one)
        y = Expand(half, z)
    """,
    "parts of floats, joined": """
        f = Cast<to = 1>(shape) a = Gather(f, zero) b = Gather(f, one)
        c = Mul(a, half) d = Sub(b, half) e = Concat<axis = 0>(d, c) z = Cast<to = 7>(e)
        y = Expand(three, z)
    """,
    "double": """
        f = Cast<to = 11>(shape) h = Cast<to = 11>(half) s = Mul(f, h) z = Cast<to = 7>(s)
        y = Expand(half, z)
    """,
}


@pytest.mark.parametrize("name", BODIES)
def test_shapes_made_of_floats_need_no_part_of_their_own(name):
    source = model(BODIES[name])
    session = ostinato.InferenceSession(source, fallback=False)
    assert len(session.report().kernels) <= 2
    for shape in ((4, 6), (5, 7), (1, 9)):
        feeds = {"x": np.zeros(shape, np.float32)}
        (got,), (expected,) = session.run(None, feeds), ops.run(source, feeds)
        np.testing.assert_array_equal(got, expected)


def test_a_run_beyond_what_floats_hold_is_told():
    """The general program computes the floats as the document says."""
    source = model(BODIES["floor"])
    session = ostinato.InferenceSession(source)
    (assumption,) = session.report().assumptions
    assert LIMIT in assumption
    large = np.zeros((2**24 + 1, 0), np.float32)
    (got,) = session.run(None, {"x": large})
    assert got.shape == (2 * 2**24, 0)


def test_data_are_no_sizes():
    source = model("n = NonZero(x) f = Cast<to = 1>(n) g = Mul(f, half) y = Floor(g)")
    session = ostinato.InferenceSession(source, fallback=False)
    feeds = {"x": np.eye(4, 5, dtype=np.float32)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], ops.run(source, feeds)[0])
