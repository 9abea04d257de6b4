"""Random models with states: streams and pools give the bits of calls that carry the states.

    python -m tools.fuzz states --seconds 60

Whatever is done to a stream or to the streams of a pool, `session.run` with explicit states is done
to a copy of the states in plain arrays: both have the same outputs and states, or both fail, and
then nothing has changed.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np

import ostinato
from ostinato import OstinatoError
from tools.fuzz.graphs import Outcome, in_child
from tools.fuzz.random_states import random_states
from tools.fuzz.seeds import try_seeds
from tools.fuzz.state_pools import pools
from tools.fuzz.state_streams import streams
from tools.fuzz.state_trial import Trial, WrongError

CHILD_SECONDS = 120.0


def check(seed: int) -> Outcome:
    """Operate on the model of a seed."""
    logging.disable()
    warnings.simplefilter("ignore")
    random = np.random.default_rng(seed + 2**32)
    made = random_states(seed)
    threads = int(random.choice((1, 1, 2)))
    session = ostinato.InferenceSession(made.model, cache_dir=None, threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(random, made, session, Path(folder))
        try:
            streams(trial)
            refusal = pools(trial)
        except (WrongError, OstinatoError) as error:
            text = f"{type(error).__name__}: {error}\n" + "\n".join(trial.log[-12:])
            return Outcome("differ", text)
    return Outcome("no pool" if refusal else "agree", refusal)


def run(seconds: float, seed: int, count: int | None = None, *, folder: Path) -> int:
    """As `try_seeds`, each model in a process of its own."""

    def apart(seed: int) -> Outcome:
        answer = in_child(lambda: (check(seed), []), CHILD_SECONDS)
        return answer[0]

    return try_seeds(apart, lambda seed: random_states(seed).model, seconds, seed, count, folder)
