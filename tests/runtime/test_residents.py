"""Where the streams of a pool are whose states steps change in place, and which of them move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.runtime.residents import Residents
from ostinato.runtime.rows import Rows
from ostinato.runtime.stepper import Stepper

CAPACITY, WIDTH = 5, 3


class _Memory(Stepper):
    """The memory of one state, without a model."""

    def __init__(self) -> None:
        self.memory = np.zeros((CAPACITY + 1) * WIDTH, np.float32)
        self.start = 0

    def state(self, index: int, shape: tuple[int, ...]) -> np.ndarray:
        return self.memory[self.start : self.start + np.prod(shape)].reshape(shape)

    def begin(self, index: int, start: int) -> None:
        assert index == 0
        self.start = start


class _Counted(Residents):
    """Streams whose states are their numbers; the number of copies."""

    def __init__(self) -> None:
        self.stepper, self.copies = _Memory(), 0
        rows = Rows("cache", 0, (1, WIDTH), np.dtype(np.float32), CAPACITY)
        super().__init__(self.stepper, {0: rows}, CAPACITY)
        for slot in range(CAPACITY):
            self.put(slot, slot)

    def put(self, slot: int, value: float) -> None:
        ((name, state),) = self.values(slot)
        assert name == "cache"
        state[...] = value

    def _move(self, slot: int, other: int) -> None:
        super()._move(slot, other)
        self.copies += 1

    def moved(self, slots: Sequence[int], is_open: Sequence[int] = range(CAPACITY)) -> int:
        """How many copies make these streams a batch, in which they are found."""
        before = self.copies
        order = self.gather(np.array(slots), is_open)
        assert sorted(order.tolist()) == sorted(slots)
        batch = self.stepper.state(0, (len(slots), WIDTH))
        np.testing.assert_array_equal(batch, np.repeat(order, WIDTH).reshape(-1, WIDTH))
        for slot in is_open:
            ((_, state),) = self.values(slot)
            assert (state == slot).all()
        return self.copies - before


def test_streams_that_are_stepped_together_become_neighbours_and_stay() -> None:
    states = _Counted()
    assert states.moved(range(CAPACITY)) == 0
    assert states.moved([1, 2]) == 0
    # One makes room, another one goes there.
    assert states.moved([1, 3]) == 2
    assert states.moved([3]) == 0
    halves = [0, 2, 4], [1, 3]
    assert sum(map(states.moved, halves)) > 0
    assert sum(map(states.moved, halves)) == 0


def test_a_place_that_nobody_needs_is_taken_at_once() -> None:
    states = _Counted()
    assert states.moved([1, 3], is_open=[0, 1, 3, 4]) == 1
    states.put(2, 2)
    assert states.moved(range(CAPACITY)) <= 1


def test_any_streams_at_any_time() -> None:
    states, random = _Counted(), np.random.default_rng(0)
    for _ in range(300):
        is_open = random.permutation(CAPACITY)[: random.integers(1, CAPACITY + 1)]
        for slot in is_open:
            states.put(slot, slot)
        chosen = is_open[: random.integers(1, len(is_open) + 1)]
        assert states.moved(chosen.tolist(), is_open.tolist()) <= CAPACITY
