"""Growing states of the streams of a pool: places for all streams in one block of memory.

A stream that goes on from another one has the same place, until one of the two appends: that one
copies its rows to a place of its own first. There are as many places as streams, so one is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.errors import InputError, StreamError
from ostinato.native.memory import aligned_empty, require_memory
from ostinato.runtime.caches import FIRST_ROWS, padded
from ostinato.stages.stage import KeptState

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


_NOWHERE = -1


class Slots:
    """The growing states of up to `streams` streams, and how many rows each of them has.

    kept: what is known of the states. shapes: of a state of one stream, whose number of rows is
    free, by its name; dtypes: likewise. limit: how many rows there may be of each; without it there
    is room for twice as many, for all streams, whenever one has no more.

    places: by stream, where its rows are; `_NOWHERE` for those that were never open, or are closed.
    """

    def __init__(
        self,
        kept: Sequence[KeptState],
        streams: int,
        shapes: Mapping[str, Shape],
        dtypes: Mapping[str, np.dtype[Any]],
        limit: int | None,
    ) -> None:
        self._kept, self._limit, self.streams = kept, limit, streams
        self._shapes = [shapes[state.input] for state in kept]
        self._dtypes = [dtypes[state.input] for state in kept]
        lengths = dict.fromkeys(state.length for state in kept)
        self.lengths = {name: np.zeros(streams, np.int64) for name in lengths}
        self.room = dict.fromkeys(lengths, padded(FIRST_ROWS if limit is None else limit))
        self.arrays = [self._memory(i, self.room[state.length]) for i, state in enumerate(kept)]
        self.places = np.full(streams, _NOWHERE)
        # Whether streams may have a place in common.
        self.are_shared = False
        # The rows that a step adds to each length, once there was one.
        self.added: dict[str, int] = {}

    def limit(self, length: str) -> int:
        """The number of rows there may be before more memory is needed."""
        return self.room[length] if self._limit is None else min(self._limit, self.room[length])

    def _memory(self, index: int, room: int) -> Array:
        """Memory of a state: streams first, rows last where they are better so."""
        state, dtype = self._kept[index], self._dtypes[index]
        shape, assigned = [*self._shapes[index]], state.streams
        assert assigned is not None
        shape[state.axis] = room
        rest = [i for i in range(len(shape)) if i != assigned]
        if state.is_last:
            rest = [*(i for i in rest if i != state.axis), state.axis]
        sizes = (self.streams, *(shape[i] for i in rest))
        size = int(np.prod(sizes)) * dtype.itemsize
        require_memory(size, f"state {state.input!r} of {self.streams} streams and {room} rows")
        return aligned_empty(size).view(dtype).reshape(sizes)

    def _place(self, index: int, slot: int, rows: int) -> Array:
        """A view of the rows of a stream, as the model sees them."""
        state = self._kept[index]
        assert state.streams is not None
        # As for a single stream, whose batch axis has one element.
        axis = state.axis - (state.axis > state.streams)
        one = self.arrays[index][self.places[slot]]
        seen = np.moveaxis(one, -1, axis) if state.is_last else one
        whole = np.expand_dims(seen, state.streams)
        end = whole.shape[state.axis]
        chosen = slice(end - rows, end) if state.in_front else slice(rows)
        return whole[(slice(None),) * state.axis + (chosen,)]

    @property
    def names(self) -> list[str]:
        """The names of the states."""
        return [state.input for state in self._kept]

    def is_of(self, name: str, shape: Shape) -> bool:
        """Whether a state of one stream may have this shape."""
        if name not in self.names:
            return False
        index = self.names.index(name)
        axis, given = self._kept[index].axis, self._shapes[index]
        return len(shape) == len(given) and all(
            size == wanted or i == axis
            for i, (size, wanted) in enumerate(zip(shape, given, strict=True))
        )

    def valid(self, slot: int) -> dict[str, Array]:
        """Copies of the rows that a stream has."""
        return {name: self.rows(i, slot).copy() for i, name in enumerate(self.names)}

    def rows(self, index: int, slot: int) -> Array:
        """The rows that a stream has of a state."""
        return self._place(index, slot, int(self.lengths[self._kept[index].length][slot]))

    def put(self, slot: int, values: Mapping[str, Array]) -> None:
        """Give a stream these rows of all states, which agree about their numbers."""
        counts = {s.length: values[s.input].shape[s.axis] for s in self._kept}
        self.make_room(counts)
        self.places[slot] = _NOWHERE
        self.places[slot] = self._free_place()
        for index, state in enumerate(self._kept):
            self._place(index, slot, counts[state.length])[...] = values[state.input]
        for name, count in counts.items():
            self.lengths[name][slot] = count

    def share(self, slot: int, other: int) -> None:
        """Give another stream the rows of one, which neither copies until it appends."""
        for lengths in self.lengths.values():
            lengths[other] = lengths[slot]
        self.places[other] = self.places[slot]
        self.are_shared = True

    def separate(self, slots: Array, is_open: Sequence[int]) -> None:
        """Let streams append, each in a place that no other open one reads."""
        closed = np.ones(self.streams, bool)
        closed[is_open] = False
        self.places[closed] = _NOWHERE
        for slot in slots:
            if np.count_nonzero(self.places == self.places[slot]) == 1:
                continue
            rows = [self.rows(index, slot) for index in range(len(self._kept))]
            self.places[slot] = self._free_place()
            for index, before in enumerate(rows):
                self.rows(index, slot)[...] = before
        taken = self.places[self.places != _NOWHERE]
        self.are_shared = len(np.unique(taken)) < len(taken)

    def _free_place(self) -> int:
        return int(np.flatnonzero(~np.isin(np.arange(self.streams), self.places))[0])

    def rewind(self, slot: int, rows: int) -> None:
        """Drop the last rows of a stream. Raises `InputError` for more than there are."""
        least = min(int(lengths[slot]) for lengths in self.lengths.values())
        if rows > least:
            raise InputError(f"rewind: {rows} rows, there are {least}")
        for lengths in self.lengths.values():
            lengths[slot] -= rows

    def make_room(self, needed: Mapping[str, int]) -> bool:
        """Have room for this many rows; returns whether there is other memory.

        Raises `StreamError` beyond the limit, `RunError` where there is no memory.
        """
        room = dict(self.room)
        for name, count in needed.items():
            if self._limit is not None and count > self._limit:
                state = next(state for state in self._kept if state.length == name)
                raise StreamError(
                    f"state {state.input!r} is full: its {self._limit} rows of axis {name!r} are "
                    "the `rows` of the pool; give more, or rewind"
                )
            if count > room[name]:
                room[name] = padded(max(count, 2 * room[name]))
        if room == self.room:
            return False
        indices = range(len(self._kept))
        changed = [
            i for i in indices if room[self._kept[i].length] != self.room[self._kept[i].length]
        ]
        made = {i: self._memory(i, room[self._kept[i].length]) for i in changed}
        for index, array in made.items():
            lengths = self.lengths[self._kept[index].length]
            before = self.arrays[index]
            for slot in np.flatnonzero((lengths > 0) & (self.places != _NOWHERE)):
                self.arrays[index] = before
                rows = self.rows(index, int(slot))
                self.arrays[index] = array
                self.rows(index, int(slot))[...] = rows
            self.arrays[index] = array
        self.room = room
        return True
