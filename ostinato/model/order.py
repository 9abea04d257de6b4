"""The nodes of a file: walking them, and sorting them, producers before readers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, MutableSequence, Sequence

import onnx


def attribute_graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds, not those nested deeper."""
    for attribute in node.attribute:
        yield from attribute_graphs(attribute)


def scopes(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and all that are nested in it."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from scopes(body)


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those in their bodies."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from all_nodes(body.node)


def sort_nodes(nodes: MutableSequence[onnx.NodeProto]) -> None:
    """Let every node stand behind the producers of what it and its bodies read.

    Nodes keep their order where they can. Those of a cycle, and what reads their results, keep
    their order behind all others.
    """
    producers: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name in node.output:
            if name:
                producers.setdefault(name, place)
    before = [
        {producers[name] for name in _reads(node) if name in producers} - {place}
        for place, node in enumerate(nodes)
    ]
    if all(max(places, default=-1) < place for place, places in enumerate(before)):
        return
    order = _sorted(before)
    in_order = [onnx.NodeProto.FromString(nodes[place].SerializeToString()) for place in order]
    del nodes[:]
    nodes.extend(in_order)


def _sorted(before: Sequence[set[int]]) -> list[int]:
    """Kahn's algorithm, of all possible places always the first one."""
    after: list[list[int]] = [[] for _ in before]
    for place, places in enumerate(before):
        for earlier in places:
            after[earlier].append(place)
    left = [len(places) for places in before]
    ready = [place for place, count in enumerate(left) if count == 0]
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for later in after[place]:
            left[later] -= 1
            if left[later] == 0:
                heapq.heappush(ready, later)
    return order + sorted(set(range(len(before))) - set(order))


def _reads(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads from the graph it stands in."""
    names = set(node.input)
    for body in bodies(node):
        names |= _free_names(body)
    return names


def _free_names(body: onnx.GraphProto) -> set[str]:
    """The names in a body that the graphs around it define."""
    read = {output.name for output in body.output}
    defined = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    for node in body.node:
        read |= _reads(node)
        defined.update(node.output)
    return read - defined
