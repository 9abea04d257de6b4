from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

import ostinato


def test_nodes_that_turn_the_same_weights_round_share_them():
    """Each `Gemm` of a loop that was written out transposes what all of them read."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[1, 64] x) => (float[1, 64] y) {
            a = Gemm<transB = 1>(x, w, b)  h = Tanh(a)
            c = Gemm<transB = 1>(h, w, b)  i = Tanh(c)
            d = Gemm<transB = 1>(i, w, b)  y = Tanh(d)
        }"""
    )
    rng = np.random.default_rng(0)
    w, b = (rng.standard_normal(shape).astype(np.float32) / 8 for shape in ((64, 64), (64,)))
    for array, name in ((w, "w"), (b, "b")):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    session = ostinato.InferenceSession(model, cache_dir=None)
    assert session.report().constant_bytes <= w.nbytes + 2 * b.nbytes
    x = expected = rng.standard_normal((1, 64)).astype(np.float32)
    for _ in range(3):
        expected = np.tanh(expected.astype(np.float64) @ w.T + b)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-5)


def test_filters_that_several_nodes_share_are_transformed_once():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[1, 32, 24, 24] x) => (float[1, 32, 24, 24] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w)  b = Relu(a)
            c = Conv<pads = [1, 1, 1, 1]>(b, w)  d = Relu(c)
            y = Conv<pads = [1, 1, 1, 1]>(d, w)
        }"""
    )
    w = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32) / 17
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    session = ostinato.InferenceSession(model, cache_dir=None)
    assert 0 < session.report().constant_bytes <= 4 * w.nbytes
