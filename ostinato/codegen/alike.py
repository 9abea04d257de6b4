"""Finds kernels with the same function: they differ in names of axes and buffers only.

Networks repeat layers. Their buffers are parameters of a kernel's function, so one function serves
all layers that are alike, and is written and compiled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field, fields
from typing import Any

from ostinato.codegen.signature import signature
from ostinato.program.expr import Access, Axis, Expr, walk
from ostinato.program.kernel import Kernel, Reduce, Store, Tile
from ostinato.program.nodes import Buffer
from ostinato.records import dataclass


def form(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Hashable:
    """The kernel without names: equal forms have equal functions."""
    called = signature(kernel)
    numbers: dict[Any, int] = {}
    for parameter in (*called.buffers, *called.outer):
        numbers[parameter] = len(numbers)
    facts = [(b.dtype, b.padded) for b in map(buffers.__getitem__, called.buffers)]
    forms = _Forms(numbers)
    parts = [forms.of(getattr(kernel, f.name)) for f in fields(kernel) if f.name not in _NO_MEANING]
    return (*facts, *forms.expressions, *parts)


# What only people and reports read.
_NO_MEANING = frozenset(("name", "sources"))


@dataclass
class _Forms:
    """Replaces names by the order of their first use, and expressions by their position.

    numbers: of axes and buffers. expressions: the form of each expression met so far, by position.
    """

    numbers: dict[Any, int]
    expressions: list[Hashable] = field(default_factory=list)
    _positions: dict[Expr, int] = field(default_factory=dict)

    def of(self, value: Any) -> Hashable:
        """The form of any part of a kernel."""
        if isinstance(value, Axis):
            return ("axis", self._number(value), value.extent)
        if isinstance(value, Access):
            return (self._number(value.buffer), value.offset, self.of(value.terms))
        if isinstance(value, Expr):
            for node in walk(value, skip=self._positions):
                # Operands have their positions already.
                self.expressions.append(self._fields(node))
                self._positions[node] = len(self._positions)
            return ("expression", self._positions[value])
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if isinstance(value, Reduce | Store | Tile):
            return self._fields(value)
        # 0.0 == -0.0, 1 == True and nan != nan, but they are different constants.
        return (type(value).__name__, repr(value)) if isinstance(value, float | bool) else value

    def _fields(self, value: Any) -> Hashable:
        parts = (self.of(getattr(value, f.name)) for f in fields(value))
        return (type(value).__name__, *parts)

    def _number(self, name: Axis | str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))
