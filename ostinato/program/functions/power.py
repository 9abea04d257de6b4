"""pow, with every special case of C99 (annex F.9.4.4).

`|x|**y = exp(y log |x|)`. The error of the logarithm is multiplied by up to 745, so it is computed
as an unevaluated sum of two floats (T. J. Dekker, "A floating-point technique for extending the
available precision", 1971).
"""

from __future__ import annotations

from math import inf, nan

from ostinato.program.expr import Expr, literal, op, select
from ostinato.program.functions.coefficients import ATANH
from ostinato.program.functions.exponential import EXP_RANGE, exp_reduced, reduce, scale
from ostinato.program.functions.floats import (
    as_float,
    at_least,
    at_most,
    bits,
    fma,
    format_of,
    polynomial,
    sign_of,
)
from ostinato.program.functions.logarithm import exponent_times, split

_TWO_THIRDS = {
    "float32": (float.fromhex("0x1.555556p-1"), float.fromhex("-0x1.555556p-26")),
    "float64": (float.fromhex("0x1.5555555555555p-1"), float.fromhex("0x1.5555555555555p-55")),
}


def _sum(large: Expr, small: Expr) -> tuple[Expr, Expr]:
    """The rounded sum and its rounding error, where `|large| >= |small|`."""
    total = large + small
    return total, small - (total - large)


def _log(x: Expr) -> tuple[Expr, Expr]:
    """log(x) of a positive finite number as a sum of two floats.

    With `q = f / (2 + f)`: `log(1 + f) = 2 atanh(q) = 2 q + q**3 (2/3 + q**2 P(q**2))`.
    """
    form = format_of(x)
    e, mantissa = split(x)
    f, divisor = mantissa - 1.0, mantissa + 1.0
    divisor_low = mantissa - (divisor - 1.0)
    q = f / divisor
    q_low = fma(-q, divisor_low, fma(-q, divisor, f)) / divisor
    square = q * q
    square_low = fma(q + q, q_low, fma(q, q, -square))
    tail = square * polynomial(square, ATANH[x.dtype])
    third, third_low = _TWO_THIRDS[x.dtype]
    slope, slope_low = _sum(literal(third, x), tail)
    slope_low = slope_low + third_low
    bend = square * slope
    bend_low = fma(square, slope_low, fma(square_low, slope, fma(square, slope, -bend)))
    # log(1 + f) = 2 q + q bend
    cubic = q * bend
    cubic_low = fma(q, bend_low, fma(q_low, bend, fma(q, bend, -cubic)))
    fraction, fraction_low = _sum(q + q, cubic)
    fraction_low = fraction_low + fma(q_low, 2.0, cubic_low)
    # e ln 2, whose rounding error is exact by fma.
    zero = literal(0.0, x)
    whole = exponent_times(e, form.ln2, zero, form)
    whole_low = exponent_times(e, form.ln2, -whole, form)
    total = whole + fraction
    larger = abs(whole) > abs(fraction)
    rest = select(larger, fraction - (total - whole), whole - (total - fraction))
    return total, rest + exponent_times(e, form.ln2_low, whole_low + fraction_low, form)


def _magnitude(a: Expr, y: Expr) -> Expr:
    """`a**y` for positive finite a and finite y."""
    low, high = EXP_RANGE[a.dtype]
    log, log_low = _log(a)
    product = y * log
    product_low = fma(y, log_low, fma(y, log, -product))
    bounded = at_least(at_most(product, high), low)
    correction = select(bounded.equals(product), product_low, 0.0)
    n, r = reduce(bounded)
    return scale(exp_reduced(r + correction), n, bounded > 0.0)


def pow(x: Expr, y: Expr) -> Expr:
    """x to the power of y; NaN for a negative x and a y that is not an integer."""
    a = abs(x)
    integer = op("floor", y).equals(y)
    half = y * 0.5
    odd = integer & op("floor", half).differs(half)
    # Where a is 0 or infinite, or y is infinite, the result is 0 or infinite.
    grows = select(abs(y).equals(inf), a > 1.0, a.equals(inf)) ^ (y < 0.0)
    extreme = select(grows, literal(inf, x), 0.0)
    special = a.equals(0.0) | a.equals(inf) | abs(y).equals(inf)
    result = select(special, extreme, _magnitude(a, y))
    result = as_float(select(odd, bits(result) | sign_of(x), bits(result)))
    undefined = (x < 0.0) & (x > -inf) & ~integer
    result = select(undefined, nan, result)
    result = select(x.differs(x) | y.differs(y), x + y, result)
    one = x.equals(1.0) | y.equals(0.0) | (a.equals(1.0) & abs(y).equals(inf))
    return select(one, 1.0, result)
