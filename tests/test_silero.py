"""Streaming models in use, over a whole recording: Silero VAD and DTLN against onnxruntime.

The models and the recording (speech_16k.wav) are not part of this repository; the tests are skipped
where the folder `shared/models` beside it does not have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ostinato
from benchmarks import dtln
from tests import witness

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "models"
TOLERANCE = 1e-5
"""Bound of `|a - b| / (1 + |b|)`, as `ostinato compare` measures."""

Arrays = dict[str, np.ndarray]


def file(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


@cache
def speech(rate: int) -> np.ndarray:
    """Samples [-1, 1] of the recording; 8 kHz is every other sample."""
    soundfile = pytest.importorskip("soundfile")
    samples, found = soundfile.read(file("speech_16k.wav"), dtype="float32")
    assert found == 16000
    return samples[:: found // rate]


@dataclass(frozen=True)
class Format:
    """How a rate is cut: a chunk of new samples behind a context of those before it."""

    rate: int
    chunk: int
    context: int

    def frames(self) -> np.ndarray:
        """[frames, context + chunk] over the whole recording, zeros before its start."""
        samples = np.concatenate([np.zeros(self.context, np.float32), speech(self.rate)])
        windows = np.lib.stride_tricks.sliding_window_view(samples, self.context + self.chunk)
        return np.ascontiguousarray(windows[:: self.chunk])


WIDE, NARROW = Format(16000, 512, 64), Format(8000, 256, 32)


def assert_close(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], what: str) -> None:
    for place, (mine, other) in enumerate(zip(got, expected, strict=True)):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape), what
        np.testing.assert_allclose(
            mine, other, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{what}, output {place}"
        )


def run_steps(
    session: ostinato.InferenceSession, steps: Sequence[Arrays], carried: dict[str, str]
) -> Iterator[list[np.ndarray]]:
    """The outputs of each step; an input in `carried` is that output of the step before."""
    names = [output.name for output in session.get_outputs()]
    state: Arrays = {}
    for feeds in steps:
        results = session.run(None, feeds | state)
        state = {name: results[names.index(output)] for name, output in carried.items()}
        yield results


def assert_same_over(path: Path, steps: Sequence[Arrays], carried: dict[str, str]) -> np.ndarray:
    """Step by step as onnxruntime does it; returns the first output of all steps."""
    session = ostinato.InferenceSession(path, fallback=False)
    expected = witness.run_steps(path.read_bytes(), steps, carried, optimized=True)
    first = []
    for step, got in enumerate(run_steps(session, steps, carried)):
        assert_close(got, expected[step], f"step {step}")
        first.append(got[0])
    return np.concatenate([value.reshape(1, -1) for value in first])


def silero_steps(frames: np.ndarray, rate: int | None) -> list[Arrays]:
    given = {} if rate is None else {"sr": np.array(rate)}
    state = np.zeros((2, 1, 128), np.float32)
    return [{"input": frame[None], "state": state} | given for frame in frames]


@pytest.mark.parametrize(
    ("name", "form", "has_rate"),
    [
        ("silero_vad", WIDE, True),
        ("silero_vad", NARROW, True),
        ("silero_vad_16k_op15", WIDE, True),
        ("silero_vad_op18_ifless", WIDE, True),
        ("silero_vad_op18_ifless", NARROW, True),
        ("silero_vad_openvino_16k", WIDE, False),
    ],
    ids=lambda value: value.rate if isinstance(value, Format) else None,
)
def test_silero_over_a_recording(name: str, form: Format, has_rate: bool) -> None:
    path = file(f"{name}.onnx")
    steps = silero_steps(form.frames(), form.rate if has_rate else None)
    probabilities = assert_same_over(path, steps, {"state": "stateN"})
    assert probabilities.min() < 0.1 and probabilities.max() > 0.9, "speech and pauses"


def test_silero_over_a_recording_in_one_call() -> None:
    path = file("silero_vad_16k_sequence.onnx")
    frames = WIDE.frames()
    zeros = np.zeros((1, 1, 128), np.float32)
    session = ostinato.InferenceSession(path, fallback=False)
    whole = session.run(None, {"input": frames, "h": zeros, "c": zeros})
    expected = witness.run(path.read_bytes(), {"input": frames, "h": zeros, "c": zeros})
    assert_close(whole, expected, "whole")
    state = {"h": zeros, "c": zeros}
    parts = []
    for start in range(0, len(frames), 100):
        part, state["h"], state["c"] = session.run(
            None, {"input": frames[start : start + 100], **state}
        )
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts), whole[0])
    np.testing.assert_array_equal(state["h"], whole[1])
    np.testing.assert_array_equal(state["c"], whole[2])


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless"])
def test_silero_over_several_streams_at_once(name: str) -> None:
    """A batch of two places of the recording, each with the results it has alone."""
    path = file(f"{name}.onnx")
    frames = WIDE.frames()
    pairs = [np.stack(pair) for pair in zip(frames[:50], frames[500:550], strict=True)]
    state = np.zeros((2, 2, 128), np.float32)
    steps = [{"input": pair, "state": state, "sr": np.array(WIDE.rate)} for pair in pairs]
    assert_same_over(path, steps, {"state": "stateN"})


def test_dtln_over_a_recording() -> None:
    """Both models as their authors chain them; each against onnxruntime on the same inputs."""
    paths = [file(name) for name in dtln.NAMES]
    sessions = [ostinato.InferenceSession(path, fallback=False) for path in paths]
    inputs = [[value.name for value in session.get_inputs()] for session in sessions]
    outputs = [[value.name for value in session.get_outputs()] for session in sessions]
    given: tuple[list[Arrays], list[Arrays]] = ([], [])
    got: tuple[list[list[np.ndarray]], list[list[np.ndarray]]] = ([], [])

    def stage(place: int) -> dtln.Stage:
        def call(x: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            feeds = dict(zip(inputs[place], (x, state), strict=True))
            y, next_state = results = sessions[place].run(None, feeds)
            given[place].append(feeds)
            got[place].append(results)
            return y, next_state

        return call

    noisy = dtln.noisy_speech(file(dtln.SPEECH), 30.0)
    cleaned = dtln.pipeline(stage(0), stage(1), noisy)
    assert np.isfinite(cleaned).all() and cleaned.std() > 0.01
    for place, path in enumerate(paths):
        model, steps = path.read_bytes(), given[place]
        for step, expected in enumerate(witness.run_steps(model, steps, {}, optimized=True)):
            assert_close(got[place][step], expected, f"{path.name}, step {step}")
        # Some cells of these models count; their rounding errors add up, in any runtime. What the
        # models put out does not depend on that.
        (_, state), (_, next_state) = inputs[place], outputs[place]
        free = witness.run_steps(model, steps, {state: next_state}, optimized=True)
        for step, (expected_y, _) in enumerate(free):
            assert_close(got[place][step][:1], [expected_y], f"{path.name} alone, step {step}")
