"""The rows of a pool and the streams that have them, by numbers that are never used again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from ostinato.errors import StreamError


class Seats:
    """The rows 0 to `capacity` - 1 of a pool, each of one stream or free. Its user locks it."""

    def __init__(self, capacity: int) -> None:
        self._slots: dict[int, int] = {}
        self._owners = [-1] * capacity
        self._free = list(range(capacity))[::-1]
        self._handles = itertools.count()
        self.is_closed = False

    @property
    def slots(self) -> Mapping[int, int]:
        """The rows of the open streams by their handles, in the order in which they were opened."""
        return self._slots

    def __contains__(self, handle: int) -> bool:
        """Whether the stream is open."""
        return handle in self._slots

    def owner(self, slot: int) -> int:
        """The handle of the stream that has, or last had, a row."""
        return self._owners[slot]

    def require_open(self) -> None:
        """Raise `StreamError` for a pool that is closed."""
        if self.is_closed:
            raise StreamError("this pool is closed; make another one with `session.pool`")

    def slot(self, handle: int) -> int:
        """The row of a stream. Raises `StreamError` for one that is not open."""
        try:
            return self._slots[handle]
        except (KeyError, TypeError):
            self.require_open()
            raise StreamError(f"stream {handle!r} is closed, or none of this pool") from None

    def next_free(self) -> int:
        """The row of the stream that is opened next. Raises `StreamError` where none is free."""
        self.require_open()
        if not self._free:
            raise StreamError(
                f"all {len(self._owners)} streams of this pool are open; close one, or make a "
                "larger pool"
            )
        return self._free[-1]

    def take(self) -> int:
        """The handle of a new stream, which has the row that `next_free` tells."""
        slot, handle = self._free.pop(), next(self._handles)
        self._slots[handle] = slot
        self._owners[slot] = handle
        return handle

    def leave(self, handle: int) -> int:
        """Free the row of a stream, which is returned. Raises `StreamError` as `slot` does."""
        slot = self.slot(handle)
        self._free.append(slot)
        del self._slots[handle]
        return slot

    def close(self) -> None:
        """Let no stream be open, now or later."""
        self.is_closed = True
        self._slots.clear()
