"""Put numbers, bounds and other sizes in place of the symbols of a size.

A size is as deep as the model that computes it. So nothing here recurses: `functions` lists the
functions in a size, arguments first, and each caller finds those below one in a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, TypeAlias

from ostinato.sizes.dims import (
    SPARE,
    Apply,
    Atom,
    Dim,
    Monomial,
    Size,
    Symbol,
    computed,
    floordiv,
    is_nonnegative,
    least,
    maximum,
    minimum,
    symbol,
    symbols,
    terms_of,
    wrap,
)
from ostinato.walk import operands_first


def functions(*sizes: Size, skip: Container[object] = ()) -> Iterator[Apply]:
    """Every distinct function in the sizes, each behind those in its arguments.

    `skip` holds functions that are not visited, nor what is only below them; it may grow on the
    way.
    """
    roots = [atom for size in sizes for atom in _applied(size)]
    return operands_first(roots, lambda one: [a for arg in one.args for a in _applied(arg)], skip)


def _applied(size: Size) -> list[Apply]:
    return [a for monomial, _ in terms_of(size) for a in monomial if isinstance(a, Apply)]


def upper(size: Size, bounds: Mapping[str, Size]) -> Size | None:
    """Bound `size` from above by symbols known before a run; None where there is no such bound.

    bounds: upper bounds of computed symbols; those that are not signed are at least 0.
    """
    known: dict[tuple[Apply, bool], Size | None] = {}
    for atom in functions(size):
        for is_largest in (True, False):
            known[atom, is_largest] = _extreme_function(atom, bounds, known, is_largest)
    return _extreme(size, bounds, known, is_upper=True)


def largest(size: Size) -> int | None:
    """An upper bound of `size` for all values of its symbols; None where nothing bounds it."""
    parts = [size, *(arg for function in functions(size) for arg in function.args)]
    atoms = {a for part in parts for m, _ in terms_of(part) for a in m if isinstance(a, Symbol)}
    free = {atom.name: symbol(atom.name, atom.signed, computed=True) for atom in atoms}
    bound = upper(substitute(size, free), {})
    return bound if isinstance(bound, int) else None


def one_of(size: Size, names: frozenset[str] | None = None) -> tuple[str, tuple[Size, Size]] | None:
    """Take apart the "max" or "min" of two sizes: which one it is, and the two.

    names: of symbols, one of which has to take part in the choice, if given. None for any other
    size.
    """
    for monomial, coefficient in terms_of(size):
        atom = monomial[0] if len(monomial) == 1 and coefficient == 1 else None
        if not isinstance(atom, Apply):
            continue
        takes_part = names is None or not names.isdisjoint(atom.computed_names)
        if atom.function in ("max", "min") and takes_part:
            rest = size - Dim((((atom,), 1),))
            left, right = atom.args
            return atom.function, (rest + left, rest + right)
    return None


_Extremes: TypeAlias = "Mapping[tuple[Apply, bool], Size | None]"


def _extreme(
    size: Size, bounds: Mapping[str, Size], known: _Extremes, is_upper: bool
) -> Size | None:
    """The upper or the lower bound of a size, from those of the functions in it."""
    if not computed(size):
        return size
    factors = _of_unknown_sign(size)
    total: Size = 0
    for varying, factor in factors.items():
        most = _most(varying, bounds, known)
        if most is None:
            return None
        total = total + (maximum(factor, 0) if is_upper else minimum(factor, 0)) * most
    for monomial, coefficient in terms_of(size):
        if _varying(monomial) in factors:
            continue
        term: Size = coefficient
        is_largest = is_upper == (coefficient > 0)
        for atom in monomial:
            bound: Size | None = Dim((((atom,), 1),))
            if atom.computed_names:
                bound = (
                    _extreme_symbol(atom, bounds, is_largest)
                    if isinstance(atom, Symbol)
                    else known[atom, is_largest]
                )
            if bound is None or (len(monomial) > 1 and not atom.nonnegative):
                return None
            if len(monomial) > 1 and not is_nonnegative(bound):
                bound = maximum(bound, 0)
            term = term * bound
        total = total + term
    return total


def _varying(monomial: Monomial) -> Monomial:
    """The factors of a product that the run computes."""
    return tuple(atom for atom in monomial if atom.computed_names)


def _of_unknown_sign(size: Size) -> dict[Monomial, Size]:
    """Map products that the run computes, where these may be negative, to their factors."""
    factors: dict[Monomial, Size] = {}
    unclear: dict[Monomial, None] = {}
    for monomial, coefficient in terms_of(size):
        varying = _varying(monomial)
        rest = tuple(atom for atom in monomial if not atom.computed_names)
        if varying and not all(atom.nonnegative for atom in rest):
            unclear[varying] = None
        factor = Dim(((rest, coefficient),)) if rest else coefficient
        factors[varying] = factors.get(varying, 0) + factor
    return {varying: factors[varying] for varying in unclear}


def _most(varying: Monomial, bounds: Mapping[str, Size], known: _Extremes) -> Size | None:
    """An upper bound of a product that the run computes; the product is at least 0."""
    most: Size = 1
    for atom in varying:
        bound = (
            _extreme_symbol(atom, bounds, True) if isinstance(atom, Symbol) else known[atom, True]
        )
        if bound is None or not atom.nonnegative:
            return None
        most = most * (bound if is_nonnegative(bound) else maximum(bound, 0))
    return most


def _extreme_symbol(atom: Symbol, bounds: Mapping[str, Size], is_largest: bool) -> Size | None:
    if atom.signed:
        return None
    return bounds.get(atom.name) if is_largest else 0


def _extreme_function(
    atom: Apply, bounds: Mapping[str, Size], known: _Extremes, is_largest: bool
) -> Size | None:
    if atom.function == "floordiv":
        numerator, denominator = atom.args
        bound = _extreme(numerator, bounds, known, is_largest)
        if bound is None:
            return None
        below = least(denominator)
        if below is None or below < 0 or denominator == 0:
            return None
        if not computed(denominator):
            return floordiv(bound, denominator)
        # A divisor of 0 counts as 1.
        return floordiv(bound, max(below, 1)) if is_largest and is_nonnegative(bound) else None
    if atom.function == "wrap":
        half = atom.args[1] // 2
        return half - 1 if is_largest else -half
    left, right = (_extreme(arg, bounds, known, is_largest) for arg in atom.args)
    choose_one = minimum if atom.function == "min" else maximum
    # One operand of a minimum bounds it from above, one of a maximum from below: preferably one
    # that does not depend on how much memory there is.
    suffices = is_largest == (atom.function == "min")
    if left is not None and right is not None:
        plain = [bound for bound in (left, right) if SPARE not in symbols(bound)]
        return plain[0] if suffices and len(plain) == 1 else choose_one(left, right)
    return (left if right is None else right) if suffices else None


def with_equal(size: Size, equal: Mapping[Size, Size]) -> Size:
    """`size` with the factors of its products replaced that are sizes in `equal`."""
    total: Size = 0
    for monomial, coefficient in terms_of(size):
        term: Size = coefficient
        for atom in monomial:
            factor = Dim((((atom,), 1),))
            term = term * equal.get(factor, factor)
        total = total + term
    return total


def powers(size: Size) -> list[Counter[str]]:
    """Count each symbol in each monomial, those inside of functions included, each count once."""
    # Products as names in order: sizes of sizes have the same ones again and again.
    known: dict[Apply, set[tuple[str, ...]]] = {}

    def polynomial(size: Size) -> set[tuple[str, ...]]:
        found = set[tuple[str, ...]]()
        for monomial, _ in terms_of(size):
            products: set[tuple[str, ...]] = {()}
            for atom in monomial:
                own = {(atom.name,)} if isinstance(atom, Symbol) else known[atom]
                products = {tuple(sorted(left + right)) for left in products for right in own}
            found |= products
        return found

    for atom in functions(size):
        known[atom] = {product for arg in atom.grows_with for product in polynomial(arg)}
    return [Counter(product) for product in sorted(polynomial(size))]


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // (b or 1),
    "min": min,
    "max": max,
    "wrap": lambda a, count: (a + count // 2) % count - count // 2,
}


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The integer value of `size` for these values of its symbols."""
    known: dict[Apply, int] = {}

    def polynomial(size: Size) -> int:
        total = 0
        for monomial, coefficient in terms_of(size):
            for atom in monomial:
                coefficient *= values[atom.name] if isinstance(atom, Symbol) else known[atom]
            total += coefficient
        return total

    for atom in functions(size):
        known[atom] = _FUNCTIONS[atom.function](*map(polynomial, atom.args))
    return polynomial(size)


_MADE: dict[str, Callable[[Size, Any], Size]] = {
    "floordiv": floordiv,
    "min": minimum,
    "max": maximum,
    "wrap": wrap,
}


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """`size` with some of its symbols replaced by other sizes."""
    return _made_anew(size, values, lambda function, *args: _MADE[function](*args))


def replaced(size: Size, others: Mapping[Atom, Size]) -> Size:
    """`size` with others in place of some symbols and functions, also within the replacements."""
    known = dict(others)

    def made(size: Size) -> Size:
        return renamed(size, lambda atom: known.get(atom, Dim((((atom,), 1),))))

    for atom in functions(size, skip=others):
        known[atom] = _MADE[atom.function](*map(made, atom.args))
    return made(size)


def decided(size: Size, bounds: Mapping[str, Size]) -> Size:
    """`size` without choices between two sizes that the bounds of computed symbols decide."""

    def apply(function: str, left: Size, right: Size) -> Size:
        if function not in ("min", "max"):
            return _MADE[function](left, right)
        for larger, smaller in ((left, right), (right, left)):
            if _is_at_most(smaller, larger, bounds):
                return larger if function == "max" else smaller
        return _MADE[function](left, right)

    return _made_anew(size, {}, apply)


def _is_at_most(size: Size, bound: Size, bounds: Mapping[str, Size]) -> bool:
    most = upper(size - bound, bounds)
    if most is not None and is_nonnegative(-most):
        return True
    choice = one_of(size)
    if choice is None:
        return False
    return (all if choice[0] == "max" else any)(_is_at_most(n, bound, bounds) for n in choice[1])


def _made_anew(
    size: Size, values: Mapping[str, Size], apply: Callable[[str, Size, Size], Size]
) -> Size:
    known: dict[Apply, Size] = {}

    def polynomial(size: Size) -> Size:
        total: Size = 0
        for monomial, coefficient in terms_of(size):
            term: Size = coefficient
            for atom in monomial:
                if isinstance(atom, Apply):
                    term = term * known[atom]
                else:
                    term = term * values.get(atom.name, Dim((((atom,), 1),)))
            total = total + term
        return total

    for atom in functions(size):
        left, right = map(polynomial, atom.args)
        known[atom] = apply(atom.function, left, right)
    return polynomial(size)


def renamed(size: Size, change: Callable[[Atom], Size]) -> Size:
    """`size` with others in place of its symbols and functions; it does not look into functions."""
    if not isinstance(size, Dim):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for atom in monomial:
            term = term * change(atom)
        total = total + term
    return total
