"""Numbers of four bits as floats, by a table in a register."""

from __future__ import annotations

from typing import NamedTuple

from ostinato.program.expr import Cast, Const, Expr, Op

# Entries of a table: the lanes of the register that holds it.
ENTRIES = 16


class Lookup(NamedTuple):
    """The element of `values` that the lowest four bits of `place` count."""

    place: Expr
    values: tuple[float, ...]


def looked_up(expr: Cast) -> Lookup | None:
    """The conversion of four bits of an integer, moved or not, to float32 as a table; or None."""
    value: Expr = expr.value
    low = 0
    if isinstance(value, Op) and value.name == "add":
        field, least = value.args
        if isinstance(least, Const):
            value, low = field, int(least.value)
    if expr.dtype != "float32" or not isinstance(value, Op) or value.name != "and":
        return None
    place, mask = value.args
    if value.dtype != "int32" or not isinstance(mask, Const) or mask.value != ENTRIES - 1:
        return None
    return Lookup(place, tuple(float(low + n) for n in range(ENTRIES)))
