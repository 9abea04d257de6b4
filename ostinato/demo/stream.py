"""Calls the denoiser once per frame and times each call, for one session or several in turn."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ostinato.demo.signal import BINS, HOP, SAMPLE_RATE

Float32Array = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Timing:
    """Time of one model call, in microseconds, over all frames of a signal."""

    median_us: float
    p99_us: float

    @property
    def times_real_time(self) -> float:
        """Number of such streams that one core keeps up with: frame spacing by median call."""
        return HOP / SAMPLE_RATE * 1e6 / self.median_us


@dataclass(frozen=True)
class Streamed:
    """Results of one session: masks [frames, BINS] and the duration of its calls."""

    masks: Float32Array
    timing: Timing


class FrameDenoiser:
    """The model bound to one frame and two state buffers.

    The even calls read the first state and write the second, the odd calls the other way round:
    the state is carried without being copied. `magnitude` [1, 1, BINS] is the input of the next
    call, `mask` [1, 1, BINS] the output of the last.
    """

    def __init__(self, session: Any) -> None:
        hidden = next(arg.shape[-1] for arg in session.get_inputs() if arg.name == "state")
        self.magnitude = np.zeros((1, 1, BINS), np.float32)
        self.mask = np.zeros((1, 1, BINS), np.float32)
        self._states = [np.zeros((1, 1, hidden), np.float32) for _ in range(2)]
        bind = _bind if hasattr(session, "bind") else _bind_onnxruntime
        self.calls = tuple(
            bind(
                session,
                {"magnitude": self.magnitude, "state": before},
                {"mask": self.mask, "state_out": after},
            )
            for before, after in (self._states, self._states[::-1])
        )


def _bind(
    session: Any, inputs: Mapping[str, Float32Array], outputs: Mapping[str, Float32Array]
) -> Callable[[], object]:
    call: Callable[[], object] = session.bind(dict(inputs), dict(outputs))
    return call


def _bind_onnxruntime(
    session: Any, inputs: Mapping[str, Float32Array], outputs: Mapping[str, Float32Array]
) -> Callable[[], object]:
    """The same with onnxruntime's own means, so that it is timed without copies either."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    for name, array in outputs.items():
        binding.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def stream(
    sessions: Mapping[str, Any], magnitudes: Float32Array, progress: Progress | None = None
) -> dict[str, Streamed]:
    """Masks and timings per session for `magnitudes` [frames, BINS], one call per frame.

    All sessions see frame t before any sees frame t + 1, the first of them changing from frame to
    frame, so that drift of the machine's speed meets each alike. `progress(done, total)` is called
    after every second of signal.
    """
    denoisers = {name: FrameDenoiser(session) for name, session in sessions.items()}
    order = list(denoisers)
    masks = {name: np.empty_like(magnitudes) for name in order}
    nanoseconds = {name: np.empty(len(magnitudes), np.int64) for name in order}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for t, magnitude in enumerate(magnitudes):
            for name in order:
                denoiser = denoisers[name]
                denoiser.magnitude[0, 0] = magnitude
                call = denoiser.calls[t % 2]
                started = time.perf_counter_ns()
                call()
                nanoseconds[name][t] = time.perf_counter_ns() - started
                masks[name][t] = denoiser.mask[0, 0]
            order.append(order.pop(0))
            if progress is not None and (t + 1) % (SAMPLE_RATE // HOP) == 0:
                progress(t + 1, len(magnitudes))
    finally:
        if collecting:
            gc.enable()
    if progress is not None:
        progress(len(magnitudes), len(magnitudes))
    return {name: Streamed(masks[name], _timing(nanoseconds[name])) for name in order}


def _timing(nanoseconds: npt.NDArray[np.int64]) -> Timing:
    median, p99 = np.percentile(nanoseconds / 1000, [50, 99])
    return Timing(float(median), float(p99))
