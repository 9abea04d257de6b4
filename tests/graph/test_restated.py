"""Nodes that the converter of the onnx package restates otherwise mean what they meant."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.graph.raise_opset import converted
from ostinato.model.load import load_model
from ostinato.model.write import to_model_proto
from tests import witness

EDGES = np.array([np.inf, -np.inf, 3e38, 1, -2, 0.3, np.nan, 0])
NODES = {
    "Clip (x)": (6, 10),
    "Clip <min: float = -1.1, max: float = 2.2> (x)": (6, 10),
    "Clip <max: float = 0.1> (x)": (6, 10),
    "Pad <pads: ints = [1, 1], value: float = 0.1> (x)": (2, 10),
    'Pad <pads: ints = [1, 1], mode: string = "edge"> (x)': (2, 10),
    'Resize <mode: string = "linear"> (x, s)': (10,),
    'Resize <mode: string = "nearest"> (x, s)': (10,),
    "Upsample <scales: floats = [2.6]> (x)": (7, 8),
    'Upsample <mode: string = "linear"> (x, s)': (9,),
}
CASES = [(node, opset) for node, opsets in NODES.items() for opset in opsets]


def model_of(node: str, opset: int, dtype: str) -> onnx.ModelProto:
    scale = ", float[1] s" if "s)" in node else ""
    return onnx.parser.parse_model(
        f'<ir_version: 4, opset_import: ["": {opset}]> g ({dtype}[N] x{scale}) => ({dtype}[M] y)'
        f"{{ y = {node} }}"
    )


@pytest.mark.parametrize(("node", "opset"), CASES, ids=[f"{n}-{o}" for n, o in CASES])
@pytest.mark.parametrize("later", [11, 21])
def test_a_node_of_a_later_opset_means_the_same(node: str, opset: int, later: int) -> None:
    for dtype, type_ in (("float", np.float32), ("double", np.float64), ("float16", np.float16)):
        model = model_of(node, opset, dtype)
        with np.errstate(over="ignore"):
            x = EDGES.astype(type_)
        x = np.arange(6, dtype=type_) if "Resize" in node or "Upsample" in node else x
        raised = to_model_proto(converted(load_model(model), later))
        onnx.checker.check_model(raised, full_check=True)
        assert raised.opset_import[0].version == later
        for scale in (1.7, 0.7) if "Resize" in node else (1.7,):
            feeds = {"x": x} | ({"s": np.array([scale], np.float32)} if "s)" in node else {})
            (expected,) = ostinato.InferenceSession(model).run(None, feeds)
            (got,) = ostinato.InferenceSession(raised).run(None, feeds)
            assert got.dtype == type_
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("later", [11, 13, 21])
@pytest.mark.parametrize("attributes", ["", "<axis: int = 0>", "<axis: int = 2>"])
def test_hardmax_of_several_axes(attributes: str, later: int) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 6, opset_import: ["": 10]>
        g (float[N, 3, 4] x, bool c) => (float[N, 3, 4] y) {{
            y = If (c) <
                then_branch = t () => (float[N, 3, 4] a) {{ a = Hardmax {attributes} (x) }},
                else_branch = e () => (float[N, 3, 4] b) {{ b = Neg (x) }}
            >
        }}""")
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    feeds = {"x": x, "c": np.array(True)}
    raised = to_model_proto(converted(load_model(model), later))
    onnx.checker.check_model(raised, full_check=True)
    expected, got = (ostinato.InferenceSession(m).run(None, feeds)[0] for m in (model, raised))
    np.testing.assert_array_equal(got, expected)
    assert got.sum() == {"": 2, "<axis: int = 0>": 1}.get(attributes, 6)


@pytest.mark.parametrize("scales", [(2.0, 1.5), (0.6, 0.7), (0.6, 1.7), (1.0, 0.4)])
def test_an_older_resize_to_the_nearest_is_that_of_onnxruntime(scales: tuple[float, ...]) -> None:
    model = model_of('Resize <mode: string = "nearest"> (x, s)', 10, "float")
    model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 9
    model.graph.output[0].type.tensor_type.shape.dim.add()
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(scales), "s"))
    feeds = {"x": np.arange(63, dtype=np.float32).reshape(7, 9)}
    raised = to_model_proto(converted(load_model(model), 18))
    for one in (model, raised):
        (got,) = ostinato.InferenceSession(one, cache_dir=None).run(None, feeds)
        np.testing.assert_array_equal(got, witness.run(model.SerializeToString(), feeds)[0])


def test_gradients_of_an_older_resize_are_those_of_its_places() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 4, opset_import: ["": 10]>
        g (float[3] x, float[6] w) => (float l) <float[1] s = {2.0}> {
            y = Resize <mode: string = "linear"> (x, s)
            z = Mul (y, w)
            l = ReduceSum <keepdims: int = 0> (z)
        }""")
    session = ostinato.InferenceSession(ostinato.autodiff.gradient(model, "l", wrt=["x"]))
    feeds = {"x": np.float32([1, 2, 4]), "w": np.float32([0, 1, 0, 0, 0, 0])}
    loss, gradient = session.run(None, feeds)
    # Place 1 lies at 0.5, halfway between the first two elements.
    assert loss == 1.5
    np.testing.assert_array_equal(gradient, np.float32([0.5, 0.5, 0]))


@pytest.mark.parametrize("opset", [10, 13, 18])
def test_integers_that_are_quantised_are_divided_by_the_scale(opset: int) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 5, opset_import: ["": {opset}]>
        g (int32[N, 4] x, float s) => (int8[N, 4] y) <int8 z = {{3}}> {{
            y = QuantizeLinear (x, s, z)
        }}""")
    x = np.array([[0, 1, -7, 90], [2**24 + 1, -(2**31), 11, 2**31 - 1]], np.int32)
    feeds = {"x": x, "s": np.array(2**17 + 0.5, np.float32)}
    raised = to_model_proto(converted(load_model(model), 21))
    onnx.checker.check_model(raised, full_check=True)
    expected, got = (ostinato.InferenceSession(m).run(None, feeds)[0] for m in (model, raised))
    np.testing.assert_array_equal(got, expected)
    for scale in (0.3, 7.0):
        feeds["s"] = np.array(scale, np.float32)
        expected, got = (ostinato.InferenceSession(m).run(None, feeds)[0] for m in (model, raised))
        np.testing.assert_array_equal(got, expected)


def test_what_a_repair_adds_has_names_of_its_own() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 5, opset_import: ["": 10]>
        g (float[N] x, float[1] s) => (float[M] y, float[K] "y/Min") {
            y = Resize <mode: string = "nearest"> (x, s)
            "y/Min" = Abs (x)
        }""")
    raised = to_model_proto(converted(load_model(model), 18))
    onnx.checker.check_model(raised, full_check=True)
    feeds = {"x": np.arange(6, dtype=np.float32) - 2, "s": np.array([0.7], np.float32)}
    for one, other in zip(
        *(ostinato.InferenceSession(m).run(None, feeds) for m in (model, raised)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
