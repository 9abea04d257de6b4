"""Whole networks beside other runtimes, and what share of this core's FMA peak they reach.

    taskset -c 1 python -m benchmarks.bench_networks FILE [FILE ...] [--any-size] [--peers A,B]

Files of fixed sizes, such as those of `tools.torch_networks`. With `--any-size` they are networks
for images of any height and width, which get some of those in the file. One thread, its CPU time,
buffers bound once. The bound counts the multiply-adds of convolutions, products and recurrent
nodes, two operations each, and the weights, which are read once: what takes longer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from time import thread_time

import onnx

import ostinato
from benchmarks import harness, models

# Passes that would put operators that are counted into loops, or make others of them.
_LEFT_OUT = ("recurrent_to_scan", "reroll", "stack_operands", "expand_functions")


def _shapes(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shape of every value whose sizes are all known."""
    graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            found[value.name] = tuple(dim.dim_value for dim in dims)
    return found


def _products(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The multiply-adds of a node; 0 where it has none, or where its sizes are unknown."""
    given = [shapes.get(name) for name in node.input]
    result = shapes.get(node.output[0])
    if len(given) < 2 or given[0] is None or given[1] is None:
        return 0
    x, w = given[0], given[1]
    if node.op_type == "ConvTranspose":
        return prod(x) * prod(w[1:])
    if node.op_type in ("RNN", "GRU", "LSTM"):
        recurrent = given[2] or ()
        return x[0] * x[1] * (prod(w) + prod(recurrent))
    if result is None:
        return 0
    if node.op_type == "Conv":
        return prod(result) * prod(w[1:])
    if node.op_type == "MatMul":
        return prod(result) * x[-1]
    if node.op_type == "Gemm":
        across = any(a.name == "transA" and a.i for a in node.attribute)
        return prod(result) * x[0 if across else 1]
    return 0


def work(proto: onnx.ModelProto) -> models.Work:
    """What a network of fixed sizes has to do.

    Exporters compute sizes by nodes of their own, behind which inference knows none: so they are
    folded first.
    """
    folded = ostinato.optimize(proto, disable=_LEFT_OUT)
    shapes = _shapes(folded)
    flops = 2.0 * sum(_products(node, shapes) for node in folded.graph.node)
    weights = 4.0 * sum(prod(tensor.dims) for tensor in proto.graph.initializer)
    return models.Work(flops, projection=weights)


def of_any_size(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The network with names for height and width: inputs of four axes tell them when it runs."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    del result.graph.value_info[:]
    for image in (v for v in result.graph.input if len(v.type.tensor_type.shape.dim) == 4):
        for axis, dim in enumerate(image.type.tensor_type.shape.dim[2:]):
            dim.dim_param = f"{image.name}.{'height width'.split()[axis]}"
    for output in result.graph.output:
        for axis, dim in enumerate(output.type.tensor_type.shape.dim):
            dim.dim_param = f"{output.name}.{axis}"
    return result


def main() -> None:
    """Measure and print."""
    parser = harness.parser("networks, side by side", seconds=2.0)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--any-size", action="store_true", help="leave height and width of images open"
    )
    harness.add_limits(parser)
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    wanted = harness.start(arguments)
    limits = harness.limits(arguments.limits)
    files = {path.stem: path for path in arguments.files}

    def one(name: str) -> harness.Figures:
        proto = onnx.load(str(files[name]))
        bound = work(proto).bound(limits) or None
        feeds = models.feeds(proto)
        with tempfile.TemporaryDirectory() as folder:
            path = files[name]
            if arguments.any_size:
                path = Path(folder) / path.name
                onnx.save(of_any_size(proto), str(path))
            return harness.measure(name, path, feeds, wanted, arguments.seconds, bound, thread_time)

    rows = harness.each("Networks", list(files), one)
    title = "Networks (bound: FMA peak, or reading the weights)"
    harness.console.print(harness.peer_table(title, rows, wanted))
    harness.notes(rows)
    harness.save(arguments.json, {"rows": harness.rows_as_json(rows)})


if __name__ == "__main__":
    main()
