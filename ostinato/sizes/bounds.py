"""Whether sizes are at least 0 in every run, by what rounding down and checks tell of them.

`c * (x // n)` is at most `x // (n / c)`, if `c` divides `n`, and less than `c` below it.
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

# What is known of atoms of which nothing is.
NOTHING: Mapping[Atom, Size] = {}


def is_never_negative(size: Size, lows: Mapping[Atom, Size] = NOTHING) -> bool:
    """Whether a size is at least 0 in every run.

    lows: what is known of atoms, which are at least that.
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
    """A size that is no larger: with the low in place of the atom, and in what is rounded of it."""
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
    """Whether an atom is another one, and a number, divided by a number."""
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
    """A size that is no larger, with what is rounded down less in place of some atom."""
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
    # By one prime after the other: the size may have what is rounded down less.
    step = next(n for n in range(2, common + 1) if common % n == 0)
    less = floordiv(above, below // step)
    one = Dim((((rounded,), step),))
    error = less - one if is_subtracted else one - less + step - 1
    return size - floordiv(times, step) * error


def _atoms(size: Size) -> list[Atom]:
    return [*dict.fromkeys(atom for monomial, _ in terms_of(size) for atom in monomial)]


def _factor(size: Size, atom: Atom) -> Size | None:
    """What an atom is multiplied by in a size; None where it is multiplied by itself."""
    held: list[tuple[Monomial, int]] = [(m, count) for m, count in terms_of(size) if atom in m]
    total: Size = 0
    for monomial, count in held:
        place = monomial.index(atom)
        rest = monomial[:place] + monomial[place + 1 :]
        if atom in rest:
            return None
        total = total + (Dim(((rest, count),)) if rest else count)
    return total
