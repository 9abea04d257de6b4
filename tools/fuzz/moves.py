"""Random graphs that move elements, each value with several readers: what the oracle computes.

    python -m tools.fuzz moves --seconds 60

What fuses, moves and elides copies decides by index maps. Small graphs of moves and exact
functions, of which thousands pass in a minute in this process, reach more of these than large ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from ostinato import InferenceSession, OstinatoError
from tests.oracle import ops
from tools.fuzz import random_moves
from tools.fuzz.graphs import AGREE, HALF_TOLERANCE, TOLERANCE, Outcome, difference, flat
from tools.fuzz.modes import Array
from tools.fuzz.random_graph import OPERATORS as ALL
from tools.fuzz.random_models import random_model
from tools.fuzz.random_operators import arithmetic, exact_unary
from tools.fuzz.seeds import try_seeds

_MOVES = [function for function in ALL if function.__module__ == random_moves.__name__]
# What reads a value several times, and others that read it.
OPERATORS = [*_MOVES, *[random_moves.windows] * 12, *[exact_unary] * 12, *[arithmetic] * 12]
_MOST_NODES = 20


def random_graph(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A graph and its inputs."""
    return random_model(seed, OPERATORS, _MOST_NODES)


def tried(seed: int) -> Outcome:
    """Run one graph, in this process."""
    model, feeds = random_graph(seed)
    try:
        with np.errstate(all="ignore"):
            expected = ops.run(model, feeds)
    except (ArithmeticError, LookupError, ValueError) as error:
        return Outcome("oracle refuses", str(error))
    try:
        results = InferenceSession(model, cache_dir=None).run(None, feeds)
    except OstinatoError as error:
        return Outcome("exception", str(error))
    # The oracle computes in float64.
    is_half = any(array.dtype == np.float16 for array in flat(results))
    found = difference(results, expected, HALF_TOLERANCE if is_half else TOLERANCE)
    return Outcome("differ", found) if found else Outcome(AGREE)


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try graphs from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: random_graph(n)[0], seconds, seed, count, folder)
