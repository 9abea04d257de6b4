"""The rules, one for an operator: how the gradient of its outputs becomes that of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ostinato.autodiff.context import Context

Rule: TypeAlias = "Callable[[Context], None]"

RULES: dict[str, Rule] = {}


def differentiates(*op_types: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators of the standard domain, and check that there is no other.

    The rule is called for nodes with the gradient of an output and an input that wants one. It
    writes nodes and gives the gradients of those inputs.
    """

    def register(rule: Rule) -> Rule:
        for op_type in op_types:
            if op_type in RULES:
                raise ValueError(f"{op_type} has a gradient rule already")
            RULES[op_type] = rule
        return rule

    return register
