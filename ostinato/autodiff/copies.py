"""Copies of nodes, with all that is nested in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from ostinato.model.names import Names


def copy_node(
    node: ir.Node,
    names: Names,
    read: Callable[[ir.Value], ir.Value],
    made: Mapping[ir.Value, ir.Value],
) -> ir.Node:
    """The node again, in no graph.

    made: what stands for the values that the copy makes, and for others that it reads. read: what
    stands for the values that are not there.
    """

    def find(value: ir.Value) -> ir.Value:
        return made[value] if value in made else read(value)

    return ir.Node(
        node.domain,
        node.op_type,
        [None if value is None else find(value) for value in node.inputs],
        [
            ir.AttrGraph(attribute.name, copy_graph(attribute.as_graph(), names, read, made))
            if attribute.type == ir.AttributeType.GRAPH
            else attribute
            for attribute in node.attributes.values()
        ],
        outputs=[find(value) for value in node.outputs],
        name=node.name,
    )


def copy_graph(
    graph: ir.Graph,
    names: Names,
    read: Callable[[ir.Value], ir.Value] = lambda value: value,
    around: Mapping[ir.Value, ir.Value] | None = None,
) -> ir.Graph:
    """The graph again, with new names; `read` and `around` say what it reads of graphs around."""
    own = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    made = dict(around or {}) | {value: like(value, names, str(value.name)) for value in own}
    return ir.Graph(
        [made[value] for value in graph.inputs],
        [made[value] if value in made else read(value) for value in graph.outputs],
        nodes=[copy_node(node, names, read, made) for node in graph],
        name=names.fresh(str(graph.name)),
    )


def like(value: ir.Value, names: Names, name: str) -> ir.Value:
    """A new value without a maker, of the type and shape of `value`."""
    return ir.Value(name=names.fresh(name), type=value.type, shape=value.shape)
