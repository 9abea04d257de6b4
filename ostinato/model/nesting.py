"""A limit to the depth of nested graphs: an If in a Loop in a Scan.

Stages enter the graphs of a node by recursion, and protobuf reads no messages that are nested more
than a hundred times, three times for each graph. So there is one limit, checked before anything is
done with a model.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from ostinato.errors import ModelError
from ostinato.model.graphs import subgraphs
from ostinato.model.order import bodies
from ostinato.protobuf import onnx_fields
from ostinato.protobuf.wire import fields

MOST_NESTED = 30

# Fields of messages that contain messages.
_INNER = {
    "model": {onnx_fields.MODEL_GRAPH: "graph", onnx_fields.MODEL_FUNCTION: "function"},
    "graph": {onnx_fields.GRAPH_NODE: "node"},
    "function": {onnx_fields.FUNCTION_NODE: "node"},
    "node": {onnx_fields.NODE_ATTRIBUTE: "attribute"},
    "attribute": dict.fromkeys(
        (onnx_fields.ATTRIBUTE_GRAPH, onnx_fields.ATTRIBUTE_GRAPHS), "graph"
    ),
}


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
        for body in bodies(proto):
            if depth == MOST_NESTED:
                raise _too_deep(proto.name, list(proto.output), proto.op_type)
            pending += [(node, depth + 1) for node in body.node if node.attribute]


def check_nesting_of_file(data: memoryview) -> None:
    """The same for the bytes of a file that protobuf refuses to read; others raise nothing."""
    pending = [("model", 0, len(data), 0)]
    try:
        for kind, start, end, depth in pending:
            strings: dict[int, str] = {}
            for field, _, begin, stop in fields(data, start, end):
                inner = _INNER[kind].get(field)
                if inner is not None:
                    pending.append((inner, begin, stop, depth + (kind == "attribute")))
                elif kind == "node" and field in (
                    onnx_fields.NODE_OUTPUT,
                    onnx_fields.NODE_NAME,
                    onnx_fields.NODE_OP_TYPE,
                ):
                    strings.setdefault(field, bytes(data[begin:stop]).decode(errors="replace"))
            if kind == "node" and depth == MOST_NESTED and _has_graph(data, start, end):
                name, output = (
                    strings.get(onnx_fields.NODE_NAME, ""),
                    strings.get(onnx_fields.NODE_OUTPUT, ""),
                )
                raise _too_deep(name, [output], strings.get(onnx_fields.NODE_OP_TYPE, "?"))
    except IndexError:
        return  # the file is damaged as well


def _has_graph(data: memoryview, start: int, end: int) -> bool:
    """Whether a node has an attribute that holds graphs."""
    return any(
        _INNER["node"].get(field) and any(f in _INNER["attribute"] for f, *_ in fields(data, *at))
        for field, _, *at in fields(data, start, end)
    )


def _too_deep(name: str, outputs: list[str | None], op_type: str) -> ModelError:
    label = name or next((output for output in outputs if output), "<unnamed>")
    return ModelError(
        f"node {label!r} ({op_type}): graphs are nested more than {MOST_NESTED} deep here; "
        "let one graph do the work of several"
    )
