"""Straight-through gradients, which no difference quotient gives: the formula in NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato
from ostinato import UnsupportedError
from ostinato.autodiff import gradient

X = np.array([[-4.1, -0.4, 0.2, 1.4], [0.3, 63.0, 200.0, -300.0]], np.float32)
FACTORS = np.arange(1, 9, dtype=np.float32).reshape(2, 4)


def model_of(scale: np.ndarray, back: np.ndarray, to: int, **attributes: int) -> onnx.ModelProto:
    """`sum(f * dequantised(quantised(x)))`, where the way back may have another scale."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=to, **attributes),
        helper.make_node("DequantizeLinear", ["q", "b"], ["y"], **attributes),
        helper.make_node("Mul", ["y", "f"], ["p"]),
        helper.make_node("ReduceSum", ["p"], ["loss"], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xf"]
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    constants = [numpy_helper.from_array(a, n) for n, a in (("s", scale), ("b", back))]
    graph = helper.make_graph(nodes, "straight", inputs, [loss], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [((), {}), ((2,), {"axis": 0}), ((4,), {}), ((2, 2), {"axis": 1, "block_size": 2})],
)
def test_rounding_is_the_identity_within_its_range(
    shape: tuple[int, ...], attributes: dict[str, int]
) -> None:
    scale = np.full(shape, 0.5, np.float32)
    model = model_of(scale, 3 * scale, TensorProto.INT8, **attributes)
    session = ostinato.InferenceSession(gradient(model, "loss", ["x"]))
    found = session.run(["x_grad"], {"x": X, "f": FACTORS})[0]
    inside = (X / 0.5 > -128.5) & (X / 0.5 < 127.5)
    np.testing.assert_allclose(found, np.where(inside, 3 * FACTORS, 0), rtol=1e-6)


def test_scales_and_small_floats_are_refused() -> None:
    one = np.ones((), np.float32)
    with pytest.raises(UnsupportedError, match="gradient of the scale"):
        gradient(model_of(one, one, TensorProto.INT8), "loss", ["b"])
    with pytest.raises(UnsupportedError, match="floats of 8 bits"):
        gradient(model_of(one, one, TensorProto.FLOAT8E4M3FN), "loss", ["x"])
