"""Walking the nested graphs of a model (bodies of Scan and Loop, branches of If)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import onnx_ir as ir

from ostinato.walk import operands_first

_HOLDERS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)

BRANCHES = ("then_branch", "else_branch")
"""The attributes of an If: what runs where the condition is true, and where it is not."""


def is_standard(node: ir.Node, *op_types: str) -> bool:
    """Whether the node is one of these operators of the standard domain."""
    return node.op_type in op_types and not node.domain


def maker_of(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes a value, if it is one of these operators of the standard domain."""
    node = None if value is None else value.producer()
    return node if node is not None and is_standard(node, *op_types) else None


def is_if(node: ir.Node) -> bool:
    """Whether the node has branches."""
    return is_standard(node, "If")


def branches(node: ir.Node) -> list[ir.Graph]:
    """The graphs of an If, in the order of `BRANCHES`."""
    return [node.attributes[name].as_graph() for name in BRANCHES]


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that `node` holds as attributes, not those nested deeper."""
    # The views of a `UserDict` call Python for each key, and every pass asks this of every node.
    for attribute in node.attributes.data.values():
        if attribute.type not in _HOLDERS or attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        else:
            yield from attribute.as_graphs()


def graphs(model: ir.Model) -> list[ir.Graph]:
    """The main graph and every graph nested in it, each before the graphs nested in it.

    The bodies of model-local functions are not included.
    """
    found = [model.graph]
    for graph in found:
        for node in graph:
            for attribute in node.attributes.data.values():
                if attribute.type in _HOLDERS:
                    found.extend(subgraphs(node))
                    break
    return found


def nodes_of(model: ir.Model, *op_types: str) -> Iterator[ir.Node]:
    """Every node of `graphs`; with `op_types` those alone that are `is_standard` of these."""
    for graph in graphs(model):
        for node in graph:
            if not op_types or is_standard(node, *op_types):
                yield node


def operands(value: ir.Value) -> list[ir.Value]:
    """The inputs of the node that makes a value; none of a value that no node makes."""
    node = value.producer()
    return [] if node is None else [v for v in node.inputs if v is not None]


def upstream(
    values: Iterable[ir.Value],
    below: Callable[[ir.Value], Iterable[ir.Value]] = operands,
    skip: Container[ir.Value] = (),
) -> Iterator[ir.Value]:
    """Yield every distinct value that others are computed from, and these, operands first.

    So nothing recurses over the depth of a model: an analysis goes through the values, and keeps
    what it finds of operands in a table. skip: as in `operands_first`.
    """
    return operands_first(values, below, skip)
