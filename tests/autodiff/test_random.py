"""Gradients through random numbers: these are the same forward and backward."""

from __future__ import annotations

import numpy as np
import onnx

from ostinato import InferenceSession
from ostinato.autodiff import gradient
from tests.golden import parse

PRODUCT = parse("""
    g (float[N, 3] x) => (float loss, float[N, 3] noise) {
        noise = RandomNormalLike<mean = 1.0>(x)
        y = Mul(x, noise)
        loss = ReduceSum<keepdims = 0>(y)
    }""")
STEPS = parse("""
    g (float[3] h, float[8, 3] x) => (float loss, float[8, 3] noise) {
        f, y, noise = Scan<num_scan_inputs = 1, body = b (float[3] s, float[3] e)
            => (float[3] s2, float[3] o, float[3] r) {
                r = RandomUniformLike<seed = 2.0>(e)
                m = Mul(e, r)
                s2 = Add(s, m)
                o = Identity(s2)
            }>(h, x)
        loss = ReduceSum<keepdims = 0>(y)
    }""")


def outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = InferenceSession(model, cache_dir=None)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def test_noise_has_no_gradient_and_is_drawn_once() -> None:
    feeds = {"x": np.full((4, 3), 2, np.float32)}
    plain, made = outputs(PRODUCT, feeds), outputs(gradient(PRODUCT, "loss", ["x"]), feeds)
    assert made["loss"] == plain["loss"]
    assert np.array_equal(made["x_grad"], plain["noise"])


def test_steps_draw_the_same_in_segments() -> None:
    feeds = {"h": np.zeros(3, np.float32), "x": np.ones((8, 3), np.float32)}
    plain = outputs(STEPS, feeds)
    # Step t is in the outputs of all steps from t on.
    expected = plain["noise"] * np.arange(8, 0, -1, dtype=np.float32)[:, None]
    for about in ({}, {"checkpoint": 3}):
        made = outputs(gradient(STEPS, "loss", ["x"], **about), feeds)
        assert made["loss"] == plain["loss"]
        np.testing.assert_allclose(made["x_grad"], expected, rtol=1e-6)
