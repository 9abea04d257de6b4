from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import RunError
from ostinato.native import memory

pytestmark = pytest.mark.host


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000])
def test_blocks_are_aligned_and_of_the_size_asked_for(size: int) -> None:
    blocks = [memory.aligned_empty(size) for _ in range(10)]
    assert all(b.nbytes == size and (not size or b.ctypes.data % 64 == 0) for b in blocks)


def test_aligned_copies_only_what_is_not() -> None:
    block = memory.aligned_empty(256)
    block[:] = np.arange(256)
    assert memory.aligned(block) is block or np.shares_memory(memory.aligned(block), block)
    shifted = memory.aligned(block[1:])
    assert shifted.ctypes.data % 64 == 0 and shifted.tolist() == list(range(1, 256))
    assert memory.aligned(b"abc").tobytes() == b"abc"
    assert memory.aligned(b"").size == 0
    assert memory.aligned(np.ones((2, 2), "f")).nbytes == 16


def test_available_memory_is_plausible() -> None:
    available = memory.available_memory()
    assert available is None or 1 << 20 < available < 1 << 50


def test_more_than_available_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 30)
    memory.require_memory(1 << 30, "values")
    with pytest.raises(RunError, match=r"need 2.0 GiB .* 1.0 GiB are available"):
        memory.require_memory(1 << 31, "values")
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.require_memory(1 << 60, "values")
