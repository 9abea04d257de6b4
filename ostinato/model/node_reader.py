"""A node as rules read it: operands, their sizes, attributes, and the error that names it."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.model.attributes import Attributes, describe
from ostinato.model.values import dims_of, optional_input


class NodeReader:
    """What the contexts of rules have in common.

    name: of the node, or of its first output. attributes: what a rule leaves unread is refused.
    """

    def __init__(self, node: ir.Node) -> None:
        self.node, self.name, self.attributes = node, describe(node), Attributes(node)

    @property
    def op_type(self) -> str:
        return self.node.op_type

    def refuse(self, reason: str) -> UnsupportedError:
        """The error to raise for this node."""
        return self.attributes.refuse(reason)

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return optional_input(self.node, index) is not None

    def given(self, index: int) -> ir.Value:
        """Input `index` as the node reads it."""
        value = optional_input(self.node, index)
        if value is None:
            raise self.refuse(f"input {index} is required")
        return value

    def known_dims(self, value: ir.Value) -> tuple[int | str | None, ...] | None:
        """The sizes of a value of the node as far as they are known, None of unknown rank."""
        return dims_of(value)

    def dims(self, value: ir.Value) -> tuple[int | str | None, ...]:
        """The sizes of a value of the node: numbers, names, None where nothing is known.

        Refuses values of unknown rank.
        """
        dims = self.known_dims(value)
        if dims is None:
            raise self.refuse(f"the rank of {value.name!r} is not known")
        return dims

    def rank(self, value: ir.Value) -> int:
        return len(self.dims(value))
