"""Sizes that decide on the rank of a value: a program for each way."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato

# `h.squeeze(0)` of PyTorch's scripts, whose axis is the batch.
SQUEEZE = """<ir_version: 10, opset_import: ["": 17]>
    g (float[N, 4] x) => (y) {
        s = Shape(x)  zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()
        n = Gather(s, zero)  c = Equal(n, one)
        h = If (c) <
            then_branch = a () => (u) { u = Squeeze(x, zero) },
            else_branch = b () => (v) { v = Identity(x) }>
        t = Tanh(h)  y = Mul(t, t)
    }"""

# The same as PyTorch writes `h.squeeze()`.
NO_AXES = """<ir_version: 10, opset_import: ["": 17]>
    g (float[N, 4] x) => (y) { h = Squeeze(x)  t = Tanh(h)  y = Mul(t, t) }"""


def expected(x: np.ndarray) -> np.ndarray:
    h = np.tanh(x[0] if len(x) == 1 else x)
    return h * h


@pytest.mark.parametrize("fallback", [True, False])
def test_both_ways_are_native(fallback: bool) -> None:
    model = onnx.parser.parse_model(SQUEEZE)
    session = ostinato.InferenceSession(model, cache_dir=None, fallback=fallback)
    for count in (3, 1, 2, 1, 5):
        x = np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)
        (got,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, expected(x), rtol=1e-6, atol=1e-7)
        assert got.shape == expected(x).shape
        assert not session.report().interpreted


def test_a_single_row_is_native_where_all_axes_of_one_element_go() -> None:
    session = ostinato.InferenceSession(onnx.parser.parse_model(NO_AXES), cache_dir=None)
    for count in (3, 1, 2, 1):
        x = np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)
        (got,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, expected(x), rtol=1e-6, atol=1e-7)
        assert got.shape == expected(x).shape
        taken_over = [entry["taken_over"] for entry in session.report()["fallback"]]
        assert not any(taken_over)


def test_bound_calls_take_the_way_of_their_sizes() -> None:
    session = ostinato.InferenceSession(onnx.parser.parse_model(SQUEEZE), cache_dir=None)
    for count in (2, 1):
        x = np.ones((count, 4), np.float32)
        call = session.bind({"x": x})
        call()
        np.testing.assert_allclose(call.outputs["y"], expected(x), rtol=1e-6)


def test_sizes_that_choose_some_of_each_run_too() -> None:
    """The program without guards takes what neither of the others is made for."""
    second = SQUEEZE.replace("float[N, 4] x", "float[N, 4] x, float[M, 4] z").replace(
        "t = Tanh(h)  y = Mul(t, t)",
        """sz = Shape(z)  m = Gather(sz, zero)  d = Equal(m, one)
        k = If (d) <
            then_branch = e () => (p) { p = Squeeze(z, zero) },
            else_branch = f () => (q) { q = Identity(z) }>
        t = Tanh(h)  y = Mul(t, k)""",
    )
    session = ostinato.InferenceSession(onnx.parser.parse_model(second), cache_dir=None)
    for n, m in ((1, 1), (3, 3), (1, 3), (3, 1)):
        x, z = np.full((n, 4), 0.5, np.float32), np.full((m, 4), 2.0, np.float32)
        (got,) = session.run(None, {"x": x, "z": z})
        wanted = np.tanh(x[0] if n == 1 else x) * (z[0] if m == 1 else z)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert got.shape == wanted.shape
