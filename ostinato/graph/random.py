"""Operators that draw random numbers, and what tells the draws of one node from another's."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.model.graphs import subgraphs
from ostinato.model.values import constant_array, optional_input

# The metadata of a node that holds its number among the random nodes of the model.
NUMBER = "ostinato.random"


def is_random(node: ir.Node) -> bool:
    """Whether two nodes of this kind, or two runs of it in one loop, may give different results."""
    return facts_of(node.op_type, node.domain).random


def has_random(graph: ir.Graph) -> bool:
    """Whether the graph, or one nested in it, has such a node: its steps count."""
    return any(is_random(node) for node in graph.all_nodes())


def may_draw(node: ir.Node) -> bool:
    """Whether `node`, or one nested in it, draws numbers; of Dropout unless it is known not to.

    Dropout trains from opset 12 on, where `training_mode` is true.
    """
    if any(may_draw(inner) for graph in subgraphs(node) for inner in graph):
        return True
    if not is_random(node) or node.op_type != "Dropout":
        return is_random(node)
    mode = optional_input(node, 2)
    known = None if mode is None else constant_array(mode)
    return mode is not None and (known is None or bool(known.any()))
