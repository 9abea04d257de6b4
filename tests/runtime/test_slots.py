from __future__ import annotations

import numpy as np
import pytest

from ostinato.errors import InputError, StreamError
from ostinato.runtime.padding import Padding, require_fixed_room
from ostinato.runtime.slots import Slots
from ostinato.stages.stage import GrownInput, KeptState

F32 = np.dtype(np.float32)
MASK = GrownInput("mask", 1, "P", "extent of mask")


def slots(limit: int | None, is_last: bool = False, in_front: bool = False) -> Slots:
    """Of a state [heads 2, batch, rows, 3], for 4 streams."""
    kept = KeptState("past", "present", 2, "P", is_last, in_front, 1)
    return Slots([kept], 4, {"past": (2, 1, 0, 3)}, {"past": F32}, limit)


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 1, count, 3)).astype(F32)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("in_front", [False, True])
def test_streams_keep_their_rows_in_more_room(is_last: bool, in_front: bool) -> None:
    memory = slots(None, is_last, in_front)
    memory.put(1, {"past": rows(5)})
    memory.put(3, {"past": rows(70, 1)})
    memory.share(1, 0)
    assert memory.make_room({"P": 200})
    for slot, expected in {0: rows(5), 1: rows(5), 2: rows(0), 3: rows(70, 1)}.items():
        np.testing.assert_array_equal(memory.valid(slot)["past"], expected)
    memory.rewind(1, 2)
    kept = rows(5)[:, :, 2:] if in_front else rows(5)[:, :, :3]
    np.testing.assert_array_equal(memory.valid(1)["past"], kept)
    with pytest.raises(InputError, match="4 rows, there are 3"):
        memory.rewind(1, 4)


def test_streams_share_rows_until_one_appends() -> None:
    memory = slots(8)
    for slot in (0, 1):
        memory.put(slot, {"past": rows(3, slot)})
    memory.share(0, 2)
    memory.share(2, 3)
    assert memory.are_shared and len(set(memory.places[[0, 2, 3]])) == 1
    place = memory.places[0]
    # Nobody appends to what another open stream reads; the last one to stay copies nothing.
    memory.separate(np.array([2, 1]), [0, 1, 2, 3])
    assert memory.places[0] == memory.places[3] == place and memory.are_shared
    memory.rewind(2, 1)
    memory.rows(0, 2)[...] = 0
    memory.separate(np.array([3]), [1, 2, 3])
    assert memory.places[3] == place and not memory.are_shared
    memory.put(0, {"past": rows(2, 5)})
    assert len(set(memory.places)) == 4
    for slot, expected in {0: rows(2, 5), 1: rows(3, 1), 2: 0 * rows(2), 3: rows(3)}.items():
        np.testing.assert_array_equal(memory.valid(slot)["past"], expected)


def test_a_limit_is_one_of_rows_not_of_memory() -> None:
    memory = slots(8)
    assert memory.limit("P") == 8 and memory.room["P"] == 16
    with pytest.raises(StreamError, match="'past' is full: its 8 rows of axis 'P'"):
        memory.put(0, {"past": rows(9)})
    assert memory.valid(0)["past"].shape == (2, 1, 0, 3)


def test_states_fit_but_for_their_rows() -> None:
    memory = slots(8)
    assert memory.is_of("past", (2, 1, 7, 3))
    assert not memory.is_of("past", (2, 2, 7, 3)) and not memory.is_of("past", (2, 1, 7))
    assert not memory.is_of("other", (2, 1, 7, 3))


def test_frames_have_one_size_in_memory() -> None:
    padding = Padding([MASK], slots(8))
    frame = padding.of({"x": np.ones((1, 2)), "mask": np.ones((1, 5), bool)})
    assert frame["mask"].shape == (1, 16) and frame["mask"].sum() == 5
    assert frame["extent of mask"] == 5 and frame["x"].shape == (1, 2)
    assert padding.fits("mask", (1, 3), (1, 16)) and not padding.fits("mask", (2, 3), (1, 16))
    with pytest.raises(InputError, match=r"'mask'.* is longer than the 16 rows"):
        padding.require_room({"mask": np.ones((1, 17), bool)})
    with pytest.raises(InputError, match="'mask' is as long as the states"):
        require_fixed_room([MASK], None)
    require_fixed_room([MASK], 8)
