"""`ostinato serve` under load, and a plain server of onnxruntime with the same transport.

    python -m benchmarks.bench_serve                      the denoiser: 200 streams in real time
    python -m benchmarks.bench_serve --workers 2 --streams 50 100    others
    python -m benchmarks.bench_serve --models DIR         also how many streams of DTLN
    python -m benchmarks.bench_serve --churn SECONDS      clients that come and go, a worker killed

The clients are a process of their own on the same cores. A server holds so many streams when the
99th percentile of its answers is below the length of a message, and all are answered. Needs
`ostinato[serve]`, and onnxruntime for the comparison.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serve_models import Streamed, denoiser, dtln_blocks

_PYTHON = [sys.executable, "-m"]


@dataclass(frozen=True)
class Load:
    """seconds: of a run. streamed: a call of many messages for each client, not one for each."""

    seconds: float
    streamed: bool


@contextlib.contextmanager
def ours(model: Streamed, workers: int) -> Iterator[tuple[str, list[int], Any]]:
    """Address, processes (the server's first) and the process of `ostinato serve`."""
    states = [f"--state={read}={written}" for read, written in model.states.items()]
    command = [
        *(*_PYTHON, "ostinato", "serve", f"m={model.path}", "--json", "--http-port", "-1"),
        *("--grpc-port", "0", "--workers", str(workers), *states),
        # Clients that leave without a word keep their places for a minute.
        *("--streams", "8192"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        for line in process.stdout or ():
            text += line
            if line == "}\n":
                break
        said = json.loads(text)
        yield said["grpc"], [process.pid, *said["workers"]], process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def plain(folder: Path | None) -> Iterator[tuple[str, list[int]]]:
    """Address and process of a plain server: of the denoiser, or of DTLN in `folder`."""
    command = [*_PYTHON, "benchmarks.serve_onnxruntime"]
    command += ["--dtln", str(folder)] if folder else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = (process.stdout or sys.stdin).readline().strip()
        yield f"127.0.0.1:{port}", [process.pid]
    finally:
        process.kill()
        process.wait()


def load(address: str, *arguments: str) -> dict[str, Any]:
    """What came of the clients, in a process of their own."""
    command = [*_PYTHON, "benchmarks.serve_load", address, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def steady(
    address: str, processes: list[int], model: Streamed, clients: int, how: Load
) -> dict[str, Any]:
    """`clients` streams of a model in real time.

    processes: of the server, whose seconds of CPU are `served`.
    """
    before = used(processes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "frames.npy"
        np.save(file, model.frames(0, model.message))
        facts = load(
            address, "--clients", str(clients), "--seconds", str(how.seconds), "--input",
            model.input, "--frames", str(file), "--period", str(model.period),
            *(["--streamed"] if how.streamed else []),
        )  # fmt: skip
    return {**facts, "served": used(processes) - before}


def used(processes: list[int]) -> float:
    """Seconds of CPU that processes have taken."""
    ticks = 0
    for process in processes:
        # Behind the name, which may have spaces: the state is the first, times are 12 and 13.
        with open(f"/proc/{process}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def holds(facts: dict[str, Any], model: Streamed) -> bool:
    """Whether a server kept up."""
    answered = not facts["errors"] and not facts["lost"]
    return answered and facts["p99"] < model.period


def row(name: str, clients: int, facts: dict[str, Any]) -> None:
    """Print what came of a run."""
    messages = max(facts["latencies"], 1)
    print(
        f"{name:<26}{clients:>8}{1e3 * facts['p50']:>9.1f}{1e3 * facts['p99']:>9.1f}"
        f"{1e3 * facts['most']:>9.1f}{facts['late']:>7}{facts['lost'] + facts['errors']:>7}"
        f"{1e6 * facts['served'] / messages:>11.0f}{1e6 * facts['cpu'] / messages:>11.0f}",
        flush=True,
    )
    for text in facts["said"]:
        print(f"    {text}")


def most_streams(name: str, address: str, processes: list[int], model: Streamed, how: Load) -> int:
    """The most streams a server holds: doubled until it does not, then between by halves."""
    low, high = 0, 8
    while True:
        facts = steady(address, processes, model, high, how)
        row(name, high, facts)
        if not holds(facts, model):
            break
        low, high = high, high * 2
    while high - low > max(2, low // 10):
        middle = (low + high) // 2
        facts = steady(address, processes, model, middle, how)
        row(name, middle, facts)
        low, high = (middle, high) if holds(facts, model) else (low, middle)
    return low


def header() -> None:
    """Print the names of the columns. us: of CPU for a message."""
    print(
        f"{'server':<26}{'streams':>8}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'late':>7}{'lost':>7}"
        f"{'server us':>11}{'clients us':>11}"
    )


def resident(processes: list[int]) -> int:
    """Bytes that processes have in memory, of those that still run."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError), open(f"/proc/{process}/statm") as file:
            total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def churn(seconds: float, clients: int) -> None:
    """Clients that come and go; then the same while a worker is killed."""
    model = denoiser()
    with ours(model, 2) as (address, processes, _):
        sizes: list[tuple[float, int]] = []
        done = threading.Event()

        def watch() -> None:
            start = time.monotonic()
            while not done.wait(seconds / 20):
                sizes.append((time.monotonic() - start, resident(processes)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        facts = load(
            address, "--churn", "--clients", str(clients), "--seconds", str(seconds), "--pause", "1"
        )
        done.set()
        watcher.join()
        print(
            f"{clients} clients for {seconds:g} s: {facts['sequences']} sequences, "
            f"{facts['latencies']} messages, p99 {1e3 * facts['p99']:.1f} ms, "
            f"{facts['wrong']} with other bits, {facts['errors'] + facts['lost']} errors"
        )
        for text, count in facts["said"].items():
            print(f"    {count} x {text}")
        print("MiB: " + ", ".join(f"{at:.0f} s {size / 2**20:.0f}" for at, size in sizes))
    with ours(model, 2) as (address, processes, _):
        killer = threading.Timer(5, os.kill, (processes[1], signal.SIGKILL))
        killer.start()
        facts = load(
            address, "--churn", "--clients", str(clients), "--seconds", "15", "--pause", "1"
        )
        print(
            f"a worker of 2 killed after 5 s of 15: {facts['sequences']} sequences, "
            f"{facts['lost']} messages lost, {facts['wrong']} with other bits, "
            f"{facts['errors']} other errors"
        )
        for text, count in facts["said"].items():
            print(f"    {count} x {text}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=Path, help="folder of the DTLN models")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 0])
    parser.add_argument("--streams", type=int, nargs="+", default=[200])
    parser.add_argument("--churn", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--clients", type=int, default=1000)
    given = parser.parse_args()
    if given.churn:
        churn(given.churn, given.clients)
        return
    header()
    for streamed in (False, True):
        denoisers(given.workers, given.streams, Load(given.seconds, streamed))
    if given.models is not None:
        # Native code takes most of the time: a process for each core.
        networks(given.models, max(given.workers), Load(given.seconds, streamed=True))


def denoisers(workers: list[int], streams: list[int], how: Load) -> None:
    """Print what comes of streams of the denoiser."""
    model, kind = denoiser(), ", streamed" if how.streamed else ""
    for count in streams:
        for number in workers:
            with ours(model, number) as (address, processes, _):
                facts = steady(address, processes, model, count, how)
            row(f"ostinato, {number} workers{kind}", count, facts)
        with plain(None) as (address, processes):
            row(f"onnxruntime{kind}", count, steady(address, processes, model, count, how))


def networks(given: Path, workers: int, how: Load) -> None:
    """Print how many streams of DTLN two servers hold."""
    with tempfile.TemporaryDirectory() as folder:
        model = dtln_blocks(Path(folder), given, batch=True)
        with ours(model, workers) as (address, processes, _):
            we = most_streams("ostinato, DTLN", address, processes, model, how)
        with plain(given) as (address, processes):
            they = most_streams("onnxruntime, DTLN", address, processes, model, how)
    print(f"DTLN: {we} streams against {they}: {we / max(they, 1):.2f}x")


if __name__ == "__main__":
    main()
