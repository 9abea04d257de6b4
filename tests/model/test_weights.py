"""Large weights are set aside while a model is checked, and are initializers again."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import ostinato
from ostinato import files
from ostinato.errors import ModelError
from ostinato.model.load import load_model
from ostinato.model.weights import LEAST, parted, set_aside, without_contents


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_elements_in_fields_of_their_type_are_set_aside_if_they_lie_as_in_memory(
    dtype: type[np.generic],
) -> None:
    array = np.arange(LEAST // 4).astype(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    model = _model(_tensor("a", 1))
    model.graph.initializer[0].CopyFrom(onnx.helper.make_tensor("a", kind, array.shape, array))
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.elem_type = kind
    model.graph.node[0].op_type = "Add"
    _, contents = parted(memoryview(model.SerializeToString()))
    assert set(contents) == (set() if dtype is np.int64 else {"a"})
    loaded = load_model(model.SerializeToString()).graph.initializers["a"].const_value
    assert loaded is not None
    np.testing.assert_array_equal(loaded.numpy(), array)


def test_elements_of_another_type_than_their_field_are_refused_whatever_their_number() -> None:
    for elements in (4, LEAST // 4):
        model = _model(_tensor("a", 1))
        tensor = onnx.TensorProto(name="a", data_type=onnx.TensorProto.DOUBLE, dims=[elements])
        tensor.float_data.extend([1.0] * 2 * elements)
        model.graph.initializer[0].CopyFrom(tensor)
        with pytest.raises(ModelError, match="double_data"):
            load_model(model.SerializeToString())


def test_large_constants_of_nodes_are_set_aside() -> None:
    model = _model(_tensor("a"), _tensor("b"), _tensor("c", 1))
    for tensor in model.graph.initializer[1:]:
        node = onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        model.graph.node.insert(0, node)
    del model.graph.initializer[1:]
    small, contents = parted(memoryview(model.SerializeToString()))
    assert set(contents) == {"a", "b"} and len(small) < LEAST
    x = np.ones(LEAST // 4, np.float32)
    expected = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": x})
    (got,) = ostinato.InferenceSession(model.SerializeToString(), cache_dir=None).run(
        None, {"x": x}
    )
    np.testing.assert_array_equal(got, expected[0])


def test_a_constant_with_the_name_of_an_input_is_refused_whatever_its_size() -> None:
    for elements in (1, LEAST // 4):
        model = _model(_tensor("a", elements))
        node = onnx.helper.make_node("Constant", [], ["x"], value=_tensor("x", elements))
        model.graph.node.insert(0, node)
        with pytest.raises(ModelError, match="output 'x' has the name of another value"):
            load_model(model.SerializeToString())


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
    small, contents = parted(memoryview(model.SerializeToString()))
    first, _, third, _, long, _ = model.graph.initializer
    assert {name: bytes(data) for name, data in contents.items()} == {
        "a": first.raw_data,
        "typed": np.array(typed.float_data, np.float32).tobytes(),
        "c": long.raw_data,
    }
    for tensor in (first, third, long):
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
    assert onnx.ModelProto.FromString(small) == model


@pytest.mark.parametrize("size", [0, 1, 1000, 2 * LEAST])
def test_damaged_files_stay_as_they_are(size: int) -> None:
    data = _model(_tensor("a", LEAST)).SerializeToString()
    for damaged in (data[:size], data + data, parted(memoryview(data))[0]):
        assert parted(memoryview(damaged)) == (damaged, {})


def test_data_in_a_file_that_is_too_short_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(_tensor("a"), _tensor("b")), path, save_as_external_data=True, location="w")
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes()[: LEAST + 8])
    with pytest.raises(ModelError, match="tensor 'b' has its data in the file 'w'"):
        load_model(path)


def test_no_memory_is_taken_for_more_than_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(_tensor("a"), _tensor("b")), path, save_as_external_data=True, location="w")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.dims[0] = 1 << 60
        entry = next(entry for entry in tensor.external_data if entry.key == "length")
        entry.value = str(1 << 62)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="tensor 'a' has its data in the file 'w'"):
        load_model(path)


@pytest.mark.parametrize("is_external", [False, True])
def test_very_large_files_are_mapped_until_the_model_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_external: bool
) -> None:
    mapped: list[files.MappedFile] = []
    monkeypatch.setattr(files, "READ_UP_TO", LEAST)
    monkeypatch.setattr(files, "_MAPPED", SimpleNamespace(add=mapped.append))
    model, path = _model(_tensor("a"), _tensor("b")), tmp_path / "model.onnx"
    x = np.ones(LEAST // 4, np.float32)
    expected = x + sum(map(onnx.numpy_helper.to_array, model.graph.initializer))
    onnx.save(model, path, save_as_external_data=is_external, location="weights")
    (result,) = ostinato.InferenceSession(path, cache_dir=None).run(None, {"x": x})
    np.testing.assert_allclose(result, expected, atol=1e-6)
    gc.collect()
    # Nothing refers to it any more.
    mapped.pop().close()
    assert not mapped


def test_a_large_file_that_cannot_be_mapped_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any) -> files.MappedFile:
        raise OSError("no such device")

    monkeypatch.setattr(files, "READ_UP_TO", LEAST)
    monkeypatch.setattr(files, "MappedFile", refuse)
    model, path = _model(_tensor("a")), tmp_path / "model.onnx"
    onnx.save(model, path)
    loaded = load_model(path).graph.initializers["a"].const_value
    assert loaded is not None
    expected = onnx.numpy_helper.to_array(model.graph.initializer[0])
    np.testing.assert_array_equal(loaded.numpy(), expected)


@pytest.mark.parametrize("where", ["link", "above", "elsewhere"])
def test_weights_outside_of_the_folder_are_not_mapped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    monkeypatch.setattr(files, "READ_UP_TO", LEAST)
    path, weights = tmp_path / "a" / "model.onnx", tmp_path / "w"
    path.parent.mkdir()
    model = _model(_tensor("a"), _tensor("b"))
    onnx.save(model, path, save_as_external_data=True, location="w")
    (path.parent / "w").rename(weights)
    if where == "link":
        (path.parent / "w").symlink_to(weights)
    model = onnx.load(path, load_external_data=False)
    location = {"link": "w", "above": "../w", "elsewhere": str(weights)}[where]
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="tensor 'a' has its data in the file"):
        load_model(path)


def test_a_model_without_contents_has_large_inputs() -> None:
    model = load_model(_model(_tensor("b"), _tensor("c", 1), _tensor("a")))
    before = ir.to_proto(model)
    made = without_contents(model)
    assert [value.name for value in made.graph.input] == ["x", "b", "a"]
    assert [tensor.name for tensor in made.graph.initializer] == ["c"]
    assert made.ByteSize() < LEAST
    assert ir.to_proto(model) == before
    b = model.graph.initializers["b"]
    assert b.is_initializer() and not b.is_graph_input()
