"""How long it takes until a model can run: compiled afresh, and loaded from the cache.

    taskset -c 1 python -m benchmarks.bench_compile --models DIR [--json FILE]

Every figure of the first table is the median over fresh processes. Imports are timed apart: what a
session imports on first use is imported before its construction is timed, so that both add up to
the whole. The second table has the CPU seconds of whole processes: with an empty cache, with one
that has the model but for one weight, with one that has it but for all of them, with one that has
it but for a Tanh behind its first output, and with one that has the model. The third one shows how
the time grows with the graph: stacks of dense layers, all alike or each of another width, in one
process.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks import dtln, fresh, harness, models

SILERO = "silero_vad.onnx"
NODES = (250, 500, 1000, 2000)
WIDTH = 32
LAYERS = 2000


def _median(kind: str, model: Path, rounds: int) -> tuple[float, float]:
    """Cold: an empty cache folder every time. Cached: the second process on a folder."""
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        if kind == "cached":
            fresh.run("start", "cold", model, folder)
        for i in range(rounds):
            cache = folder if kind == "cached" else Path(folder) / str(i)
            samples.append(fresh.run("start", kind, model, cache))
    imports, sessions = zip(*samples, strict=True)
    return statistics.median(imports), statistics.median(sessions)


def main() -> None:
    """Measure and print."""
    parser = harness.parser("time until a model can run")
    dtln.add_argument(parser)
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes for each figure")
    parser.add_argument(
        "--also", type=Path, nargs="*", default=[], help="further models for the CPU seconds"
    )
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    paths = list(dtln.paths(arguments.models))
    paths += [p for p in [arguments.models / SILERO] if p.exists()]
    wanted = harness.start(arguments)
    owners = {kind: kind if kind == "onnxruntime" else "ostinato" for kind in fresh.IMPORTS}
    kinds = [kind for kind, owner in owners.items() if owner in wanted]
    cases = {f"{model.name}, {kind}": (kind, model) for model in paths for kind in kinds}
    figures = harness.each(
        "Starting", list(cases), lambda name: _median(*cases[name], arguments.rounds)
    )
    table = harness.table("Until the model can run", "ms", ["imports", "session"])
    for name, (imports, session) in zip(cases, figures, strict=True):
        table.add_row(name, f"{imports * 1e3:.0f}", f"{session * 1e3:.1f}")
    harness.console.print(table)
    rows = [
        {"case": name, "imports": imports, "session": session}
        for name, (imports, session) in zip(cases, figures, strict=True)
    ]
    cpu = _cpu([*paths, *arguments.also], arguments.rounds)
    growth = _growth()
    harness.save(arguments.json, {"seconds": rows, "cpu": cpu, "growth": growth})


def _cpu(paths: Sequence[Path], rounds: int) -> list[dict[str, float | str]]:
    """CPU seconds of fresh processes; returns rows of the table printed."""
    kinds = ("empty cache", "one weight changed", "all changed", "one layer more", "cached")
    table = harness.table("CPU seconds of a process", "model", kinds)
    with tempfile.TemporaryDirectory() as folder:
        made = {
            "GRU 256": models.recurrent_op("gru", "GRU", 256, 100).proto,
            f"{LAYERS:,} layers of different widths": stack(3 * LAYERS, alike=False),
        }
        cases = {path.name: path for path in paths}
        for name, model in made.items():
            cases[name] = Path(folder) / f"{len(cases)}.onnx"
            onnx.save(model, cases[name])
        figures = harness.each(
            "Loading", list(cases), lambda name: _cpu_seconds(cases[name], rounds)
        )
    for name, seconds in zip(cases, figures, strict=True):
        table.add_row(name, *(f"{second:.2f}" for second in seconds))
    harness.console.print(table)
    return [
        {"model": name, **dict(zip(kinds, seconds, strict=True))}
        for name, seconds in zip(cases, figures, strict=True)
    ]


def _cpu_seconds(path: Path, rounds: int) -> list[float]:
    """Medians, in the order of the columns of `_cpu`."""
    samples = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            changed = []
            for change in (_edited, _trained, _longer):
                changed.append(Path(folder) / f"{change.__name__}.onnx")
                onnx.save(change(onnx.load(path)), changed[-1])
            cache = Path(folder) / "cache"
            cases = (path, *changed, path)
            samples.append([fresh.run("cpu", model, cache) for model in cases])
    return [statistics.median(column) for column in zip(*samples, strict=True)]


def _edited(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with another value for the first element of its largest weight of floats."""
    weights = (t for t in _tensors(model.graph) if t.data_type == onnx.TensorProto.FLOAT)
    tensor = max(weights, key=lambda t: t.ByteSize())
    values = numpy_helper.to_array(tensor).copy()
    values.flat[0] += 1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


def _trained(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with other values for all of its weights of 64 floats and more."""
    random = np.random.default_rng(0)
    for tensor in _tensors(model.graph):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor)
            if values.size >= 64:
                other = values * random.uniform(0.9, 1.1, values.shape).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    return model


def _longer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a Tanh behind its first output."""
    output = model.graph.output[0].name
    before = f"{output} before Tanh"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [before if name == output else name for name in names]
    model.graph.node.append(helper.make_node("Tanh", [before], [output]))
    return model


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and values of Constant nodes, those of branches and bodies as well."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def _growth() -> list[dict[str, float | str]]:
    """Compile stacks of growing height; returns rows of the table printed."""
    table = harness.table("Growth with the graph", "graph", ["s", "ms a node", "LLVM, s"])
    graphs = {
        f"{count} nodes, layers {'alike' if alike else 'of different widths'}": (count, alike)
        for alike in (True, False)
        for count in NODES
    }
    times = harness.each("Compiling", list(graphs), lambda name: _compile(*graphs[name]))
    for (name, (count, _)), (whole, llvm) in zip(graphs.items(), times, strict=True):
        table.add_row(name, f"{whole:.2f}", f"{whole / count * 1e3:.2f}", f"{llvm:.2f}")
    harness.console.print(table)
    return [
        {"graph": name, "seconds": whole, "llvm_seconds": llvm}
        for name, (whole, llvm) in zip(graphs, times, strict=True)
    ]


def _compile(count: int, alike: bool) -> tuple[float, float]:
    """(seconds of making a session without the cache, seconds of it in LLVM)."""
    import ostinato
    from ostinato import compiler

    model, spent = stack(count, alike), [0.0]
    emit = compiler.emit_object

    def timed(*arguments: object) -> bytes:
        begun = perf_counter()
        result = emit(*arguments)
        spent[0] += perf_counter() - begun
        return result

    compiler.emit_object = timed
    try:
        begun = perf_counter()
        ostinato.InferenceSession(model, cache_dir=None)
        return perf_counter() - begun, spent[0]
    finally:
        compiler.emit_object = emit


def stack(count: int, alike: bool) -> onnx.ModelProto:
    """Dense layers of three nodes each, `count` nodes in all; widths alike, or all different."""
    random = np.random.default_rng(0)
    layers = count // 3
    widths = [WIDTH] * (layers + 1)
    if not alike:
        # Cycles of lengths without a common divisor: no two layers have the same pair of widths.
        widths = [WIDTH + i % (41 if i % 2 else 43) for i in range(layers + 1)]
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    for i in range(layers):
        shapes: dict[str, Sequence[int]] = {f"w{i}": widths[i : i + 2], f"b{i}": [widths[i + 1]]}
        for name, shape in shapes.items():
            values = random.standard_normal(shape) / np.sqrt(widths[i])
            constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        nodes += [
            helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]),
            helper.make_node("Tanh", [f"a{i}"], [f"x{i + 1}"]),
        ]
    x = helper.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, ["N", widths[0]])
    y = helper.make_tensor_value_info(f"x{layers}", onnx.TensorProto.FLOAT, ["N", widths[-1]])
    graph = helper.make_graph(nodes, "stack", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


if __name__ == "__main__":
    main()
