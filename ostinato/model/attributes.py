"""Reads the attributes of a node and refuses the ones nobody read.

Silently ignoring an attribute is the worst bug a compiler can have, so every lowering and every
rewrite reads attributes through this class and calls `finish` when it has read all it honours.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from ostinato.errors import UnsupportedError

_REQUIRED: Any = object()


def describe(node: ir.Node) -> str:
    """The node's name, or the name of its first output when it has none."""
    return node.name or next((v.name for v in node.outputs if v.name), None) or "<unnamed>"


class Attributes:
    """The attributes of `node`, to be read by name with the type the operator documents.

    A reader without `default` requires the attribute. Raises `UnsupportedError` when an attribute
    is missing or has another type, and from `finish` when one was left unread.
    """

    def __init__(self, node: ir.Node) -> None:
        self._node = node
        self._given = dict(node.attributes)
        self._unread = set(self._given)

    def refuse(self, reason: str) -> UnsupportedError:
        """The error to raise for this node, with its name and op filled in."""
        return UnsupportedError(describe(self._node), self._node.op_type, reason)

    def _read(self, name: str, reader: str, default: Any) -> Any:
        attribute = self._given.get(name)
        self._unread.discard(name)
        if attribute is None:
            if default is _REQUIRED:
                raise self.refuse(f"attribute {name!r} is required")
            return default
        try:
            return getattr(attribute, reader)()
        except TypeError as error:
            raise self.refuse(f"attribute {name!r} has type {attribute.type.name}") from error

    def int(self, name: str, default: int | None = _REQUIRED) -> Any:
        return self._read(name, "as_int", default)

    def ints(self, name: str, default: tuple[builtins.int, ...] | None = _REQUIRED) -> Any:
        value = self._read(name, "as_ints", default)
        return None if value is None else tuple(value)

    def float(self, name: str, default: float | None = _REQUIRED) -> Any:
        return self._read(name, "as_float", default)

    def floats(self, name: str, default: tuple[builtins.float, ...] | None = _REQUIRED) -> Any:
        value = self._read(name, "as_floats", default)
        return None if value is None else tuple(value)

    def string(self, name: str, default: str | None = _REQUIRED) -> Any:
        return self._read(name, "as_string", default)

    def strings(self, name: str, default: tuple[str, ...] | None = _REQUIRED) -> Any:
        value = self._read(name, "as_strings", default)
        return None if value is None else tuple(value)

    def tensor(self, name: str) -> Any:
        attribute = self._given.get(name)
        # `as_tensor` looks for all that a tensor has, which takes ten times as long as the rest.
        if attribute is None or attribute.type != ir.AttributeType.TENSOR or attribute.is_ref():
            return self._read(name, "as_tensor", _REQUIRED)
        self._unread.discard(name)
        return attribute.value

    def type(self, name: str) -> ir.TypeProtocol | None:
        """A type, None where it is left out."""
        attribute = self._given.get(name)
        self._unread.discard(name)
        return None if attribute is None else attribute.value.type

    def graph(self, name: str) -> Any:
        return self._read(name, "as_graph", _REQUIRED)

    def mark_read(self, names: Iterable[str]) -> None:
        """Take attributes as read that the caller has honoured in another way."""
        self._unread.difference_update(names)

    def finish(self) -> None:
        """Raise `UnsupportedError` naming any attribute that was not read."""
        if self._unread:
            names = ", ".join(repr(name) for name in sorted(self._unread))
            raise self.refuse(f"attribute {names} is not honoured by this compiler")
