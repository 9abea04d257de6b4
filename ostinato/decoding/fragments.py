"""Pieces of graphs written as ONNX text, and copies of graphs, put together without clashes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx
import onnx.parser

PREFIX = "decoding/"
"""Begins every name that a text introduces, so that none is one of the step's."""
STEP = "step/"
"""Begins every name of the step."""


def nodes(
    text: str, names: Mapping[str, str] | None = None, plain: Collection[str] = ()
) -> list[onnx.NodeProto]:
    """The nodes of a text.

    names: what identifiers of the text stand for. plain: those that are kept as they are; all
    others get `PREFIX`.
    """
    graph = onnx.parser.parse_graph(f"fragment () => () {{ {text} }}")
    known = {"": "", **{name: name for name in plain}, **(names or {})}
    for node in graph.node:
        node.input[:] = [known.get(name, PREFIX + name) for name in node.input]
        node.output[:] = [known.get(name, PREFIX + name) for name in node.output]
        node.name = node.output[0]
    return list(graph.node)


def renamed(graph: onnx.GraphProto, prefix: str, kept: Collection[str] = ()) -> onnx.GraphProto:
    """A copy whose values and nodes have names that begin with `prefix`, but those in `kept`."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    kept = {"", *kept}
    graphs = [copy]
    for current in graphs:
        for value in (*current.input, *current.output, *current.value_info, *current.initializer):
            value.name = value.name if value.name in kept else prefix + value.name
        for node in current.node:
            node.name = node.name and prefix + node.name
            node.input[:] = [name if name in kept else prefix + name for name in node.input]
            node.output[:] = [name if name in kept else prefix + name for name in node.output]
            for attribute in node.attribute:
                graphs += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())]
    return copy
