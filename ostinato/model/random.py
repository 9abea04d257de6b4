"""Operators that draw random numbers, and what tells the draws of one node from another's."""

from __future__ import annotations

import onnx_ir as ir

# Dropout draws in training only, which an operand may decide.
RANDOM = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform "
    "RandomUniformLike".split()
)
# The metadata of a node that holds its number among the random nodes of the model.
NUMBER = "ostinato.random"


def is_random(node: ir.Node) -> bool:
    """Whether two nodes of this kind, or two runs of it in one loop, may give different results."""
    return node.op_type in RANDOM and node.domain in ("", "ai.onnx")


def has_random(graph: ir.Graph) -> bool:
    """Whether the graph, or one nested in it, has such a node: its steps count."""
    return any(is_random(node) for node in graph.all_nodes())
