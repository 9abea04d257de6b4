"""Numbers and sizes as expressions."""

from __future__ import annotations

import numpy as np

from ostinato.program.expr import Const, Expr, Extent, constant, dtype_of, op
from ostinato.sizes.dims import Size


def literal(value: float | int | bool, like: Expr) -> Const:
    """A literal with the dtype of another expression, rounded to it."""
    dtype = dtype_of(like)
    return constant(np.asarray(value).astype(dtype).item(), dtype)


def sized(size: Size) -> Expr:
    """A size as an int64 value."""
    return constant(size, "int64") if isinstance(size, int) else Extent(size)


def in_range(place: Expr, count: Size) -> Expr:
    """Whether there is an element at a place, counted from 0, of an axis with so many."""
    return op("and", op("ge", place, literal(0, place)), op("lt", place, sized(count)))


def polynomial(x: Expr, *coefficients: float) -> Expr:
    """A polynomial by Horner's rule, the coefficient of the highest power first."""
    total: Expr = literal(coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = op("add", op("mul", total, x), literal(coefficient, x))
    return total
