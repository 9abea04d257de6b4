"""Recurrences whose batch is named, called with a batch of one, against those made for that batch.

taskset -c 1 python -m benchmarks.bench_batch
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import onnx

import ostinato
from benchmarks import harness, models

STEPS, ROUNDS = 100, 15


def named_batch(op: str, hidden: int) -> onnx.ModelProto:
    """The model of `models.recurrent_op` for any batch."""
    options = {"linear_before_reset": 1} if op == "GRU" else {}
    proto = models.recurrent_op("batch", op, hidden, STEPS, **options).proto
    for value in (*proto.graph.input, *proto.graph.output):
        # [steps, batch, hidden], [directions, batch, hidden], [steps, directions, batch, hidden]
        value.type.tensor_type.shape.dim[-2].dim_param = "N"
    return proto


def least_seconds(calls: Sequence[Callable[[], object]]) -> list[float]:
    """The least CPU time of each, in turns of 10 ms."""
    least = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for position, call in enumerate(calls):
            count, begin, spent = 0, time.process_time(), 0.0
            while spent < 0.01:
                call()
                count, spent = count + 1, time.process_time() - begin
            least[position] = min(least[position], spent / count)
    return least


def main() -> None:
    """Measure and print."""
    harness.start(harness.parser("a named batch of one, and one that is specialised").parse_args())
    table = harness.table("Batch 1", "model", ["named us", "specialised us", "ratio"])
    for op in models.GATES:
        for hidden in (16, 32, 64, 128, 256):
            proto = named_batch(op, hidden)
            feeds = models.feeds(models.recurrent_op("feeds", op, hidden, STEPS).proto)
            sessions = [
                ostinato.InferenceSession(proto, cache_dir=None, specialize=sizes)
                for sizes in ({}, {"N": 1})
            ]
            outputs = [session.run(None, feeds) for session in sessions]
            assert all(map(np.array_equal, *outputs))
            named, special = least_seconds([session.bind(feeds) for session in sessions])
            cells = (f"{named * 1e6:.1f}", f"{special * 1e6:.1f}", f"{named / special:.3f}")
            table.add_row(f"{op.lower()}_h{hidden}", *cells)
    harness.console.print(table)


if __name__ == "__main__":
    main()
