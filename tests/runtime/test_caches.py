from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import StreamError
from ostinato.runtime.caches import Caches, GrownBuffer, padded, view
from ostinato.stages.stage import GrownInput, KeptState

ROWS = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)


def state(is_last: bool = False, in_front: bool = False) -> KeptState:
    return KeptState("past", "present", 1, "P", is_last, in_front)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("in_front", [False, True])
def test_rows_stay_the_same_in_more_room(is_last: bool, in_front: bool) -> None:
    kept = state(is_last, in_front)
    caches = Caches([kept], None, {"past": ROWS})
    (before,) = caches.arrays
    assert not caches.make_room({"P": 5}, {"P": caches.capacity("P")})
    assert caches.make_room({"P": 5}, {"P": caches.capacity("P") + 1})
    (after,) = caches.arrays
    assert after is not before and after.size > 2 * before.size - 1
    np.testing.assert_array_equal(caches.valid(0, 5), ROWS)
    newest = ROWS[:, 2:] if in_front else ROWS[:, :3]
    np.testing.assert_array_equal(view(kept, after, 3), newest)


def test_memory_that_another_stream_reads_is_left_to_it() -> None:
    caches = Caches([state()], 8, {"past": ROWS})
    twin = caches.shared()
    assert twin.arrays[0] is caches.arrays[0]
    assert twin.make_room({"P": 5}, {"P": 6})
    assert twin.arrays[0] is not caches.arrays[0]
    assert not caches.make_room({"P": 5}, {"P": 6})
    np.testing.assert_array_equal(twin.valid(0, 5), caches.valid(0, 5))


def test_a_limit_is_one_of_rows_not_of_memory() -> None:
    caches = Caches([state()], 8, {"past": ROWS})
    assert (caches.limit("P"), caches.capacity("P")) == (8, 16)
    with pytest.raises(StreamError, match="'past' is full: its 8 rows"):
        caches.make_room({"P": 5}, {"P": 9})


def test_room_is_an_odd_number_of_cache_lines() -> None:
    assert [padded(room) for room in (1, 16, 17, 64, 100)] == [16, 16, 48, 80, 112]


@pytest.mark.parametrize(
    "value",
    [
        [[True] * 3] * 2,
        np.ones((2, 3)),
        np.ones((2, 3, 1), bool),
        np.ones((1, 3), bool),
        np.ones((2, 9), bool),
    ],
    ids=["list", "dtype", "rank", "batch", "too long"],
)
def test_what_does_not_fit_a_buffer_is_left_to_the_checks(value: object) -> None:
    buffer = GrownBuffer(GrownInput("mask", 1, "P", "extent of mask"), 8, np.ones((2, 4), bool))
    whole = buffer.put(np.ones((2, 5), bool))
    assert whole is buffer.array and buffer.extent == 5
    assert buffer.put(value) is None
    assert buffer.extent == 5
