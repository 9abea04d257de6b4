"""32-bit words as operands: four bytes, of `dot`, or two halves, of `dot_pairs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ostinato.program.expr import ITEM_BYTES, Cast, Const, Expr, Load, Op, cast, walk

BYTES = 4
# XOR with it moves the signed bytes of a word to unsigned ones and back: x +- 128.
FLIP = -0x7F7F7F80
# Four bytes that are 1.
ONES = 0x01010101
# Bytes that need no more bits share words, and have dots of their own.
FEW_BITS = 4
_LOW_BITS = ONES * ((1 << FEW_BITS) - 1)


def word(bytes_: Sequence[Expr]) -> Expr:
    """Four elements as the bytes of an int32, the first one lowest."""
    unsigned = [cast(cast(byte, "uint8"), "int32") for byte in bytes_]
    result = unsigned[0]
    for number, byte in enumerate(unsigned[1:], 1):
        result = result | (byte << (8 * number))
    return result


def pair(halves: Sequence[Expr]) -> Expr:
    """Two elements of 16 bits as the halves of an int32, the first one lower."""
    low, high = (cast(cast(half, "uint16"), "int32") for half in halves)
    return low | (high << 16)


# By element type: the function that packs elements into a word.
_WORDS = {"uint8": word, "int8": word, "int16": pair}


@lru_cache(maxsize=4096)
def first_of_word(expr: Expr) -> Load | None:
    """The load of a word's lowest element, where its elements are neighbours in memory, or None."""
    if not isinstance(expr, Op) or expr.name != "or":
        return None
    # Passes ask this of every node: one word is built to compare, of the element at the end.
    low: Expr = expr
    while isinstance(low, Op) and low.name == "or":
        low = low.args[0]
    while isinstance(low, Cast):
        low = low.value
    if not isinstance(low, Load) or low.dtype not in _WORDS:
        return None
    return low if _WORDS[low.dtype](list(_neighbours(low))) is expr else None


def _neighbours(first: Load) -> Iterator[Load]:
    """Yield the loads of a word's elements, in the order of memory."""
    access = first.access
    for number in range(BYTES // ITEM_BYTES[first.dtype]):
        yield replace(first, access=replace(access, offset=access.offset + number))


def has_few_bits(expr: Expr) -> bool:
    """Whether no byte of a word has more than its `FEW_BITS` lowest bits."""
    if not isinstance(expr, Op) or expr.name != "and":
        return False
    mask = expr.args[1]
    return isinstance(mask, Const) and int(mask.value) & ~_LOW_BITS == 0


def loads_at_once(*roots: Expr) -> Iterator[Load]:
    """Yield the loads below expressions; of a word of neighbours, which is one load, its first."""
    others: set[Load] = set()
    nodes = list(walk(*roots))
    for first in filter(None, map(first_of_word, nodes)):
        others.update(load for load in _neighbours(first) if load is not first)
    yield from (node for node in nodes if isinstance(node, Load) and node not in others)
