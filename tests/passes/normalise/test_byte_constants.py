from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato
from ostinato import Options


def model(dtype: str, zero: int | None = None, block: int = 0) -> onnx.ModelProto:
    """`x @ DequantizeLinear(w)` with constant weights of a type below a byte."""
    random = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, dtype))
    info = ml_dtypes.iinfo(kind)
    w = random.integers(int(info.min), int(info.max) + 1, (48, 20), np.int8).astype(kind)
    scale = random.uniform(0.1, 1, (48 // block, 20) if block else 20).astype("f")
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(scale, "scale")]
    names = ["w", "scale"]
    if zero is not None:
        constants.append(numpy_helper.from_array(np.full(scale.shape, zero, kind), "zero"))
        names.append("zero")
    at = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", names, ["d"], **at),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 20])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.filterwarnings("ignore:the model is not all native")
@pytest.mark.parametrize(
    "given",
    [("int4",), ("uint4",), ("uint4", 7), ("int4", -3, 16), ("int4", None, 24), ("uint4", 9, 6)],
    ids=str,
)
def test_weights_below_a_byte_are_native_and_have_the_bits_of_the_definition(given):
    x = np.random.default_rng(1).standard_normal((3, 48)).astype("f")
    native, kept, apart = (
        ostinato.InferenceSession(model(*given), Options(cache_dir=None, disable=disable))
        for disable in ((), ("byte_constants",), ("widen_late",))
    )
    assert not native.report()["fallback"]
    (expected,) = kept.run(None, {"x": x})
    for session in (native, apart):
        for rows in (1, 3):
            (got,) = session.run(None, {"x": x[:rows]})
            assert got.tobytes() == expected[:rows].tobytes()


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_casts_of_weights_below_a_byte_are_native(dtype):
    source = model(dtype)
    del source.graph.node[0]
    source.graph.node.insert(0, helper.make_node("Cast", ["w"], ["d"], to=TensorProto.FLOAT))
    del source.graph.initializer[1]
    session = ostinato.InferenceSession(source, Options(cache_dir=None))
    assert session.report().native
    x = np.eye(48, dtype=np.float32)
    (got,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(got, numpy_helper.to_array(source.graph.initializer[0]))
