"""Sizes that steps of loops compute from data."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from ostinato import InferenceSession
from ostinato.errors import RunError

LOOP = """<ir_version: 9, opset_import: ["" : 18]>
    g (int64 k, float[4] x) => (float[4] y, int64 last) {
        go = Constant<value = bool {1}>()  n = Constant<value = int64 {TRIPS}>()
        axis = Constant<value_ints = [0]>()  factor = Constant<value = int64 {FACTOR}>()
        y, last = Loop<body = b (int64 i, bool c, float[4] s, int64 kk) =>
            (bool co, float[4] so, int64 ko) {
                co = Identity(c)  k1 = Unsqueeze(kk, axis)
                BODY
                q = ReduceSum<keepdims = 0>(h)  so = Add(s, q)  ko = Mul(kk, factor)
        }>(n, go, x, k)
    }"""


def session(body: str, trips: int = 3, factor: int = 2) -> InferenceSession:
    text = LOOP.replace("BODY", body).replace("TRIPS", str(trips)).replace("FACTOR", str(factor))
    return InferenceSession(parser.parse_model(text), fallback=False, cache_dir=None)


def run(session: InferenceSession, k: int) -> np.ndarray:
    return session.run(None, {"k": np.array(k), "x": np.zeros(4, "f")})[0]


FILLED = "h = ConstantOfShape<value = float[1] {1.0}>(k1)"


@pytest.mark.parametrize("trips", [1, 3])
def test_loops_of_known_length_read_sizes_from_their_states(trips):
    compiled = session(FILLED, trips)
    assert run(compiled, 3).tolist() == [sum(3 * 2**t for t in range(trips))] * 4
    assert run(compiled, 0).tolist() == [0] * 4


def test_sizes_are_checked_where_they_are_computed():
    node = r"node 'h' \(ConstantOfShape\): "
    with pytest.raises(RunError, match=f"{node}axis 0 of the shape: .* is negative"):
        run(session(FILLED), -1)
    with pytest.raises(RunError, match=f"{node}a size is larger than what there is memory for"):
        run(session(FILLED, factor=10**6), 1000)


@pytest.mark.parametrize("k", [2**21, 2**22, 2**25])
def test_products_of_sizes_that_leave_64_bits_are_no_small_ones(k):
    """The third power is 2**63, 2**66, or 2**75."""
    body = """cube = Concat<axis = 0>(k1, k1, k1)
        z = ConstantOfShape<value = float[1] {1.0}>(cube)  h = CumSum(z, axis0)"""
    body = "axis0 = Constant<value = int64 {0}>()  " + body
    assert run(session(body), 1).tolist() == [1 + 12 + 160] * 4
    with pytest.raises(RunError, match="not enough memory for a value of shape"):
        run(session(body), k)
