"""The floor of a call: an Identity of one number, where nothing but the call costs time.

taskset -c 1 python -m benchmarks.bench_calls [--peers A,B] [--json FILE]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import harness, models, peers
from ostinato.cli.timing import interleave


def main() -> None:
    """Measure and print."""
    arguments = harness.parser("the floor of a call", seconds=1.0).parse_args()
    wanted = harness.start(arguments)
    model = models.identity()
    feeds = models.feeds(model.proto)
    calls: dict[str, Callable[[], object]] = {"empty Python call": lambda: None}
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder))
        for peer in wanted:
            try:
                loaded = peers.load(peer, path, feeds)
                loaded.run(feeds)
            # A runtime that cannot take the model is a result of the benchmark.
            except Exception as error:
                errors[peer] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                continue
            calls[f"{peer} bound"] = loaded.step
            calls[f"{peer} run"] = lambda loaded=loaded: loaded.run(feeds)
            if peer == "ostinato":
                session, target = loaded.keep, {"y": np.empty((1, 1), np.float32)}
                calls["ostinato run, out="] = partial(session.run, None, feeds, out=target)
        with harness.Console(stderr=True).status("Measuring"):
            timings = interleave(calls, arguments.seconds)
    table = harness.table("Identity of one number", "call", ["median us", "min us", "p99 us"])
    for name, timing in timings.items():
        figures = (timing.median, timing.minimum, timing.p99)
        table.add_row(name, *(f"{figure * 1e6:.3f}" for figure in figures))
    harness.console.print(table)
    for peer, reason in errors.items():
        harness.console.print(f"{peer}: {reason}", style="dim")
    harness.save(
        arguments.json, {"calls": {name: asdict(timing) for name, timing in timings.items()}}
    )


if __name__ == "__main__":
    main()
