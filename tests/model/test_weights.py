"""Large weights are set aside while a model is checked, and are initializers again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.model.weights import LEAST, parted, set_aside


def _model(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    names = [tensor.name for tensor in tensors]
    node = onnx.helper.make_node("Sum", ["x", *names], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N"]) for n in "xy")
    graph = onnx.helper.make_graph([node], "g", [x], [y], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def _tensor(name: str, elements: int = LEAST // 4) -> onnx.TensorProto:
    rng = np.random.default_rng(elements)
    return onnx.numpy_helper.from_array(rng.standard_normal(elements).astype(np.float32), name)


@pytest.mark.parametrize("way", ["proto", "bytes", "path", "external"])
def test_initializers_keep_their_order_and_contents(way: str, tmp_path: Path) -> None:
    model = _model(_tensor("b"), _tensor("c", 1), _tensor("a"))
    given: Any = model
    if way == "bytes":
        given = model.SerializeToString()
    if way in ("path", "external"):
        given, copy = tmp_path / "model.onnx", onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save(copy, given, save_as_external_data=way == "external", size_threshold=0)
    loaded = load_model(given)
    assert [value.name for value in loaded.graph.inputs] == ["x"]
    assert list(loaded.graph.initializers) == ["b", "c", "a"]
    for tensor in model.graph.initializer:
        value = loaded.graph.initializers[tensor.name].const_value
        assert value is not None
        np.testing.assert_array_equal(value.numpy(), onnx.numpy_helper.to_array(tensor))


def test_only_large_ones_are_set_aside() -> None:
    model = _model(_tensor("a"), _tensor("b", LEAST // 4 - 1))
    assert list(set_aside(model.graph, {})) == ["a"]
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


def test_a_file_is_parted_from_the_data_of_large_initializers() -> None:
    typed = _tensor("typed")
    typed.float_data.extend(np.frombuffer(typed.raw_data, np.float32))
    typed.ClearField("raw_data")
    short = _tensor("short")
    short.dims[0] += 1
    model = _model(_tensor("a"), _tensor("b", 4), typed, short, _tensor("c", LEAST), _tensor("a"))
    small, contents = parted(model.SerializeToString())
    first, _, _, _, long, _ = model.graph.initializer
    assert {name: bytes(data) for name, data in contents.items()} == {
        "a": first.raw_data,
        "c": long.raw_data,
    }
    for tensor in (first, long):
        tensor.ClearField("raw_data")
    assert onnx.ModelProto.FromString(small) == model


@pytest.mark.parametrize("size", [0, 1, 1000, 2 * LEAST])
def test_damaged_files_stay_as_they_are(size: int) -> None:
    data = _model(_tensor("a", LEAST)).SerializeToString()
    assert parted(data[:size]) == (data[:size], {})
    assert parted(data + data) == (data + data, {})
    small, _ = parted(data)
    assert parted(small) == (small, {})


def test_data_in_a_file_that_is_too_short_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(_tensor("a"), _tensor("b")), path, save_as_external_data=True, location="w")
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes()[: LEAST + 8])
    with pytest.raises(ModelError, match="tensor 'b' has its data in the file 'w'"):
        load_model(path)
