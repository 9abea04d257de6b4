"""Operators of classical machine learning (`ai.onnx.ml`) become those of the standard."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.definitions import ml
from ostinato.definitions.contributed.call import Call
from ostinato.definitions.ml.table import DOMAIN
from ostinato.definitions.ml.table import ml as definitions
from ostinato.errors import UnsupportedError
from ostinato.graph.opset_changes import change_between
from ostinato.graph.rules import load_rules
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import graphs, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import normal_domain, opset_of, schema_of
from ostinato.passes.normalise.infer_shapes import infer_of, infer_through_loops

# The first operator set of which all that definitions write has operands for what were attributes.
_OLDEST = 13
# The first one of which all that they write exists: some are written in another way without it.
_NEWEST = 18

load_rules(ml.__name__, ml.__path__)


def expand_ml(model: ir.Model) -> int:
    """Replace operators of `ai.onnx.ml` by their definitions, in place; returns their number.

    Matches nodes of that domain, in any graph. Valid because a definition computes what the
    operator's document says, and where that leaves a choice, what onnxruntime does. What a
    definition refuses stays, for reference kernels. Models of older operator sets than
    definitions are written in import a newer one, if all their nodes mean the same there.
    """
    nodes = [
        node for node in nodes_of(model) if node.domain == DOMAIN and node.op_type in definitions
    ]
    if not nodes or not (_raised(model, _NEWEST) or _raised(model, _OLDEST)):
        return 0
    names, count = Names(model), 0
    for node in nodes:
        writer = Writer(model.graph, names, opset_of(model), ir.DataType.FLOAT, describe(node))
        call = Call(
            node, writer, lambda value: infer_of(value, model), opset=opset_of(model, DOMAIN)
        )
        if any(x is not None and x.dtype is None for x in node.inputs):
            # Made by nodes behind others of this domain, which have types by now.
            infer_through_loops(model)
        try:
            call.expand(definitions[node.op_type])
        except UnsupportedError:
            continue
        count += 1
    return count


def _raised(model: ir.Model, to: int) -> bool:
    """Let the model import this set or a later one, if its nodes mean the same there."""
    opset = opset_of(model)
    standard = (n for g in graphs(model) for n in g if not normal_domain(n.domain))
    if opset < to and not all(_stays(node, opset, to) for node in standard):
        return False
    model.opset_imports[""] = max(opset, to)
    return True


def _stays(node: ir.Node, opset: int, to: int) -> bool:
    old, new = (schema_of(node.op_type, "", version) for version in (opset, to))
    return old is not None and new is not None and change_between(node, old, new) is None
