"""Words of bytes that fit into fewer bits share a word.

    word = w[0] + (w[1] << 4)      w[0] = word & m      w[1] = (word >> 4) & m      m = 0x0F0F0F0F

where `w` are words that a term of a sum multiplies one after the other. How many bits their bytes
need follows from their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ostinato.program.expr import Expr, Load, constant, op
from ostinato.program.laid import Contents, elements
from ostinato.program.words import FEW_BITS, ONES
from ostinato.records import dataclass

_WORD, _BITS_OF_A_BYTE = "int32", 8
# Bits of a byte, the fewest first.
_BITS = (2, FEW_BITS)


@dataclass(frozen=True)
class ByteField:
    """Neighbouring words of bytes in one word; each byte has `bits`."""

    bits: int

    @property
    def count(self) -> int:
        """How many words are in one."""
        return _BITS_OF_A_BYTE // self.bits

    @property
    def form(self) -> tuple[int, ...]:
        """A key that differs for words that mean other numbers."""
        return _BITS_OF_A_BYTE, self.bits

    def packed(self, words: np.ndarray) -> np.ndarray:
        """Pack words `[.., count, lane]` into `[.., lane]`."""
        parts = np.moveaxis(words.view(np.uint32), -2, 0)
        result = np.zeros(parts.shape[1:], np.uint32)
        for number, part in enumerate(parts):
            result |= part << np.uint32(self.bits * number)
        return result.view(_WORD)

    def reading(self, word: Load, number: int) -> Expr:
        """Read one of the words."""
        moved = op("shr", word, constant(self.bits * number, _WORD)) if number else word
        return moved & (ONES * ((1 << self.bits) - 1))


def byte_field(loads: Sequence[Load], constants: Mapping[str, Contents]) -> ByteField | None:
    """The field of words that these loads read together, None where they do not share a word."""
    names = {load.access.buffer for load in loads}
    if len(loads) < 2 or loads[0].dtype != _WORD or not names <= constants.keys():
        return None
    used = 0
    for name in names:
        used |= int(np.bitwise_or.reduce(elements(constants[name]).view(np.uint8), initial=0))
    for bits in _BITS:
        field = ByteField(bits)
        if used < 1 << bits and len(loads) % field.count == 0:
            return field
    return None
