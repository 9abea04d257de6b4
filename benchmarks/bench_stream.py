"""Streams frame by frame, and many of them as one batch, beside onnxruntime with states by hand.

    taskset -c 1 python -m benchmarks.bench_stream [--models DIR] [--peers A,B] [--json FILE]
    taskset -c 1 python -m benchmarks.bench_stream --soak 10000000

onnxruntime's loop is the fastest that it documents: inputs, outputs and both buffers of every state
are bound once, in two bindings that take turns. DTLN is a frame through both of its models. DTLN
and silero need their files (`benchmarks/dtln.py` says which); without them only the GRUs are
measured.

`--soak STEPS` steps 200 streams of one pool that open, stall and close at random, compares a sample
of the results with single streams, bit for bit, and watches the memory of the process.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
import onnx

import ostinato
from benchmarks import bench_silero, dtln, harness, models, soak
from ostinato.cli.timing import Timing, interleave
from ostinato.streaming import find_states

STREAMS = 64
Call = Callable[[], object]


@dataclass(frozen=True)
class Part:
    """A model in a file, a frame, and the pairs of its states."""

    path: Path
    frame: dict[str, np.ndarray]
    pairs: dict[str, str]
    state: dict[str, np.ndarray]


def part(path: Path, feeds: Mapping[str, np.ndarray]) -> Part:
    """The model with the states that it seems to have."""
    pairs = {found.input: found.output for found in find_states(path)}
    frame = {name: value for name, value in feeds.items() if name not in pairs}
    return Part(path, frame, pairs, {name: feeds[name] for name in pairs})


def batched(proto: onnx.ModelProto, axes: Mapping[str, int]) -> onnx.ModelProto:
    """The model with a run-time batch N along these axes of inputs and outputs, elsewhere 0."""
    batch = onnx.ModelProto()
    batch.CopyFrom(proto)
    graph = batch.graph
    given = {tensor.name: tensor for tensor in graph.initializer}
    for value in [*graph.input, *graph.output]:
        if value.name not in given:
            value.type.tensor_type.shape.dim[axes.get(value.name, 0)].dim_param = "N"
    del graph.value_info[:]
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[1] in given:
            shape = onnx.numpy_helper.to_array(given[node.input[1]]).copy()
            if shape[0] == 1 and -1 not in shape:
                shape[0] = -1
                tensor = onnx.numpy_helper.from_array(shape, node.input[1])
                given[node.input[1]].CopyFrom(tensor)
    return batch


def onnxruntime_loop(part: Part) -> Call:
    """One step with the states carried by hand, on memory bound beforehand."""
    import onnxruntime

    from ostinato.cli.witness import onnxruntime_session

    session = onnxruntime_session(part.path)
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    inputs = {name: value(array) for name, array in part.frame.items()}
    names = [output.name for output in session.get_outputs()]
    made = dict(zip(names, session.run(None, part.frame | part.state), strict=True))
    outputs = {name: value(made[name]) for name in names if name not in part.pairs.values()}
    buffers = {name: (value(state), value(state.copy())) for name, state in part.state.items()}
    bound = []
    for turn in (0, 1):
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, array)
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, array)
        for read, written in part.pairs.items():
            binding.bind_ortvalue_input(read, buffers[read][turn])
            binding.bind_ortvalue_output(written, buffers[read][1 - turn])
        bound.append(binding)
    run, (first, second) = session._sess.run_with_iobinding, [each._iobinding for each in bound]
    is_first = False

    def step() -> None:
        nonlocal is_first
        is_first = not is_first
        run(first if is_first else second, None)

    step()
    step.keep = (bound, inputs, outputs, buffers)  # type: ignore[attr-defined]
    return step


def stream_calls(parts: list[Part], wanted: list[str]) -> dict[str, Call]:
    """The ways to step one stream through all parts."""
    kernels: list[Call] = []
    bound: list[Call] = []
    steps: list[Call] = []
    loops: list[Call] = []
    for each in parts:
        session = ostinato.InferenceSession(each.path)
        kernels.append(session.bind(each.frame | each.state))
        stream = session.stream(each.pairs, each.state)
        bound.append(stream.bind(each.frame))
        steps.append(partial(stream.step, each.frame))
        if "onnxruntime" in wanted:
            loops.append(onnxruntime_loop(each))
    calls = {"bound call": kernels, "bound step": bound, "step": steps, "onnxruntime": loops}
    return {name: _in_turn(each) for name, each in calls.items() if each}


def _in_turn(calls: list[Call]) -> Call:
    if len(calls) == 1:
        return calls[0]
    first, second = calls

    def both() -> None:
        first()
        second()

    return both


def pool_calls(parts: list[Part], wanted: list[str]) -> dict[str, Call]:
    """One frame for each of the streams: one by one, as a pool, and onnxruntime with a batch."""
    singles: list[Call] = []
    pools: list[Call] = []
    loops: list[Call] = []
    for each in parts:
        session = ostinato.InferenceSession(each.path)
        streams = [session.stream(each.pairs, each.state) for _ in range(STREAMS)]
        singles.append(partial(_step_all, streams, each.frame))
        pool = session.pool(each.pairs, STREAMS, initial=each.state)
        handles = [pool.open() for _ in range(STREAMS)]
        pools.append(partial(_step_pool, pool, handles, each.frame))
        if "onnxruntime" in wanted:
            axes = _batch_axes(session)
            frame = {n: np.repeat(v, STREAMS, axes[n]) for n, v in each.frame.items()}
            state = {n: np.repeat(v, STREAMS, axes[n]) for n, v in each.state.items()}
            loops.append(onnxruntime_loop(Part(each.path, frame, each.pairs, state)))
    calls = {"one by one": singles, "pool": pools, "onnxruntime": loops}
    return {name: _in_turn(each) for name, each in calls.items() if each}


def _step_all(streams: list[ostinato.Stream], frame: dict[str, np.ndarray]) -> None:
    for stream in streams:
        stream.step(frame)


def _step_pool(pool: ostinato.Pool, handles: list[int], frame: dict[str, np.ndarray]) -> None:
    for handle in handles:
        pool.push(handle, frame)
    pool.step()


def _batch_axes(session: ostinato.InferenceSession) -> dict[str, int]:
    inputs = {node.name: node.shape or [] for node in session.get_inputs()}
    return {name: shape.index("N") for name, shape in inputs.items()}


def latencies(calls: Mapping[str, Call], seconds: float) -> dict[str, list[float]]:
    """p50, p99 and p99.9 in microseconds of single calls, clock included (about 0.05 us)."""
    samples: dict[str, list[int]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    end = perf_counter() + seconds * len(calls)
    while perf_counter() < end:
        for name, call in calls.items():
            keep, stop = samples[name].append, perf_counter() + 0.02
            call()
            # At least one: a busy machine can let the whole slice pass before the first.
            while not samples[name] or perf_counter() < stop:
                start = perf_counter_ns()
                call()
                keep(perf_counter_ns() - start)
    gc.enable()
    return {
        name: [float(p) / 1e3 for p in np.percentile(each, (50, 99, 99.9))]
        for name, each in samples.items()
    }


def gru(folder: Path, hidden: int, batch: bool = False) -> Part:
    """One step of a GRU with this many units."""
    model = models.recurrent_op(f"gru{hidden}{'n' * batch}", "GRU", hidden, 1)
    proto = batched(model.proto, {"x": 1, "h0": 1, "y": 2, "hn": 1}) if batch else model.proto
    path = folder / f"{proto.graph.name}.onnx"
    onnx.save(proto, str(path))
    return part(path, models.feeds(model.proto))


def dtln_parts(folder: Path, given: Path, batch: bool = False) -> list[Part]:
    """Both models of DTLN."""
    parts = []
    for path, feeds in zip(dtln.paths(given), dtln.feeds(), strict=True):
        if batch:
            proto = batched(onnx.load(str(path)), {})
            path = folder / f"{path.stem}_batch.onnx"
            onnx.save(proto, str(path))
        parts.append(part(path, feeds))
    return parts


def cases(given: Path | None, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parts by name: of one stream, and of pools."""
    single: dict[str, Any] = {"GRU, hidden 64": [gru(folder, 64)]}
    pools: dict[str, Any] = {"GRU, hidden 256": [gru(folder, 256, batch=True)]}
    if given is not None:
        single["DTLN"] = dtln_parts(folder, given)
        pools["DTLN"] = dtln_parts(folder, given, batch=True)
        silero = given / "silero_vad_16k_op15.onnx"
        if silero.exists():
            single["silero-vad"] = [part(silero, _first_of_batch(silero))]
    return single, pools


def _first_of_batch(path: Path) -> dict[str, np.ndarray]:
    feeds = bench_silero.feeds(path)
    return feeds | {"state": feeds["state"][:, :1]}


def main() -> None:
    """Measure and print."""
    parser = harness.parser("streams, and many of them as one batch", seconds=1.0)
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    parser.add_argument("--models", type=Path, help="folder of the files of DTLN and silero")
    parser.add_argument("--soak", type=int, metavar="STEPS", help="steps of streams of a pool")
    arguments = parser.parse_args()
    wanted = harness.start(arguments)
    if arguments.soak:
        soak.run(arguments.soak)
        return
    with tempfile.TemporaryDirectory() as folder:
        _measure(arguments, wanted, Path(folder))


def _measure(arguments: argparse.Namespace, wanted: list[str], folder: Path) -> None:
    single, pools = cases(arguments.models, folder)
    figures: dict[str, Any] = {"streams": {}, "pools": {}}
    for kind, work, rows in (
        ("streams", stream_calls, single),
        ("pools", pool_calls, pools),
    ):
        for name in rows:
            with harness.Console(stderr=True).status(f"Measuring {name}"):
                calls = work(rows[name], wanted)
                medians = interleave(calls, arguments.seconds)
                spread = latencies(calls, arguments.seconds)
            figures[kind][name] = {
                call: asdict(medians[call]) | {"percentiles_us": spread[call]} for call in calls
            }
            _print(name, kind, medians, spread)
    harness.save(arguments.json, figures)


def _print(
    name: str, kind: str, medians: Mapping[str, Timing], spread: Mapping[str, list[float]]
) -> None:
    base = "bound step" if kind == "streams" else "pool"
    title = f"{name}, one frame" if kind == "streams" else f"{name}, {STREAMS} frames"
    table = harness.table(title, "us", ["median", f"/ {base}", "p50", "p99", "p99.9"])
    for call, timing in medians.items():
        ratio = timing.median / medians[base].median
        table.add_row(
            call,
            f"{timing.median * 1e6:.2f}",
            f"{ratio:.2f}x",
            *(f"{each:.2f}" for each in spread[call]),
        )
    harness.console.print(table)


if __name__ == "__main__":
    main()
