"""A corpus through two actors of Ray Data, and through one process.

    python -m benchmarks.bench_ray
    python -m benchmarks.bench_ray --files

Both run the same `Predictor` on the same batches, one thread each, by turns; the time is that of
the corpus, without what starts Ray and compiles. The one process takes its batches out of arrays
in memory as they are. CPU seconds are those of the process and of each actor, which
a busy machine does not change: their ratio is what a core for each actor would give. Signals lie
in Ray's object store or, with `--files`, in WAV files that whoever scores them reads. Needs
`ostinato[ray]`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import ray

from benchmarks import models
from benchmarks.bench_stream import batched
from ostinato.ray import Predictor

HIDDEN, FRAMES = 256, 200


def corpus(count: int) -> Iterator[dict[str, Any]]:
    """Rows of a signal `[frames, width]` each."""
    rng = np.random.default_rng(0)
    for number in range(count):
        yield {"id": number, "x": rng.standard_normal((FRAMES, HIDDEN), np.float32)}


def network(folder: Path) -> Path:
    """A GRU over whole signals with a run-time batch."""
    model = models.recurrent_op("gru", "GRU", HIDDEN, FRAMES)
    path = folder / "gru.onnx"
    onnx.save(batched(model.proto, {"x": 1, "h0": 1, "y": 2, "hn": 1}), str(path))
    return path


def written(rows: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The rows as WAV files of 16 bits; rows of their paths."""
    found = []
    for row in rows:
        path = folder / f"{row['id']}.wav"
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes((row["x"] * 3000).astype("<i2").tobytes())
        found.append({"id": row["id"], "path": str(path)})
    return found


def signal(path: str) -> np.ndarray:
    """The frames of a file."""
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (samples / np.float32(3000)).reshape(-1, HIDDEN)


def main() -> None:
    """Print the times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=16, help="rows of a call")
    parser.add_argument("--block", type=int, default=256, help="rows of a task of Ray's")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--files", action="store_true", help="signals in files, not in the store")
    given = parser.parse_args()
    rows = list(corpus(given.rows))
    with tempfile.TemporaryDirectory() as folder:
        path = network(Path(folder))
        if given.files:
            rows = written(rows, Path(folder))
        arguments = {"states": {"h0": "hn"}, "outputs": ["y"]}
        single = Scorer(str(path), arguments)
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
        blocks = -(-given.rows // given.block)
        data = ray.data.from_items(rows, override_num_blocks=blocks).materialize()
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        two = ray.data.ActorPoolStrategy(size=2)
        ratios = []
        for _ in range(given.turns):
            start, used = time.perf_counter(), time.process_time()
            for at in range(0, len(rows), given.batch):
                single({name: column[at : at + given.batch] for name, column in columns.items()})
            alone, used = time.perf_counter() - start, time.process_time() - used
            scored = data.map_batches(
                Scorer,
                fn_constructor_args=(str(path), arguments),
                batch_size=given.batch,
                compute=two,
            )
            found = [row for row in scored.iter_rows() if row["end"]]
            together = max(row["end"] for row in found) - min(row["begin"] for row in found)
            actors = [
                max(row["cpu"][1] for row in rows_) - min(row["cpu"][0] for row in rows_)
                for rows_ in ([r for r in found if r["pid"] == pid] for pid in _pids(found))
            ]
            ratios.append((alone / together, used / max(actors)))
            print(
                f"one process {alone:.2f} s, two actors {together:.2f} s: {ratios[-1][0]:.2f}x; "
                f"CPU {used:.2f} s, {' and '.join(f'{cpu:.2f}' for cpu in actors)} s: "
                f"{ratios[-1][1]:.2f}x"
            )
    medians = [statistics.median(column) for column in zip(*ratios, strict=True)]
    print(f"median {medians[0]:.2f}x, by CPU seconds {medians[1]:.2f}x")


def _pids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted({row["pid"] for row in rows})


class Scorer(Predictor):
    """Says when each batch was done, and drops the results, which nobody here reads."""

    def __init__(self, path: str, arguments: dict[str, Any]) -> None:
        super().__init__(path, **arguments)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        begin, used = time.time(), time.process_time()
        if "path" in batch:
            batch = {"x": np.stack([signal(path) for path in batch["path"]])}
        count = len(super().__call__(batch)["y"])
        rows = {name: np.zeros(count) for name in ("begin", "end")}
        rows["begin"][0], rows["end"][0] = begin, time.time()
        cpu = np.tile([used, time.process_time()], (count, 1))
        return {**rows, "cpu": cpu, "pid": np.full(count, os.getpid())}


if __name__ == "__main__":
    main()
