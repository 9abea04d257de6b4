"""Load terms of sums that are neighbours in memory where lanes are not: transposed in registers.

    terms a0 a1 a2 a3 of lane a, b0 b1 b2 b3 of lane b, ..    ->    a0 b0 .. | a1 b1 .. | a2 b2 ..

A gather reads element by element and takes several times as long.
"""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.codegen.writer import Value, Writer
from ostinato.schedule.operands import TERMS_ACROSS


def transposed(w: Writer, lanes: Sequence[Value], memory: str) -> list[Value]:
    """Transpose the four neighbours that each lane loads into a vector for each of four terms.

    lanes: a multiple of four of them. All shuffles stay within 16 bytes, which takes one step.
    """
    assert TERMS_ACROSS == 4, "the steps below are those of four terms"
    width = len(lanes)
    blocks = range(0, width, 4)
    a, b, c, d = (w.joined(lanes[n::4], memory, TERMS_ACROSS) for n in range(4))
    low, high = (
        [p for n in blocks for p in (n + k, width + n + k, n + k + 1, width + n + k + 1)]
        for k in (0, 2)
    )
    first, second = (
        [p for n in blocks for p in (n + k, n + k + 1, width + n + k, width + n + k + 1)]
        for k in (0, 2)
    )
    found = []
    for picks in (low, high):
        left, right = w.shuffled(a, b, picks, memory), w.shuffled(c, d, picks, memory)
        found += [w.shuffled(left, right, half, memory) for half in (first, second)]
    return found
