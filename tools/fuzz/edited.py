"""Models of the tests, rewritten into equivalent ones: the same bits, as native, and as fast.

Rewritings that leave all bits are applied at random to a model with recorded inputs. What comes out
must be what the model gives, by native code wherever that of the model is.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ostinato
from ostinato.errors import OstinatoError
from tests import witness
from tools.fuzz.graphs import (
    AGREE,
    CHILD_SECONDS,
    TOLERANCE,
    Outcome,
    difference,
    in_child,
    same_bits,
)
from tools.fuzz.rewriting import REWRITINGS, Array, Rewriter
from tools.fuzz.seeds import try_seeds

MODELS = Path(__file__).parents[2] / "tests" / "models"
# Rewritings of a model at most.
MOST = 4
# A rewritten model may take so many times as long, and seconds that clocks do not tell.
SLOWER, LEAST_SECONDS = 1.5, 20e-6


def rewritten(seed: int) -> tuple[Rewriter, onnx.ModelProto, dict[str, Array]]:
    """A model after some rewritings, the model itself, and its inputs."""
    random = np.random.default_rng(seed)
    paths = sorted(MODELS.glob("*.onnx"))
    path = paths[int(random.integers(len(paths)))]
    model = onnx.load(path)
    feeds: dict[str, Array] = {}
    with np.load(MODELS / f"{path.stem.partition('.')[0]}.npz") as file:
        for key in file.files:
            call, side, name = key.split("/")
            if side == "in" and call == file.files[0].split("/")[0]:
                feeds[name] = file[key]
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rewriter = Rewriter(random, copy, dict(feeds))
    for _ in range(int(random.integers(1, MOST + 1))):
        change = rewriter.choose(REWRITINGS)
        try:
            change(rewriter)
            rewriter.done.append(change.__name__)
        except LookupError:
            continue
    return rewriter, model, feeds


def _tried(seed: int) -> Outcome:
    logging.disable()
    warnings.simplefilter("ignore")
    rewriter, model, feeds = rewritten(seed)
    try:
        onnx.checker.check_model(rewriter.model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return Outcome("invalid", f"{rewriter.done}: {error}"[:300])
    plain = ostinato.InferenceSession(model, cache_dir=None)
    told = f"{model.graph.name} {rewriter.done}"
    try:
        session = ostinato.InferenceSession(rewriter.model, cache_dir=None)
        results = session.run(None, dict(rewriter.feeds))
    except OstinatoError as error:
        return Outcome("run fails", f"{told}: {type(error).__name__}: {error}")
    wanted = plain.run(None, dict(feeds))
    if found := difference(results, wanted, TOLERANCE):
        try:
            other = witness.run(rewriter.model.SerializeToString(), rewriter.feeds)
            found += f"; onnxruntime: {difference(results, other, TOLERANCE) or 'agrees'}"
        except witness.WitnessError as error:
            found += f"; onnxruntime refuses {str(error)[:200]}"
        return Outcome("differ", f"{told}: {found}")
    if not same_bits(results, wanted):
        return Outcome("bits", f"{told}: {difference(results, wanted)}")
    entries = session.report().fallback if plain.report().native else ()
    apart = [entry["reason"] for entry in entries if not entry["unless"]]
    if apart:
        return Outcome("exception", f"{told}: no longer all native: {apart}")
    return _as_fast(told, (session, rewriter.feeds), (plain, feeds))


def _as_fast(told: str, *runs: tuple[ostinato.InferenceSession, dict[str, Array]]) -> Outcome:
    """Whether the first one takes as long as the second."""
    new, old = _least(runs)
    if new < SLOWER * old + LEAST_SECONDS:
        return Outcome(AGREE)
    new, old = _least(runs, 15)
    if new < SLOWER * old + LEAST_SECONDS:
        return Outcome(AGREE)
    return Outcome("slower", f"{told}: {new * 1e6:.0f} us, not {old * 1e6:.0f}")


def _least(runs: Sequence[tuple[Any, dict[str, Array]]], rounds: int = 4) -> list[float]:
    """The least seconds of CPU that calls take, one after the other."""
    least = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, (session, feeds) in enumerate(runs):
            start, count = time.thread_time(), 0
            while count < 1 or time.thread_time() - start < 2e-3:
                session.run(None, feeds)
                count += 1
            least[i] = min(least[i], (time.thread_time() - start) / count)
    return least


def tried(seed: int) -> Outcome:
    """Compare a rewritten model with the model, in a process of its own."""
    outcome = in_child(lambda: (_tried(seed), []), CHILD_SECONDS)[0]
    assert isinstance(outcome, Outcome)
    if outcome.kind in ("slower", "invalid"):
        print(f"seed {seed} {outcome.kind}: {outcome.message}", flush=True)
    return outcome


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try rewritten models from `seed` on for so many seconds, or `count`; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: rewritten(n)[0].model, seconds, seed, count, folder)
