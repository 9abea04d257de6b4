"""Sizes known only when a model runs: polynomials with integer coefficients over named numbers.

A `Size` is an `int` or a `Dim`. Arithmetic on a `Dim` gives a plain `int` whenever the result is
constant, so code that handles sizes never asks which of the two it has. Division and bounds that
are not polynomial (`T // 2`, `max(a, b)`) become opaque atoms of the polynomial.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from ostinato.program.interned import Interned

Size: TypeAlias = "int | Dim"

# The symbol that the runtime sets to the machine's memory in bytes, for checks.
MEMORY = "bytes of memory"
# And the one that it sets to what may be reserved for values whose size nobody knows beforehand.
SPARE = "bytes to spare"


_NONE: frozenset[str] = frozenset()
# Functions of sizes are spelled out up to so many characters.
_MOST_CHARACTERS = 400


@dataclass(frozen=True, eq=False)
class Symbol(metaclass=Interned):
    """A named number: a dimension of the model, at least 0, or a `signed` one of any value.

    computed: a kernel of the program computes it; all others are known before a run.
    """

    name: str
    signed: bool = False
    computed: bool = False

    @property
    def nonnegative(self) -> bool:
        """Whether it is at least 0 in every run."""
        return not self.signed

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols it is made of."""
        return (self.name,)

    @property
    def computed_names(self) -> frozenset[str]:
        """Those of them that kernels compute."""
        return frozenset(self.names) if self.computed else _NONE

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Apply(metaclass=Interned):
    """A function of sizes that is not a polynomial: `floordiv`, `min` or `max`.

    What is asked of it often is found when it is made, from what is known of its arguments, so that
    nobody walks down sizes as deep as a model. `text` is unique; it is short, and only spells out
    what is not long.
    """

    function: str
    args: tuple[Size, ...]
    text: str = field(init=False, repr=False)
    nonnegative: bool = field(init=False, repr=False)
    signed: bool = field(init=False, repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)
    computed_names: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        some = any if self.function == "max" else all
        names = dict.fromkeys(name for arg in self.args for name in symbols(arg))
        self.__dict__.update(
            text=_shortened(self._spelled()),
            nonnegative=some(map(is_nonnegative, self.args)),
            signed=any(map(is_signed, self.args)),
            names=tuple(names),
            computed_names=computed(*self.args),
        )

    def _spelled(self) -> str:
        if self.function == "floordiv":
            left, right = (f"({arg})" if " " in str(arg) else str(arg) for arg in self.args)
            return f"({left} // {right})"
        return f"{self.function}({', '.join(map(str, self.args))})"

    def __str__(self) -> str:
        return self.text


def _shortened(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"(.. {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()} ..)"


Atom: TypeAlias = Symbol | Apply
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True, eq=False)
class Dim(metaclass=Interned):
    """A polynomial: monomials (sorted atoms, repeated for powers) with non-zero coefficients."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        return self if other == 0 else _collect([*self.terms, *_terms(other)])

    __radd__ = __add__

    def __mul__(self, other: Size) -> Size:
        if not isinstance(other, Dim):
            # The order of terms does not depend on their coefficients.
            return Dim(tuple((m, c * int(other)) for m, c in self.terms)) if other else 0
        return _collect(
            [
                (tuple(sorted((*left, *right), key=str)), a * b)
                for left, a in self.terms
                for right, b in other.terms
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

    # Messages show shapes, which are tuples of sizes.
    __repr__ = __str__


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
    kept = [(m, c) for m, c in total.items() if c]
    if not kept:
        return 0
    if len(kept) == 1:
        return Dim((kept[0],)) if kept[0][0] else kept[0][1]
    return Dim(tuple(sorted(kept, key=_order)))


def _order(term: tuple[Monomial, int]) -> tuple[int, list[tuple[bool, str]]]:
    """Higher powers first; within one, what is computed first."""
    monomial, _ = term
    return -len(monomial), [(isinstance(atom, Symbol), str(atom)) for atom in monomial]


def symbol(name: str, signed: bool = False, computed: bool = False) -> Dim:
    """The run-time dimension called `name`; `signed` if it may be negative.

    computed: a kernel computes it.
    """
    return Dim((((Symbol(name, signed, computed),), 1),))


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
    return all(c >= 0 and all(atom.nonnegative for atom in m) for m, c in _terms(size))


def is_symbol(size: Size) -> bool:
    """Whether `size` is a single symbol."""
    terms = _terms(size)
    return len(terms) == 1 and terms[0][1] == 1 and [*map(type, terms[0][0])] == [Symbol]


def is_polynomial(size: Size) -> bool:
    """Whether `size` is made of nothing but sums and products of symbols."""
    return all(isinstance(atom, Symbol) for monomial, _ in _terms(size) for atom in monomial)


def is_signed(size: Size) -> bool:
    """Whether `size` is made of symbols that may be negative."""
    return any(atom.signed for monomial, _ in _terms(size) for atom in monomial)


def symbols(size: Size) -> Iterator[str]:
    """The names of the run-time dimensions in `size`, with repetitions."""
    return (name for monomial, _ in _terms(size) for atom in monomial for name in atom.names)


def functions(*sizes: Size, skip: Container[object] = ()) -> Iterator[Apply]:
    """Every distinct function in the sizes, each behind those in its arguments.

    `skip` holds functions that are not visited, nor what is only below them; it may grow on the
    way.
    """
    seen: set[Apply] = set()
    stack = [(atom, False) for size in reversed(sizes) for atom in reversed(_applied(size))]
    while stack:
        atom, expanded = stack.pop()
        if atom in seen or atom in skip:
            continue
        if expanded:
            seen.add(atom)
            yield atom
        else:
            stack.append((atom, True))
            stack += [(a, False) for arg in reversed(atom.args) for a in reversed(_applied(arg))]


def _applied(size: Size) -> list[Apply]:
    return [a for monomial, _ in _terms(size) for a in monomial if isinstance(a, Apply)]


def computed(*sizes: Size) -> frozenset[str]:
    """The names of the symbols in `sizes` that kernels compute."""
    return _NONE.union(*(a.computed_names for size in sizes for m, _ in _terms(size) for a in m))


def upper(size: Size, bounds: Mapping[str, Size]) -> Size | None:
    """What `size` is at most, in terms of symbols known before a run; None where that is unclear.

    bounds: what each computed symbol is at most; all are at least 0.
    """
    known: dict[tuple[Apply, bool], Size | None] = {}
    for atom in functions(size):
        for is_largest in (True, False):
            known[atom, is_largest] = _extreme_function(atom, bounds, known, is_largest)
    return _extreme(size, bounds, known, is_upper=True)


_Extremes: TypeAlias = "Mapping[tuple[Apply, bool], Size | None]"


def _extreme(
    size: Size, bounds: Mapping[str, Size], known: _Extremes, is_upper: bool
) -> Size | None:
    """The upper or the lower bound, from those of the functions in the size."""
    if not computed(size):
        return size
    total: Size = 0
    for monomial, coefficient in _terms(size):
        term: Size = coefficient
        is_largest = is_upper == (coefficient > 0)
        for atom in monomial:
            bound: Size | None = Dim((((atom,), 1),))
            if atom.computed_names:
                least = bounds[atom.name] if isinstance(atom, Symbol) and is_largest else 0
                bound = known[atom, is_largest] if isinstance(atom, Apply) else least
            if bound is None or (len(monomial) > 1 and not atom.nonnegative):
                return None
            if len(monomial) > 1 and not is_nonnegative(bound):
                bound = maximum(bound, 0)
            term = term * bound
        total = total + term
    return total


def _extreme_function(
    atom: Apply, bounds: Mapping[str, Size], known: _Extremes, is_largest: bool
) -> Size | None:
    if atom.function == "floordiv":
        numerator, denominator = atom.args
        bound = _extreme(numerator, bounds, known, is_largest)
        is_positive = isinstance(denominator, int) and denominator > 0
        return floordiv(bound, denominator) if bound is not None and is_positive else None
    left, right = (_extreme(arg, bounds, known, is_largest) for arg in atom.args)
    choose_one = minimum if atom.function == "min" else maximum
    if left is not None and right is not None:
        return choose_one(left, right)
    # One operand of a minimum bounds it from above, one of a maximum from below.
    suffices = is_largest == (atom.function == "min")
    return (left if right is None else right) if suffices else None


def powers(size: Size) -> list[Counter[str]]:
    """How often each symbol occurs in each monomial, those inside of functions included."""
    known: dict[Apply, list[Counter[str]]] = {}

    def polynomial(size: Size) -> list[Counter[str]]:
        found = []
        for monomial, _ in _terms(size):
            products: list[Counter[str]] = [Counter()]
            for atom in monomial:
                own = [Counter((atom.name,))] if isinstance(atom, Symbol) else known[atom]
                products = [left + right for left in products for right in own]
            found += products
        return found

    for atom in functions(size):
        args = atom.args[:1] if atom.function == "floordiv" else atom.args
        known[atom] = [p for arg in args for p in polynomial(arg)]
    return polynomial(size)


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // (b or 1),
    "min": min,
    "max": max,
}


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The integer that `size` is for these values of its symbols."""
    known: dict[Apply, int] = {}

    def polynomial(size: Size) -> int:
        total = 0
        for monomial, coefficient in _terms(size):
            for atom in monomial:
                coefficient *= values[atom.name] if isinstance(atom, Symbol) else known[atom]
            total += coefficient
        return total

    for atom in functions(size):
        known[atom] = FUNCTIONS[atom.function](*map(polynomial, atom.args))
    return polynomial(size)


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """`size` with some of its symbols replaced by other sizes."""
    known: dict[Apply, Size] = {}

    def polynomial(size: Size) -> Size:
        total: Size = 0
        for monomial, coefficient in _terms(size):
            term: Size = coefficient
            for atom in monomial:
                if isinstance(atom, Apply):
                    term = term * known[atom]
                else:
                    term = term * values.get(atom.name, Dim((((atom,), 1),)))
            total = total + term
        return total

    made = {"floordiv": floordiv, "min": minimum, "max": maximum}
    for atom in functions(size):
        known[atom] = made[atom.function](*map(polynomial, atom.args))
    return polynomial(size)
