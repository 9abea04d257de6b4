"""What `bench_compile` and `bench_memory` do in processes of their own.

This module imports nothing but the standard library at the top: what it measures is what a fresh
process would pay for.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

CACHED_IMPORTS = ("numpy", "llvmlite.binding", "ostinato.runtime.session")
IMPORTS = {
    "cold": (*CACHED_IMPORTS, "onnx", "onnx_ir", "ostinato.compiler"),
    "cached": CACHED_IMPORTS,
    "onnxruntime": ("onnxruntime",),
}
MEMORY = {"resident": "VmRSS", "private": "RssAnon", "peak": "VmHWM"}
RUNS = 100
BASELINE = "Python with NumPy"


@lru_cache(maxsize=1)
def _environment() -> dict[str, str]:
    """In which modules have bytecode, as those that pip installs have."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    modules = ", ".join(module for kind in IMPORTS for module in IMPORTS[kind])
    command = [sys.executable, "-c", f"import {modules}"]
    subprocess.run(command, env=environment, capture_output=True)
    return environment


def run(task: str, *arguments: object) -> Any:
    """The result of `task(*arguments)`, a function of this module, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.fresh", task, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if result.returncode:
        raise SystemExit(result.stderr)
    return json.loads(result.stdout)


def start(kind: str, model: str, cache: str) -> tuple[float, float]:
    """(seconds of imports, seconds of making the session); `kind` is a key of `IMPORTS`."""
    begun = perf_counter()
    for module in IMPORTS[kind]:
        importlib.import_module(module)
    imports = perf_counter() - begun
    make = importlib.import_module("ostinato.cli.witness").onnxruntime_session
    if kind != "onnxruntime":
        make = importlib.import_module("ostinato").InferenceSession
    begun = perf_counter()
    make(Path(model), **({} if kind == "onnxruntime" else {"cache_dir": cache}))
    return imports, perf_counter() - begun


def cpu(model: str, cache: str) -> float:
    """CPU seconds of this process, imports and start of Python included, until `model` can run."""
    make = importlib.import_module("ostinato").InferenceSession
    make(Path(model), cache_dir=cache)
    return process_time()


def memory(kind: str, folder: str, cache: str) -> dict[str, int]:
    """Bytes by `MEMORY` after loading and running both DTLN models as `kind` does."""
    from benchmarks import dtln

    sessions: list[Any] = []
    if kind == "onnxruntime":
        from ostinato.cli.witness import onnxruntime_session

        sessions = [onnxruntime_session(model) for model in dtln.paths(Path(folder))]
    elif kind == "ostinato":
        import ostinato

        models = dtln.paths(Path(folder))
        sessions = [ostinato.InferenceSession(model, cache_dir=cache) for model in models]
    feeds = dtln.feeds()
    for _ in range(RUNS):
        for session, inputs in zip(sessions, feeds, strict=False):
            session.run(None, inputs)
    return _memory()


def loaded(kind: str, model: str, cache: str) -> dict[str, int]:
    """Bytes by `MEMORY` after loading one model as `kind` does; "" for no cache."""
    if kind == "onnxruntime":
        from ostinato.cli.witness import onnxruntime_session

        session: Any = onnxruntime_session(Path(model))
    else:
        import ostinato

        session = ostinato.InferenceSession(model, cache_dir=cache or None)
    del session
    return _memory()


def _memory() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return {name: int(status[field].split()[0]) * 1024 for name, field in MEMORY.items()}


if __name__ == "__main__":
    tasks = {"start": start, "cpu": cpu, "memory": memory, "loaded": loaded}
    print(json.dumps(tasks[sys.argv[1]](*sys.argv[2:])))
