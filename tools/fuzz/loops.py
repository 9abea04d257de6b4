"""Random loops with states of any size: they agree with other runtimes, in every mode."""

from __future__ import annotations

from pathlib import Path

from tools.fuzz.graphs import Outcome, judged
from tools.fuzz.modes import mode_of
from tools.fuzz.random_loops import random_loop
from tools.fuzz.seeds import try_seeds


def tried(seed: int) -> Outcome:
    """Run one loop everywhere."""
    model, feeds = random_loop(seed)
    return judged(model, feeds, mode_of(seed, model, feeds))


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try loops from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: random_loop(n)[0], seconds, seed, count, folder)
