"""log and the functions made of it.

A number is taken apart as `2**e (1 + f)` with `2/3 <= 1 + f < 4/3`, so that no cancellation occurs
between `e ln 2` and `log(1 + f)`. The way to find `e` in integers is N. Juffa's.
"""

from __future__ import annotations

from math import inf, nan

from ostinato.program.expr import Expr, cast, literal, op, select
from ostinato.program.functions.coefficients import LOG
from ostinato.program.functions.floats import (
    Format,
    as_float,
    bits,
    fma,
    format_of,
    polynomial,
    sign_of,
    with_sign,
)

_TWO_THIRDS = {"float32": 0x3F2AAAAB, "float64": 0x3FE5555555555555}


def _exponent_field(x: Expr) -> Expr:
    """`e` of a positive normal number, as an integer shifted to where exponents are."""
    form = format_of(x)
    return (bits(x) - _TWO_THIRDS[x.dtype]) & -(1 << form.mantissa)


def split(x: Expr) -> tuple[Expr, Expr]:
    """`e` (as by `_exponent_field`) and `1 + f` of a positive finite number, subnormal or not."""
    form = format_of(x)
    subnormal = x < form.tiny
    normal = select(subnormal, x * 2.0**form.mantissa, x)
    e = _exponent_field(normal)
    correction = select(subnormal, literal(form.mantissa << form.mantissa, e), 0)
    return e - correction, as_float(bits(normal) - e)


def exponent_times(e: Expr, factor: float, addend: Expr, form: Format) -> Expr:
    """`e * factor + addend` for an `e` as by `_exponent_field`."""
    return fma(cast(e, form.dtype), factor * 2.0**-form.mantissa, addend)


def _assemble(e: Expr, f: Expr) -> Expr:
    """`e ln 2 + log(1 + f)`."""
    form = format_of(f)
    fraction = fma(f * f, polynomial(f, LOG[f.dtype]), f)
    return exponent_times(e, form.ln2, exponent_times(e, form.ln2_low, fraction, form), form)


def log(x: Expr) -> Expr:
    """The natural logarithm: -inf at 0, NaN below."""
    e, mantissa = split(x)
    result = select(x < inf, _assemble(e, mantissa - 1.0), x)
    return select(x > 0.0, result, select(x.equals(0.0), literal(-inf, x), nan))


def log1p(x: Expr) -> Expr:
    """`log(1 + x)` without losing the digits of a small x: -inf at -1, NaN below."""
    form = format_of(x)
    e = _exponent_field(1.0 + x)
    # 1 + f = (1 + x) 2**-e, so f = x 2**-e + (2**-e - 1). 2**-e may be subnormal, its fourfold not.
    quadruple = as_float(literal(form.one + (2 << form.mantissa), e) - e)
    f = as_float(bits(x) - e) + fma(quadruple, 0.25, -1.0)
    result = select(x < inf, _assemble(e, f), x)
    result = select(abs(x) < 2.0 ** -(form.mantissa + 2), x, result)
    return select(x > -1.0, result, select(x.equals(-1.0), literal(-inf, x), nan))


def _log_double(x: Expr, argument: Expr) -> Expr:
    """`log1p(argument)`, or `log(2 x)` where x is so large that the argument would overflow."""
    large = x > 2.0 ** (format_of(x).mantissa + 6)
    result = log1p(select(large, x, argument))
    return result + select(large, literal(format_of(x).ln2, x), 0.0)


def asinh(x: Expr) -> Expr:
    """The inverse hyperbolic sine, `log(a + sqrt(a**2 + 1))` with the sign of x."""
    a = abs(x)
    square = a * a
    return with_sign(_log_double(a, a + square / (1.0 + op("sqrt", 1.0 + square))), sign_of(x))


def acosh(x: Expr) -> Expr:
    """The inverse hyperbolic cosine, `log(x + sqrt(x**2 - 1))`; NaN below 1."""
    t = x - 1.0
    return select(x < 1.0, nan, _log_double(x, t + op("sqrt", t * (x + 1.0))))


def atanh(x: Expr) -> Expr:
    """The inverse hyperbolic tangent, `log((1 + a) / (1 - a)) / 2` with the sign of x."""
    a = abs(x)
    return with_sign(0.5 * log1p((a + a) / (1.0 - a)), sign_of(x))
