"""Two bfloat16 in a word along a sum: each is a float32 once the bits of the other one are zeros.

    word = b[k] + (b[k + 1] << 16)      float32(b[k]) = word << 16      float32(b[k + 1]) = word & m

with `m` = 0xFFFF0000. So lanes load a whole vector of words for two terms, and each term takes one
instruction, in place of a load that spreads 16 bits over 32 and a shift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ostinato.program.expr import Axis, Expr, Index, Load, cast, op
from ostinato.program.laid import Contents, Laid, Words
from ostinato.records import dataclass

HALF, _BITS, COUNT = "bfloat16", 16, 2


@dataclass(frozen=True)
class HalfField:
    """Two bfloat16 in a word, along an axis that counts them."""

    axis: Axis
    word = "int32"

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axis that counts the fields of a word."""
        return (self.axis,)

    @property
    def form(self) -> tuple[int, ...]:
        """A key that differs for words that mean other numbers."""
        return _BITS, COUNT

    def holds(self, loads: Iterable[Load], constants: Mapping[str, Contents]) -> bool:
        """Whether these loads are of constants that have fields of this kind."""
        return are_halves(loads, constants)

    def packed(self, halves: Laid) -> Words:
        """Read pairs of neighbours as words, so that code holds for any weights."""
        return Words(halves, np.dtype(self.word))

    def readings(self, load: Load, word: Load) -> dict[Expr, Expr]:
        """Map the expressions that read a number to those that read its field of a word."""
        up = (COUNT - 1) - cast(Index(self.axis), "int32")
        moved = word << (up * _BITS)
        pattern = moved & (-1 << _BITS)
        return {cast(load, "float32"): op("bitcast", pattern, dtype="float32")}


def are_halves(loads: Iterable[Load], constants: Mapping[str, Contents]) -> bool:
    """Whether all loads read constants of bfloat16."""
    return all(load.dtype == HALF and load.access.buffer in constants for load in loads)
