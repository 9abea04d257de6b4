"""What is refused, with the node and the attribute or input in the message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from ostinato.definitions.recurrent_node import read_recurrent
from ostinato.errors import OstinatoError, ShapeError, UnsupportedError
from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from tests.passes.recurrent_cases import Case

Edit = Callable[[onnx.ModelProto], None]


def attribute(name: str, value: object) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        node = model.graph.node[0]
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value))

    return edit


def initializer(name: str, array: np.ndarray) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        (tensor,) = (t for t in model.graph.initializer if t.name == name)
        tensor.CopyFrom(numpy_helper.from_array(array, name))

    return edit


def without_input(index: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.node[0].input[index] = ""

    return edit


GRU, LSTM = Case("GRU"), Case("LSTM", optional=frozenset({"B", "P", "initial_h"}))
LENGTHS = Case("GRU", constant=frozenset({"sequence_lens"}), lengths=(1, 2), static=True)

REFUSED: dict[str, tuple[Case, Edit, type[OstinatoError], str]] = {
    "direction": (GRU, attribute("direction", "up"), UnsupportedError, "'direction' is 'up'"),
    "direction_type": (GRU, attribute("direction", 1), UnsupportedError, "'direction' has type"),
    "clip_zero": (GRU, attribute("clip", 0.0), UnsupportedError, "'clip' is 0.0"),
    "clip_negative": (LSTM, attribute("clip", -1.0), UnsupportedError, "'clip' is -1.0"),
    "clip_nan": (LSTM, attribute("clip", float("nan")), UnsupportedError, "'clip' is nan"),
    "layout": (GRU, attribute("layout", 2), UnsupportedError, "'layout' is 2"),
    "layout_too_old": (
        replace(GRU, opset=13),
        attribute("layout", 0),
        UnsupportedError,
        "'layout' is not honoured",
    ),
    "input_forget": (LSTM, attribute("input_forget", 2), UnsupportedError, "'input_forget' is 2"),
    "input_forget_of_gru": (GRU, attribute("input_forget", 1), UnsupportedError, "'input_forget'"),
    "output_sequence_too_new": (
        GRU,
        attribute("output_sequence", 1),
        UnsupportedError,
        "'output_sequence'",
    ),
    "linear_before_reset_too_old": (
        replace(GRU, opset=1),
        attribute("linear_before_reset", 1),
        UnsupportedError,
        "'linear_before_reset'",
    ),
    "unknown_attribute": (GRU, attribute("zoneout", 1), UnsupportedError, "'zoneout'"),
    "hidden_size": (GRU, attribute("hidden_size", 5), UnsupportedError, "'hidden_size' is 5"),
    "activations": (GRU, attribute("activations", ["Tanh"]), UnsupportedError, "'activations'"),
    "no_weights": (GRU, without_input(1), UnsupportedError, "'W' is required"),
    "rows_of_w": (GRU, initializer("W", np.zeros((1, 8, 3))), ShapeError, "'W' has shape"),
    "rank_of_w": (GRU, initializer("W", np.zeros((12, 3))), ShapeError, "'W' has shape"),
    "inputs_of_w": (GRU, initializer("W", np.zeros((1, 12, 4))), ShapeError, "'W' has shape"),
    "directions_of_r": (GRU, initializer("R", np.zeros((2, 12, 4))), ShapeError, "'R' has shape"),
    "size_of_b": (GRU, initializer("B", np.zeros((1, 12))), ShapeError, "'B' has shape"),
    "size_of_p": (LSTM, initializer("P", np.zeros((1, 16))), ShapeError, "'P' has shape"),
    "lengths_too_long": (
        LENGTHS,
        initializer("sequence_lens", np.array([1, 5], np.int32)),
        UnsupportedError,
        "'sequence_lens' is",
    ),
    "lengths_negative": (
        LENGTHS,
        initializer("sequence_lens", np.array([1, -1], np.int32)),
        UnsupportedError,
        "'sequence_lens' is",
    ),
    "number_of_lengths": (
        LENGTHS,
        initializer("sequence_lens", np.array([1, 1, 1], np.int32)),
        ShapeError,
        "'sequence_lens' has shape",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_what_is_refused_and_change_nothing(name: str) -> None:
    case, edit, error, message = REFUSED[name]
    proto = onnx.ModelProto.FromString(case.model.SerializeToString())
    edit(proto)
    model = ir.from_proto(proto)
    before = ir.to_proto(model).SerializeToString()
    with pytest.raises(error, match=message) as caught:
        recurrent_to_scan(model)
    assert f"'cell' ({case.op})" in str(caught.value)
    assert ir.to_proto(model).SerializeToString() == before


def test_element_type_must_be_a_float() -> None:
    with pytest.raises(UnsupportedError, match="INT32"):
        recurrent_to_scan(ir.from_proto(Case("GRU", dtype=np.int32).model))


def test_hidden_size_is_that_of_r_when_no_attribute_gives_it() -> None:
    proto = onnx.ModelProto.FromString(GRU.model.SerializeToString())
    attribute("hidden_size", None)(proto)
    assert read_recurrent(ir.from_proto(proto).graph[0], 17).hidden_size == GRU.H


def test_hidden_size_must_be_known() -> None:
    proto = onnx.ModelProto.FromString(Case("GRU", constant=frozenset()).model.SerializeToString())
    attribute("hidden_size", None)(proto)
    for value in proto.graph.input:
        value.type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match="'hidden_size'"):
        recurrent_to_scan(ir.from_proto(proto))


def test_attributes_of_a_function_parameter_are_refused() -> None:
    model = ir.from_proto(GRU.model)
    node = model.graph[0]
    node.attributes["clip"] = ir.RefAttr("clip", "bound", ir.AttributeType.FLOAT)
    with pytest.raises(UnsupportedError, match="'clip' refers to a parameter"):
        read_recurrent(node, 17)


def test_misspelt_default_direction_of_the_first_gru_schema() -> None:
    proto = onnx.ModelProto.FromString(Case("GRU", opset=1).model.SerializeToString())
    attribute("direction", "foward")(proto)
    assert read_recurrent(ir.from_proto(proto).graph[0], 1).directions == ("forward",)
