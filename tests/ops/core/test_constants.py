from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.ops.core import constants
from ostinato.program import laid


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


@pytest.mark.parametrize("kind", ["Gemm", "Transpose", "GRU", "LSTM"])
def test_a_matrix_that_is_turned_is_not_copied_before_it_is_laid_out(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its elements come from where the file has them, few columns at a time as at once."""
    model = turned(kind)
    x = np.linspace(-1, 1, 5 * 40, dtype=np.float32).reshape(5, 1, 40)
    taken: list[np.ndarray] = []
    view = constants.view_of
    monkeypatch.setattr(constants, "view_of", lambda known: (taken.append(known), view(known))[1])
    expected = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    monkeypatch.setattr(laid, "_LARGE", 0)
    got = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    assert taken and all(known.base is not None for known in taken)
    np.testing.assert_array_equal(got[0], expected[0])


def turned(kind: str) -> onnx.ModelProto:
    """A model whose weights have rows for what its product has columns for."""
    rng, gates = np.random.default_rng(0), {"GRU": 3, "LSTM": 4}.get(kind, 1)
    nodes = {
        "Gemm": "r = Reshape(x, s)  y = Gemm<transB = 1>(r, w)",
        "Transpose": "t = Transpose<perm = [1, 0]>(w)  y = MatMul(x, t)",
    }
    recurrent = f"y = {kind}<hidden_size = 24>(x, w, r)"
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[5, 1, 40] x) => (float y) {"""
        + nodes.get(kind, recurrent)
        + "}"
    )
    shape = (24, 40) if kind in nodes else (1, gates * 24, 40)
    arrays = {"w": shape, "r": (1, gates * 24, 24)}
    for name, dims in arrays.items():
        if name == "w" or kind not in nodes:
            array = rng.standard_normal(dims).astype(np.float32) / 8
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    if kind == "Gemm":
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([5, 40]), "s"))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model
