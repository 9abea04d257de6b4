"""exp and the functions made of it. Underflow is gradual and overflow gives infinity.

All start from `x = n ln 2 + r` with an integer `n` and `|r| <= ln 2 / 2` (W. J. Cody and W. Waite,
"Software Manual for the Elementary Functions", 1980): `exp(x) = 2**n exp(r)`.
"""

from __future__ import annotations

import math

from ostinato.program.expr import Expr, literal, select
from ostinato.program.functions.coefficients import EXP, EXPM1, SINH
from ostinato.program.functions.floats import (
    Format,
    as_float,
    at_least,
    at_most,
    bits,
    fma,
    format_of,
    polynomial,
    sign_of,
    with_sign,
)
from ostinato.program.functions.logarithm import log1p

# Arguments are clamped to this range. At its ends exp is 0 or infinite, expm1 -1, cosh infinite,
# sigmoid 0 or 1, tanh 1. The lower end is where the first factor of `scale` becomes 0, further out
# than exp needs: the products of arguments beyond it, such as those of masks, are then exactly 0
# and do not underflow, which would take ten times as long.
EXP_RANGE = {"float32": (-191 * math.log(2), 89.0), "float64": (-1535 * math.log(2), 710.0)}
_EXPM1_LOW = {"float32": -18.0, "float64": -38.0}
_COSH_HIGH = {"float32": 89.5, "float64": 710.6}
_SIGMOID_RANGE = {"float32": (-105.0, 30.0), "float64": (-747.0, 60.0)}
_TANH_HIGH = {"float32": 9.25, "float64": 19.5}


def reduce(x: Expr, unit: float = 1.0, plus: int = 0) -> tuple[Expr, Expr]:
    """`n + plus`, as an integer in the lowest bits of the first result, and `r`.

    `x = unit n ln 2 + r`.
    """
    form = format_of(x)
    magic = form.magic + plus
    shifted = fma(x, 1 / (unit * form.ln2), magic)
    n = shifted - magic
    r = fma(n, -unit * form.ln2, x)
    return bits(shifted), fma(n, -unit * form.ln2_low, r)


def power_of_two(n: Expr, form: Format, offset: int = 0) -> Expr:
    """`2**(n + offset)`, which must be a normal number."""
    return as_float((n << form.mantissa) + (form.one + (offset << form.mantissa)))


def exp_reduced(r: Expr) -> Expr:
    """`exp(r)` for `|r| <= ln 2 / 2`."""
    return polynomial(r, (1.0, 1.0, *EXP[r.dtype]))


def _expm1_reduced(r: Expr) -> Expr:
    """`exp(r) - 1` for `|r| <= ln 2 / 2`."""
    return fma(r * r, polynomial(r, EXPM1[r.dtype]), r)


def scale(value: Expr, n: Expr, large: Expr) -> Expr:
    """`value * 2**n` where `2**n` itself need not be representable; `large` is whether `n > 0`.

    The first product is normal and therefore exact, so a subnormal result is rounded once.
    """
    form = format_of(value)
    half = (form.bias + 1) // 2
    step = half << form.mantissa
    exponent = (n << form.mantissa) + select(large, literal(form.one - step, n), form.one + step)
    return value * as_float(exponent) * select(large, literal(2.0**half, value), 2.0**-half)


def exp(x: Expr) -> Expr:
    """e to the power of x."""
    low, high = EXP_RANGE[x.dtype]
    x = at_least(at_most(x, high), low)
    n, r = reduce(x)
    return scale(exp_reduced(r), n, x > 0.0)


def exp_nonpositive(x: Expr) -> Expr:
    """e to the power of x for `x <= 0`, where it can only underflow; bit for bit that of `exp`.

    The factor of `scale` that makes up for a tiny power of two is in the coefficients, whose
    product with that power is therefore rounded once.
    """
    form = format_of(x)
    half = (form.bias + 1) // 2
    n, r = reduce(at_least(x, EXP_RANGE[x.dtype][0]), plus=form.bias + half)
    tiny = tuple(2.0**-half * c for c in (1.0, 1.0, *EXP[x.dtype]))
    return polynomial(r, tiny) * as_float(n << form.mantissa)


def expm1(x: Expr) -> Expr:
    """`exp(x) - 1` without cancellation next to 0."""
    form = format_of(x)
    bounded = at_least(at_most(x, EXP_RANGE[x.dtype][1]), _EXPM1_LOW[x.dtype])
    n, r = reduce(bounded)
    # Half of the result, since 2**n overflows earlier than the result does.
    half = power_of_two(n, form, -1)
    result = 2.0 * fma(half, _expm1_reduced(r), half - 0.5)
    return select(abs(x) < 2.0 ** -(form.mantissa + 2), x, result)


def sigmoid(x: Expr) -> Expr:
    """`1 / (1 + exp(-x))`, computed as `c / (c + c exp(-x))` with a tiny `c` against overflow."""
    form = format_of(x)
    half = (form.bias + 1) // 2
    low, high = _SIGMOID_RANGE[x.dtype]
    n, r = reduce(at_least(at_most(x, high), low))
    scaled = as_float(literal(form.one - (half << form.mantissa), n) - (n << form.mantissa))
    negated = tuple((-1.0) ** k * c for k, c in enumerate((1.0, 1.0, *EXP[x.dtype])))
    return 2.0**-half / fma(polynomial(r, negated), scaled, 2.0**-half)


def tanh(x: Expr) -> Expr:
    """`m / (m + 1)` where `m` is half of `exp(2 |x|) - 1`, with the sign of x."""
    form = format_of(x)
    n, r = reduce(at_most(abs(x), _TANH_HIGH[x.dtype]), 0.5)
    doubled = tuple(2.0 ** (k + 1) * c for k, c in enumerate(EXPM1[x.dtype]))
    reduced = fma(r * r, polynomial(r, doubled), r)
    power = power_of_two(n, form)
    m = fma(power, reduced, fma(power, 0.5, -0.5))
    return with_sign(m / (m + 1.0), sign_of(x))


def _half_exp(a: Expr) -> Expr:
    """`exp(a) / 2` for `a >= 0`."""
    n, r = reduce(at_most(a, _COSH_HIGH[a.dtype]))
    return 2.0 * (exp_reduced(r) * power_of_two(n, format_of(a), -2))


def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine."""
    half = _half_exp(abs(x))
    return half + 0.25 / half


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine: a polynomial up to 1, where the difference of exponentials cancels."""
    a = abs(x)
    square = a * a
    near = fma(a * square, polynomial(square, SINH[x.dtype]), a)
    half = _half_exp(a)
    return with_sign(select(a <= 1.0, near, half - 0.25 / half), sign_of(x))


def softplus(x: Expr) -> Expr:
    """`log(1 + exp(x))`."""
    return at_least(x, 0.0) + log1p(exp_nonpositive(-abs(x)))
