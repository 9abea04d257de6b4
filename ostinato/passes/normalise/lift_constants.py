"""Constants of every spelling and scope become initializers of the main graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.edit import add_constant, discard, replace_value, return_copy
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import graphs, is_standard
from ostinato.model.names import Names


def lift_constants(model: ir.Model) -> int:
    """Turn Constant nodes and initializers of nested graphs into initializers of the main graph.

    Matches Constant with any of its attributes, and initializers of bodies and branches. Makes an
    initializer of the main graph under the same name; a graph that returns the constant does so
    through an Identity. Valid because a nested graph sees the values of the graphs around it.
    """
    names = Names(model)
    lifted = 0
    for graph in graphs(model):
        if graph is not model.graph:
            lifted += _lift_initializers(model, graph, names)
        for node in graph:
            if is_standard(node, "Constant"):
                _lift_node(model, node, names)
                lifted += 1
    return lifted


def _lift_initializers(model: ir.Model, graph: ir.Graph, names: Names) -> int:
    values = list(graph.initializers.values())
    for value in values:
        if value.is_graph_output():
            return_copy(value, value, names.fresh(f"{value.name}_output"))
        del graph.initializers[value.name or ""]
        model.graph.initializers.add(value)
    return len(values)


def _lift_node(model: ir.Model, node: ir.Node, names: Names) -> None:
    value = node.outputs[0]
    name = value.name or ""
    if value.is_graph_output():
        name = names.fresh(f"{name}_constant")
    replace_value(value, add_constant(model, name, _contents(node)))
    discard(node)


def _contents(node: ir.Node) -> np.ndarray | ir.TensorProtocol:
    """The tensor of a Constant node (operator document, Constant-13)."""
    given = next(iter(node.attributes), "")
    attributes = Attributes(node)
    contents: np.ndarray | ir.TensorProtocol
    match given:
        case "value":
            contents = attributes.tensor("value")
        case "value_float":
            contents = np.array(attributes.float(given), np.float32)
        case "value_floats":
            contents = np.array(attributes.floats(given), np.float32)
        case "value_int":
            contents = np.array(attributes.int(given), np.int64)
        case "value_ints":
            contents = np.array(attributes.ints(given), np.int64)
        case "value_string":
            contents = ir.StringTensor([attributes.string(given).encode()], shape=ir.Shape([]))
        case "value_strings":
            strings = [text.encode() for text in attributes.strings(given)]
            contents = ir.StringTensor(strings, shape=ir.Shape([len(strings)]))
        case _:
            raise UnsupportedError(describe(node), "Constant", f"attribute {given!r} is no tensor")
    attributes.finish()
    return contents
