"""One array for many streams: a row each, gathered into batches and put back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ostinato.native.memory import require_memory

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# The rows and two batches of them.
_COPIES = 3


class Rows:
    """Values of one input or state, a row for each of `capacity` streams.

    shape: of one stream's value, with 1 at the batch `axis`. Raises `RunError` where they and the
    batches made of them do not fit into memory.
    """

    def __init__(
        self, name: str, axis: int, shape: Shape, dtype: np.dtype[Any], capacity: int
    ) -> None:
        self.name, self.axis, self.shape, self.dtype = name, axis, shape, dtype
        self.size = math.prod(shape)
        self._front = (axis, *(i for i in range(len(shape)) if i != axis))
        # Whether a batch has the rows one after the other in memory.
        self.is_leading = math.prod(shape[:axis]) == 1
        size = capacity * _COPIES * self.size * dtype.itemsize
        require_memory(size, f"{capacity} rows of {name!r}")
        self.store = np.zeros((capacity, *shape[:axis], *shape[axis + 1 :]), dtype)

    def place(self, row: int) -> Array:
        """A row, seen as the value of one stream."""
        return self.store[row : row + 1].reshape(self.shape)

    def batch_shape(self, count: int) -> Shape:
        """The shape of the values of `count` streams together."""
        return (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :])

    def run(self, first: int, count: int) -> Array | None:
        """Rows from `first` on as a batch, without copy; None where memory has another order."""
        if count > 1 and not self.is_leading:
            return None
        return self.store[first : first + count].reshape(self.batch_shape(count))

    def gather(self, rows: Array, batch: Array) -> None:
        """Copy the rows of these numbers into `batch`, in this order."""
        target = batch.transpose(self._front)
        if target.flags.c_contiguous:
            # Numbers are right: `clip` only spares the copy that undoes a failing call.
            np.take(self.store, rows, axis=0, out=target, mode="clip")
        else:
            target[...] = self.store[rows]

    def scatter(self, rows: Array, batch: Array, chosen: Array) -> None:
        """Copy the `chosen` positions of `batch` into the rows of these numbers."""
        self.store[rows] = batch.transpose(self._front)[chosen]
