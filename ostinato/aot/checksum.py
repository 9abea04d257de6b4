"""A checksum of 32-bit words: two polynomials modulo 2^64, of the even words and of the odd ones.

Each step multiplies by an odd number and adds a word, so that a changed word changes the result,
and so do two unless their changes cancel, which no common damage does. Both chains together read
eight bytes in the time of one multiplication.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.aot.words import loop

# Odd numbers without a pattern: 2^64 over the golden ratio, and a constant of the same kind.
FACTOR = 0x9E3779B97F4A7C15
JOINT = 0xD6E8FEB86659FD93
_MASK = 2**64 - 1
_BLOCK = 1 << 16


def checksum(data: bytes | np.ndarray[Any, Any]) -> int:
    """The checksum of bytes, a multiple of eight. `library_ir` has the same in compiled code."""
    words = np.frombuffer(data, np.uint8).view("<u4").astype(np.uint64).reshape(-1, 2)
    powers = np.full(min(len(words), _BLOCK) or 1, FACTOR, np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)[::-1, None]
    even = odd = 0
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK]
        sums = (block * powers[-len(block) :]).sum(0, dtype=np.uint64).tolist()
        factor = pow(FACTOR, len(block), 2**64)
        even, odd = (even * factor + sums[0]) & _MASK, (odd * factor + sums[1]) & _MASK
    return (even * JOINT + odd) & _MASK


ASSEMBLY = loop(
    "checksum",
    "ptr readonly %data, i64 %bytes",
    f"""  %at = getelementptr i64, ptr %data, i64 %i
  %word = load i64, ptr %at, align 1
  %low = and i64 %word, {2**32 - 1}
  %high = lshr i64 %word, 32
  %even.more = mul i64 %even, {FACTOR}
  %odd.more = mul i64 %odd, {FACTOR}
  %even.next = add i64 %even.more, %low
  %odd.next = add i64 %odd.more, %high
""",
    ("even", "odd"),
    "i64",
    f"""  %joint = mul i64 %even.last, {JOINT}
  %result = add i64 %joint, %odd.last
""",
)
