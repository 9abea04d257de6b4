"""Sizes as LLVM values, computed at the start of a function from the run-time dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.codegen.writer import Value, Writer, integer
from ostinato.program.dims import Apply, Dim, Size, Symbol


class Sizes:
    """Writes each size once, at the top of a function whose parameter `%symbols` is the table."""

    def __init__(self, symbols: Sequence[str], declarations: set[str]) -> None:
        self.writer = Writer(declarations)
        self._positions = {name: i for i, name in enumerate(symbols)}
        self._known: dict[Size | Symbol | Apply, Value] = {}

    def text(self) -> str:
        """The instructions that compute all sizes asked for."""
        return self.writer.text().replace("%v", "%size")

    def value(self, size: Size) -> Value:
        """The size as an i64."""
        if not isinstance(size, Dim):
            return integer(size)
        if size not in self._known:
            total = integer(0)
            for monomial, coefficient in size.terms:
                term = integer(coefficient)
                for atom in monomial:
                    term = self.writer.mul(term, self._atom(atom))
                total = self.writer.add(total, term)
            self._known[size] = total
        found = self._known[size]
        return Value(found.text.replace("%v", "%size"), found.type)

    def _atom(self, atom: Symbol | Apply) -> Value:
        if atom not in self._known:
            self._known[atom] = (
                self._symbol(atom) if isinstance(atom, Symbol) else self._apply(atom)
            )
        return self._known[atom]

    def _symbol(self, symbol: Symbol) -> Value:
        place = self.writer.pointer(
            Value("%symbols", "ptr"), integer(self._positions[symbol.name]), "i64"
        )
        return self.writer.emit("i64", f"load i64, ptr {place.text}")

    def _apply(self, atom: Apply) -> Value:
        left, right = (self._raw(arg) for arg in atom.args)
        if atom.function == "floordiv":
            return self._floordiv(left, right)
        return self.writer.call("i64", f"llvm.s{atom.function}.i64", left, right)

    def _raw(self, size: Size) -> Value:
        self.value(size)
        return self._known[size] if isinstance(size, Dim) else integer(size)

    def _floordiv(self, left: Value, right: Value) -> Value:
        w, zero = self.writer, integer(0)
        divisor = w.select(w.compare("icmp", "eq", right, zero, 1), integer(1), right)
        quotient = w.binary("sdiv", left, divisor)
        rest = w.binary("srem", left, divisor)
        inexact = w.compare("icmp", "ne", rest, zero, 1)
        crossed = w.compare("icmp", "slt", w.binary("xor", rest, divisor), zero, 1)
        down = w.binary("and", inexact, crossed)
        return w.select(down, w.binary("sub", quotient, integer(1)), quotient)
