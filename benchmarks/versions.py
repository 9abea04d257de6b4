"""Two versions of the compiler, side by side: every row of bench_ops and bench_micro, and more.

    git worktree add ../before COMMIT
    taskset -c 1 python -m benchmarks.versions ../before . [--models 'gru*'] [--onnx FILE ...]
        [--target x86-64-v3]

Each version runs in a process of its own, in whose turns they take: A B A B. A row is the least CPU
time of a call in each, the ratio, and the CPU time of a load without a cache. Rows beyond the
threshold are measured again with more rounds before they are printed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

from benchmarks import bench_micro, harness, models

WORKER = """
import json, sys, time
import numpy as np
import ostinato
from ostinato.options import Options

calls, options = {}, Options(target=sys.argv[1])
for line in sys.stdin:
    job, path, number = json.loads(line)
    if job == "load":
        begin = time.process_time()
        session = ostinato.InferenceSession(path, cache_dir=None, options=options)
        took = time.process_time() - begin
        with np.load(path + ".npz") as file:
            calls[path] = session.bind({name: file[name] for name in file.files})
        calls[path]()
    elif job == "run":
        call, least = calls[path], float("inf")
        for _ in range(3):
            begin = time.process_time_ns()
            for _ in range(number):
                call()
            least = min(least, (time.process_time_ns() - begin) / number)
        took = least / 1e9
    else:
        del calls[path]
        took = 0
    print(json.dumps(took), flush=True)
"""


class Version:
    """A process that imports the package of a folder."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, target],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, job: str, path: Path, number: int = 0) -> float:
        """Do a job; its CPU seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([job, str(path), number]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{path.name}: the version in {self._folder} ended, by the error above")
        return float(json.loads(answer))


def measure(versions: Sequence[Version], path: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of a call and of a load in each version."""
    loads = [version.ask("load", path) for version in versions]
    once = versions[0].ask("run", path, 1)
    number = max(1, int(0.01 / max(once, 1e-7)))
    least = [float("inf")] * len(versions)
    for _ in range(rounds):
        for position, version in enumerate(versions):
            least[position] = min(least[position], version.ask("run", path, number))
    if abs(least[1] / least[0] - 1) > 0.02:
        for _ in range(3 * rounds):
            for position, version in enumerate(versions):
                least[position] = min(least[position], version.ask("run", path, number))
    for version in versions:
        version.ask("drop", path)
    return {"call": least, "load": loads}


def save(folder: Path, name: str, proto: onnx.ModelProto) -> Path:
    """A model and its inputs in files beside each other."""
    path = folder / f"{name.replace('/', '_')}.onnx"
    onnx.save(proto, str(path))
    np.savez(f"{path}.npz", **models.feeds(proto))
    return path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs=2, type=Path, help="folders of the two checkouts")
    parser.add_argument("--models", default="*", help="pattern of row names")
    parser.add_argument("--onnx", nargs="*", type=Path, default=[], help="models with fixed sizes")
    parser.add_argument("--target", default="host", help="for which both compile; runs here")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    cases = {**models.RECURRENT, **models.MICRO, **bench_micro.CASES}
    jobs: dict[str, Any] = {
        name: (lambda name=name: cases[name]().proto)
        for name in fnmatch.filter(cases, arguments.models)
    }
    if not jobs and not arguments.onnx:
        parser.error(f"no row is named {arguments.models!r}, such as {', '.join(list(cases)[:3])}")
    jobs |= {path.stem: (lambda path=path: onnx.load(path)) for path in arguments.onnx}
    versions = [Version(folder, arguments.target) for folder in arguments.versions]
    table = harness.table("Two versions", "model", ["A us", "B us", "B / A", "load B / A"])
    found = {}
    with tempfile.TemporaryDirectory() as folder:

        def one(name: str) -> dict[str, list[float]]:
            return measure(versions, save(Path(folder), name, jobs[name]()), arguments.rounds)

        figures = harness.each("Versions", list(jobs), one)
    for name, figure in zip(jobs, figures, strict=True):
        (a, b), (load_a, load_b) = figure["call"], figure["load"]
        table.add_row(
            name, f"{a * 1e6:.3g}", f"{b * 1e6:.3g}", f"{b / a:.3f}", f"{load_b / load_a:.2f}"
        )
        found[name] = figure
    harness.console.print(table)
    ratios = [figure["call"][1] / figure["call"][0] for figure in figures]
    loads = [figure["load"][1] / figure["load"][0] for figure in figures]
    harness.console.print(
        f"calls: median {median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}; "
        f"loads: median {median(loads):.2f}, {min(loads):.2f} to {max(loads):.2f}"
    )
    harness.save(arguments.json, {"rows": found})


if __name__ == "__main__":
    main()
