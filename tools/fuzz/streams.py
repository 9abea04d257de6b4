"""Random networks converted into streams, each step compared with the whole model.

    python -m tools.fuzz streams --seconds 60

A conversion is refused with the node that is to blame, or it agrees: frame `i + delay` of the
steps with frame `i` of the whole model, given as many frames or more; a value without a time axis
with the whole model on the frames so far, in each step. Chunks of several sizes are open or fixed,
sequences are of any length or of a fixed one; onnxruntime runs all of them, and some are compiled,
also for a pool of streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx.checker

import ostinato
from ostinato import OstinatoError
from ostinato.cli.stream_check import Arrays, Difference, Run, compare, runner, step_by_step
from ostinato.streaming import Conversion, ConversionError, convert
from ostinato.streaming.timing import CUT_AND_PADDED
from tests import witness
from tools.fuzz.seeds import try_seeds
from tools.fuzz.stream_models import random_model
from tools.fuzz.stream_pools import compare_pool

CHUNKS = (1, 2, 3, 7)
FRAMES, LONGER = 36, 72
# How far attention looks back: further than these sequences are long, whatever their rate.
CONTEXT = 32 * LONGER
# Of the largest element, for another runtime. Compiled here, the bits are the same.
TOLERANCE = 1e-4
# The same, of what the last bits of the inputs change: 1 / x near 0 has no more digits.
SPREAD = 8.0
# One model of so many is compiled.
COMPILED = 16


@dataclass(frozen=True)
class Outcome:
    """What became of one model.

    kind: "converted", "refused", "invalid" (the whole model does not run) or "wrong".
    message: the reason of a refusal, or what is wrong.
    """

    kind: str
    message: str = ""

    @property
    def is_failure(self) -> bool:
        return self.kind == "wrong"


@dataclass
class Trial:
    """One model, and what is found wrong with it.

    frames: those of a sequence, where the model has a fixed length; else None.
    """

    model: onnx.ModelProto
    feeds: Arrays
    frames: int | None
    wrong: list[str] = field(default_factory=list)

    def first(self, count: int) -> Arrays:
        """The inputs with the first `count` frames of those that have a time axis."""
        return {
            name: np.ascontiguousarray(array[..., :count]) if array.ndim == 3 else array
            for name, array in self.feeds.items()
        }

    def wholes(self, counts: Sequence[int], run: Run | None = None) -> list[Arrays]:
        """What the given model returns for the first frames, for each of `counts`.

        run: who computes it, in place of onnxruntime.
        """
        steps = [self.first(count) for count in counts]
        if run is not None:
            return [run(step) for step in steps]
        names = [output.name for output in self.model.graph.output]
        answers = witness.run_steps(self.model.SerializeToString(), steps, {})
        return [dict(zip(names, answer, strict=True)) for answer in answers]

    def wholes_that_run(
        self, counts: Sequence[int], run: Run | None = None
    ) -> list[tuple[int, Arrays]]:
        """As `wholes`, without the counts that are too few for the model."""
        try:
            return list(zip(counts, self.wholes(counts, run), strict=True))
        except (witness.WitnessError, OstinatoError):
            half = (len(counts) + 1) // 2
            return self.wholes_that_run(counts[half:], run) if counts[half:] else []

    def spread(self, count: int, name: str) -> float:
        """How far an output of the whole moves when the last bits of the inputs change."""
        random = np.random.default_rng(count)
        ends = np.array((-np.inf, np.inf), np.float32)
        moved = {n: np.nextafter(a, random.choice(ends, a.shape)) for n, a in self.feeds.items()}
        (before,) = self.wholes([count])
        (after,) = Trial(self.model, moved, self.frames).wholes([count])
        with np.errstate(invalid="ignore"):
            changes = np.abs(after[name] - before[name])
        return float(changes[np.isfinite(changes)].max(initial=0.0))


def _frames(seed: int) -> int | None:
    """The frames of a sequence of fixed length, as one model of five has; else None."""
    return FRAMES if seed % 5 == 4 else None


def check(seed: int, *, compiled: bool) -> Outcome:
    """Convert the model of `seed` and compare its steps with the whole."""
    frames = _frames(seed)
    model = random_model(seed, frames)
    rng = np.random.default_rng(seed)
    shapes = {"x": (2, 3, LONGER), "z": (2, 2, LONGER), "s": (2, 2)}
    feeds = {
        value.name: rng.standard_normal(shapes[value.name]).astype(np.float32)
        for value in model.graph.input
    }
    trial = Trial(model, feeds, frames)
    try:
        onnx.checker.check_model(model)
        trial.wholes([FRAMES] if frames else [LONGER, FRAMES])
    except (witness.WitnessError, onnx.checker.ValidationError) as error:
        return Outcome("invalid", str(error))
    times = {name: 2 for name in feeds if name != "s"}
    try:
        conversion = convert(model, times, None, context=CONTEXT)
    except ConversionError as error:
        return _refusal(model, error)
    fixed = convert(model, times, (1 + seed % 3) * conversion.multiple, context=CONTEXT)
    compare_steps(trial, conversion, compiled)
    compare_steps(trial, fixed, False)
    if compiled and (text := compare_pool(conversion, feeds)):
        trial.wrong.append(text)
    return Outcome("wrong" if trial.wrong else "converted", "; ".join(trial.wrong))


def _refusal(model: onnx.ModelProto, error: ConversionError) -> Outcome:
    """A refusal names a node of the model, or an output, and says why."""
    known = {name for node in model.graph.node for name in (node.name, *node.output)}
    for refusal in error.refusals:
        # What a node is expanded to is named after it.
        if refusal.node.split("/")[0] not in known or not refusal.reason:
            return Outcome("wrong", f"a refusal that names no node: {refusal}")
    first = error.refusals[0]
    return Outcome("refused", f"{first.op}: {first.reason}")


def compare_steps(trial: Trial, conversion: Conversion, compiled: bool) -> None:
    """Add to what is wrong with a trial how steps differ from the whole."""
    unit = conversion.chunk or conversion.multiple
    count = FRAMES // unit * unit
    given = trial.first(count)
    if not count or (trial.frames and count < FRAMES):
        return
    whole_run = None
    if compiled:
        whole_run = runner(ostinato.InferenceSession(trial.model, cache_dir=None))
        # The steps run on kernels of this package alone.
        run = runner(ostinato.InferenceSession(conversion.model, cache_dir=None, fallback=False))
    counts = sorted({count, trial.frames or LONGER})
    references = dict(trial.wholes_that_run(counts, whole_run))
    may_differ = any(note.text == CUT_AND_PADDED for note in conversion.notes)
    for chunk in CHUNKS if conversion.chunk is None else (1,):
        if compiled:
            parts = list(step_by_step(run, conversion, given, chunk * unit))
        else:
            parts = _steps(conversion, given, chunk * unit)
        for frames, whole in references.items():
            if frames == count and may_differ:
                continue
            for difference in compare(whole, parts, conversion, chunk):
                _judge(trial, conversion, difference, whole, count, frames, compiled)
        _compare_so_far(trial, conversion, parts, chunk * unit, count, whole_run)


def _judge(
    trial: Trial,
    conversion: Conversion,
    difference: Difference,
    whole: Arrays,
    count: int,
    frames: int,
    compiled: bool,
) -> None:
    timing = conversion.outputs[difference.output]
    if timing.axis is None:
        return
    expected = max(0, int(timing.rate * count) - timing.delay)
    if frames > count and difference.frames != expected:
        trial.wrong.append(f"{difference}: {expected} frames expected of {timing}")
    values = whole[difference.output]
    scale = float(np.abs(values[np.isfinite(values)]).max(initial=1.0))
    limit = 0.0 if compiled else TOLERANCE * scale
    if not difference.wrong or difference.max_abs <= limit:
        return
    if not compiled and difference.max_abs <= SPREAD * trial.spread(frames, difference.output):
        return
    trial.wrong.append(f"{difference} from the whole of {frames} frames, {timing}")


def _steps(conversion: Conversion, given: Arrays, size: int) -> list[Arrays]:
    """The outputs of each step in onnxruntime."""
    total, state = given["x"].shape[2], conversion.initial_values({"N": 2})
    steps = [
        {
            name: np.ascontiguousarray(array[..., start : start + size])
            if name in conversion.time
            else array
            for name, array in given.items()
        }
        | state
        for start in range(0, total, size)
    ]
    names = [output.name for output in conversion.model.graph.output]
    answers = witness.run_steps(conversion.model.SerializeToString(), steps, conversion.states)
    return [dict(zip(names, answer, strict=True)) for answer in answers]


def _compare_so_far(
    trial: Trial,
    conversion: Conversion,
    parts: list[Arrays],
    size: int,
    total: int,
    whole_run: Run | None,
) -> None:
    """Values without a time axis, in each step."""
    timings = {n: timing for n, timing in conversion.outputs.items() if timing.axis is None}
    ends = [min(total, (i + 1) * size) for i in range(len(parts))]
    for name, timing in timings.items():
        meant = [end for end in ends if end >= timing.first and end == (trial.frames or end)]
        for end, whole in trial.wholes_that_run(meant, whole_run) if meant else []:
            expected, got = whole[name], parts[ends.index(end)][name]
            scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
            if got.shape != expected.shape or not np.allclose(
                got, expected, 0, TOLERANCE * scale, equal_nan=True
            ):
                trial.wrong.append(f"{name} after {end} frames, of {timing}, chunks of {size}")
                break


def tried(seed: int, *, compiled: bool = False) -> Outcome:
    """As `check`, where an exception that nobody expects is wrong too."""
    try:
        return check(seed, compiled=compiled)
    except (OstinatoError, witness.WitnessError, ValueError, ArithmeticError) as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}")


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`; one model of so many is compiled."""
    return try_seeds(
        lambda seed: tried(seed, compiled=seed % COMPILED == 0),
        lambda seed: random_model(seed, _frames(seed)),
        seconds,
        seed,
        count,
        folder,
    )
