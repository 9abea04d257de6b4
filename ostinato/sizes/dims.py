"""Sizes known only when a model runs: polynomials with integer coefficients over named numbers.

A `Size` is an `int` or a `Dim`. Arithmetic on a `Dim` gives a plain `int` whenever the result is
constant, so code that handles sizes never asks which of the two it has. Division and bounds that
are not polynomial (`T // 2`, `max(a, b)`) become opaque atoms of the polynomial.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import field
from functools import lru_cache
from math import gcd, prod
from typing import TypeAlias

from ostinato.records import dataclass
from ostinato.sizes.interned import Interned

Size: TypeAlias = "int | Dim"

# The symbol that the runtime sets to the machine's memory in bytes, for checks.
MEMORY = "bytes of memory"
# The symbol that the runtime sets to the bytes it may reserve for values of unknown size.
SPARE = "bytes to spare"


_NONE: frozenset[str] = frozenset()
# Texts of functions of sizes are spelled out up to this many characters.
_MOST_CHARACTERS = 400
# Products of this many factors are multiplied out to find their least.
_MOST_FACTORS = 6


@dataclass(frozen=True, eq=False)
class Symbol(metaclass=Interned):
    """A named number: a dimension of the model, at least 0, or a `signed` one of any value.

    computed: a kernel of the program computes it; all others are known before a run. low: a lower
    bound of a dimension, in every run that passes the checks of its program.
    """

    name: str
    signed: bool = False
    computed: bool = False
    low: int = 0

    @property
    def least(self) -> int | None:
        """A lower bound, if one is known."""
        return None if self.signed else self.low

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
    """A function of sizes that is not a polynomial: `floordiv`, `min`, `max` or `wrap`.

    Properties that are asked for often are found when it is made, from those of its arguments, so
    that nobody walks down sizes as deep as a model. `text` is unique; a long one is abbreviated.
    """

    function: str
    args: tuple[Size, ...]
    text: str = field(init=False, repr=False)
    least: int | None = field(init=False, repr=False)
    signed: bool = field(init=False, repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)
    computed_names: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = dict.fromkeys(name for arg in self.args for name in symbols(arg))
        self.__dict__.update(
            text=_shortened(self._spelled()),
            least=self._least(),
            signed=any(map(is_signed, self.args)),
            names=tuple(names),
            computed_names=computed(*self.args),
        )

    @property
    def nonnegative(self) -> bool:
        """Whether it is at least 0 in every run, as far as is easily seen."""
        return self.least is not None and self.least >= 0

    @property
    def grows_with(self) -> tuple[Size, ...]:
        """The arguments in which it increases."""
        return self.args[:1] if self.function in ("floordiv", "wrap") else self.args

    def _least(self) -> int | None:
        """A lower bound, from those of its arguments."""
        if self.function == "wrap":
            count = self.args[1]
            return -(count // 2) if isinstance(count, int) else None
        known = [n for n in map(least, self.args) if n is not None]
        if self.function == "max":
            return max(known, default=None)
        if len(known) < len(self.args):
            return None
        if self.function == "min":
            return min(known)
        above, below = known
        divisor = self.args[1]
        if below < 0:
            return None
        # A divisor of 0 counts as 1, and the larger it is, the nearer to 0 is the quotient.
        return above // (divisor or 1) if isinstance(divisor, int) else min(above, 0)

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
        return _sum(self, other)

    __radd__ = __add__

    def __mul__(self, other: Size) -> Size:
        return _product(self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + -other

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


# Addresses and bounds of a program are sums and products of few sizes, over and over.
@lru_cache(maxsize=8192)
def _sum(left: Dim, right: Size) -> Size:
    if isinstance(right, Dim):
        return _collect([*left.terms, *right.terms])
    # The constant term is the last one.
    monomial, number = left.terms[-1]
    if monomial:
        return Dim((*left.terms, ((), int(right)))) if right else left
    total = number + int(right)
    return Dim((*left.terms[:-1], ((), total)) if total else left.terms[:-1])


@lru_cache(maxsize=8192)
def _product(left: Dim, right: Size) -> Size:
    if isinstance(right, Dim):
        return _collect(
            [
                (tuple(sorted((*above, *beside), key=str)), a * b)
                for above, a in left.terms
                for beside, b in right.terms
            ]
        )
    if right == 1:
        return left
    # The order of terms does not depend on their coefficients.
    return Dim(tuple([(m, c * int(right)) for m, c in left.terms])) if right else 0


def _monomial_text(monomial: Monomial, coefficient: int) -> str:
    body = "*".join(map(str, monomial))
    if not body:
        return str(coefficient)
    return {1: body, -1: f"-{body}"}.get(coefficient, f"{coefficient}*{body}")


def terms_of(size: Size) -> tuple[tuple[Monomial, int], ...]:
    """The monomials of a size with their coefficients; none for 0."""
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
    """The order of terms: higher powers first; within one, computed symbols first."""
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

    Long division by the denominator's first monomial.
    """
    if numerator == 0:
        return 0
    if denominator == 0:
        return None
    if numerator == denominator:
        return 1
    below = terms_of(denominator)
    if len(below) == 1:
        return _divide_by_monomial(terms_of(numerator), *below[0])
    quotient: Size = 0
    left = numerator
    for _ in terms_of(numerator):
        part = _divide_by_monomial(terms_of(left)[:1], *below[0])
        if part is None:
            return None
        quotient, left = quotient + part, left - denominator * part
        if left == 0:
            return quotient
    return None


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
    if exact is not None:
        return exact
    if not isinstance(denominator, int) or denominator < 1:
        return _apply("floordiv", numerator, denominator)
    # Rounding down twice is rounding down once: every size that strides leave of an image has one
    # form.
    whole, rest, divisor = _parted(terms_of(numerator), denominator)
    if isinstance(rest, int):
        return whole + rest // divisor
    count, inner, number = linear(rest) or (0, None, 0)
    if count == 1 and isinstance(inner, Apply) and inner.function == "floordiv":
        above, below = inner.args
        if isinstance(below, int) and below > 0:
            return whole + floordiv(above + number * below, below * divisor)
    return whole + _apply("floordiv", rest, divisor)


def _parted(terms: Iterable[tuple[Monomial, int]], divisor: int) -> tuple[Size, Size, int]:
    """Split a sum for a division: the quotient of the divisible terms, the rest, and its divisor.

    The constant in the rest is not negative, and no factor is common to rest and divisor.
    """
    whole: list[tuple[Monomial, int]] = []
    rest: list[tuple[Monomial, int]] = []
    number = 0
    for monomial, count in terms:
        if not monomial:
            number = count
        else:
            (rest if count % divisor else whole).append((monomial, count))
    common = gcd(divisor, *(count for _, count in rest))
    left = _collect([(monomial, count // common) for monomial, count in rest])
    times = _collect([(monomial, count // divisor) for monomial, count in whole])
    return times + number // divisor, left + number % divisor // common, divisor // common


def linear(size: Size) -> tuple[int, Atom, int] | None:
    """The `c`, `x` and `n` of a size that is `c*x + n`; None for any other size."""
    number = 0
    found: tuple[int, Atom] | None = None
    for monomial, count in terms_of(size):
        if not monomial:
            number = count
        elif len(monomial) > 1 or found is not None:
            return None
        else:
            found = count, monomial[0]
    return None if found is None else (*found, number)


def wrap(size: Size, count: int) -> Size:
    """The value of `size` as a signed integer of `count` values, in two's complement.

    count: a power of two. Parts that are wrapped already are unwrapped first: a sum wraps once.
    """
    half = count // 2
    if isinstance(size, int):
        return (size + half) % count - half
    terms: list[tuple[Monomial, int]] = []
    for monomial, coefficient in size.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Apply) and atom.function == "wrap" and atom.args[1] == count:
            terms += terms_of(atom.args[0] * coefficient)
        else:
            terms.append((monomial, coefficient))
    whole = _collect(terms)
    return _apply("wrap", whole, count) if isinstance(whole, Dim) else wrap(whole, count)


def ceildiv(numerator: Size, denominator: int) -> Size:
    """`numerator / denominator` rounded up."""
    return floordiv(numerator + (denominator - 1), denominator)


def maximum(left: Size, right: Size) -> Size:
    """The larger of two sizes."""
    if is_at_most(right, left):
        return left
    return right if is_at_most(left, right) else _apply("max", left, right)


def minimum(left: Size, right: Size) -> Size:
    """The smaller of two sizes."""
    if is_at_most(right, left):
        return right
    return left if is_at_most(left, right) else _apply("min", left, right)


def is_nonnegative(size: Size) -> bool:
    """Whether `size` is at least 0 for every value of its symbols, as far as is easily seen."""
    return _is_never_negative(terms_of(size))


def is_at_most(left: Size, right: Size) -> bool:
    """Whether `right - left` is nonnegative, without making that size."""
    if isinstance(left, int) and isinstance(right, int):
        return left <= right
    return _is_at_most(left, right)


# `arena` asks about two buffers for each place of a third.
@lru_cache(maxsize=4096)
def _is_at_most(left: Size, right: Size) -> bool:
    total = dict(terms_of(right))
    for monomial, count in terms_of(left):
        total[monomial] = total.get(monomial, 0) - count
    return _is_never_negative([(monomial, count) for monomial, count in total.items() if count])


def _is_never_negative(terms: Collection[tuple[Monomial, int]]) -> bool:
    known = _least(terms)
    return (known is not None and known >= 0) or _is_rounded_down_less(terms)


def _is_rounded_down_less(terms: Collection[tuple[Monomial, int]]) -> bool:
    """Whether terms are `a // n - b // n + m` with a number `m`, and `b <= a + n*m`."""
    rounded: dict[int, tuple[Size, Size]] = {}
    number = 0
    for monomial, count in terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if not monomial:
            number = count
        elif isinstance(atom, Apply) and atom.function == "floordiv":
            rounded[count] = atom.args[0], atom.args[1]
        else:
            return False
    if len(terms) - bool(number) != 2 or rounded.keys() != {1, -1}:
        return False
    (above, divisor), (below, other) = rounded[1], rounded[-1]
    more = above - below
    if divisor != other or not isinstance(divisor, int) or not isinstance(more, int):
        return False
    return more + number * divisor >= 0


def least(size: Size) -> int | None:
    """A lower bound of `size`, as far as one is easily seen."""
    return _least(terms_of(size))


def _least(terms: Collection[tuple[Monomial, int]]) -> int | None:
    total = 0
    falls = is_lifted = False
    for monomial, count in terms:
        if not monomial:
            total += count
            continue
        falls = falls or count < 0
        if len(monomial) == 1:
            low = monomial[0].least
            if low is None:
                return None
            total += count * low
            continue
        lows = [atom.least for atom in monomial if atom.least is not None]
        if len(lows) < len(monomial):
            return None
        if min(lows) < 0:
            return _least_above(terms)
        is_lifted = is_lifted or any(lows)
        total += count * prod(lows)
    if not falls:
        return total
    return _least_above(terms) if is_lifted else None


def _least_above(terms: Collection[tuple[Monomial, int]]) -> int | None:
    """A lower bound where factors have a lower bound other than 0, by their distance from it.

    With `n` and `m` above -1, `n*m + 3*n + 2*m + 6` is `(n + 1)*(m + 1) + 2*(n + 1) + (m + 1) + 2`.
    """
    above: dict[Monomial, int] = {}
    for monomial, count in terms:
        lows = [atom.least for atom in monomial if atom.least is not None]
        if not len(monomial) == len(lows) <= _MOST_FACTORS:
            return None
        for kept in itertools.product((False, True), repeat=len(monomial)):
            part = tuple(itertools.compress(monomial, kept))
            below = prod(low for low, is_kept in zip(lows, kept, strict=True) if not is_kept)
            above[part] = above.get(part, 0) + count * below
    total = above.pop((), 0)
    return None if any(count < 0 for count in above.values()) else total


def primitive(size: Size) -> Size:
    """The size divided by the common divisor of its coefficients; it has the same sign."""
    common = gcd(*(count for _, count in terms_of(size)))
    return size if common < 2 else floordiv(size, common)


def is_symbol(size: Size) -> bool:
    """Whether `size` is a single symbol."""
    terms = terms_of(size)
    return len(terms) == 1 and terms[0][1] == 1 and [*map(type, terms[0][0])] == [Symbol]


def is_polynomial(size: Size) -> bool:
    """Whether `size` is made of nothing but sums and products of symbols."""
    return all(isinstance(atom, Symbol) for monomial, _ in terms_of(size) for atom in monomial)


def is_signed(size: Size) -> bool:
    """Whether `size` is made of symbols that may be negative."""
    return any(atom.signed for monomial, _ in terms_of(size) for atom in monomial)


def symbols(size: Size) -> Iterator[str]:
    """The names of the run-time dimensions in `size`, with repetitions."""
    return (name for monomial, _ in terms_of(size) for atom in monomial for name in atom.names)


def computed(*sizes: Size) -> frozenset[str]:
    """The names of the symbols in `sizes` that kernels compute."""
    dims = [size for size in sizes if isinstance(size, Dim)]
    return _NONE.union(*[a.computed_names for dim in dims for m, _ in dim.terms for a in m])
