"""Copies of nodes and graphs."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir

from ostinato.autodiff.copies import copy_graph, copy_node
from ostinato.model.load import load_model
from ostinato.model.names import Names

MODEL = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 18]>
    g (bool c, float[2] x) => (float[2] y) {
      e = Exp(x)
      y = If (c) <
        then_branch = yes () => (float[2] p) { a = Neg(e) p = Mul(a, x) },
        else_branch = no () => (float[2] q) {
          q = If (c) <
            then_branch = inner () => (float[2] r) { r = Sin(e) },
            else_branch = other () => (float[2] s) { s = Identity(x) }>
        }>
    }""")


def branches(node: ir.Node) -> list[ir.Graph]:
    return [attribute.as_graph() for attribute in node.attributes.values()]


def test_nested_graphs_read_what_stands_for_values_around() -> None:
    model = load_model(MODEL)
    exp, choice = model.graph
    x, e = exp.inputs[0], exp.outputs[0]
    instead, result = ir.Value(name="instead"), ir.Value(name="result")
    asked = list[str]()

    def read(value: ir.Value) -> ir.Value:
        asked.append(str(value.name))
        return value

    copy = copy_node(choice, Names(model), read, {e: instead, choice.outputs[0]: result})
    assert copy.outputs[0] is result and copy.graph is None
    then, other = branches(copy)
    assert then[0].inputs[0] is instead and then[1].inputs[1] is x
    inner, _ = branches(other[0])
    assert inner[0].inputs[0] is instead
    assert set(asked) == {"c", "x"}
    # The original is as it was.
    assert branches(choice)[0][0].inputs[0] is e


def test_copies_have_names_of_their_own() -> None:
    model = load_model(MODEL)
    names = Names(model)
    (branch, _) = branches(model.graph[1])
    copy = copy_graph(branch, names)
    made = {v.name for node in copy for v in node.outputs}
    assert made == {"a_1", "p_1"} and [v.name for v in copy.outputs] == ["p_1"]
    assert [v.shape for v in copy.outputs] == [v.shape for v in branch.outputs]
