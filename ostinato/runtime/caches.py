"""Memory of states that grow: rows beside rows, with room for more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.errors import StreamError
from ostinato.native.memory import aligned_empty, require_memory
from ostinato.stages.stage import GrownInput, KeptState

Array = np.ndarray[Any, Any]

# Rows that a state has room for at first: they take less than any weights.
FIRST_ROWS = 64
# A cache line of the narrowest rows; an odd number of them keeps rows of different axes in
# different sets of a cache.
_LINE = 16


@dataclass
class _Memory:
    """Rows of a state, with room for more. users: how many streams read it."""

    array: Array
    users: int = 1


class Caches:
    """The growing states of one stream.

    kept: what is known of them. limit: how many rows there may be of each, None for any number.
    first: the rows at the beginning, by the name of the state.
    """

    def __init__(
        self, kept: Sequence[KeptState], limit: int | None, first: Mapping[str, Array]
    ) -> None:
        self._kept, self._limit = kept, limit
        self._memory: list[_Memory] = []
        for state in kept:
            rows = first[state.input]
            self.require_below_limit(state.length, rows.shape[state.axis])
            room = max(FIRST_ROWS if limit is None else limit, rows.shape[state.axis])
            self._memory.append(_Memory(_enlarged(state, rows, room)))

    @property
    def arrays(self) -> list[Array]:
        """The memory of each state."""
        return [memory.array for memory in self._memory]

    def capacity(self, length: str) -> int:
        """The number of rows for which the memory of the states with this length has room."""
        states = zip(self._kept, self._memory, strict=True)
        return next(
            int(memory.array.shape[_place(state)])
            for state, memory in states
            if state.length == length
        )

    def limit(self, length: str) -> int:
        """The number of rows there may be before more memory is needed."""
        room = self.capacity(length)
        return room if self._limit is None else min(self._limit, room)

    def valid(self, index: int, rows: int) -> Array:
        """A view of the rows of a state, as the model sees them."""
        return view(self._kept[index], self._memory[index].array, rows)

    def require_below_limit(self, length: str, rows: int) -> None:
        """Raise `StreamError` for more rows than there may be."""
        if self._limit is not None and rows > self._limit:
            name = next(state.input for state in self._kept if state.length == length)
            raise StreamError(
                f"state {name!r} is full: its {self._limit} rows of axis {length!r} are its "
                "capacity; give a larger one, or rewind"
            )

    def make_room(self, rows: Mapping[str, int], needed: Mapping[str, int]) -> bool:
        """Let a step append: room for the needed rows, in memory that no other stream reads.

        rows: how many there are, by length. Returns whether other memory has taken the place of
        some. Raises `StreamError` beyond the limit and `RunError` where there is no memory, before
        anything changes.
        """
        made: dict[int, _Memory] = {}
        for index, (state, memory) in enumerate(zip(self._kept, self._memory, strict=True)):
            room, wanted = self.capacity(state.length), needed.get(state.length, 0)
            self.require_below_limit(state.length, wanted)
            if wanted > room:
                room = max(wanted, 2 * room)
            elif memory.users == 1:
                continue
            made[index] = _Memory(_enlarged(state, self.valid(index, rows[state.length]), room))
        for index, memory in made.items():
            self._memory[index].users -= 1
            self._memory[index] = memory
        return bool(made)

    def shared(self) -> Caches:
        """The same rows for another stream, until one of the two appends."""
        twin = object.__new__(Caches)
        twin._kept, twin._limit, twin._memory = self._kept, self._limit, [*self._memory]
        for memory in self._memory:
            memory.users += 1
        return twin

    def release(self) -> None:
        """Do not read the rows any more."""
        for memory in self._memory:
            memory.users -= 1


class GrownBuffer:
    """Memory for an input that is as long as the states after a step.

    room: how long it may be. value: a first one; all others differ from it in this extent alone.
    """

    def __init__(self, grown: GrownInput, room: int, value: Array) -> None:
        self._axis = grown.axis
        self._others = _without(value.shape, grown.axis)
        shape = (*value.shape[: grown.axis], room, *value.shape[grown.axis + 1 :])
        require_memory(int(np.prod(shape)) * value.itemsize, f"input {grown.input!r}")
        self.room = room
        self.array = np.zeros(shape, value.dtype)
        self.extent = np.zeros((), np.int64)

    def put(self, value: Any) -> Array | None:
        """The memory, which begins with this value; None for one that does not fit."""
        if type(value) is not np.ndarray or value.dtype != self.array.dtype:
            return None
        axis, shape = self._axis, value.shape
        if len(shape) != self.array.ndim or shape[axis] > self.array.shape[axis]:
            return None
        if _without(shape, axis) != self._others:
            return None
        self.extent[()] = shape[axis]
        self.array[(slice(None),) * axis + (slice(shape[axis]),)] = value
        return self.array


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def view(state: KeptState, array: Array, rows: int) -> Array:
    """The rows that are there, as the model sees them."""
    seen = np.moveaxis(array, -1, state.axis) if state.is_last else array
    end = seen.shape[state.axis]
    chosen = [slice(None)] * seen.ndim
    chosen[state.axis] = slice(end - rows, end) if state.in_front else slice(rows)
    if state.moved is not None:
        chosen[state.moved] = slice(-1)
    return seen[tuple(chosen)]


def _place(state: KeptState) -> int:
    """The axis of the rows in memory."""
    return -1 if state.is_last else state.axis


def padded(room: int) -> int:
    """The number of rows there is memory for: for all states of one length, in any layout."""
    lines = -(-room // _LINE)
    return (lines + 1 - lines % 2) * _LINE


def _enlarged(state: KeptState, rows: Array, room: int) -> Array:
    """Memory that holds these rows. Raises `RunError` where there is none."""
    room = padded(room)
    shape = [*rows.shape]
    shape[state.axis] = room
    if state.moved is not None:
        shape[state.moved] += 1
    if state.is_last:
        shape.append(shape.pop(state.axis))
    count = math.prod(shape)
    require_memory(count * rows.itemsize, f"state {state.input!r} of {room} rows")
    array = aligned_empty(count * rows.itemsize).view(rows.dtype).reshape(shape)
    view(state, array, rows.shape[state.axis])[...] = rows
    return array
