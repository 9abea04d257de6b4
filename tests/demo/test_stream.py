from types import SimpleNamespace

import numpy as np
import pytest

from ostinato.demo.signal import BINS
from ostinato.demo.stream import FrameDenoiser, Timing, stream


class Counter:
    """A stand-in session: the state counts calls, and the mask is the input plus that count."""

    def __init__(self, log=None):
        self.log = [] if log is None else log

    def get_inputs(self):
        return [
            SimpleNamespace(name="magnitude", shape=["time", "batch", BINS]),
            SimpleNamespace(name="state", shape=[1, "batch", 4]),
        ]

    def bind(self, inputs, outputs):
        def call():
            self.log.append(self)
            outputs["state_out"][:] = inputs["state"] + 1
            outputs["mask"][:] = inputs["magnitude"] + outputs["state_out"].max()

        return call


def test_state_is_carried_without_copies():
    denoiser = FrameDenoiser(Counter())
    for t in range(5):
        denoiser.magnitude[:] = 10 * t
        denoiser.calls[t % 2]()
        assert (denoiser.mask == 10 * t + t + 1).all()


def test_each_session_gets_all_frames_and_its_own_state():
    magnitudes = np.arange(7, dtype=np.float32)[:, None] * np.ones(BINS, np.float32)
    streamed = stream({"a": Counter(), "b": Counter()}, magnitudes)
    for name in ("a", "b"):
        np.testing.assert_array_equal(streamed[name].masks, 2 * magnitudes + 1)
        assert 0 < streamed[name].timing.median_us <= streamed[name].timing.p99_us


def test_sessions_take_turns_at_going_first():
    log = []
    first, second = Counter(log), Counter(log)
    stream({"a": first, "b": second}, np.zeros((3, BINS), np.float32))
    assert log == [first, second, second, first, first, second]


def test_progress_ends_at_the_last_frame():
    reports = []
    stream(
        {"a": Counter()},
        np.zeros((250, BINS), np.float32),
        lambda done, total: reports.append((done, total)),
    )
    assert reports == [(100, 250), (200, 250), (250, 250)]


def test_times_real_time():
    assert Timing(median_us=20.0, p99_us=30.0).times_real_time == pytest.approx(500)
