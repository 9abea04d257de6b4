"""Which ops are lowered, and by what. One decorator a rule; a missing rule is a refusal by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ostinato.errors import UnsupportedError
from ostinato.model.attributes import Attributes, describe
from ostinato.ops.tensor import Value

if TYPE_CHECKING:
    import onnx_ir as ir

    from ostinato.ops.builder import Builder


@dataclass
class Context:
    """What a lowering rule works with: one node, its operands and the program being built.

    since: the version of the operator, as in `(op_type, since)` of the ONNX documents.
    lower_graph: lowers a body graph: (graph, values of its inputs) -> values of its outputs.
    """

    node: ir.Node
    since: int
    inputs: Sequence[Value | None]
    attributes: Attributes
    builder: Builder
    lower_graph: Callable[[ir.Graph, Sequence[Value]], list[Value]]

    def refuse(self, reason: str) -> UnsupportedError:
        """The error to raise when this node cannot be lowered."""
        return UnsupportedError(describe(self.node), self.node.op_type, reason)

    def input(self, position: int) -> Value:
        """A required operand."""
        value = self.optional(position)
        if value is None:
            raise self.refuse(f"input {position} is missing")
        return value

    def optional(self, position: int) -> Value | None:
        """An operand, or None where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None


Rule: TypeAlias = Callable[[Context], "Value | Sequence[Value]"]

LOWERINGS: dict[str, Rule] = {}


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Register the lowering rule of these ai.onnx ops."""

    def register(rule: Rule) -> Rule:
        for name in names:
            LOWERINGS[name] = rule
        return rule

    return register
