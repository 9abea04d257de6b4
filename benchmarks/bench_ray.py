"""A corpus through two actors of Ray Data, and through one process.

    python -m benchmarks.bench_ray

Both run the same `Predictor` on the same batches, one thread each; the time is that of the corpus,
without what starts Ray and compiles. Needs `ostinato[ray]`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import ray

from benchmarks import models
from benchmarks.bench_stream import batched
from ostinato.ray import Predictor

HIDDEN, FRAMES, BATCH = 256, 200, 16


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


def main() -> None:
    """Print the times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    rows = list(corpus(given.rows))
    with tempfile.TemporaryDirectory() as folder:
        path = network(Path(folder))
        arguments = {"states": {"h0": "hn"}, "outputs": ["y"]}
        single = Predictor(path, **arguments)
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
        data = ray.data.from_items(rows).repartition(given.rows // (4 * BATCH)).materialize()
        two = ray.data.ActorPoolStrategy(size=2)
        ratios = []
        for _ in range(given.turns):
            start = time.perf_counter()
            for at in range(0, len(rows), BATCH):
                part = rows[at : at + BATCH]
                single({"x": np.stack([row["x"] for row in part])})
            alone = time.perf_counter() - start
            scored = data.map_batches(
                Timed, fn_constructor_args=(str(path), arguments), batch_size=BATCH, compute=two
            )
            times = [row["at"] for row in scored.iter_rows()]
            together = max(times) - min(times)
            ratios.append(alone / together)
            print(f"one process {alone:.2f} s, two actors {together:.2f} s: {ratios[-1]:.2f}x")
    print(f"median {statistics.median(ratios):.2f}x")


class Timed(Predictor):
    """Says when each batch was done, and drops the results, which nobody here reads."""

    def __init__(self, path: str, arguments: dict[str, Any]) -> None:
        super().__init__(path, **arguments)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        begin = time.time()
        count = len(super().__call__(batch)["y"])
        at = np.full(count, time.time())
        at[0] = begin
        return {"at": at}


if __name__ == "__main__":
    main()
