"""Sizes as LLVM values, computed at the start of a function from the run-time dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from ostinato.codegen.writer import Value, Writer, integer, is_constant
from ostinato.sizes.dims import Apply, Dim, Monomial, Size, Symbol
from ostinato.sizes.substitution import functions


class Sizes:
    """Writes each size once, at the top of a function whose parameter `%symbols` is the table.

    writer: if given, the place to write sizes instead. given: symbols that are values already.
    """

    def __init__(
        self,
        symbols: Sequence[str],
        declarations: set[str],
        writer: Writer | None = None,
        given: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        self._given = dict(given)
        self._is_apart = writer is None
        self.writer = Writer(declarations) if writer is None else writer
        self._positions = {name: i for i, name in enumerate(symbols)}
        self._known: dict[Size | Symbol | Apply | tuple[Monomial, int], Value] = {}

    def text(self) -> str:
        """The instructions that compute all sizes asked for."""
        return self.writer.text().replace("%v", "%size")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope: sizes written inside are not known behind it."""
        known = dict(self._known)
        yield
        self._known = known

    def value(self, size: Size) -> Value:
        """The size as an i64."""
        found = self._raw(size)
        return Value(found.text.replace("%v", "%size"), found.type) if self._is_apart else found

    def _raw(self, size: Size) -> Value:
        """The size under its name while it is being written."""
        if not isinstance(size, Dim):
            return self._integer(size)
        if size not in self._known:
            for atom in functions(size, skip=self._known):
                left, right = map(self._polynomial, atom.args)
                self._known[atom] = self._apply(atom.function, left, right)
            self._polynomial(size)
        return self._known[size]

    def _polynomial(self, size: Size) -> Value:
        """Compute a size whose functions are known."""
        if not isinstance(size, Dim):
            return self._integer(size)
        if size not in self._known:
            total = integer(0)
            for term in size.terms:
                total = self._add(total, self._term(term))
            self._known[size] = total
        return self._known[size]

    def _term(self, term: tuple[Monomial, int]) -> Value:
        """Compute a product; sizes have many in common."""
        if term not in self._known:
            monomial, coefficient = term
            product = self._integer(coefficient)
            for atom in monomial:
                if isinstance(atom, Symbol) and atom not in self._known:
                    self._known[atom] = self._symbol(atom)
                product = self._mul(product, self._known[atom])
            self._known[term] = product
        return self._known[term]

    def _integer(self, number: int) -> Value:
        return integer(number)

    def _mul(self, left: Value, right: Value) -> Value:
        return self.writer.mul(left, right)

    def _add(self, left: Value, right: Value) -> Value:
        return self.writer.add(left, right)

    def _symbol(self, symbol: Symbol) -> Value:
        if symbol.name in self._given:
            return self._given[symbol.name]
        place = self.writer.pointer(
            Value("%symbols", "ptr"), integer(self._positions[symbol.name]), "i64"
        )
        return self.writer.load("i64", place)

    def _apply(self, function: str, left: Value, right: Value) -> Value:
        if function == "floordiv":
            return self._floordiv(left, right)
        if function == "wrap":
            unused = integer(64 - int(right.text).bit_length() + 1)
            return self.writer.binary("ashr", self.writer.binary("shl", left, unused), unused)
        return self.writer.call("i64", f"llvm.s{function}.i64", left, right)

    def _floordiv(self, left: Value, right: Value) -> Value:
        w, zero = self.writer, integer(0)
        divisor = right
        if is_constant(right):
            number = int(right.text)
            # A number too large for 64 bits counts as 0, and is reported.
            if number in (0, -1):
                return zero if number == 0 else w.binary("sub", zero, left)
            if number > 0:
                return self._floordiv_by(left, number)
        else:
            # 0 counts as 1; the smallest integer divided by -1 would end the process.
            small = w.compare("icmp", "ult", w.add(right, integer(1)), integer(2), 1)
            minus = w.compare("icmp", "eq", right, integer(-1), 1)
            divisor = w.select(small, integer(1), right)
            left = w.select(minus, w.binary("sub", zero, left), left)
        quotient = w.binary("sdiv", left, divisor)
        rest = w.binary("srem", left, divisor)
        inexact = w.compare("icmp", "ne", rest, zero, 1)
        crossed = w.compare("icmp", "slt", w.binary("xor", rest, divisor), zero, 1)
        down = w.binary("and", inexact, crossed)
        return w.select(down, w.binary("sub", quotient, integer(1)), quotient)

    def _floordiv_by(self, left: Value, number: int) -> Value:
        """Divide by a positive number, rounding down; LLVM hardly derives that from the above."""
        w = self.writer
        if number & (number - 1) == 0:
            return w.binary("ashr", left, integer(number.bit_length() - 1))
        quotient = w.binary("sdiv", left, integer(number))
        rest = w.binary("srem", left, integer(number))
        return w.add(quotient, w.binary("ashr", rest, integer(63)))


class CheckedSizes(Sizes):
    """Sizes that also keep whether a sum or product so far has left the range of 64 bits."""

    def __init__(self, symbols: Sequence[str], declarations: set[str]) -> None:
        super().__init__(symbols, declarations)
        self._overflow: Value | None = None

    @property
    def overflow(self) -> Value | None:
        """An i1, or None if nothing can have overflowed."""
        flag = self._overflow
        return flag and Value(flag.text.replace("%v", "%size"), flag.type)

    def define(self, name: str, size: Size) -> Value:
        """Define a symbol as this size, from now on, and return its value."""
        self._given[name] = self._raw(size)
        return self.value(size)

    def _integer(self, number: int) -> Value:
        if -(2**63) <= number < 2**63:
            return integer(number)
        self._overflow = Value("true", "i1")
        return integer(0)

    def _mul(self, left: Value, right: Value) -> Value:
        is_trivial = "1" in (left.text, right.text) or (is_constant(left) and is_constant(right))
        return super()._mul(left, right) if is_trivial else self._watched("smul", left, right)

    def _add(self, left: Value, right: Value) -> Value:
        is_trivial = "0" in (left.text, right.text) or (is_constant(left) and is_constant(right))
        return super()._add(left, right) if is_trivial else self._watched("sadd", left, right)

    def _watched(self, operation: str, left: Value, right: Value) -> Value:
        w = self.writer
        both = w.call("{i64, i1}", f"llvm.{operation}.with.overflow.i64", left, right)
        flag = w.emit("i1", f"extractvalue {{i64, i1}} {both.text}, 1")
        self._overflow = flag if self._overflow is None else w.binary("or", self._overflow, flag)
        return w.emit("i64", f"extractvalue {{i64, i1}} {both.text}, 0")
