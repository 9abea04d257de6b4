"""States that steps of a pool change in place: each stream has a place in the memory of the steps.

A batch is a run of places. Streams that are stepped together become neighbours, and stay so:

    a b c d e -      b and d are stepped: d goes where c is
    a b - d e c      c makes room, in two copies; one is enough where nobody has to
      ---

A copy is made before a stream is looked for there, so that nothing is lost whenever this ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ostinato.runtime.rows import Rows
from ostinato.runtime.stepper import Stepper

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Residents:
    """The places of `capacity` streams, and one more, in the memory of some states of a stepper.

    states: their shapes, by their numbers in the stepper; batches have their rows one after the
    other.
    """

    def __init__(self, stepper: Stepper, states: Mapping[int, Rows], capacity: int) -> None:
        self._stepper, self._states, self._capacity = stepper, states, capacity
        self._memory = {
            index: stepper.state(index, (capacity + 1, *rows.shape))
            for index, rows in states.items()
        }
        # For each row of the pool the place of its stream, and behind them the free places; and for
        # each place the row whose stream is there.
        self._places, self._owners = np.arange(capacity + 1), np.arange(capacity + 1)

    @property
    def are_there(self) -> bool:
        """Whether any state is one of them."""
        return bool(self._states)

    def values(self, slot: int) -> Iterator[tuple[str, Array]]:
        """The states of one stream, in place, with their names."""
        for index, rows in self._states.items():
            yield rows.name, self._memory[index][self._places[slot]]

    def batch_shapes(self, count: int) -> dict[int, Shape]:
        """The shapes of the states of this many streams."""
        return {index: rows.batch_shape(count) for index, rows in self._states.items()}

    def gather(self, slots: Array, is_open: Iterable[int]) -> Array:
        """Let streams be neighbours, and the next step begin at the first: them in their order.

        slots: their rows in the pool. is_open: those of all streams that are there.
        """
        if not self._states:
            return slots
        count = len(slots)
        # How many copies it takes to give each place to a stream of the batch.
        copies = np.ones(self._capacity + 1, np.int64)
        copies[self._places[[*is_open]]] = 2
        copies[self._places[slots]] = 0
        before = np.append(0, np.cumsum(copies))
        first = int((before[count:] - before[: len(before) - count]).argmin())
        run = range(first, first + count)
        # Places that no stream moves to come first, so that there is room behind the run.
        to = sorted((place for place in run if copies[place]), key=lambda place: copies[place])
        outside = [slot for slot in slots if self._places[slot] not in run]
        for slot, place in zip(outside, to, strict=True):
            if copies[place] == 2:
                self._move(self._owners[place], self._capacity)
            self._move(slot, self._owners[place])
        for index, rows in self._states.items():
            self._stepper.begin(index, first * rows.size)
        return self._owners[first : first + count].copy()

    def _move(self, slot: int, other: int) -> None:
        """Copy a stream to the place of another row, which nobody needs, and exchange the two."""
        there, here = self._places[other], self._places[slot]
        for memory in self._memory.values():
            memory[there] = memory[here]
        self._places[[slot, other]] = there, here
        self._owners[[there, here]] = slot, other
