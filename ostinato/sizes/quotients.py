"""Quotients of sizes as floats hold them: rounded to integers, they are sizes.

Exporters write divisions of sizes in floats, `ceil(float(n) / 2 + 1)` for instance. Floats hold
each step of it exactly, or round it by less than what it is away from the next integer, as long as
the numerators stay below a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import lcm

from ostinato.records import dataclass
from ostinato.sizes.dims import Size, is_at_most, is_nonnegative

# Bits of the significand of a float.
BITS = {"float32": 24, "float64": 53}
# Up to this many rounded results, the sum is off by less than four times the error of one.
_MOST_ROUNDED = 3
# Larger divisors are refused: they would take room from numerators, and models have none.
_MOST_DIVISOR = 4096


@dataclass(frozen=True)
class Quotient:
    """The size `numerator` over `denominator`, as a float of `bits` significant bits holds it.

    limits: sizes that must stay between `-2 ** bits` and `2 ** bits`. rounded: numerators and
    denominators of the steps that may have been rounded. is_computed: whether there are steps.
    """

    bits: int
    numerator: Size
    denominator: int = 1
    limits: tuple[Size, ...] = ()
    rounded: tuple[tuple[Size, int], ...] = ()
    is_computed: bool = False

    def integer(self, rounding: Callable[[Size, int], Size]) -> Quotient:
        """The integer quotient for this rounding: down, up or towards 0.

        With numerators of `bits - 2` bits over the last denominator, the rounding errors add up to
        at most a quarter of the distance from the next integer, if the quotient is none; integers
        are exact.
        """
        whole = rounding(self.numerator, self.denominator)
        away = [n * (4 * self.denominator // d) for n, d in self.rounded]
        return Quotient(self.bits, whole, limits=_largest((*self.limits, *away)), is_computed=True)

    def number(self) -> Fraction | None:
        """The exact number that is rounded to this float, once, if it contains no symbol."""
        above, below = self.numerator, self.denominator
        if not isinstance(above, int) or self.limits or max(abs(above), below) >= 2**self.bits:
            return None
        return Fraction(above, below) if self.rounded in ((), ((above, below),)) else None

    def conditions(self) -> list[Size]:
        """Sizes that must be at least 0 for this to be exact, without those that always are."""
        most = 2**self.bits
        rooms = [room for n in self.limits for room in (most - n, most + n)]
        return [room for room in rooms if not is_nonnegative(room)]


@dataclass(frozen=True)
class Ratio:
    """One size over another, each converted to a float of `bits` bits; never taken as a size."""

    bits: int
    above: Size
    below: Size


def of_size(size: Size, bits: int) -> Quotient:
    """A size that was converted to a float."""
    if not isinstance(size, int):
        return Quotient(bits, size, limits=(size,))
    # A number of more bits is rounded, to an even one where two are as near.
    unit = 1 << max(abs(size).bit_length() - bits, 0)
    return Quotient(bits, round(Fraction(size, unit)) * unit)


def of_float(number: float, bits: int) -> Quotient | None:
    """A constant, if it is the quotient of small numbers."""
    exact = Fraction(number)
    if abs(exact.numerator) > 2 ** (bits - 4) or exact.denominator > _MOST_DIVISOR:
        return None
    return Quotient(bits, exact.numerator, exact.denominator)


def added(left: Quotient, right: Quotient, sign: int = 1) -> Quotient | None:
    """The sum of two, or with a `sign` of -1 the difference; None as `_rounded` says."""
    below = lcm(left.denominator, right.denominator)
    first, second = (q.numerator * (below // q.denominator) for q in (left, right))
    return _rounded(left, right, first + sign * second, below)


def multiplied(left: Quotient, right: Quotient) -> Quotient | None:
    """The product of two; None as `_rounded` says."""
    is_rounded = left.rounded or right.rounded
    if is_rounded and not (_is_power(right) and _is_power(left)):
        return None
    above, below = left.numerator * right.numerator, left.denominator * right.denominator
    return _rounded(left, right, above, below)


def divided(left: Quotient, right: Quotient) -> Quotient | Ratio | None:
    """One over another; None as `_rounded` says."""
    if not isinstance(right.numerator, int):
        are_sizes = left.denominator == 1 and not left.is_computed and not right.is_computed
        return Ratio(left.bits, left.numerator, right.numerator) if are_sizes else None
    if right.numerator == 0:
        return None
    sign = 1 if right.numerator > 0 else -1
    turned = replace(right, numerator=sign * right.denominator, denominator=abs(right.numerator))
    return multiplied(left, turned)


def _rounded(left: Quotient, right: Quotient, above: Size, below: int) -> Quotient | None:
    """The float of a quotient made of two; None where it may be rounded to another integer."""
    rounded = left.rounded + right.rounded
    if isinstance(above, int):
        exact = Fraction(above, below)
        above, below = exact.numerator, exact.denominator
    limits = _largest((*left.limits, *right.limits))
    if rounded or not _is_held(above, below, left.bits):
        rounded = (*rounded, (above, below))
    elif not isinstance(above, int):
        limits = _largest((*limits, above))
    if below > _MOST_DIVISOR or len(rounded) > _MOST_ROUNDED:
        return None
    return Quotient(left.bits, above, below, limits, rounded, is_computed=True)


def _is_held(above: Size, below: int, bits: int) -> bool:
    """Whether floats of this many bits hold a quotient; of a size, where its limits are kept."""
    number = abs(above) if isinstance(above, int) else 0
    odd = number // (number & -number) if number else 0
    return below & (below - 1) == 0 and odd.bit_length() <= bits


def _is_power(factor: Quotient) -> bool:
    """Whether a factor is a power of two, which rounds no product, or was rounded before."""
    if factor.rounded:
        return True
    above, below = factor.numerator, factor.denominator
    return isinstance(above, int) and above > 0 and above & (above - 1) == below & (below - 1) == 0


def _largest(sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Drop the sizes that lie between 0 and another one."""
    kept: list[Size] = []
    for size in sizes:
        if not any(is_nonnegative(size) and is_at_most(size, other) for other in kept):
            kept = [n for n in kept if not (is_nonnegative(n) and is_at_most(n, size))]
            kept.append(size)
    return tuple(kept)
