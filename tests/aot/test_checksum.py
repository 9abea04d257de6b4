from __future__ import annotations

import numpy as np
import pytest

from ostinato.aot.checksum import FACTOR, JOINT, checksum


def plain(data: bytes) -> int:
    """Word by word, as compiled code does it."""
    even = odd = 0
    words = np.frombuffer(data, "<u4").tolist()
    for low, high in zip(words[::2], words[1::2], strict=True):
        even, odd = (even * FACTOR + low) % 2**64, (odd * FACTOR + high) % 2**64
    return (even * JOINT + odd) % 2**64


@pytest.mark.parametrize("words", [0, 1, 2, 1000, (1 << 16) + 1])
def test_blocks_give_what_words_give(words: int) -> None:
    data = np.random.default_rng(words).integers(0, 256, 8 * words, np.uint8).tobytes()
    assert checksum(data) == plain(data)


def test_flipped_bits_and_swapped_words_are_seen() -> None:
    words = np.random.default_rng(0).integers(0, 2**63, 64, np.uint64)
    found = {checksum(words.tobytes())}
    for place in range(64):
        for bit in (0, 31, 32, 63):
            for other in (None, 5):
                damaged = words.copy()
                damaged[place] ^= np.uint64(1 << bit)
                if other not in (None, place):
                    damaged[other] ^= np.uint64(1 << bit)
                found.add(checksum(damaged.tobytes()))
    assert len(found) == 1 + 4 * 64 + 4 * 63
    assert checksum(words[::-1].tobytes()) not in found
