"""A limit to the depth of nested graphs: an If in a Loop in a Scan.

Stages enter the graphs of a node by recursion, and protobuf reads no messages that are nested more
than a hundred times, three times for each graph. So there is one limit, checked before anything is
done with a model.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from ostinato.errors import ModelError
from ostinato.model.graphs import subgraphs
from ostinato.model.order import attribute_graphs

MOST_NESTED = 30

# Where messages lie in messages, by field number (onnx.proto).
_INNER = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}
_OUTPUT, _NAME, _OPERATOR = 2, 3, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def check_nesting(model: onnx.ModelProto | ir.Model) -> None:
    """Raise `ModelError` that names the node whose graphs are nested too deep."""
    if isinstance(model, ir.Model):
        functions = [function.graph for function in model.functions.values()]
        levels: list[tuple[ir.Graph, int]] = [(g, 0) for g in (model.graph, *functions)]
        for graph, depth in levels:
            for node in graph:
                inner = list(subgraphs(node))
                if inner and depth == MOST_NESTED:
                    raise _too_deep(node.name or "", [v.name for v in node.outputs], node.op_type)
                levels += [(body, depth + 1) for body in inner]
        return
    lists = [model.graph.node, *(function.node for function in model.functions)]
    pending = [(node, 0) for nodes in lists for node in nodes if node.attribute]
    for proto, depth in pending:
        for body in (g for attribute in proto.attribute for g in attribute_graphs(attribute)):
            if depth == MOST_NESTED:
                raise _too_deep(proto.name, list(proto.output), proto.op_type)
            pending += [(node, depth + 1) for node in body.node if node.attribute]


def check_nesting_of_file(data: bytes) -> None:
    """The same for the bytes of a file that protobuf refuses to read; others raise nothing."""
    pending = [("model", 0, len(data), 0)]
    try:
        for kind, start, end, depth in pending:
            strings: dict[int, str] = {}
            for field, begin, stop in _fields(data, start, end):
                inner = _INNER[kind].get(field)
                if inner is not None:
                    pending.append((inner, begin, stop, depth + (kind == "attribute")))
                elif kind == "node" and field in (_OUTPUT, _NAME, _OPERATOR):
                    strings.setdefault(field, data[begin:stop].decode(errors="replace"))
            if kind == "node" and depth == MOST_NESTED and _has_graph(data, start, end):
                name, output = strings.get(_NAME, ""), strings.get(_OUTPUT, "")
                raise _too_deep(name, [output], strings.get(_OPERATOR, "?"))
    except IndexError:
        return  # the file is damaged as well


def _has_graph(data: bytes, start: int, end: int) -> bool:
    """Whether a node has an attribute that holds graphs."""
    return any(
        _INNER["node"].get(field)
        and any(f in _INNER["attribute"] for f, _, _ in _fields(data, *at))
        for field, *at in _fields(data, start, end)
    )


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, begin, end) of the contents of fields that have a length (protobuf, encoding).

    Raises IndexError where the data ends early.
    """
    while position < end:
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _BYTES:
            length, position = _varint(data, position)
            if position + length > end:
                raise IndexError
            yield key >> 3, position, position + length
            position += length
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise IndexError


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _too_deep(name: str, outputs: list[str | None], op_type: str) -> ModelError:
    label = name or next((output for output in outputs if output), "<unnamed>")
    return ModelError(
        f"node {label!r} ({op_type}): graphs are nested more than {MOST_NESTED} deep here; "
        "let one graph do the work of several"
    )
