"""Copies in place get what they write in the type and the shape of what they write to.

`copy_` casts and broadcasts. The exporter puts what is copied in the place of a buffer or of a part
of a tensor as it is. What fills a diagonal becomes a copy, too: the exporter has no form for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

_ATEN = torch.ops.aten
_COPIES = (_ATEN.copy_.default, _ATEN.copy.default)


def fit_copies(program: torch.export.ExportedProgram) -> None:
    """Write the casts and the broadcasts of copies, in all graphs of a program, and diagonals."""
    for part in program.graph_module.modules():
        if not isinstance(part, GraphModule):
            continue
        for node in list(part.graph.nodes):
            if node.target in _COPIES:
                _fit(node)
            elif node.target is _ATEN.fill_diagonal_.default:
                _fill(node)
        part.recompile()


def _fit(copy: Node) -> None:
    target, source = copy.args[:2]
    if not isinstance(target, Node) or not isinstance(source, Node):
        return
    to, given = target.meta.get("val"), source.meta.get("val")
    if not isinstance(to, torch.Tensor) or not isinstance(given, torch.Tensor):
        return
    fitted = source
    with copy.graph.inserting_before(copy):
        if given.dtype != to.dtype:
            fitted = _called(copy, _ATEN.to.dtype, fitted, to.dtype)
        if _is_broadcast(given, to):
            fitted = _called(copy, _ATEN.expand_as.default, fitted, target)
    copy.update_arg(1, fitted)


def _is_broadcast(given: torch.Tensor, to: torch.Tensor) -> bool:
    """Whether it has fewer axes, or some of size 1.

    Sizes that change are not compared: that may bind one to the other.
    """
    pairs = zip(given.shape, to.shape, strict=False)
    return given.ndim < to.ndim or any(isinstance(a, int) and a == 1 for a, _ in pairs)


def _fill(node: Node) -> None:
    """Copy the matrix with its diagonal filled over it."""
    target, number, *wraps = node.args
    matrix = target.meta.get("val") if isinstance(target, Node) else None
    if not isinstance(target, Node) or not isinstance(matrix, torch.Tensor):
        return
    if matrix.ndim != 2 or any(wraps) or node.kwargs:
        return
    with node.graph.inserting_before(node):
        ones = _called(node, _ATEN.ones_like.default, target, dtype=torch.bool)
        diagonal = _called(node, _ATEN.tril.default, _called(node, _ATEN.triu.default, ones))
        filled = _called(node, _ATEN.masked_fill.Scalar, target, diagonal, number)
        copy = node.graph.call_function(_ATEN.copy_.default, (target, filled))
    copy.meta["val"] = matrix
    node.replace_all_uses_with(copy)
    node.graph.erase_node(node)


def _called(
    before: Node, operator: torch._ops.OpOverload, source: Node, *others: Any, **named: Any
) -> Node:
    node = before.graph.call_function(operator, (source, *others), named)
    values = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in node.args]
    with source.meta["val"].fake_mode, torch.autocast("cpu", enabled=False):
        node.meta["val"] = operator(*values, **named)
    return node
