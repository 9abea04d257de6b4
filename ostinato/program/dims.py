"""Sizes known only when a model runs: polynomials with integer coefficients over named numbers.

A `Size` is an `int` or a `Dim`. Arithmetic on a `Dim` gives a plain `int` whenever the result is
constant, so code that handles sizes never asks which of the two it has. Division and bounds that
are not polynomial (`T // 2`, `max(a, b)`) become opaque atoms of the polynomial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

Size: TypeAlias = "int | Dim"

# The symbol that the runtime sets to the machine's memory in bytes, for checks.
MEMORY = "bytes of memory"


@dataclass(frozen=True)
class Symbol:
    """A named number: a dimension of the model, at least 0, or a `signed` one of any value."""

    name: str
    signed: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Apply:
    """A function of sizes that is not a polynomial: `floordiv`, `min` or `max`."""

    function: str
    args: tuple[Size, ...]

    def __str__(self) -> str:
        if self.function == "floordiv":
            left, right = (f"({arg})" if " " in str(arg) else str(arg) for arg in self.args)
            return f"({left} // {right})"
        return f"{self.function}({', '.join(map(str, self.args))})"


Atom: TypeAlias = Symbol | Apply
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class Dim:
    """A polynomial: monomials (sorted atoms, repeated for powers) with non-zero coefficients."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        return _collect([*self.terms, *_terms(other)])

    __radd__ = __add__

    def __mul__(self, other: Size) -> Size:
        return _collect(
            [
                (tuple(sorted((*left, *right), key=str)), a * b)
                for left, a in self.terms
                for right, b in _terms(other)
            ]
        )

    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __floordiv__(self, other: Size) -> Size:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return floordiv(other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"the size {self} is only known at run time")

    def __str__(self) -> str:
        return " + ".join(_monomial_text(m, c) for m, c in self.terms).replace("+ -", "- ")


def _monomial_text(monomial: Monomial, coefficient: int) -> str:
    body = "*".join(map(str, monomial))
    if not body:
        return str(coefficient)
    return {1: body, -1: f"-{body}"}.get(coefficient, f"{coefficient}*{body}")


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(size, Dim):
        return size.terms
    return (((), int(size)),) if size else ()


def _collect(terms: list[tuple[Monomial, int]]) -> Size:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = sorted(
        ((m, c) for m, c in total.items() if c), key=lambda item: (-len(item[0]), str(item[0]))
    )
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Dim(tuple(kept))


def symbol(name: str, signed: bool = False) -> Dim:
    """The run-time dimension called `name`; `signed` if it may be negative."""
    return Dim((((Symbol(name, signed),), 1),))


def _apply(function: str, *args: Size) -> Dim:
    return Dim((((Apply(function, args),), 1),))


def product(sizes: Iterator[Size] | tuple[Size, ...] | list[Size]) -> Size:
    """The product of sizes; 1 for none."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


@lru_cache(maxsize=4096)
def exact_quotient(numerator: Size, denominator: Size) -> Size | None:
    """The `q` with `numerator == q * denominator` as polynomials, or None.

    Exact for a denominator of one monomial, and for a numerator that is a constant times the
    denominator: the cases that strides need.
    """
    if numerator == 0:
        return 0
    if denominator == 0:
        return None
    if numerator == denominator:
        return 1
    below = _terms(denominator)
    if len(below) == 1:
        return _divide_by_monomial(_terms(numerator), *below[0])
    above = _terms(numerator)
    quotient, remainder = divmod(above[0][1], below[0][1])
    return quotient if not remainder and denominator * quotient == numerator else None


def _divide_by_monomial(
    terms: tuple[tuple[Monomial, int], ...], monomial: Monomial, coefficient: int
) -> Size | None:
    result: list[tuple[Monomial, int]] = []
    for atoms, factor in terms:
        left = list(atoms)
        for atom in monomial:
            if atom not in left:
                return None
            left.remove(atom)
        if factor % coefficient:
            return None
        result.append((tuple(left), factor // coefficient))
    return _collect(result)


def floordiv(numerator: Size, denominator: Size) -> Size:
    """`numerator // denominator`, rounded down.

    A number must not be 0 as denominator; a run-time size that turns out to be 0 counts as 1, for
    whoever divides by it checks it.
    """
    if isinstance(numerator, int) and isinstance(denominator, int):
        return numerator // denominator
    exact = exact_quotient(numerator, denominator)
    return exact if exact is not None else _apply("floordiv", numerator, denominator)


def ceildiv(numerator: Size, denominator: int) -> Size:
    """`numerator / denominator` rounded up."""
    return floordiv(numerator + (denominator - 1), denominator)


def maximum(left: Size, right: Size) -> Size:
    """The larger of two sizes."""
    if is_nonnegative(left - right):
        return left
    return right if is_nonnegative(right - left) else _apply("max", left, right)


def minimum(left: Size, right: Size) -> Size:
    """The smaller of two sizes."""
    if is_nonnegative(left - right):
        return right
    return left if is_nonnegative(right - left) else _apply("min", left, right)


def is_equal(left: Size, right: Size) -> Size:
    """1 where two sizes are equal, else 0."""
    difference = left - right
    if isinstance(difference, int):
        return int(difference == 0)
    if is_nonnegative(difference - 1) or is_nonnegative(-difference - 1):
        return 0
    return maximum(1 - maximum(difference, -difference), 0)


def is_different(left: Size, right: Size) -> Size:
    """0 where two sizes are equal, else 1."""
    same = is_equal(left, right)
    if isinstance(same, int):
        return 1 - same
    difference = left - right
    return minimum(maximum(maximum(difference, -difference), 0), 1)


def is_less(left: Size, right: Size) -> Size:
    """1 where the left size is smaller, else 0."""
    return minimum(maximum(right - left, 0), 1)


def choose(condition: Size, yes: Size, no: Size) -> Size:
    """`yes` where the condition is 1, `no` where it is 0."""
    return no + condition * (yes - no)


def is_nonnegative(size: Size) -> bool:
    """Whether `size` is at least 0 for every value of its symbols, as far as is easily seen."""
    return all(c >= 0 and all(map(_atom_nonnegative, m)) for m, c in _terms(size))


def is_symbol(size: Size) -> bool:
    """Whether `size` is a single symbol."""
    terms = _terms(size)
    return len(terms) == 1 and terms[0][1] == 1 and [*map(type, terms[0][0])] == [Symbol]


def is_signed(size: Size) -> bool:
    """Whether `size` is made of symbols that may be negative."""
    return any(
        atom.signed if isinstance(atom, Symbol) else any(map(is_signed, atom.args))
        for monomial, _ in _terms(size)
        for atom in monomial
    )


def _atom_nonnegative(atom: Atom) -> bool:
    if isinstance(atom, Symbol):
        return not atom.signed
    if atom.function == "max":
        return any(map(is_nonnegative, atom.args))
    return all(map(is_nonnegative, atom.args))


def symbols(size: Size) -> Iterator[str]:
    """The names of the run-time dimensions in `size`, with repetitions."""
    for monomial, _ in _terms(size):
        for atom in monomial:
            if isinstance(atom, Symbol):
                yield atom.name
            else:
                for arg in atom.args:
                    yield from symbols(arg)


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // (b or 1),
    "min": min,
    "max": max,
}


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The integer that `size` is for these values of its symbols."""
    total = 0
    for monomial, coefficient in _terms(size):
        for atom in monomial:
            if isinstance(atom, Symbol):
                coefficient *= values[atom.name]
            else:
                left, right = (evaluate(arg, values) for arg in atom.args)
                coefficient *= FUNCTIONS[atom.function](left, right)
        total += coefficient
    return total


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """`size` with some of its symbols replaced by other sizes."""
    total: Size = 0
    for monomial, coefficient in _terms(size):
        term: Size = coefficient
        for atom in monomial:
            if isinstance(atom, Symbol):
                term = term * values.get(atom.name, Dim((((atom,), 1),)))
            else:
                left, right = (substitute(arg, values) for arg in atom.args)
                function = {"floordiv": floordiv, "min": minimum, "max": maximum}[atom.function]
                term = term * function(left, right)
        total = total + term
    return total
