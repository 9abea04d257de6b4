"""The remainder of a division of floats, exactly.

`x - n y` with the quotient truncated to the integer `n` is always a float. The quotient itself can
have 2098 bits, so it is found in digits, highest first, as in long division: `r` is divided by
`y b**k` for `k = .., 2, 1, 0`, where the base `b` is 2 to the number of bits of a mantissa.

Each digit is exact. Rounding a quotient below `b` moves it over an integer at most upward, so that
its floor is the digit or one more. Either way the rest is a multiple of the last place of `y b**k`
and less than that number in magnitude: a float, which fma gives without rounding.
"""

from __future__ import annotations

from math import ceil

from ostinato.program.expr import Expr, op, select
from ostinato.program.functions.floats import fma, format_of, sign_of, with_sign


def fmod(x: Expr, y: Expr) -> Expr:
    """Remainder of truncated division, with the sign of x (C99 F.9.7.1).

    NaN where x is infinite or y is 0; x where y is infinite.
    """
    form, divisor = (format_of(x), abs(y))
    digit_bits = form.mantissa + 1
    # From the smallest subnormal number up to infinity.
    most_bits = 2 * form.bias + form.mantissa
    divisors = [divisor]
    for _ in range(ceil(most_bits / digit_bits) - 1):
        divisors.append(divisors[-1] * 2.0**digit_bits)
    rest = abs(x)
    for scaled in reversed(divisors):
        # Also where the scaled divisor is infinite. A NaN compares as false, and stays.
        rest = select(rest < scaled, rest, _remainder(rest, scaled))
    return with_sign(rest, sign_of(x))


def _remainder(x: Expr, y: Expr) -> Expr:
    """`x - floor(x / y) y` where the quotient, of positive numbers, has the bits of a mantissa."""
    digit = op("floor", x / y)
    rest = fma(-digit, y, x)
    return select(rest < 0.0, rest + y, rest)


def floor_mod(x: Expr, y: Expr) -> Expr:
    """Remainder of floored division: `fmod`, plus y where that has the other sign; a 0 has y's.

    y where that is infinite and x, which is not 0, has the other sign.
    """
    rest = fmod(x, y)
    crossed = (rest < 0.0) ^ (y < 0.0)
    moved = select(crossed, rest + y, rest)
    return select(rest.equals(0.0), with_sign(abs(rest), sign_of(y)), moved)
