"""Random valid graphs: onnxruntime, the reference evaluator and this compiler agree, in every mode.

Each model of `random_models` is compiled in a child process of its own, which may hang or die, by
default and in one more mode chosen by its seed, which must have the same bits. onnxruntime computes
it in another process. Where it refuses, or computes something else, the oracle of the tests and
`onnx.reference` decide. What differs from all of them is made small and kept.
"""

from __future__ import annotations

import collections
import faulthandler
import logging
import os
import pickle
import re
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import pytest
from onnx.inliner import inline_local_functions

import ostinato
from ostinato import InferenceSession, OstinatoError
from tests import witness
from tests.oracle import evaluator, ops
from tools.fuzz.modes import Array, Feeds, Mode, mode_of
from tools.fuzz.random_models import random_model
from tools.fuzz.smaller import smaller

# Relative to the largest element. Random networks amplify roundings somewhat.
TOLERANCE, HALF_TOLERANCE = 2e-4, 4e-2
# Of a model as text: it has floats of 16 bits.
_HALF = [f"{name}: {n}\n" for name in ("elem_type", "data_type", "i") for n in (10, 16)]
CHILD_SECONDS = 90.0

AGREE = "agree"
# What an error says of an exception that no rule foresaw.
_DEFECT = "this package is wrong"
# What onnxruntime refuses: Scans of no steps, and of lists whose tensors differ in rank.
_LIMITS = re.compile(r"ort_value_tensor_slicer|must have the shape set for all outputs")
FAILURES = ("differ", "bits", "crash", "hang", "exception", "run fails")


@dataclass(frozen=True)
class Outcome:
    """What became of a model: a word that is counted, and what there is to say about it."""

    kind: str
    message: str = ""

    @property
    def is_failure(self) -> bool:
        return self.kind in FAILURES

    def too_small(self) -> Outcome:
        """That of sizes for which the oracle has a result; what onnxruntime runs, so should we.

        But where a window does not fit, onnxruntime rounds its number of places towards zero.
        """
        is_other = self.message.startswith("onnxruntime")
        is_window = "spatial size of the output" in self.message
        return Outcome("too small", self.message) if is_window or not is_other else self


# In a child


def ours(model: bytes, feeds: Feeds, mode: Mode) -> tuple[Outcome, list[Any]]:
    """What the compiler makes of a model, by default, in a second run and in `mode`."""
    logging.disable()
    warnings.simplefilter("ignore")
    try:
        session = InferenceSession(model, cache_dir=None)
    except OstinatoError as error:
        kind = "exception" if _DEFECT in str(error) else "refused"
        return Outcome(kind, f"{type(error).__name__}: {error}"), []
    try:
        results = session.run(None, dict(feeds))
        kept = pickle.loads(pickle.dumps(results))
        again = session.run(None, dict(feeds))
        if not same_bits(kept, again):
            return Outcome("bits", f"a second run: {difference(kept, again)}"), kept
        mode.prepare()
        session_of_mode = InferenceSession(model, cache_dir=None, **mode.options)
        other = mode.run(session_of_mode, model, feeds)
        # Interpreted nodes have other bits, and what is disabled can be what removes them.
        is_interpreted = session.report().interpreted or session_of_mode.report().interpreted
        near = HALF_TOLERANCE if any("float16" in x.dtype.name for x in flat(kept)) else 1e-4
        if not same_bits(kept, other) and (not is_interpreted or difference(kept, other, near)):
            return Outcome("bits", f"{mode}: {difference(kept, other)}"), kept
    except OstinatoError as error:
        return Outcome("run fails", f"{type(error).__name__}: {error}"), []
    return Outcome(AGREE), kept


def in_child(function: Callable[[], Any], seconds: float) -> Any:
    """What the function returns in a forked process, or an `Outcome` if that hangs or dies."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            faulthandler.disable()
            try:
                answer = function()
            except BaseException:
                answer = Outcome("exception", traceback.format_exc()), []
            with os.fdopen(write, "wb") as file:
                pickle.dump(answer, file)
        finally:
            os._exit(0)
    os.close(write)
    data, end = b"", time.monotonic() + seconds
    with os.fdopen(read, "rb", buffering=0) as file:
        while True:
            ready, _, _ = select.select([file], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Outcome("hang", f"more than {seconds:.0f} s"), []
            piece = file.read(1 << 20)
            if not piece:
                break
            data += piece
    _, status = os.waitpid(child, 0)
    if not data:
        return Outcome("crash", f"the process ended with status {status}"), []
    return pickle.loads(data)


# Comparing


def flat(results: Sequence[Any]) -> Iterator[Array]:
    """All tensors, those of sequences one by one."""
    for result in results:
        if isinstance(result, list | tuple):
            yield from flat(result)
        else:
            yield np.asarray(result)


def same_bits(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether all elements are equal, NaN to NaN and -0.0 not to 0.0."""
    pairs = list(zip(flat(left), flat(right), strict=False))
    return len(left) == len(right) and all(_same_bits(a, b) for a, b in pairs)


def _same_bits(a: Array, b: Array) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if not _is_float(a):
        return bool((a == b).all())
    bits = f"u{a.dtype.itemsize}"
    same = np.frombuffer(a.tobytes(), bits) == np.frombuffer(b.tobytes(), bits)
    return bool(np.all(same | (a != a).ravel() & (b != b).ravel()))


def _is_float(array: Array) -> bool:
    """Whether the elements are floats, those of 16 and 8 bits that NumPy does not know included."""
    return array.dtype.kind == "f" or "float" in array.dtype.name


def difference(got: Sequence[Any], expected: Sequence[Any], tolerance: float = 0.0) -> str:
    """The first difference of two results in words; empty if there is none."""
    pairs = list(zip(flat(got), flat(expected), strict=False))
    for place, (a, b) in enumerate(pairs):
        if a.shape != b.shape:
            return f"output {place}: shape {list(a.shape)}, not {list(b.shape)}"
        is_float = _is_float(a)
        if a.dtype != b.dtype and not (is_float and _is_float(b)):
            return f"output {place}: {a.dtype}, not {b.dtype}"
        if a.size == 0:
            continue
        if a.dtype.kind not in "biuf" and not is_float:
            if (a != b).any():
                return f"output {place}: {a!r}, not {b!r}"
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.abs(y[np.isfinite(y)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        with np.errstate(invalid="ignore"):
            near = np.abs(x - y) <= (tolerance * scale if is_float else 0)
        wrong = ~(near | (x == y) | (np.isnan(x) & np.isnan(y)))
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            count = int(np.count_nonzero(wrong))
            return f"output {place}: {count} of {a.size}, at {first} {a[first]!r}, not {b[first]!r}"
    return "" if len(got) == len(expected) else f"{len(got)} outputs, not {len(expected)}"


Witness = tuple[str, Callable[[onnx.ModelProto, Feeds], list[Any]]]


def witnesses() -> list[Witness]:
    """Who else computes models, the most trusted first; each raises if it cannot."""
    return [
        ("onnxruntime", lambda model, feeds: witness.run(model.SerializeToString(), feeds)),
        ("oracle", lambda model, feeds: ops.run(inline_local_functions(model), feeds)),
        ("onnx.reference", lambda model, feeds: list(evaluator.run(model, feeds))),
    ]


def judged(
    model: onnx.ModelProto, feeds: Feeds, mode: Mode, besides: Sequence[Witness] = ()
) -> Outcome:
    """Run one model everywhere. One witness that agrees is enough; others are named.

    besides: witnesses that are asked last.
    """
    data = model.SerializeToString()
    outcome, results = in_child(lambda: ours(data, feeds, mode), CHILD_SECONDS)
    if outcome.kind not in (AGREE, "refused", "run fails"):
        return outcome
    is_half = any(word in str(model) for word in _HALF)
    tolerance = HALF_TOLERANCE if is_half else TOLERANCE
    others: list[str] = []
    for name, run in (*witnesses(), *besides):
        try:
            with np.errstate(all="ignore"):
                expected = run(model, feeds)
        except (Exception, pytest.skip.Exception) as error:
            others.append(f"{name} refuses: {type(error).__name__} {str(error)[:200]}")
            continue
        if outcome.kind != AGREE:
            return Outcome(outcome.kind, f"{name} does it; {outcome.message}")
        found = difference(results, expected, tolerance)
        if not found and name == "onnxruntime" and (outcome := written(model, feeds, expected)):
            return outcome
        if not found:
            words = sorted({other.split(":")[0] for other in others})
            return Outcome(", ".join([AGREE, *words]), "; ".join(others))
        others.append(f"{name} differs: {found}")
    if outcome.kind != AGREE:
        return Outcome("nobody runs it", "; ".join([outcome.message, *others]))
    if all("refuses" in other for other in others):
        return Outcome("no witness", "; ".join(others))
    return Outcome("differ", "; ".join(others))


def written(model: onnx.ModelProto, feeds: Feeds, expected: Sequence[Any]) -> Outcome | None:
    """What is wrong in onnxruntime with the model that `optimize` writes."""
    made = in_child(lambda: ostinato.optimize(model), CHILD_SECONDS)
    if not isinstance(made, onnx.ModelProto):
        return Outcome("differ", f"optimize: {made[0]}")
    try:
        onnx.checker.check_model(made, full_check=_is_inferable(model))
        results = witness.run(made.SerializeToString(), feeds)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        witness.WitnessError,
    ) as error:
        if _LIMITS.search(str(error)):
            return None
        return Outcome("differ", f"what optimize writes: {str(error)[:400]}")
    found = difference(results, expected, HALF_TOLERANCE)
    return Outcome("differ", f"what optimize writes: {found}") if found else None


def _is_inferable(model: onnx.ModelProto) -> bool:
    """Whether shapes can be inferred: not where the document of an operator contradicts itself."""
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try models from `seed` on for so many seconds, or `count` of them.

    Prints how many had which outcome, and keeps what failed in `folder`. Returns how many did.
    """
    end = time.monotonic() + seconds
    counts: collections.Counter[str] = collections.Counter()
    failures = number = 0
    while time.monotonic() < end and number != count:
        model, feeds = random_model(seed + number)
        mode = mode_of(seed + number, model, feeds)
        outcome = judged(model, feeds, mode)
        counts[outcome.kind] += 1
        if not outcome.kind.startswith(AGREE):
            print(f"{seed + number} {outcome.kind}: {outcome.message}", flush=True)
        if outcome.is_failure:
            failures += 1
            if folder is not None:
                _keep(folder / str(seed + number), model, feeds, mode, outcome)
        number += 1
    print(f"{number} graphs, seeds {seed} to {seed + number - 1}:")
    for kind, times in counts.most_common():
        print(f"{times:7d} {kind}")
    return failures


def _keep(place: Path, model: onnx.ModelProto, feeds: Feeds, mode: Mode, outcome: Outcome) -> None:
    """Write a model that fails, made small, with its inputs."""
    small, given = smaller(model, feeds, lambda m, f: judged(m, f, mode).kind == outcome.kind)
    place.mkdir(parents=True, exist_ok=True)
    onnx.save(model, place / "whole.onnx")
    onnx.save(small, place / "model.onnx")
    np.savez(place / "inputs.npz", **given)
    text = f"{mode}\n{outcome.kind}: {outcome.message}\n\n{onnx.printer.to_text(small)}\n"
    (place / "about.txt").write_text(text)
