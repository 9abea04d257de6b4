"""Walking the nested graphs of a model (bodies of Scan and Loop, branches of If)."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that `node` holds as attributes, not those nested deeper."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def graphs(model: ir.Model) -> list[ir.Graph]:
    """The main graph and every graph nested in it, each before the graphs nested in it.

    The bodies of model-local functions are not included.
    """
    found = [model.graph]
    for graph in found:
        for node in graph:
            found.extend(subgraphs(node))
    return found
