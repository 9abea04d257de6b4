"""Scalar functions, each defined once as an expression of primitives.

The interpreter and the code generator both expand these definitions, so they give the same bits.
All are free of branches and tables: compare, select, integer arithmetic and bit casts, which
vectors can do. NaN gives NaN, infinities and signed zeros follow C99 annex F, underflow is gradual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ostinato.errors import OstinatoError
from ostinato.program.expr import FLOATS, Expr, Op, Reduced, rewrite, walk
from ostinato.program.functions.circular import acos, asin, atan, cos, sin, tan
from ostinato.program.functions.error import erf
from ostinato.program.functions.exponential import (
    cosh,
    exp,
    exp_nonpositive,
    expm1,
    sigmoid,
    sinh,
    softplus,
    tanh,
)
from ostinato.program.functions.logarithm import acosh, asinh, atanh, log, log1p
from ostinato.program.functions.power import pow
from ostinato.program.functions.remainder import floor_mod, fmod

UNARY: dict[str, Callable[[Expr], Expr]] = {
    function.__name__: function
    for function in (
        exp, exp_nonpositive, expm1, sigmoid, tanh, sinh, cosh, softplus,
        log, log1p, asinh, acosh, atanh,
        sin, cos, tan, asin, acos, atan, erf,
    )
}  # fmt: skip
BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    function.__name__: function for function in (pow, fmod, floor_mod)
}

NAMES = frozenset(UNARY) | frozenset(BINARY)
ARITY = dict.fromkeys(UNARY, 1) | dict.fromkeys(BINARY, 2)


def define(name: str, args: tuple[Expr, ...], dtype: str) -> Expr:
    """The value of function `name` in terms of `args`, made of primitives only.

    dtype: "float32" or "float64", that of the arguments and of the result.
    Raises OstinatoError for an unknown function or another dtype.
    """
    if dtype not in FLOATS:
        raise OstinatoError(f"function {name!r} takes float32 or float64, not {dtype}")
    if ARITY.get(name) != len(args):
        raise OstinatoError(f"there is no function {name!r} of {len(args)} arguments")
    return UNARY[name](*args) if name in UNARY else BINARY[name](*args)


@lru_cache(maxsize=256)
def operations(name: str, dtype: str) -> int:
    """Count the primitives of a call of this name: 1 for a primitive."""
    if name not in NAMES:
        return 1
    args = tuple(Reduced(position, dtype) for position in range(ARITY[name]))
    return sum(isinstance(node, Op) for node in walk(define(name, args, dtype)))


@lru_cache(maxsize=4096)
def expand(root: Expr) -> Expr:
    """`root` with every function replaced by its definition."""

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Op) and node.name in NAMES:
            return define(node.name, node.args, node.dtype)
        return None

    return rewrite(root, leaf)
