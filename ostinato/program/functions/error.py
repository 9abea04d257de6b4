"""The error function.

Next to 0 a polynomial in x; further out `1 - exp(P(|x|))`, since the logarithm of `1 - erf` is
smooth (the form is N. Juffa's).
"""

from __future__ import annotations

from ostinato.program.expr import Expr, select
from ostinato.program.functions.coefficients import ERF_FAR, ERF_NEAR
from ostinato.program.functions.exponential import exp_reduced, power_of_two, reduce
from ostinato.program.functions.floats import (
    at_most,
    fma,
    format_of,
    polynomial,
    sign_of,
    with_sign,
)

# Where the polynomials meet: `ERF_SPLIT` of tools/minimax.py.
_SPLIT = 0.9375
# erf rounds to 1 before the end of the interval that the far polynomial is made for.
_FAR = {"float32": 4.0, "float64": 5.95}


def erf(x: Expr) -> Expr:
    """`2 / sqrt(pi)` times the integral of `exp(-t**2)` from 0 to x."""
    a = abs(x)
    near = fma(a, polynomial(a * a, ERF_NEAR[x.dtype]), a)
    n, r = reduce(polynomial(at_most(a, _FAR[x.dtype]) - 1.0, ERF_FAR[x.dtype]))
    far = fma(-exp_reduced(r), power_of_two(n, format_of(x)), 1.0)
    return with_sign(select(a < _SPLIT, near, far), sign_of(x))
