"""A server of the denoiser in a process of its own, and what its answers must be."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ostinato

DENOISER = Path(ostinato.__file__).parent / "demo" / "denoiser.onnx"
STATES = {"state": "state_out"}
BINS = 161


@dataclass
class Server:
    """http, grpc: addresses. workers: processes. log: what it printed on stderr."""

    process: subprocess.Popen[str]
    http: str
    grpc: str
    workers: list[int]
    log: Path
    _stopped: list[int] = field(default_factory=list)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.http + path, timeout=30) as response:
            return json.loads(response.read())

    def metric(self, line: str) -> float:
        """The value of a line of /metrics that begins like this."""
        with urllib.request.urlopen(self.http + "/metrics", timeout=30) as response:
            text = response.read().decode()
        values = [found.rsplit(" ", 1)[1] for found in text.splitlines() if found.startswith(line)]
        return float(values[0])

    def stop(self, patience: float = 30) -> int:
        """Tell it to stop, and wait for its end."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patience)


@contextlib.contextmanager
def serving(*options: str, model: Path = DENOISER) -> Iterator[Server]:
    command = [
        *(sys.executable, "-m", "ostinato", "serve", f"m={model}", "--json", "--workers", "2"),
        *("--http-port", "0", "--grpc-port", "0", "--drain", "5", *options),
    ]
    if model == DENOISER:
        command += ["--state", "state=state_out", "--frame-ms", "16"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with open(log, "w") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True,
                env={**os.environ, "PYTHONPATH": str(DENOISER.parents[2])},
            )  # fmt: skip
        try:
            said = _first_json(process, log)
            yield Server(process, said["http"], said["grpc"], said["workers"], log)
        finally:
            process.kill()
            process.wait()


def _first_json(process: subprocess.Popen[str], log: Path) -> Any:
    text, until = "", time.monotonic() + 120
    while time.monotonic() < until:
        line = process.stdout.readline()  # type: ignore[union-attr]
        text += line
        if not line or line == "}\n":
            break
    try:
        return json.loads(text)
    except ValueError:
        raise AssertionError(f"the server said {text!r}, and {log.read_text()}") from None


def frames(seed: int, count: int) -> np.ndarray:
    """Magnitudes `[count, 1, bins]`."""
    return np.random.default_rng(seed).random((count, 1, BINS), np.float32)


def alone(magnitudes: np.ndarray) -> np.ndarray:
    """The masks that a stream gives which is alone in the world."""
    session = ostinato.InferenceSession(DENOISER)
    return np.asarray(session.stream(STATES).step({"magnitude": magnitudes})[0])
