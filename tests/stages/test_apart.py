"""Nodes that are stages of their own."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

import ostinato
from ostinato.errors import OstinatoError, UnsupportedError


def zipped(**labels: list[int] | list[str]) -> onnx.ModelProto:
    key = TensorProto.STRING if "classlabels_strings" in labels else TensorProto.INT64
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, element))
    graph = helper.make_graph(
        [
            helper.make_node("Softmax", ["x"], ["p"]),
            helper.make_node("ZipMap", ["p"], ["z"], domain="ai.onnx.ml", **labels),
            helper.make_node("ArgMax", ["p"], ["y"], axis=1, keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [
            helper.make_tensor_value_info("y", TensorProto.INT64, ["N"]),
            helper.make_value_info("z", maps),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("labels", [[7, 9], ["no", "yes"]])
def test_maps_of_native_numbers_are_native(labels, tmp_path):
    name = "classlabels_int64s" if labels[0] == 7 else "classlabels_strings"
    model = zipped(**{name: labels})
    x = [[0.0, 1.0], [2.0, 1.0], [3.0, 3.0]]
    for _ in range(2):
        session = ostinato.InferenceSession(model, cache_dir=tmp_path, fallback=False)
        assert session.report().fallback == []
        y, maps = session.run(None, {"x": x})
        assert y.tolist() == [1, 0, 0]
        assert [list(one) for one in maps] == [labels] * 3
        assert all(isinstance(value, float) for one in maps for value in one.values())
        for one, place in zip(maps, y, strict=True):
            assert sum(one.values()) == pytest.approx(1)
            assert max(one, key=one.get) == labels[place]


def test_as_many_labels_as_columns():
    session = ostinato.InferenceSession(zipped(classlabels_int64s=[1, 2, 3]), cache_dir=None)
    with pytest.raises(OstinatoError, match="output 'z': 2 columns for 3 class labels"):
        session.run(None, {"x": [[0.0, 1.0]]})


def test_labels_of_both_kinds_are_left_to_the_reference_kernel():
    model = zipped(classlabels_int64s=[1, 2], classlabels_strings=["a", "b"])
    with pytest.raises(UnsupportedError, match="ZipMap"):
        ostinato.InferenceSession(model, cache_dir=None, fallback=False)


def test_no_library_has_maps(tmp_path):
    with pytest.raises(UnsupportedError, match="output 'z' has maps, expected tensors"):
        ostinato.build(zipped(classlabels_int64s=[1, 2]), tmp_path)
