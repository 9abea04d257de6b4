"""Two threads against one, on models whose weights are many and few, and against onnxruntime's.

python -m benchmarks.bench_threads

All calls of a model take turns, so that a busy machine is busy for all. The figure of each is the
best of several medians of some calls one after the other. The second table has one session that is
told to use one thread and two in turns: how much faster two are, by the means and the medians of
single calls, in a row, 10 ms apart, and beside processes that keep one and two processors busy. The
last table is what a session costs that is called every 10 ms: the share of a core that it takes.
`--always` shares calls even when others of late waited for a busy machine, for figures from the
quiet moments of one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import ostinato
from benchmarks import harness, models
from ostinato.cli.witness import onnxruntime_bound_call
from ostinato.codegen import threads
from ostinato.native.threads import Team

NAMES = (
    *(f"{cell}_h{hidden}_t100" for cell in ("gru", "lstm") for hidden in (64, 128, 256, 512)),
    *("gru_h512_t1", "gru_h128_t100_b8", "gru_h128_t100_b32"),
)
THREADS = 2
CALLS = 7
PERIOD = 0.01
SLICE = 0.1
Call = Callable[[], object]


def onnxruntime_call(path: Path, feeds: Mapping[str, np.ndarray], count: int) -> Call:
    """A bound call of onnxruntime on so many threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = count, 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return onnxruntime_bound_call(session, feeds)[0]


def best_medians(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Microseconds of each call."""
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            call()
            times = []
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            best[name] = min(best[name], statistics.median(times) * 1e6)
    return best


def core_share(call: Call, seconds: float = 3.0) -> float:
    """The share of a core that the process takes when it calls every 10 ms."""
    begun, due = time.process_time(), time.perf_counter()
    end = due + seconds
    while due < end:
        call()
        due += PERIOD
        time.sleep(max(0.0, due - time.perf_counter()))
    return (time.process_time() - begun) / seconds


def measure(name: str, folder: Path, seconds: float, peer: bool) -> tuple[int, dict[str, float]]:
    """How many threads the model uses, and the times of all."""
    model = models.RECURRENT[name]()
    feeds, path = models.feeds(model.proto), model.save(folder)
    calls: dict[str, Call] = {}
    for count in (1, THREADS):
        session = ostinato.InferenceSession(path, threads=count, cache_dir=None)
        calls[f"ostinato {count}"] = session.bind(feeds)
    if peer:
        calls |= {f"onnxruntime {n}": onnxruntime_call(path, feeds, n) for n in (1, THREADS)}
    return session.report()["threads"], best_medians(calls, seconds)


def gains(name: str, seconds: float) -> list[str]:
    """One thread's time by that of two in the same session: means, and medians, of single calls."""
    model = models.RECURRENT[name]().proto
    session = ostinato.InferenceSession(model, threads=THREADS, cache_dir=None)
    call = session.bind(models.feeds(model))
    team = session._native.team if session._native else None
    if team is None:
        return [name, *["one is used"] * 4]
    cells = [name]
    for gap, busy in ((0.0, 0), (PERIOD, 0), (0.0, 1), (0.0, 2)):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            times = _in_turns(team, call, gap, seconds)
        finally:
            for other in others:
                other.kill()
                other.wait()
        mean, median = (f(times[1]) / f(times[2]) for f in (statistics.fmean, statistics.median))
        cells.append(f"{mean:.2f}x, {median:.2f}x")
    return cells


def _in_turns(team: Team, call: Call, gap: float, seconds: float) -> dict[int, list[float]]:
    times: dict[int, list[float]] = {1: [], THREADS: []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for count, kept in times.items():
            team.lead(count)
            turn = time.perf_counter() + SLICE
            while not kept or time.perf_counter() < turn:
                time.sleep(gap) if gap else None
                start = time.perf_counter()
                call()
                kept.append(time.perf_counter() - start)
    return times


def idle(name: str) -> list[str]:
    """What sessions of one and two threads take of a core when they are called every 10 ms."""
    model = models.RECURRENT[name]().proto
    feeds = models.feeds(model)
    cells = [name]
    for count in (1, THREADS):
        call = ostinato.InferenceSession(model, threads=count, cache_dir=None).bind(feeds)
        call()
        cells.append(f"{core_share(call):.2%}")
    return [*cells, f"{core_share(lambda: None):.2%}"]


def main() -> None:
    """Measure and print."""
    parser = harness.parser("two threads against one", seconds=1.5)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(NAMES))
    parser.add_argument("--always", action="store_true")
    parser.add_argument("--no-gains", dest="gains", action="store_false")
    parser.add_argument("--no-idle", dest="idle", action="store_false")
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments: argparse.Namespace = parser.parse_args()
    if arguments.always:
        threads.MOST_ALONE = threads.LOSSES = 0
    peer = "onnxruntime" in harness.start(arguments)
    columns = ["threads", "1", "2", "2 against 1", "onnxruntime 1", "2", "its 2 / our 2"]
    table = harness.table("us per call", "model", columns)
    record = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            used, times = measure(name, Path(folder), arguments.seconds, peer)
            record[name] = {"threads": used, **times}
            one, two, *others = times.values()
            cells = [f"{value:,.1f}" for value in others]
            cells += [f"{others[1] / two:.2f}x"] if others else []
            table.add_row(
                name, str(used), f"{one:,.1f}", f"{two:,.1f}", f"{one / two:.2f}x", *cells
            )
    harness.console.print(table)
    if arguments.gains:
        columns = ["in a row", "10 ms apart", "one busy process", "two"]
        table = harness.table("one thread's time / that of two: mean, median", "model", columns)
        for name in ("gru_h256_t100", "gru_h512_t1"):
            table.add_row(*gains(name, 2 * arguments.seconds))
        harness.console.print(table)
    if arguments.idle:
        shares = harness.table(
            "share of a core, called every 10 ms", "model", ["1", "2", "no call at all"]
        )
        for name in ("gru_h256_t100", "gru_h512_t1"):
            shares.add_row(*idle(name))
        harness.console.print(shares)
    harness.save(arguments.json, record)


if __name__ == "__main__":
    main()
