"""Tables in registers: of floats, looked up by four bits; of bytes, looked up by a byte."""

from __future__ import annotations

from typing import NamedTuple

from ostinato.codegen.writer import Value, Writer, integer, vector
from ostinato.program.expr import Cast, Const, Expr, Op
from ostinato.schedule.byte_tables import BYTE_VALUES

# Entries of a table: the lanes of the register that holds it.
_ENTRIES = 16
# Bytes of a register of AVX-512; four registers hold the 256 entries that a byte selects.
_REGISTER = 64


class Lookup(NamedTuple):
    """The element of `values` that the lowest four bits of `place` select."""

    place: Expr
    values: tuple[float, ...]


def looked_up(expr: Cast) -> Lookup | None:
    """Recognise the conversion of four bits of an integer, shifted or not, to float32 as a lookup.

    None for other conversions.
    """
    value: Expr = expr.value
    low = 0
    if isinstance(value, Op) and value.name == "add":
        field, least = value.args
        if isinstance(least, Const):
            value, low = field, int(least.value)
    if expr.dtype != "float32" or not isinstance(value, Op) or value.name != "and":
        return None
    place, mask = value.args
    if value.dtype != "int32" or not isinstance(mask, Const) or mask.value != _ENTRIES - 1:
        return None
    return Lookup(place, tuple(float(low + n) for n in range(_ENTRIES)))


def byte_looked_up(w: Writer, table: Value, places: Value, lanes: int) -> Value:
    """Look up bytes in a table of 256 at an address, one for each lane of bytes (AVX-512 VBMI).

    One instruction picks bytes of two registers by the lower seven bits of each lane.
    """
    type_ = vector("i8", _REGISTER)
    count = _REGISTER // lanes
    rest = [Value("poison", places.type)] * (count - 1)
    wide = w.joined([places, *rest], "i8", lanes)
    starts = (w.pointer(table, integer(n), "i8") for n in range(0, BYTE_VALUES, _REGISTER))
    parts = [w.load(type_, start, 1) for start in starts]
    name = "llvm.x86.avx512.vpermi2var.qi.512"
    low, high = (w.call(type_, name, parts[n], wide, parts[n + 1]) for n in (0, 2))
    is_high = w.compare("icmp", "slt", wide, Value("zeroinitializer", type_), _REGISTER)
    return w.parts(w.select(is_high, high, low), count, "i8", lanes)[0]
