"""Find kernels that can have the same function: they differ only in names of axes and buffers.

Networks repeat layers. Buffers are parameters of a kernel's function, so one function serves all
layers that are alike, and is written and compiled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ostinato.codegen.signature import signature
from ostinato.program.expr import Access, Axis, Expr, walk
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.nodes import Buffer


def form(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Hashable:
    """The kernel without names: equal forms have equal functions."""
    called = signature(kernel)
    numbers: dict[Any, int] = {}
    for parameter in (*called.buffers, *called.outer):
        numbers[parameter] = len(numbers)
    facts = [(b.dtype, b.padded) for b in map(buffers.__getitem__, called.buffers)]
    forms = _Forms(numbers)
    parts = [forms.of(getattr(kernel, name)) for name in _MEANING]
    return (*facts, *forms.expressions, *parts)


# Names and sources are for people and reports.
_MEANING = tuple([name for name in Kernel.__match_args__ if name not in ("name", "sources")])
_MEMBERS = {kind: kind.__match_args__ for kind in (Reduce, Store, Tile)}


class _Forms:
    """Replaces names by the order of their first use, and expressions by their position.

    numbers: of axes and buffers. expressions: the form of each expression met so far, by position.
    """

    def __init__(self, numbers: dict[Any, int]) -> None:
        self.numbers = numbers
        self.expressions: list[Hashable] = []
        self._positions: dict[Expr, int] = {}

    def of(self, value: Any) -> Hashable:
        """The form of any part of a kernel."""
        # Most parts are one of these, and `isinstance` takes as long as all else.
        kind = type(value)
        if kind is int or kind is str or value is None:
            found: Hashable = value
            return found
        if kind is tuple:
            return tuple([self.of(part) for part in value])
        if kind is Axis:
            return ("axis", self._number(value), value.extent)
        if kind is Access:
            terms = [(self._number(axis), axis.extent, stride) for axis, stride in value.terms]
            return (self._number(value.buffer), value.offset, *terms)
        if isinstance(value, Expr):
            return ("expression", self._position(value))
        if kind in _MEMBERS:
            return self._fields(value, _MEMBERS[kind])
        # 0.0 == -0.0, 1 == True and nan != nan, but they are different constants.
        return (kind.__name__, repr(value)) if isinstance(value, (float, bool)) else value

    def _position(self, expr: Expr) -> int:
        """The number of an expression, behind those of its operands."""
        if expr not in self._positions:
            for node in walk(expr, skip=self._positions):
                # Operands have their positions already.
                self.expressions.append(self._fields(node, node.__match_args__))
                self._positions[node] = len(self._positions)
        return self._positions[expr]

    def _fields(self, value: Any, names: tuple[str, ...]) -> Hashable:
        return (type(value).__name__, *[self.of(getattr(value, name)) for name in names])

    def _number(self, name: Axis | str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))
