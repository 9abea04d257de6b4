from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ostinato

HEADER = '<ir_version: 9, opset_import: ["": %d, "ai.onnx.preview.training": 1]>'


def run(text: str, feeds: dict[str, np.ndarray], opset: int = 20, **weights: np.ndarray):
    text = text.replace("Gradient", "ai.onnx.preview.training.Gradient")
    model = onnx.parser.parse_model(f"{HEADER % opset} {text}")
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    simple = ostinato.optimize(model)
    assert {node.domain for node in simple.graph.node} == {""}
    assert "ai.onnx.preview.training" not in [item.domain for item in simple.opset_import]
    session = ostinato.InferenceSession(model, fallback=False)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("opset", [12, 20])
def test_at_the_named_values(opset: int) -> None:
    # The second example of the operator's document, elementwise: the values of xs and zs.
    text = """
    g (float[3] x, float[3] w, float[3] z) => (float[3] y, float[3] dw, float[3] dz) {
        h = Mul(w, x)  y = Mul(h, z)
        dw, dz = Gradient <xs = ["w", "z"], zs = ["x"], y = "y"> (w, z, x)
    }"""
    x, w, z = array(1, 2, 3), array(4, 5, 6), array(7, 8, 9)
    got = run(text, {"x": x, "w": w, "z": z}, opset)
    assert got["dw"].tolist() == (x * z).tolist()
    assert got["dz"].tolist() == (w * x).tolist()
    assert got["y"].tolist() == (w * x * z).tolist()


def test_with_respect_to_an_intermediate_value_and_at_another_one() -> None:
    text = """
    g (float[3] x, float[3] w, float[3] z, float[3] h1)
        => (float[3] y, float[3] dh, float[3] dh1, float[3] dz1) {
        h = Mul(w, x)  s = Tanh(h)  y = Mul(s, z)
        dh = Gradient <xs = ["h"], zs = ["z"], y = "y"> (h, z)
        dh1, dz1 = Gradient <xs = ["h", "z"], y = "y"> (h1, z)
    }"""
    feeds = {"x": array(1, 2, 3), "w": array(0.1, 0.2, 0.3), "z": array(7, 8, 9)}
    h1 = array(0.5, -0.25, 0)
    got = run(text, feeds | {"h1": h1})
    h, z = feeds["x"] * feeds["w"], feeds["z"]
    np.testing.assert_allclose(got["dh"], z * (1 - np.tanh(h) ** 2), 1e-6)
    np.testing.assert_allclose(got["dh1"], z * (1 - np.tanh(h1) ** 2), 1e-6)
    np.testing.assert_allclose(got["dz1"], np.tanh(h1), 1e-6)


def test_second_derivatives() -> None:
    text = """
    g (float x) => (float d1, float d2, float d3) {
        square = Mul(x, x)  y = Mul(square, x)
        d1 = Gradient <xs = ["x"], y = "y"> (x)
        d2 = Gradient <xs = ["x"], y = "d1"> (x)
        d3 = Gradient <xs = ["x"], y = "d2"> (x)
    }"""
    got = run(text, {"x": np.float32(2.0)})
    assert [float(got[name]) for name in ("d1", "d2", "d3")] == [12, 12, 6]


def test_outputs_may_be_left_out_and_weights_named() -> None:
    text = """
    g (float[N, 2] x) => (float[1, 3] db) {
        p = MatMul(x, w)  y = Add(p, b)
        , db = Gradient <xs = ["w", "b"], zs = ["x"], y = "y"> (w, b, x)
    }"""
    weights = {"w": np.ones((2, 3), np.float32), "b": np.ones((1, 3), np.float32)}
    got = run(text, {"x": np.ones((5, 2), np.float32)}, **weights)
    assert got["db"].tolist() == [[5, 5, 5]]


def test_what_does_not_depend_and_what_is_passed_on() -> None:
    text = """
    g (float[3] x, float[3] w) => (float[3] dx, float[3] dw) {
        y = Identity(x)
        dx, dw = Gradient <xs = ["x", "w"], y = "y"> (x, w)
    }"""
    got = run(text, {"x": array(1, 2, 3), "w": array(1, 2, 3)})
    assert (got["dx"].tolist(), got["dw"].tolist()) == ([1, 1, 1], [0, 0, 0])


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ('Gradient <xs = ["x"], y = "y"> (x)', "depends on 'w'"),
        ('Gradient <xs = ["x", "v"], y = "y"> (x, w)', "names 'v'"),
        ('Gradient <xs = ["x"], zs = ["w"], y = "u"> (x, w)', "names 'u'"),
        ('Gradient <xs = ["x", "w"], y = "y"> (x)', "1 inputs, expected .* 2"),
        ('Gradient <xs = ["x", "w"], y = "k"> (x, w)', "Det"),
    ],
)
def test_nodes_that_are_wrong(node: str, message: str) -> None:
    text = f"""
    g (float[3, 3] x, float[3, 3] w) => (float[3, 3] y, float k, float[3, 3] d) {{
        y = Mul(x, w)  k = Det(y)  d = {node}
    }}"""
    with pytest.raises(ostinato.OstinatoError, match=message):
        run(text, {})


def test_nodes_in_bodies_are_refused() -> None:
    text = """
    g (bool c, float[3] x) => (float[3] d) {
        d = If (c) <
            then_branch = t () => (float[3] p) { p = Gradient <xs = ["x"], y = "x"> (x) },
            else_branch = e () => (float[3] q) { q = Identity(x) }>
    }"""
    with pytest.raises(ostinato.UnsupportedError, match="stands in a body"):
        run(text, {})
