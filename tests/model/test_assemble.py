"""A graph as a model of its own."""

from __future__ import annotations

import onnx

from ostinato.model.assemble import assemble


def test_the_model_has_the_graph_and_the_versions() -> None:
    node = onnx.helper.make_node("Neg", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    model = assemble(onnx.helper.make_graph([node], "g", [x], [y]), [("", 17), ("com.example", 2)])
    onnx.checker.check_model(model)
    assert {(i.domain, i.version) for i in model.opset_import} == {("", 17), ("com.example", 2)}
