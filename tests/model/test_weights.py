"""Large weights are set aside while a model is checked, and are initializers again."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.model.weights import LEAST, set_aside


def _model(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    names = [tensor.name for tensor in tensors]
    node = onnx.helper.make_node("Sum", ["x", *names], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N"]) for n in "xy")
    graph = onnx.helper.make_graph([node], "g", [x], [y], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def _tensor(name: str, elements: int = LEAST // 4) -> onnx.TensorProto:
    rng = np.random.default_rng(elements)
    return onnx.numpy_helper.from_array(rng.standard_normal(elements).astype(np.float32), name)


def test_initializers_keep_their_order_and_contents() -> None:
    model = _model(_tensor("b"), _tensor("c", 1), _tensor("a"))
    loaded = load_model(model)
    assert [value.name for value in loaded.graph.inputs] == ["x"]
    assert list(loaded.graph.initializers) == ["b", "c", "a"]
    for tensor in model.graph.initializer:
        value = loaded.graph.initializers[tensor.name].const_value
        assert value is not None
        np.testing.assert_array_equal(value.numpy(), onnx.numpy_helper.to_array(tensor))


def test_only_large_ones_are_set_aside() -> None:
    model = _model(_tensor("a"), _tensor("b", LEAST // 4 - 1))
    assert list(set_aside(model.graph)) == ["a"]
    assert [tensor.name for tensor in model.graph.initializer] == ["b"]


def test_too_little_data_is_refused_by_name() -> None:
    tensor = _tensor("short")
    tensor.dims[0] += 1
    with pytest.raises(ModelError, match="'short'"):
        load_model(_model(tensor))


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ModelError, match="twice"):
        load_model(_model(_tensor("twice"), _tensor("twice")))


def test_a_name_that_a_node_computes_is_refused() -> None:
    model = _model(_tensor("w"))
    model.graph.node.append(onnx.helper.make_node("Neg", ["x"], ["w"]))
    with pytest.raises(ModelError, match="'w'"):
        load_model(model)
