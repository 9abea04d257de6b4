"""Remove nodes that no output depends on."""

from __future__ import annotations

import onnx.defs
import onnx_ir as ir

from ostinato.graph.edit import discard, is_needed
from ostinato.model.graphs import graphs, subgraphs
from ostinato.model.schema import opset_of, schema_of

_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


def dead_code(model: ir.Model) -> int:
    """Remove unused nodes and initializers and unname unused optional outputs.

    Matches, in every graph: a node none of whose outputs is read or returned; an optional output
    (operator's schema) that is not; an initializer that is not. Returns how many were dropped.
    Valid because no ONNX operator has an effect besides its outputs.
    """
    dropped = _sweep(model, model.graph)
    for graph in graphs(model):
        for name, value in list(graph.initializers.items()):
            if not is_needed(value):
                del graph.initializers[name]
                dropped += 1
    return dropped


def _sweep(model: ir.Model, graph: ir.Graph) -> int:
    dropped = 0
    for node in reversed(graph):
        if not any(is_needed(value) for value in node.outputs):
            discard(node)
            dropped += 1
            continue
        dropped += _drop_optional_outputs(model, node)
        for body in subgraphs(node):
            dropped += _sweep(model, body)
    return dropped


def _drop_optional_outputs(model: ir.Model, node: ir.Node) -> int:
    unused = [i for i, v in enumerate(node.outputs) if v.name and not is_needed(v)]
    if not unused or node.op_identifier() in model.functions:
        return 0
    schema = schema_of(node.op_type, node.domain, opset_of(model, node.domain))
    if schema is None:
        return 0
    optional = [
        i for i in unused if i < len(schema.outputs) and schema.outputs[i].option == _OPTIONAL
    ]
    for position in optional:
        node.outputs[position].name = ""
    return len(optional)
