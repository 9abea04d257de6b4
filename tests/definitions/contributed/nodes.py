"""Models of a node of onnxruntime's domains, and comparison with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

from ostinato import InferenceSession, Options
from tests import witness


def agrees(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """Demand onnxruntime's results: integers within one step, floats within 1e-5."""
    wanted = witness.run(model.SerializeToString(), feeds)
    session = InferenceSession(model, options=Options(cache_dir=None, fallback=False))
    for got, want in zip(session.run(None, feeds), wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if "last" in feeds and got.ndim == 4:
            # What is stored behind the last key of a row means nothing.
            got, want = got[:, :, :5], want[:, :, :5]
        if want.dtype.kind in "iu":
            assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= 1
        else:
            scale = max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * scale)


def normal(*shape: int) -> np.ndarray:
    """Normal random numbers, the same ones for each rank."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def graph(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: list[str],
    constants: list[onnx.TensorProto],
) -> onnx.ModelProto:
    """A model of float inputs of these shapes."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, made, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def fed(
    node: onnx.NodeProto,
    feeds: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of one node with the inputs `feeds` and the output "y"."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", given, made, stored)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
