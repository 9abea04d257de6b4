"""The rules, one for an operator: what a node becomes that reads a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ostinato.streaming.context import Context

Rule: TypeAlias = "Callable[[Context], None]"

RULES: dict[str, Rule] = {}


def streams(*op_types: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators of the standard domain, and check that there is no other.

    The rule is called for nodes that read a stream, or sizes made from shapes. It changes the
    node, or writes others in its place, and says what the outputs are.
    """

    def register(rule: Rule) -> Rule:
        for op_type in op_types:
            if op_type in RULES:
                raise ValueError(f"{op_type} has a streaming rule already")
            RULES[op_type] = rule
        return rule

    return register
