"""Trigonometric functions and their inverses.

Arguments of sin, cos and tan are reduced to `[-pi/4, pi/4]` by subtracting a multiple of `pi/2`
that is held in three parts (W. J. Cody and W. Waite, 1980). This keeps its accuracy up to
`|x| = 1e5` in float32 and `1e9` in float64. Beyond, digits are lost with growing arguments, but sin
and cos stay within [-1, 1].
"""

from __future__ import annotations

from math import pi

from ostinato.program.expr import Expr, literal, op, select
from ostinato.program.functions.coefficients import ASIN, ATAN, COS, SIN
from ostinato.program.functions.floats import (
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


def _reduce(x: Expr) -> tuple[Expr, Expr]:
    """Reduce x: the quadrant, in the lowest bits of an integer, and the remainder."""
    form = format_of(x)
    shifted = fma(x, 2 / pi, form.magic)
    n = shifted - form.magic
    r = x
    for part in form.half_pi:
        r = fma(n, -part, r)
    return bits(shifted), at_least(at_most(r, 0.8), -0.8)


def _kernels(r: Expr) -> tuple[Expr, Expr]:
    """sin and cos of a reduced argument."""
    square = r * r
    sine = r * polynomial(square, (1.0, *SIN[r.dtype]))
    cosine = polynomial(square, (1.0, -0.5, *COS[r.dtype]))
    return sine, cosine


def _quadrant_sign(quadrant: Expr, x: Expr) -> Expr:
    """Bit 1 of the quadrant, moved to the sign bit."""
    return (quadrant << (format_of(x).width - 2)) & format_of(x).sign


def _turn(quadrant: Expr, x: Expr, sine: Expr, cosine: Expr) -> Expr:
    """The sine of an angle in this quadrant."""
    magnitude = select((quadrant & 1).differs(0), cosine, sine)
    return as_float(bits(magnitude) ^ _quadrant_sign(quadrant, x))


def sin(x: Expr) -> Expr:
    """The sine."""
    quadrant, r = _reduce(x)
    return _turn(quadrant, x, *_kernels(r))


def cos(x: Expr) -> Expr:
    """The cosine: the sine, a quadrant further."""
    quadrant, r = _reduce(x)
    return _turn(quadrant + 1, x, *_kernels(r))


def tan(x: Expr) -> Expr:
    """The tangent: sin / cos, or -cos / sin in odd quadrants."""
    quadrant, r = _reduce(x)
    sine, cosine = _kernels(r)
    odd = (quadrant & 1).differs(0)
    ratio = select(odd, cosine, sine) / select(odd, sine, cosine)
    return as_float(bits(ratio) ^ _quadrant_sign(quadrant << 1, x))


def _asin_parts(x: Expr) -> tuple[Expr, Expr]:
    """Whether `|x| > 1/2`, and asin of `sqrt((1 - |x|) / 2)` where it is, else of `|x|`."""
    a = abs(x)
    far = a > 0.5
    rest = fma(a, -0.5, 0.5)
    square = select(far, rest, a * a)
    root = select(far, op("sqrt", rest), a)
    return far, fma(root * square, polynomial(square, ASIN[x.dtype]), root)


def asin(x: Expr) -> Expr:
    """The inverse sine; NaN outside [-1, 1]."""
    far, part = _asin_parts(x)
    return with_sign(select(far, fma(part, -2.0, pi / 2), part), sign_of(x))


def acos(x: Expr) -> Expr:
    """The inverse cosine; NaN outside [-1, 1]."""
    far, part = _asin_parts(x)
    signed = with_sign(part, sign_of(x))
    return select(far, fma(signed, 2.0, select(x < 0.0, literal(pi, x), 0.0)), pi / 2 - signed)


def atan(x: Expr) -> Expr:
    """The inverse tangent."""
    a = abs(x)
    far = a > 1.0
    y = select(far, 1.0 / a, a)
    square = y * y
    part = fma(y * square, polynomial(square, ATAN[x.dtype]), y)
    return with_sign(select(far, pi / 2 - part, part), sign_of(x))
