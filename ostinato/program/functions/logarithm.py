"""log and what is made of it.

A number is taken apart as `2**e (1 + f)` with `2/3 <= 1 + f < 4/3`, so that no cancellation occurs
between `e ln 2` and `log(1 + f)`. The integer way of doing so is N. Juffa's.
"""

from __future__ import annotations

from math import inf, nan

from ostinato.program.expr import cast
from ostinato.program.functions.coefficients import LOG
from ostinato.program.functions.value import (
    Format,
    Value,
    fma,
    polynomial,
    select,
    sign_of,
    with_sign,
)

_TWO_THIRDS = {"float32": 0x3F2AAAAB, "float64": 0x3FE5555555555555}


def _exponent_field(x: Value) -> Value:
    """`e` of a positive normal number, as an integer shifted to where exponents are."""
    form = x.form
    return (x.bits() - _TWO_THIRDS[x.dtype]) & -(1 << form.mantissa)


def split(x: Value) -> tuple[Value, Value]:
    """`e` (as by `_exponent_field`) and `1 + f` of a positive finite number, subnormal or not."""
    form = x.form
    subnormal = x < form.tiny
    normal = select(subnormal, x * 2.0**form.mantissa, x)
    e = _exponent_field(normal)
    correction = select(subnormal, e.number(form.mantissa << form.mantissa), 0)
    return e - correction, (normal.bits() - e).as_float()


def exponent_times(e: Value, factor: float, addend: Value, form: Format) -> Value:
    """`e * factor + addend` for an `e` as by `_exponent_field`."""
    return fma(Value(cast(e.expr, form.dtype)), factor * 2.0**-form.mantissa, addend)


def _assemble(e: Value, f: Value) -> Value:
    """`e ln 2 + log(1 + f)`."""
    form = f.form
    fraction = fma(f * f, polynomial(f, LOG[f.dtype]), f)
    return exponent_times(e, form.ln2, exponent_times(e, form.ln2_low, fraction, form), form)


def log(x: Value) -> Value:
    """The natural logarithm: -inf at 0, NaN below."""
    e, mantissa = split(x)
    result = select(x < inf, _assemble(e, mantissa - 1.0), x)
    return select(x > 0.0, result, select(x.equals(0.0), x.number(-inf), nan))


def log1p(x: Value) -> Value:
    """`log(1 + x)` without losing the digits of a small x: -inf at -1, NaN below."""
    form = x.form
    e = _exponent_field(1.0 + x)
    # 1 + f = (1 + x) 2**-e, so f = x 2**-e + (2**-e - 1). 2**-e may be subnormal, its fourfold not.
    quadruple = (e.number(form.one + (2 << form.mantissa)) - e).as_float()
    f = (x.bits() - e).as_float() + fma(quadruple, 0.25, -1.0)
    result = select(x < inf, _assemble(e, f), x)
    result = select(abs(x) < 2.0 ** -(form.mantissa + 2), x, result)
    return select(x > -1.0, result, select(x.equals(-1.0), x.number(-inf), nan))


def _log_double(x: Value, argument: Value) -> Value:
    """`log1p(argument)`, or `log(2 x)` where x is so large that the argument would overflow."""
    large = x > 2.0 ** (x.form.mantissa + 6)
    result = log1p(select(large, x, argument))
    return result + select(large, x.number(x.form.ln2), 0.0)


def asinh(x: Value) -> Value:
    """The inverse hyperbolic sine, `log(a + sqrt(a**2 + 1))` with the sign of x."""
    a = abs(x)
    square = a * a
    return with_sign(_log_double(a, a + square / (1.0 + (1.0 + square).sqrt())), sign_of(x))


def acosh(x: Value) -> Value:
    """The inverse hyperbolic cosine, `log(x + sqrt(x**2 - 1))`; NaN below 1."""
    t = x - 1.0
    return select(x < 1.0, nan, _log_double(x, t + (t * (x + 1.0)).sqrt()))


def atanh(x: Value) -> Value:
    """The inverse hyperbolic tangent, `log((1 + a) / (1 - a)) / 2` with the sign of x."""
    a = abs(x)
    return with_sign(0.5 * log1p((a + a) / (1.0 - a)), sign_of(x))
