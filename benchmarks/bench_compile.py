"""How long it takes until a model can run: compiled afresh, and loaded from the cache.

    taskset -c 1 python -m benchmarks.bench_compile --models DIR [--json FILE]

Every figure of the first table is the median over fresh processes. Imports are timed apart: what a
session imports on first use is imported before its construction is timed, so that both add up to
the whole. The second table shows how the time grows with the graph: stacks of dense layers, all
alike or each of another width, in one process.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks import dtln, fresh, harness

SILERO = "silero_vad.onnx"
NODES = (250, 500, 1000, 2000)
WIDTH = 32


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
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    models = list(dtln.paths(arguments.models))
    models += [p for p in [arguments.models / SILERO] if p.exists()]
    wanted = harness.start(arguments)
    owners = {kind: kind if kind == "onnxruntime" else "ostinato" for kind in fresh.IMPORTS}
    kinds = [kind for kind, owner in owners.items() if owner in wanted]
    cases = {f"{model.name}, {kind}": (kind, model) for model in models for kind in kinds}
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
    growth = _growth()
    harness.save(arguments.json, {"seconds": rows, "growth": growth})


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
