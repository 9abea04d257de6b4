"""Memory of large arrays that a call makes, given out again once nobody refers to it.

A block fresh from the system costs a page fault for every page that is written first: for arrays
of some MiB, that is more time than most networks take to compute them.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from ostinato.native.memory import Array, Make, aligned_block

# C libraries keep freed memory of fewer bytes (glibc's M_MMAP_THRESHOLD), and managing such a block
# would take longer than its page faults.
_LARGE = 1 << 17
# A block may be this many times as large as what it is given out for.
_MOST_SPARE = 2


def is_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether the memory of such an array is kept."""
    return math.prod(shape) * dtype.itemsize >= _LARGE


class RecycledMemory:
    """Blocks for the arrays of a call, of which two per array wait to be given out again.

    Two, as a caller in a loop still holds one result while the next is computed.
    """

    def __init__(self, arrays: int) -> None:
        self._free: deque[_Block] = deque(maxlen=2 * arrays)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """As `np.empty`; large arrays start at a multiple of 64."""
        if not is_large(shape, dtype):
            return np.empty(shape, dtype)
        size = math.prod(shape) * dtype.itemsize
        lease = _Lease(self._fitting(size) or _Block(size), self._free)
        return np.ndarray(shape, dtype, np.asarray(lease))

    def maker(self, size: int) -> Make:
        """What makes arrays that have about `size` bytes together."""
        return np.empty if size < _LARGE else self.empty

    def _fitting(self, size: int) -> _Block | None:
        """A block that waits and fits; other threads may take and return blocks meanwhile."""
        for _ in range(len(self._free)):
            try:
                block = self._free.pop()
            except IndexError:
                break
            if size <= block.size <= _MOST_SPARE * size:
                return block
            self._free.appendleft(block)
        return None


class _Block:
    """Memory, and how NumPy makes arrays over it."""

    __slots__ = ("interface", "memory", "size")

    def __init__(self, size: int) -> None:
        self.memory, self.size = aligned_block(size), size
        self.interface = self.memory.__array_interface__


class _Lease:
    """The object to which arrays over a block refer; the block is free when all are gone."""

    __slots__ = ("__array_interface__", "_block", "_free")

    def __init__(self, block: _Block, free: deque[_Block]) -> None:
        self.__array_interface__ = block.interface
        self._block, self._free = block, free

    def __del__(self) -> None:
        self._free.append(self._block)
