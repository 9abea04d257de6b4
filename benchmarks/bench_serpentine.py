"""Recurrences whose weights exceed a cache: read in a circle, and back and forth.

taskset -c 1 python -m benchmarks.bench_serpentine
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import ostinato
from benchmarks import harness, models

NAMES = ("gru_h512_t100", "lstm_h512_t100", "lstm_h64_t100", "gru_h512_t1", "lstm_h256_t1")
ROUNDS = 9


def microseconds(call: Callable[[], object]) -> float:
    """Time of one call, over at least 20 ms."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < 0.02:
        call()
        calls += 1
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    """Measure and print."""
    harness.start(harness.parser("weights read in a circle, and back and forth").parse_args())
    harness.console.print("us per call        in a circle   back and forth   ratio")
    for name in NAMES:
        model = models.RECURRENT[name]().proto
        feeds = models.feeds(model)
        calls = [
            ostinato.InferenceSession(model, cache_dir=None, disable=disable).bind(feeds)
            for disable in (("serpentine",), ())
        ]
        times: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for call, results in zip(calls, times, strict=True):
                call()
                results.append(microseconds(call))
        circle, turning = (statistics.median(results) for results in times)
        ratio = circle / turning
        harness.console.print(f"{name:18} {circle:11.1f}   {turning:14.1f}   {ratio:5.2f}")


if __name__ == "__main__":
    main()
