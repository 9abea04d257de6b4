"""Streams whose states grow: a step beside a long cache, pools of different lengths, memory.

    taskset -c 1 python -m benchmarks.bench_growing [--seconds S] [--json FILE]
    taskset -c 1 python -m benchmarks.bench_growing --soak 100000

The decoder has 6 layers of width 256. A step reads weights of 20 MB and caches of 1,024 rows, of
13 MB; onnxruntime has both bound (IOBinding), and writes new caches in each step. That no byte of a
cache is copied shows in equal times with a capacity that is reserved and without one. Pools are
compared with their streams one by one. Gradients of a loop that attends to its own past are run as
the model that `ostinato.autodiff.gradient` makes, by both.

`--soak STEPS` steps the decoder of GPT-2's form in tests/models, drops rows again and again, and
ends with an error where the memory of the process grows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx

import ostinato
from benchmarks import decoders, harness
from benchmarks.decoders import Arrays, Decoder
from benchmarks.soak import resident_bytes
from ostinato.autodiff import gradient
from ostinato.cli.timing import Timing, interleave

Call = Callable[[], Any]
ROWS = 1024
STEPS = 500
POOLS = ((8, 1024), (32, 128))
# What a process may take more of while it steps a stream.
SPARE_BYTES = 4 << 20


def caches(decoder: Decoder, rows: int, seed: int = 0) -> Arrays:
    """Caches with so many rows."""
    random = np.random.default_rng(seed)
    shapes = {
        name: (1, array.shape[1], rows, array.shape[3]) for name, array in decoder.empty().items()
    }
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def step_calls(decoder: Decoder, wanted: list[str]) -> dict[str, Call]:
    """Ways to make a step beside a cache; each drops the row that it has added."""
    session = ostinato.InferenceSession(decoder.path, fallback=False)
    feeds = {"token": np.ones((1, 1), np.int64)}

    def call(rows: int, capacity: int | None) -> Call:
        stream = session.stream(decoder.states, caches(decoder, rows), capacity=capacity)

        def step() -> Any:
            outputs = stream.step(feeds)
            stream.rewind(1)
            return outputs

        return step

    calls = {
        "capacity reserved": call(ROWS, 2 * ROWS),
        "room that doubles": call(ROWS, None),
        "64 rows": call(64, 2 * ROWS),
    }
    if "onnxruntime" in wanted:
        calls["onnxruntime"] = their_step(decoder, feeds)
    return calls


def their_step(decoder: Decoder, feeds: Arrays) -> Call:
    """onnxruntime with everything bound once."""
    import onnxruntime

    from ostinato.cli.witness import onnxruntime_session

    session = onnxruntime_session(decoder.path)
    binding = session.io_binding()
    for name, array in (feeds | caches(decoder, ROWS)).items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return lambda: session._sess.run_with_iobinding(binding._iobinding, None)


def pool_calls(decoder: Decoder, streams: int, rows: int) -> dict[str, Call]:
    """A step of all streams, of different lengths, as one call and one by one."""
    session = ostinato.InferenceSession(decoder.path, fallback=False)
    pool = session.pool(decoder.states, streams, rows=2 * rows)
    given = [caches(decoder, rows // 2 + i * rows // (2 * streams), i) for i in range(streams)]
    handles = [pool.open(state) for state in given]
    singles = [session.stream(decoder.states, state, capacity=2 * rows) for state in given]
    frames = [{"token": np.array([[i]])} for i in range(streams)]

    def together() -> Any:
        for handle, frame in zip(handles, frames, strict=True):
            pool.push(handle, frame)
        results = pool.step()
        for handle in handles:
            pool.rewind(handle, 1)
        return [results[handle][0] for handle in handles]

    def apart() -> Any:
        results = [s.step(frame)[0] for s, frame in zip(singles, frames, strict=True)]
        for stream in singles:
            stream.rewind(1)
        return results

    for one, other in zip(together(), apart(), strict=True):
        if not np.array_equal(one, other):
            raise SystemExit("a stream of a pool has other bits than alone")
    return {"pool": together, "one by one": apart}


ATTENTION = """
    <ir_version: 9, opset_import: ["": 18]>
    g (float[T, 64] x, float[64, 192] w, float[64, 64] wo, int64 count) => (float loss)
      <float[0, 64] none = {}, bool yes = {1}, float scale = {0.125}, int64[1] zero = {0}> {
      keys, values, rows = Loop(count, yes, none, none) <
          body = step (int64 i, bool going, float[P, 64] k_past, float[P, 64] v_past)
          => (bool proceed, float[Q, 64] k_all, float[Q, 64] v_all, float[1, 64] y) {
          at = Unsqueeze(i, zero)  row = Gather(x, at)  qkv = MatMul(row, w)
          q, k, v = Split<axis = 1, num_outputs = 3>(qkv)
          k_all = Concat<axis = 0>(k_past, k)  v_all = Concat<axis = 0>(v_past, v)
          t = Transpose<perm = [1, 0]>(k_all)  raw = MatMul(q, t)  scores = Mul(raw, scale)
          p = Softmax<axis = -1>(scores)  a = MatMul(p, v_all)  o = MatMul(a, wo)
          y = Add(o, row)  proceed = Identity(going)
      }>
      square = Mul(rows, rows)  loss = ReduceMean<keepdims = 0>(square)
    }"""


def gradient_calls(folder: Path, steps: int, wanted: list[str]) -> dict[str, Call]:
    """The loss and the gradients of the weights of a loop of so many steps."""
    made = gradient(onnx.parser.parse_model(ATTENTION), "loss", ["w", "wo"])
    random = np.random.default_rng(0)
    feeds: dict[str, Any] = {
        "x": random.standard_normal((steps, 64), np.float32),
        "w": random.standard_normal((64, 192), np.float32) / 10,
        "wo": random.standard_normal((64, 64), np.float32) / 10,
        "count": np.array(steps),
    }
    path = folder / "gradient.onnx"
    onnx.save(made, path)
    session = ostinato.InferenceSession(path, fallback=False)
    calls: dict[str, Call] = {"ostinato": lambda: session.run(None, feeds)}
    if "onnxruntime" in wanted:
        from ostinato.cli.witness import onnxruntime_session

        theirs = onnxruntime_session(path)
        calls["onnxruntime"] = lambda: theirs.run(None, feeds)
    return calls


def soak(steps: int) -> None:
    """Step a stream whose rows are dropped again and again, and watch the memory."""
    decoder = decoders.small()["GPT-2"]
    stream = ostinato.InferenceSession(decoder.path).stream(decoder.states, decoder.empty())
    token = np.ones((1, 1), np.int64)
    feeds = [{"token": token, **decoder.given(number)} for number in range(60)]
    before, began, rows = 0, perf_counter(), 0
    for number in range(steps):
        stream.step(feeds[rows])
        rows += 1
        if rows == len(feeds):
            dropped = 1 + number % rows
            stream.rewind(dropped)
            rows -= dropped
        if number == steps // 10:
            before = resident_bytes()
    seconds, grown = perf_counter() - began, resident_bytes() - before
    print(f"{steps:,} steps, {seconds / steps * 1e6:.1f} us each; memory grew by {grown:,} bytes")
    if grown > SPARE_BYTES:
        raise SystemExit("memory grows")


def print_row(title: str, unit: str, timings: Mapping[str, Timing], per: int = 1) -> None:
    """The microseconds of each way, and how many times as long as the first one it takes."""
    table = harness.table(title, "", [unit, "times the first"])
    first = next(iter(timings.values())).median
    for name, timing in timings.items():
        table.add_row(name, f"{timing.median / per * 1e6:,.0f}", f"{timing.median / first:.2f}x")
    harness.console.print(table)


def main() -> None:
    """Measure and print."""
    parser = harness.parser("streams whose states grow", seconds=2.0)
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    parser.add_argument("--soak", type=int, metavar="STEPS", help="steps of one stream")
    arguments = parser.parse_args()
    wanted = harness.start(arguments)
    if arguments.soak:
        soak(arguments.soak)
        return
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        single, named = decoders.large(where), decoders.large(where, rows="N")
        timings = interleave(step_calls(single, wanted), arguments.seconds)
        print_row(f"One step beside {ROWS:,} rows", "us", timings)
        figures["step"] = {name: asdict(timing) for name, timing in timings.items()}
        for streams, rows in POOLS:
            timings = interleave(pool_calls(named, streams, rows), arguments.seconds)
            title = f"{streams} streams of {rows // 2} to {rows} rows"
            print_row(title, "us for each stream", timings, streams)
            figures[title] = {name: asdict(timing) for name, timing in timings.items()}
        timings = interleave(gradient_calls(where, STEPS, wanted), arguments.seconds)
        title = f"Gradients of attention over {STEPS} steps"
        print_row(title, "us", timings)
        figures[title] = {name: asdict(timing) for name, timing in timings.items()}
    harness.save(arguments.json, figures)


if __name__ == "__main__":
    main()
