"""Models of the tests and random loops, rewritten: the same bits, as native, and as fast.

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
from tools.fuzz import rewriting, rewriting_loops, rewriting_models, rewriting_states
from tools.fuzz.graphs import (
    AGREE,
    CHILD_SECONDS,
    TOLERANCE,
    Outcome,
    difference,
    in_child,
    same_bits,
)
from tools.fuzz.random_loops import random_loop
from tools.fuzz.rewriting import REWRITINGS, Array, Rewriter
from tools.fuzz.seeds import try_seeds

MODELS = Path(__file__).parents[2] / "tests" / "models"
# Rewritings of a model at most, and those that are tried for each.
MOST, TRIES = 4, 12
# Whose rewritings, each as often as the number before says.
KINDS = (
    (3, rewriting.__name__),
    (3, rewriting_loops.__name__),
    (2, rewriting_states.__name__),
    (1, rewriting_models.__name__),
)
# How often a rewriting changes the body of a loop or branch, and models are random loops, or
# written as `ostinato.optimize` does.
INSIDE, RANDOM, OPTIMIZED = 0.4, 0.35, 0.25
# A rewritten model may take so many times as long, and seconds that clocks do not tell.
SLOWER, LEAST_SECONDS = 1.5, 20e-6


def rewritten(seed: int) -> tuple[Rewriter, onnx.ModelProto, dict[str, Array]]:
    """A model after some rewritings, the model itself, and its inputs."""
    random = np.random.default_rng(seed)
    model, feeds = _given(seed, random)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rewriter = Rewriter(random, copy, dict(feeds))
    for _ in range(int(random.integers(1, MOST + 1))):
        change(rewriter, rewriter.weighed(KINDS))
    return rewriter, model, feeds


def change(rewriter: Rewriter, module: str) -> None:
    """Apply one of the rewritings of a module, if any fits."""
    for _ in range(TRIES):
        change = rewriter.choose(REWRITINGS[module])
        try:
            rewriter.enter(INSIDE)
            change(rewriter)
        except LookupError:
            continue
        rewriter.done.append(change.__name__)
        return


def _given(seed: int, random: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of the tests, its recurrent layers maybe written as loops, or one of random loops."""
    draw = float(random.random())
    if draw < RANDOM:
        return random_loop(seed)
    paths = sorted(MODELS.glob("*.onnx"))
    path = paths[int(random.integers(len(paths)))]
    model = onnx.load(path)
    feeds: dict[str, Array] = {}
    with np.load(MODELS / f"{path.stem.partition('.')[0]}.npz") as file:
        for key in file.files:
            call, side, name = key.split("/")
            if side == "in" and call == file.files[0].split("/")[0]:
                feeds[name] = file[key]
    return (ostinato.optimize(model) if draw > 1 - OPTIMIZED else model), feeds


def _tried(seed: int) -> Outcome:
    logging.disable()
    warnings.simplefilter("ignore")
    rewriter, model, feeds = rewritten(seed)
    try:
        onnx.checker.check_model(rewriter.model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return Outcome("invalid", f"{rewriter.done}: {error}"[:300])
    try:
        plain = ostinato.InferenceSession(model, cache_dir=None)
        wanted = plain.run(None, dict(feeds))
    except OstinatoError as error:
        return Outcome("refused", str(error))
    told = f"{model.graph.name} {rewriter.done}"
    try:
        session = ostinato.InferenceSession(rewriter.model, cache_dir=None)
        results = session.run(None, dict(rewriter.feeds))
    except OstinatoError as error:
        message = f"{told}: {type(error).__name__}: {error}"
        try:
            witness.run(rewriter.model.SerializeToString(), rewriter.feeds)
        except witness.WitnessError as other:
            return Outcome("nobody runs it", f"{message}; onnxruntime: {other}"[:600])
        return Outcome("run fails", message)
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
    if outcome.kind in ("slower", "invalid", "nobody runs it"):
        print(f"seed {seed} {outcome.kind}: {outcome.message}", flush=True)
    return outcome


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try rewritten models from `seed` on for so many seconds, or `count`; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: rewritten(n)[0].model, seconds, seed, count, folder)
