"""Prove sizes to be at least 0 in every run, by what rounding down and checks guarantee.

Where `c` divides `n`, `c * (x // n)` is at most `x // (n / c)`, by less than `c`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from ostinato.sizes.dims import (
    Apply,
    Atom,
    Dim,
    Monomial,
    Size,
    floordiv,
    is_nonnegative,
    maximum,
    terms_of,
)
from ostinato.sizes.substitution import replaced

# No lower bounds of atoms are known.
NOTHING: Mapping[Atom, Size] = {}


def is_never_negative(size: Size, lows: Mapping[Atom, Size] = NOTHING) -> bool:
    """Whether a size is at least 0 in every run.

    lows: known lower bounds of atoms.
    """
    left = dict(lows)
    while not _is_seen_by_rounding(size):
        for atom, low in left.items():
            lower = _with_low(size, atom, low)
            if lower is not None:
                size = lower
                del left[atom]
                break
        else:
            return False
    return True


def unless_negative(size: Size) -> Size:
    """The size, or 0 in runs where it is less."""
    if is_never_negative(-size):
        return 0
    return size if is_never_negative(size) else maximum(size, 0)


def _with_low(size: Size, atom: Atom, low: Size) -> Size | None:
    """A lower bound of the size: `low` in place of the atom, also within what is rounded of it."""
    lower = size
    for other in _atoms(size):
        if other != atom and not _is_rounded(other, atom):
            continue
        times = _factor(size, other)
        if times is not None and _is_seen_by_rounding(times):
            one = Dim((((other,), 1),))
            lower = lower + times * (replaced(one, {atom: low}) - one)
    return None if lower is size else lower


def _is_rounded(other: Atom, atom: Atom) -> bool:
    """Whether one atom is another one plus a number, divided by a number and rounded down."""
    if not isinstance(other, Apply) or other.function != "floordiv":
        return False
    above, below = other.args
    return isinstance(below, int) and isinstance(above - Dim((((atom,), 1),)), int)


def _is_seen_by_rounding(size: Size) -> bool:
    while not is_nonnegative(size):
        atoms = [atom for atom in _atoms(size) if isinstance(atom, Apply)]
        lower = (
            _unrounded(size, atom, is_subtracted)
            for is_subtracted in (True, False)
            for atom in atoms
        )
        found = next((each for each in lower if each is not None), None)
        if found is None:
            return False
        size = found
    return True


def _unrounded(size: Size, rounded: Apply, is_subtracted: bool) -> Size | None:
    """A lower bound of the size, in which some atom is rounded down less often."""
    above, below = rounded.args
    if rounded.function != "floordiv" or not isinstance(below, int) or below < 2:
        return None
    factor = _factor(size, rounded)
    times = None if factor is None else -factor if is_subtracted else factor
    if times is None or not is_nonnegative(times):
        return None
    common = gcd(below, *(count for _, count in terms_of(times)))
    if common == 1:
        return None
    # Take one prime factor at a time: the size may already have the less rounded quotient.
    step = next(n for n in range(2, common + 1) if common % n == 0)
    less = floordiv(above, below // step)
    one = Dim((((rounded,), step),))
    error = less - one if is_subtracted else one - less + step - 1
    return size - floordiv(times, step) * error


def _atoms(size: Size) -> list[Atom]:
    return [*dict.fromkeys(atom for monomial, _ in terms_of(size) for atom in monomial)]


def _factor(size: Size, atom: Atom) -> Size | None:
    """The factor of an atom in a size; None where it is multiplied by itself."""
    held: list[tuple[Monomial, int]] = [(m, count) for m, count in terms_of(size) if atom in m]
    total: Size = 0
    for monomial, count in held:
        place = monomial.index(atom)
        rest = monomial[:place] + monomial[place + 1 :]
        if atom in rest:
            return None
        total = total + (Dim(((rest, count),)) if rest else count)
    return total
