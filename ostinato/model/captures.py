"""Captures: values that nodes with bodies read from the graphs around them."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from ostinato.model.graphs import subgraphs
from ostinato.model.values import constant_tensor


def with_inner(node: ir.Node) -> Iterator[ir.Node]:
    """The node and all nodes in its bodies."""
    yield node
    for graph in subgraphs(node):
        for inner in graph:
            yield from with_inner(inner)


def captures(node: ir.Node) -> list[ir.Value]:
    """List the values that a node reads, captures of its bodies included."""
    inner = list(with_inner(node))
    bodies = [graph for one in inner for graph in subgraphs(one)]
    own = {value for one in inner for value in one.outputs}
    own |= {value for graph in bodies for value in graph.inputs}
    read = [value for one in inner for value in one.inputs]
    read += [value for graph in bodies for value in graph.outputs]
    return list(dict.fromkeys(value for value in read if value is not None and value not in own))


def mentioned(body: ir.Graph) -> Iterator[ir.Value | None]:
    """Every value that a body and those inside it read or return."""
    yield from body.outputs
    for node in body:
        yield from node.inputs
        for inner in subgraphs(node):
            yield from mentioned(inner)


def closed(node: ir.Node) -> tuple[onnx.NodeProto, list[ir.Value]]:
    """The node with a copy of the constants its bodies read in them, and what it reads besides.

    Kernels of `onnx.reference` for operators that are functions see nothing outside of a body.
    """
    proto = ir.to_proto(node)
    direct = set(node.inputs)
    inputs = captures(node)
    constants = [v for v in inputs if v not in direct and constant_tensor(v) is not None]
    bodies = {
        attribute.name: attribute.as_graph()
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    }
    for attribute in proto.attribute:
        if attribute.name in bodies:
            read = set(mentioned(bodies[attribute.name]))
            own = [_constant_node(v) for v in constants if v in read]
            nodes = [*own, *attribute.g.node]
            del attribute.g.node[:]
            attribute.g.node.extend(nodes)
    return proto, [value for value in inputs if value not in constants]


def _constant_node(value: ir.Value) -> onnx.NodeProto:
    assert value.const_value is not None
    tensor = ir.to_proto(value.const_value)
    return onnx.helper.make_node("Constant", [], [value.name or ""], value=tensor)
