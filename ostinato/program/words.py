"""Words of four bytes, the operands of `dot`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ostinato.program.expr import Expr, Load, Op, cast, constant, op, walk

BYTES = 4


def word(bytes_: Sequence[Expr]) -> Expr:
    """Four elements as the bytes of an int32, the first one lowest."""
    unsigned = [cast(cast(byte, "uint8"), "int32") for byte in bytes_]
    result = unsigned[0]
    for number, byte in enumerate(unsigned[1:], 1):
        result = op("or", result, op("shl", byte, constant(8 * number, "int32")))
    return result


@lru_cache(maxsize=4096)
def first_byte(expr: Expr) -> Load | None:
    """The lowest byte of a word of bytes that lie beside each other in memory; None for others."""
    if not isinstance(expr, Op) or expr.name != "or":
        return None
    loads = [node for node in walk(expr) if isinstance(node, Load)]
    for first in loads:
        bytes_ = [
            replace(first, access=replace(first.access, offset=first.access.offset + number))
            for number in range(BYTES)
        ]
        if first.dtype in ("uint8", "int8") and word(bytes_) is expr:
            return first
    return None


def loads_at_once(*roots: Expr) -> Iterator[Load]:
    """The loads below expressions; of a word of neighbours, which is one load, its first byte."""
    others: set[Load] = set()
    nodes = list(walk(*roots))
    for first in filter(None, map(first_byte, nodes)):
        access = first.access
        for number in range(1, BYTES):
            other = replace(access, offset=access.offset + number)
            others.add(replace(first, access=other))
    yield from (node for node in nodes if isinstance(node, Load) and node not in others)
