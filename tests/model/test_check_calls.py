from __future__ import annotations

import onnx
import pytest
from onnx import helper

from ostinato.errors import ModelError
from ostinato.model.load import load_model


def calls(bodies: dict[str, list[str]]) -> onnx.ModelProto:
    """A model that calls the first of some functions, each of which calls others in a row."""
    functions = []
    for name, inner in bodies.items():
        values = ["x", *(f"v{n}" for n in range(len(inner)))]
        nodes = [
            helper.make_node(op, [given], [made], domain="" if op == "Neg" else "my")
            for op, given, made in zip(inner, values, values[1:], strict=False)
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
        functions.append(helper.make_function("my", name, ["x"], values[-1:], nodes, opsets))
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    node = helper.make_node(next(iter(bodies)), ["x"], ["y"], domain="my")
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8)


def doubling(depth: int) -> onnx.ModelProto:
    return calls({f"f{n}": [f"f{n + 1}"] * 2 for n in range(depth)} | {f"f{depth}": ["Neg"]})


def test_functions_that_stand_for_too_many_nodes_are_refused() -> None:
    load_model(doubling(3))
    with pytest.raises(ModelError, match=f"'f0' stands for {2**40}"):
        load_model(doubling(40))


@pytest.mark.parametrize(
    "bodies", [{"a": ["a"]}, {"a": ["Neg", "b"], "b": ["a"]}], ids=["itself", "by another"]
)
def test_functions_that_call_themselves_are_refused(bodies: dict[str, list[str]]) -> None:
    with pytest.raises(ModelError, match="calls itself, directly or not"):
        load_model(calls(bodies))


def test_subscripts_without_end_are_refused() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[?] y) { y = Einsum'
    model = onnx.parser.parse_model(text + f'<equation = "{"a" * 65}">(x) }}')
    with pytest.raises(ModelError, match="65 subscripts of an operand"):
        load_model(model)
