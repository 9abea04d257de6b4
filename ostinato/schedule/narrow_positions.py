"""Compare positions in 32 bits where all of them fit: in as many lanes as floats have.

x[i - 1] if i >= 1 & i < 57 else 0        with i of int64, of which a register holds half as many
"""

from __future__ import annotations

from functools import partial

from ostinato.program.expr import Const, Expr, Extent, Index, Op, dtype_of
from ostinato.program.kernel import map_expressions
from ostinato.program.nodes import Program, map_kernels
from ostinato.schedule.index_maps import LINEAR, narrowed

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_LIMIT = 2**31

Interval = tuple[int, int]


def narrow_positions(program: Program) -> Program:
    """Compare positions along axes of known extents in 32 bits."""
    changed = partial(map_expressions, change=_narrow_comparison)
    return program.with_body(map_kernels(program.body, changed))


def _narrow_comparison(node: Expr) -> Expr | None:
    if not isinstance(node, Op) or node.name not in _COMPARISONS:
        return None
    if dtype_of(node.args[0]) != "int64" or not all(map(_fits, node.args)):
        return None
    return Op(node.name, tuple(map(narrowed, node.args)), node.dtype)


def _fits(value: Expr) -> bool:
    found = _interval(value)
    return found is not None and found[0] >= -_LIMIT and found[1] < _LIMIT


def _interval(value: Expr) -> Interval | None:
    """The least and the largest value of a position; None for others, or if nothing is known."""
    if isinstance(value, Index):
        extent = value.axis.extent
        return (0, max(extent - 1, 0)) if isinstance(extent, int) else None
    if isinstance(value, Const):
        return int(value.value), int(value.value)
    if isinstance(value, Extent):
        return (value.size, value.size) if isinstance(value.size, int) else None
    if not isinstance(value, Op) or value.name not in LINEAR:
        return None
    intervals = [_interval(arg) for arg in value.args]
    if None in intervals:
        return None
    (a, b), (c, d) = (found or (0, 0) for found in intervals)
    if value.name == "add":
        return a + c, b + d
    if value.name == "sub":
        return a - d, b - c
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)
