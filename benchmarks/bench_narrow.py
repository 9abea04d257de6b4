"""Weights in fewer bytes: models as they are, and as `ostinato.quantize` stores them.

    taskset -c 1 python -m benchmarks.bench_narrow [WORDS]

WORDS choose the models whose name contains one of them. Times are CPU seconds of calls that take
turns; a ratio is how many times faster than the model in f32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import onnx

import ostinato
from benchmarks import harness, models, peers

STORAGES: Mapping[str, dict[str, Any]] = {
    "bf16": {"weights": "bf16"},
    "f16": {"weights": "f16"},
    "int8": {"weights": "int8"},
    "int4": {"weights": "int4"},
    "int8-dynamic": {"weights": "int8", "activations": "int8-dynamic"},
    "int4 by int8": {"weights": "int4", "activations": "int8-dynamic"},
}
ROUNDS, ROUND_SECONDS = 15, 0.01


def cases() -> dict[str, Callable[[], models.Model]]:
    """The models by name."""
    found: dict[str, Callable[[], models.Model]] = {}
    for steps in (1, 100):
        for hidden in (256, 512, 1024):
            for kind in ("GRU", "LSTM"):
                name = f"{kind.lower()}_h{hidden}_t{steps}"
                found[name] = _later(models.recurrent_op, name, kind, hidden, steps)
            name = f"scan_h{hidden}_t{steps}"
            found[name] = _later(models.coupled_gate_lstm, name, "scan", hidden, steps)
    for rows in (1, 16, 64, 512):
        name = f"matmul_{rows}x512x512"
        found[name] = _later(models.matmul, name, rows, 512, 512)
    found["conv2d_64to64_k3x3_32x32"] = _later(
        models.conv, "conv2d_64to64_k3x3_32x32", (64, 64), [32, 32], [3, 3]
    )
    return found


def _later(make: Callable[..., models.Model], *arguments: object) -> Callable[[], models.Model]:
    return lambda: make(*arguments)


def _ours(proto: onnx.ModelProto) -> Callable[[], object]:
    return ostinato.InferenceSession(proto, cache_dir=None).bind(models.feeds(proto))


def _theirs(proto: onnx.ModelProto) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    given = models.feeds(proto)
    return lambda: session.run(None, given)


def _seconds(call: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def measure(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median CPU seconds of each call; they take turns."""
    counts = {}
    for name, call in calls.items():
        call()
        counts[name] = max(1, int(ROUND_SECONDS / max(_seconds(call, 3), 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call()
            times[name].append(_seconds(call, counts[name]))
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    """Measure and print."""
    parser = harness.parser("weights in fewer bytes")
    parser.add_argument("words", nargs="*", help="models whose name contains one of these")
    arguments: argparse.Namespace = parser.parse_args()
    others = "onnxruntime" in harness.start(arguments) and peers.version("onnxruntime")
    titles = ["f32", *STORAGES, *(["ort f32", "ort int8-dynamic"] if others else [])]
    table = harness.table("us of a call, and times faster than f32", "model", titles)
    for name, make in cases().items():
        if arguments.words and not any(word in name for word in arguments.words):
            continue
        proto = make().proto
        stored = {"f32": proto}
        stored |= {kind: ostinato.quantize(proto, **options) for kind, options in STORAGES.items()}
        calls = {kind: _ours(model) for kind, model in stored.items()}
        if others:
            calls |= {f"ort {kind}": _theirs(stored[kind]) for kind in ("f32", "int8-dynamic")}
        found = measure(calls)
        ratios = {kind: found["f32"] / seconds for kind, seconds in found.items()}
        cells = [f"{found[k] * 1e6:.0f} {ratios[k]:.2f}x" if k in found else "" for k in titles]
        table.add_row(name, *cells)
    harness.console.print(table)


if __name__ == "__main__":
    main()
