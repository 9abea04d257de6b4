"""Pieces of graphs written as ONNX text, and copies of graphs, put together without clashes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx
import onnx.parser

from ostinato.graph.facts import facts_of

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


def weights_of(graph: onnx.GraphProto) -> list[str]:
    """The names of its initializers."""
    sparse = (weight.values for weight in graph.sparse_initializer)
    return [weight.name for weight in (*graph.initializer, *sparse)]


def take_constants(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Take the nodes out of a graph that compute from its weights alone, to stand before a loop.

    They give every step the same. Those of narrow weights have to: onnxruntime fuses
    DequantizeLinear into products, and fails where the weights belong to a graph around.
    """
    known, results = set(weights_of(graph)), {value.name for value in graph.output}
    literals = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Constant" and node.output[0] not in results
    }
    taken: list[onnx.NodeProto] = []
    for node in graph.node:
        given = {name for name in node.input if name}
        is_constant = (
            not known.isdisjoint(given)
            and given <= known | literals.keys()
            and results.isdisjoint(node.output)
            and _is_plain(node)
        )
        if is_constant:
            made = [*(literals[name] for name in sorted(given - known)), node]
            known.update(name for each in made for name in each.output)
            taken += made
    rest = [node for node in graph.node if known.isdisjoint(node.output)]
    del graph.node[:]
    graph.node.extend(rest)
    return taken


def _is_plain(node: onnx.NodeProto) -> bool:
    """Whether a node follows from its operands."""
    has_graphs = any(a.HasField("g") or a.graphs for a in node.attribute)
    is_standard = node.domain in ("", "ai.onnx")
    return is_standard and not has_graphs and not facts_of(node.op_type).random
