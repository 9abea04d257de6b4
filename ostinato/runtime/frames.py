"""The next frames of many streams, kept until a step takes them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.locks import in_child, new_lock
from ostinato.native.abi import can_pass, storage
from ostinato.native.keeper import NO_TURN, keeper
from ostinato.native.trampoline import trampoline
from ostinato.runtime.rows import Rows

Array = np.ndarray[Any, Any]
Keeper = Callable[..., int | None]

_TAKEN = 1


class Frames:
    """A row for each of `capacity` streams, in each of two stores.

    Any number of threads may keep frames, in one store while a step reads those before out of the
    other. Where none came during a step the first one is used again: it is still in the cache.

    values: an array of a frame by the name of its input; all frames are like it. axes: the batch
    axis of each.
    """

    def __init__(self, values: Mapping[str, Array], axes: Mapping[str, int], capacity: int) -> None:
        self._turns = [
            [Rows(n, axes[n], v.shape, v.dtype, capacity) for n, v in values.items()]
            for _ in range(2)
        ]
        self._marks = bytearray(capacity), bytearray(capacity)
        self._unmarked = bytes(capacity)
        self._turn = bytearray(1)
        self._is_native = all(can_pass(storage(value.dtype)) for value in values.values())
        self._chosen = np.empty(0, np.intp)
        # For each store that was read, the batches of the chosen rows, and the arrays to be copied.
        self._made: dict[int, tuple[dict[str, Array], list[Rows]]] = {}
        # Of frames that Python copies.
        self._lock = new_lock()
        # The turn before it was taken away for a moment.
        self._last = 0
        in_child(self, Frames._forget_step)

    def _forget_step(self) -> None:
        """Let frames be kept in a forked child, where the thread in a step does not exist.

        The frames that it had taken are lost there.
        """
        if self._turn[0] == NO_TURN:
            self._turn[0] = self._last
        self._marks[1 - self._turn[0]][:] = self._unmarked

    @property
    def rows(self) -> Sequence[Rows]:
        """Type and shape of the frames of each input."""
        return self._turns[0]

    def keeper(self, slot: int) -> Keeper:
        """A function `keep(*values)` that copies a frame to row `slot`.

        It returns None on success, 1 when the row has a frame already, `BUSY` while another thread
        is in `done`, and `REFUSED` for anything but arrays of exactly the dtypes and shapes,
        C-contiguous and in this machine's byte order.
        """
        if not self._is_native:
            return lambda *values: self._keep(slot, values)
        specs = [(storage(rows.dtype), rows.shape) for rows in self.rows]
        stores = [[each.store for each in pair] for pair in zip(*self._turns, strict=True)]
        return keeper(trampoline(None), slot, specs, stores, self._marks, self._turn)

    def _keep(self, slot: int, values: Sequence[Array]) -> int | None:
        with self._lock:
            turn = self._turn[0]
            if self._marks[turn][slot]:
                return _TAKEN
            for rows, value in zip(self._turns[turn], values, strict=True):
                rows.place(slot)[...] = value
            self._marks[turn][slot] = 1
        return None

    def drop(self, slot: int) -> None:
        """Forget the frame of a row that no step has taken."""
        with self._lock:
            self._marks[self._turn[0]][slot] = 0

    def take(self) -> tuple[bytes, int]:
        """A byte for each row that says whether it has a frame, and the store of these frames."""
        with self._lock:
            turn = self._turn[0]
            self._turn[0] = 1 - turn
            marks = bytes(self._marks[turn])
            self._marks[turn][:] = self._unmarked
        return marks, turn

    def give_back(self, slots: Sequence[int]) -> None:
        """Keep the frames of these rows that `take` gave last again, where no other one came."""
        with self._lock:
            turn = self._last = self._turn[0]
            self._turn[0] = NO_TURN
            for slot in slots:
                if not self._marks[turn][slot]:
                    for rows, before in zip(*self._turns[:: 1 - 2 * turn], strict=True):
                        rows.place(slot)[...] = before.place(slot)
                    self._marks[turn][slot] = 1
            self._turn[0] = turn

    def done(self) -> None:
        """The frames that `take` gave last are not read any more."""
        with self._lock:
            turn = self._last = self._turn[0]
            self._turn[0] = NO_TURN
            self._turn[0] = turn if 1 in self._marks[turn] else 1 - turn

    def choose(self, chosen: Array) -> None:
        """Make batches of the rows of these numbers, in this order, from now on."""
        self._chosen = chosen
        self._made.clear()

    def batch(self, turn: int) -> dict[str, Array]:
        """The frames of the chosen rows in that store, by input; they last until `done`."""
        if turn not in self._made:
            self._made[turn] = self._batches(self._turns[turn])
        batches, copied = self._made[turn]
        for rows in copied:
            rows.gather(self._chosen, batches[rows.name])
        return batches

    def _batches(self, store: Sequence[Rows]) -> tuple[dict[str, Array], list[Rows]]:
        chosen = self._chosen.tolist()
        first, count = chosen[0], len(chosen)
        are_neighbours = chosen == list(range(first, first + count))
        batches, copied = {}, []
        for rows in store:
            batch = rows.run(first, count) if are_neighbours else None
            if batch is None:
                batch = np.empty(rows.batch_shape(count), rows.dtype)
                copied.append(rows)
            batches[rows.name] = batch
        return batches, copied
