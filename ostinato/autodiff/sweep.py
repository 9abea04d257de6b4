"""The reverse sweep: each node that the loss depends on is handed to the rule of its operator."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import RULES
from ostinato.autodiff.scope import Scope
from ostinato.errors import UnsupportedError
from ostinato.graph.loop_form import reads
from ostinato.model.attributes import describe


def sweep(scope: Scope) -> None:
    """Visit the nodes of a graph in reverse; afterwards `scope.gradient` knows all gradients.

    Raises `UnsupportedError`, which names the node, for an operator or a form of it without a
    rule.
    """
    for node in reversed(scope.graph):
        wanted = any(value in scope.wanted for value in reads(node))
        if wanted and any(map(scope.has_gradient, node.outputs)):
            _visit(scope, node)


def _visit(scope: Scope, node: ir.Node) -> None:
    rule = RULES.get(node.op_type) if node.domain == "" else None
    if rule is None:
        raise UnsupportedError(
            describe(node),
            node.op_type,
            "has no gradient: take what it depends on out of `wrt`, or write it with operators "
            "that have one",
        )
    context = Context(scope, node)
    rule(context)
    context.attributes.finish()
