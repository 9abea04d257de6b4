"""One array for many streams: a row each, gathered into batches and put back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ostinato.native.memory import require_memory

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# The rows and two batches of them; and what Python needs to look at a row.
_COPIES, _VIEW_BYTES = 3, 256


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
        size = capacity * (_COPIES * self.size * dtype.itemsize + _VIEW_BYTES)
        require_memory(size, f"{capacity} rows of {name!r}")
        self.store = np.zeros((capacity, *shape[:axis], *shape[axis + 1 :]), dtype)
        # The rows seen as values of one stream.
        self.places = [row.reshape(shape) for row in self.store[:, np.newaxis]]

    def batch_shape(self, count: int) -> Shape:
        """The shape of the values of `count` streams together."""
        return (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :])

    def first(self, count: int) -> Array | None:
        """The first `count` rows as a batch, without copy; None where memory has another order."""
        return self.store[:count].reshape(self.batch_shape(count)) if self.is_leading else None

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
