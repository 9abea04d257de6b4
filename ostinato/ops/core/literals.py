"""Numbers and sizes as expressions."""

from __future__ import annotations

import numpy as np

from ostinato.program.expr import Const, Expr, Extent, constant, dtype_of
from ostinato.sizes.dims import Size


def literal(value: float | int | bool, like: Expr) -> Const:
    """A literal with the dtype of another expression, rounded to it."""
    dtype = dtype_of(like)
    return constant(np.asarray(value).astype(dtype).item(), dtype)


def sized(size: Size) -> Expr:
    """A size as an int64 value."""
    return constant(size, "int64") if isinstance(size, int) else Extent(size)
