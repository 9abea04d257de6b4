"""Random models tried seed by seed, for a time or a number of them; those that fail are kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import onnx


class Outcome(Protocol):
    """What became of a model: a word that is counted, and what there is to say about it."""

    @property
    def kind(self) -> str:
        """The word."""

    @property
    def message(self) -> str:
        """A sentence or more; empty if there is nothing to say."""

    @property
    def is_failure(self) -> bool:
        """Whether something is wrong."""


def try_seeds(
    tried: Callable[[int], Outcome],
    model: Callable[[int], onnx.ModelProto | str],
    seconds: float,
    seed: int,
    count: int | None,
    folder: Path,
) -> int:
    """Try models for `seconds`, or `count` of them, from `seed` on; the number of failures.

    tried, model: of a seed; the text of a program in place of a model. folder: where what fails is
    kept, `SEED.onnx` or `SEED.py`, with what is wrong beside it.
    """
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    failures = 0
    while time.monotonic() < end and (count is None or counts.total() < count):
        outcome = tried(seed)
        counts[outcome.kind] += 1
        if outcome.is_failure:
            failures += 1
            print(f"seed {seed} {outcome.kind}: {outcome.message}", flush=True)
            folder.mkdir(parents=True, exist_ok=True)
            made = model(seed)
            if isinstance(made, str):
                (folder / f"{seed}.py").write_text(made)
            else:
                onnx.save(made, folder / f"{seed}.onnx")
            (folder / f"{seed}.txt").write_text(outcome.message)
        seed += 1
    print(", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())))
    return failures
