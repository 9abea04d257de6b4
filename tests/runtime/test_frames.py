"""Frames are kept by many threads while a step reads those before."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ostinato.native.trampoline import REFUSED
from ostinato.runtime.frames import Frames

TAKEN = 1
CAPACITY = 4


def _value(number: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.full((1, 1, 3), number).astype(dtype)


def _frames(dtype: str = "float32", axis: int = 1) -> Frames:
    return Frames({"x": _value(0, dtype)}, {"x": axis}, CAPACITY)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "object", "complex64"])
def test_chosen_rows_are_a_batch(dtype: str) -> None:
    frames = _frames(dtype)
    for rows in ([0, 1, 2], [1, 3], [2], [0, 2, 3]):
        for row in rows:
            assert frames.keeper(row)(_value(row, dtype)) is None
        marks, turn = frames.take()
        assert [row for row, mark in enumerate(marks) if mark] == rows
        frames.choose(np.array(rows))
        expected = np.concatenate([_value(row, dtype) for row in rows], 1)
        np.testing.assert_array_equal(frames.batch(turn)["x"], expected)
        frames.done()
    assert 1 not in frames.take()[0]


def test_only_a_leading_batch_axis_is_read_in_place() -> None:
    for shape, axis, is_view in (((1, 3), 0, True), ((1, 1, 3), 1, True), ((2, 1, 3), 1, False)):
        value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        frames = Frames({"x": value}, {"x": axis}, CAPACITY)
        for row in (0, 1):
            assert frames.keeper(row)(value) is None
        _, turn = frames.take()
        frames.choose(np.arange(2))
        batch = frames.batch(turn)["x"]
        np.testing.assert_array_equal(batch, np.concatenate([value, value], axis))
        assert np.shares_memory(batch, frames.rows[0].store) == is_view


@pytest.mark.parametrize("dtype", ["float32", "object"])
def test_a_row_has_one_frame_at_a_time(dtype: str) -> None:
    frames = _frames(dtype)
    keep = frames.keeper(2)
    assert keep(_value(1, dtype)) is None
    assert keep(_value(2, dtype)) == TAKEN
    frames.drop(2)
    assert keep(_value(3, dtype)) is None
    _, turn = frames.take()
    frames.choose(np.array([2]))
    assert frames.batch(turn)["x"].tolist() == _value(3, dtype).tolist()


def test_frames_that_come_during_a_step_leave_its_own_alone() -> None:
    frames = _frames()
    keep = frames.keeper(0)
    frames.choose(np.array([0]))
    for number in range(6):
        assert keep(_value(number)) is None
        _, turn = frames.take()
        assert keep(_value(10 + number)) is None
        assert frames.batch(turn)["x"].tolist() == _value(number).tolist()
        frames.done()
        marks, turn = frames.take()
        assert marks[0]
        assert frames.batch(turn)["x"].tolist() == _value(10 + number).tolist()
        frames.done()


def test_without_frames_in_between_one_store_is_enough() -> None:
    frames = _frames()
    turns = set()
    for _ in range(3):
        frames.keeper(1)(_value(1))
        turns.add(frames.take()[1])
        frames.done()
    assert len(turns) == 1


@pytest.mark.parametrize(
    "value",
    [None, [[1.0]], np.zeros(3, "f"), _value(0, "float64"), _value(0, ">f4"), _value(0)[..., ::-1]],
)
def test_what_does_not_fit_is_refused(value: object) -> None:
    frames = _frames()
    assert frames.keeper(0)(value) == REFUSED
    assert 1 not in frames.take()[0]


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Python threads take turns every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_no_frame_is_lost_between_threads(quick_switches: None) -> None:
    frames = _frames()
    count = 300
    got: dict[int, list[float]] = {row: [] for row in range(CAPACITY)}

    def send(row: int) -> None:
        keep = frames.keeper(row)
        for value in map(_value, range(count)):
            while keep(value) is not None:
                time.sleep(0)  # others go on

    threads = [threading.Thread(target=send, args=(row,)) for row in range(CAPACITY)]
    for thread in threads:
        thread.start()
    while min(map(len, got.values())) < count:
        marks, turn = frames.take()
        rows = [row for row, mark in enumerate(marks) if mark]
        if rows:
            frames.choose(np.array(rows))
            for row, value in zip(rows, frames.batch(turn)["x"][0], strict=True):
                assert value.min() == value.max()
                got[row].append(float(value[0]))
        frames.done()
    for thread in threads:
        thread.join()
    assert all(numbers == list(range(count)) for numbers in got.values())
