"""Copies in place get what they write in the type and the shape of what they write to.

`copy_` casts and broadcasts. The exporter puts what is copied in the place of a buffer or of a part
of a tensor as it is.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

_ATEN = torch.ops.aten
_COPIES = (_ATEN.copy_.default, _ATEN.copy.default)


def fit_copies(program: torch.export.ExportedProgram) -> None:
    """Write the casts and the broadcasts of copies, in all graphs of a program."""
    for part in program.graph_module.modules():
        if not isinstance(part, GraphModule):
            continue
        for node in part.graph.nodes:
            if node.target in _COPIES:
                _fit(node)
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


def _called(copy: Node, operator: torch._ops.OpOverload, source: Node, other: object) -> Node:
    node = copy.graph.call_function(operator, (source, other))
    values = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in node.args]
    with source.meta["val"].fake_mode, torch.autocast("cpu", enabled=False):
        node.meta["val"] = operator(*values)
    return node
