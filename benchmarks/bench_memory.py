"""Memory of a fresh process that loads both DTLN models and runs them, or loads one model.

    taskset -c 1 python -m benchmarks.bench_memory --models DIR [--also FILE..] [--json FILE]

Ostinato loads from a cache that another process has filled. "resident" is what the process holds
at the end, "private" the part of it that no file backs (so that no other process can share it),
"peak" the most it ever held. The first row is Python with NumPy alone. Linux only.

The second table has the peaks of loads of one model, compiled without a cache and found in one: of
products with 302 MB of weights, in the model's file, in one of their own, turned round (`transB`)
and in Constant nodes, and of `--also`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks import dtln, fresh, harness

# Products with matrices of 1,024 x 3,072 floats, 12.6 MB each, and back.
PAIRS, WIDTH, INNER = 12, 1024, 3072


def main() -> None:
    """Measure and print."""
    parser = harness.parser("memory of a process with both DTLN models")
    dtln.add_argument(parser)
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="further models to load")
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    dtln.paths(arguments.models)
    wanted = [peer for peer in harness.start(arguments) if peer in ("ostinato", "onnxruntime")]
    with tempfile.TemporaryDirectory() as cache:
        if "ostinato" in wanted:
            fresh.run("memory", "ostinato", arguments.models, cache)
        figures = {
            kind: fresh.run("memory", kind, arguments.models, cache)
            for kind in (fresh.BASELINE, *wanted)
        }
    extra = "private over Python with NumPy"
    table = harness.table("Memory, MB", "process", [*fresh.MEMORY, extra])
    for kind, sizes in figures.items():
        columns = [*sizes.values(), sizes["private"] - figures[fresh.BASELINE]["private"]]
        table.add_row(kind, *(f"{size / 1e6:.1f}" for size in columns))
    harness.console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        peaks = _peaks([*_large(Path(folder)), *arguments.also], wanted)
    harness.save(arguments.json, {"bytes": figures, "peaks": peaks})


def _peaks(paths: Sequence[Path], wanted: Sequence[str]) -> dict[str, list[int]]:
    """Peaks of loads in bytes by model, as the table printed has them."""
    ways = {"ostinato": ["compiled", "cached"], "onnxruntime": ["onnxruntime"]}
    kinds = [kind for peer in wanted for kind in ways[peer]]
    table = harness.table("Peak of a load, MB", "model", kinds)
    peaks = {}
    for path in paths:
        with tempfile.TemporaryDirectory() as cache:
            if "cached" in kinds:
                fresh.run("loaded", "ostinato", path, cache)
            caches = {kind: cache if kind == "cached" else "" for kind in kinds}
            peaks[path.name] = [
                fresh.run("loaded", kind, path, caches[kind])["peak"] for kind in kinds
            ]
        table.add_row(path.name, *(f"{peak / 1e6:.0f}" for peak in peaks[path.name]))
    harness.console.print(table)
    return peaks


def _large(folder: Path) -> list[Path]:
    """A model of large weights: in its file, beside it, turned round, and in Constant nodes."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(PAIRS):
        for name, shape in ((f"up{i}", (WIDTH, INNER)), (f"down{i}", (INNER, WIDTH))):
            array = rng.standard_normal(shape, np.float32) / 50
            weights.append(numpy_helper.from_array(array, name))
        nodes.append(helper.make_node("MatMul", [x, f"up{i}"], [f"u{i}"]))
        nodes.append(helper.make_node("Relu", [f"u{i}"], [f"r{i}"]))
        nodes.append(helper.make_node("MatMul", [f"r{i}", f"down{i}"], [f"x{i}"]))
        x = f"x{i}"
    given, made = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8, WIDTH]) for name in ("x", x)
    )
    graph = helper.make_graph(nodes, "products", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    names = ("300 MB", "300 MB beside it", "300 MB turned", "300 MB in nodes")
    paths = [folder / f"{name}.onnx" for name in names]
    onnx.save(model, paths[0])
    for node in graph.node:
        if node.op_type == "MatMul":
            node.op_type = "Gemm"
            node.attribute.append(helper.make_attribute("transB", 1))
    turned = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    for tensor in turned.graph.initializer:
        tensor.dims[:] = tensor.dims[::-1]
    onnx.save(turned, paths[2])
    constants = [helper.make_node("Constant", [], [w.name], value=w) for w in weights]
    del model.graph.initializer[:]
    for node in reversed(constants):
        model.graph.node.insert(0, node)
    onnx.save(model, paths[3])
    model = onnx.load(paths[0])
    onnx.save(model, paths[1], save_as_external_data=True, location="weights")
    return paths


if __name__ == "__main__":
    main()
