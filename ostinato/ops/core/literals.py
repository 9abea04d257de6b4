"""Numbers and sizes as expressions."""

from __future__ import annotations

from ostinato.program.expr import Expr, literal
from ostinato.sizes.dims import Size


def in_range(place: Expr, count: Size) -> Expr:
    """Whether there is an element at a place, counted from 0, of an axis with this many."""
    return (place >= 0) & (place < count)


def polynomial(x: Expr, *coefficients: float) -> Expr:
    """A polynomial by Horner's rule, the coefficient of the highest power first."""
    total: Expr = literal(coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total
