"""Nodes on which the shape inference of the onnx package would crash, or never come to an end.

It is native code that takes for granted what the operators' documents demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import onnx

from ostinato.errors import ModelError
from ostinato.limits import MOST_AXES

# Subscripts of an operand: letters, and at most one ellipsis.
_TERM = r"[A-Za-z]*(?:\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(?:,{_TERM})*(?:->{_TERM})?")


def check_inferable(node: onnx.NodeProto, label: str) -> None:
    """Raise `ModelError` for a node that must not be given to shape inference.

    `label` names the node in messages.
    """
    rule = _RULES.get(node.op_type)
    problem = rule(node) if rule is not None and node.domain in ("", "ai.onnx") else None
    if problem is not None:
        raise ModelError(f"node {label!r} ({node.op_type}): {problem}")


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _check_split(node: onnx.NodeProto) -> str | None:
    count = _attribute(node, "num_outputs")
    if count is None or count.i == len(node.output):
        return None
    return f"attribute 'num_outputs' is {count.i}, the node has {len(node.output)} outputs"


def _check_einsum(node: onnx.NodeProto) -> str | None:
    equation = _attribute(node, "equation")
    if equation is None:
        return None
    try:
        text = equation.s.decode()
    except UnicodeDecodeError:
        return "attribute 'equation' is no text"
    longest = max(sum(map(str.isalpha, term)) for term in re.split(",|->", text))
    if longest > MOST_AXES:
        return (
            f"attribute 'equation' has {longest} subscripts of an operand: arrays have at most "
            f"{MOST_AXES} axes"
        )
    if not _EQUATION.fullmatch(text):
        return f"attribute 'equation' is {text!r}: expected subscripts such as 'ij,jk->ik'"
    return None


_RULES: dict[str, Callable[[onnx.NodeProto], str | None]] = {
    "Split": _check_split,
    "Einsum": _check_einsum,
}
