"""DTLN with narrow weights on noisy speech: what each form costs in accuracy, bytes and time.

    taskset -c 1 python -m benchmarks.bench_quantized --models DIR

Signal-to-difference ratios are those of the suppressor's output against float32, over the second
half of the recording; forms marked "calibrated" have seen every fourth frame of the first half.
Milliseconds are those of both models alone for one second of audio, in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ostinato
from benchmarks import dtln, harness
from ostinato.cli.timing import interleave


@dataclass(frozen=True)
class Form:
    """Arguments of `ostinato.quantize`, whether it is given samples, and options of sessions."""

    arguments: dict[str, Any]
    calibrated: bool = False
    options: dict[str, Any] = field(default_factory=dict)


STATIC = {"activations": "int8-static"}
# Of each model: the suppressor's output has the errors of both.
TO_TARGET = STATIC | {"target_snr": 38.0}
FORMS = {
    "f16": Form({"weights": "f16"}),
    "bf16": Form({"weights": "bf16"}),
    "int8": Form({"weights": "int8"}),
    "int8, calibrated": Form({"weights": "int8"}, True),
    "int8-dynamic": Form({"activations": "int8-dynamic"}),
    "int8-dynamic, calibrated": Form({"activations": "int8-dynamic"}, True),
    "int4, calibrated": Form({"weights": "int4"}, True),
    "int4 by int8, calibrated": Form({"weights": "int4", "activations": "int8-dynamic"}, True),
    "int8-static, calibrated": Form(STATIC, True),
    "int8-static, integer_products": Form(STATIC, True, {"integer_products": True}),
    "int8-static, 38 dB": Form(TO_TARGET, True, {"integer_products": True}),
}
Samples = list[dict[str, np.ndarray]]


def cleaned(
    sessions: list[ostinato.InferenceSession],
    sound: np.ndarray,
    seen: tuple[Samples, Samples] | None = None,
) -> np.ndarray:
    """The output of the suppressor; what the models are fed is added to `seen`."""
    first, second = (stage(*pair) for pair in zip(sessions, seen or ([], []), strict=True))
    return dtln.pipeline(first, second, sound).astype(np.float64)


def stage(session: ostinato.InferenceSession, seen: Samples) -> dtln.Stage:
    """One of the models."""
    names = [argument.name for argument in session.get_inputs()]

    def step(x: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        feeds = dict(zip(names, (x, state), strict=True))
        seen.append(feeds)
        y, after = session.run(None, feeds)
        return y, after

    return step


def frames(sessions: list[ostinato.InferenceSession]) -> Callable[[], None]:
    """One second of both models on fixed inputs."""
    calls = []
    for session, feeds in zip(sessions, dtln.feeds(), strict=True):
        names = [output.name for output in session.get_outputs()]
        results = dict(zip(names, session.run(None, feeds), strict=True))
        calls.append(session.bind(feeds, results))

    def second() -> None:
        for _ in range(dtln.FRAMES_PER_SECOND):
            for call in calls:
                call()

    return second


def narrowed(
    models: list[Path], samples: tuple[Samples, Samples]
) -> dict[str, list[onnx.ModelProto]]:
    """Both models in every form."""
    return {
        name: [
            ostinato.quantize(
                model, calibration=own[::4] if form.calibrated else None, **form.arguments
            )
            for model, own in zip(models, samples, strict=True)
        ]
        for name, form in FORMS.items()
    }


def main() -> None:
    """Measure and print."""
    parser = harness.parser("DTLN with narrow weights", seconds=0.5)
    dtln.add_argument(parser)
    arguments = parser.parse_args()
    *models, speech = dtln.paths(arguments.models, dtln.SPEECH)
    sound = dtln.noisy_speech(speech, 8.0)
    half = len(sound) // 2
    plain = [ostinato.InferenceSession(model) for model in models]
    samples: tuple[Samples, Samples] = ([], [])
    cleaned(plain, sound[:half], samples)
    made = narrowed(list(models), samples)
    sessions = {"float32": plain} | {
        name: [ostinato.InferenceSession(model, **FORMS[name].options) for model in pair]
        for name, pair in made.items()
    }
    sizes = {name: sum(model.ByteSize() for model in pair) for name, pair in made.items()}
    sizes["float32"] = sum(model.stat().st_size for model in models)
    expected = cleaned(plain, sound[half:])
    calls = {name: frames(pair) for name, pair in sessions.items()}
    times = interleave(calls, arguments.seconds, slice_seconds=0.05)
    table = harness.table(
        "DTLN, both models", "weights", ["SNR, dB", "bytes", "ms", "times as fast"]
    )
    for name, pair in sessions.items():
        error = cleaned(pair, sound[half:]) - expected
        noise = float(np.sum(error**2))
        ratio = 10 * np.log10(np.sum(expected**2) / noise) if noise else np.inf
        spent = times[name].median
        faster = times["float32"].median / spent
        row = (f"{ratio:.1f}", f"{sizes[name]:,}", f"{spent * 1e3:.1f}", f"{faster:.2f}")
        table.add_row(name, *row)
    harness.console.print(table)


if __name__ == "__main__":
    main()
