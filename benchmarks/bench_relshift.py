"""Half of the columns picked by a range, as in the relative shift of XLNet.

    taskset -c 1 python -m benchmarks.bench_relshift [--xlnet FILE ...] [--json FILE] [--seconds S]

[1, 12, 512, 1024] -> [..., :512], f32, one thread. "Range" is Gather by Range(0, 512), "range to e"
by Range(0, e) with an input e, "arange as data" by an input, of which nothing is known. "backward"
also gives the gradient of the input for a given one of the output. The columns:

    ostinato      as it is                        numpy         slices, results in place
    pass off      without gather_to_slice         index_select  of torch, by an arange it makes
    onnxruntime   all optimisations               narrow        of torch, and a copy where no
    ort + pass    the same, of the model that                   other operator reads it
                  `ostinato.optimize` gives

`--xlnet` takes attention layers that `tools.export_xlnet` exported. torch and onnxruntime are left
out where they are not installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import ostinato
from benchmarks import harness, peers
from ostinato.autodiff import gradient
from ostinato.cli.timing import Timing, interleave

SHAPE, KEPT = (1, 12, 512, 1024), 512
RESULT = (*SHAPE[:-1], KEPT)
RANGES = ("Range", "range to e", "arange as data")
CONSUMERS = ("", "exp", "add")
COLUMNS = ("ostinato", "pass off", "onnxruntime", "ort + pass", "numpy", "index_select", "narrow")

Calls = dict[str, tuple[Callable[[], object], Callable[[], list[np.ndarray]]]]
"""By column: what is timed, and the results of one call."""


def model(indices: str, consumer: str, is_trained: bool = False) -> onnx.ModelProto:
    """`y = consumer(x[..., indices])`; with `is_trained` also `loss = sum(y * y_grad)`."""
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, SHAPE)]
    outputs = [value("y", TensorProto.FLOAT, RESULT)]
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    nodes = [helper.make_node("Range", ["zero", "e", "one"], ["i"])]
    if indices == "Range":
        constants["e"] = np.array(KEPT, np.int64)
    elif indices == "range to e":
        inputs.append(value("e", TensorProto.INT64, []))
        outputs = [value("y", TensorProto.FLOAT, [*RESULT[:-1], "E"])]
    else:
        inputs.append(value("i", TensorProto.INT64, [KEPT]))
        nodes, constants = [], {}
    picked = "z" if consumer else "y"
    nodes.append(helper.make_node("Gather", ["x", "i"], [picked], axis=3))
    if consumer == "exp":
        nodes.append(helper.make_node("Exp", ["z"], ["y"]))
    elif consumer == "add":
        inputs.append(value("a", TensorProto.FLOAT, RESULT))
        nodes.append(helper.make_node("Add", ["z", "a"], ["y"]))
    if is_trained:
        inputs.append(value("y_grad", TensorProto.FLOAT, RESULT))
        outputs.append(value("loss", TensorProto.FLOAT, []))
        nodes.append(helper.make_node("Mul", ["y", "y_grad"], ["weighted"]))
        nodes.append(helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0))
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "relshift", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def trained(indices: str, consumer: str) -> onnx.ModelProto:
    """The model that gives y and the gradient of x, for a given gradient of y."""
    result = gradient(model(indices, consumer, is_trained=True), "loss", ["x"])
    (loss,) = [value for value in result.graph.output if value.name == "loss"]
    result.graph.output.remove(loss)
    return result


def feeds_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random inputs, and the range."""
    random = np.random.default_rng(0)
    known = {"e": np.array(KEPT, np.int64), "i": np.arange(KEPT)}
    names = {tensor.name for tensor in proto.graph.initializer}
    return {
        each.name: known[each.name]
        if each.name in known
        else random.standard_normal(
            [d.dim_value for d in each.type.tensor_type.shape.dim], np.float32
        )
        for each in proto.graph.input
        if each.name not in names
    }


def runtimes(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], folder: Path) -> Calls:
    """The model in this compiler, with and without the pass, and in onnxruntime."""
    calls: Calls = {}
    for column, disable in (("ostinato", ()), ("pass off", ("gather_to_slice",))):
        bound = ostinato.InferenceSession(proto, cache_dir=None, disable=disable).bind(feeds)
        calls[column] = bound, lambda bound=bound: (bound(), list(bound.outputs.values()))[1]
    if not peers.version("onnxruntime"):
        return calls
    for column, given in (("onnxruntime", proto), ("ort + pass", ostinato.optimize(proto))):
        path = folder / f"{column}.onnx"
        onnx.save(given, str(path))
        loaded = peers.load("onnxruntime", path, feeds)
        calls[column] = loaded.step, lambda loaded=loaded: loaded.run(feeds)
    return calls


def numpy_call(consumer: str, is_trained: bool, feeds: Mapping[str, np.ndarray]) -> Calls:
    """The same with slices, into arrays that are there."""
    x, y, x_grad = feeds["x"], np.empty(RESULT, np.float32), np.zeros(SHAPE, np.float32)

    def step() -> list[np.ndarray]:
        part = x[..., :KEPT]
        if consumer == "exp":
            np.exp(part, out=y)
        elif consumer == "add":
            np.add(part, feeds["a"], out=y)
        else:
            np.copyto(y, part)
        if not is_trained:
            return [y]
        x_grad[..., KEPT:] = 0
        if consumer == "exp":
            np.multiply(y, feeds["y_grad"], out=x_grad[..., :KEPT])
        else:
            x_grad[..., :KEPT] = feeds["y_grad"]
        return [y, x_grad]

    return {"numpy": (step, step)}


def torch_calls(consumer: str, is_trained: bool, feeds: Mapping[str, np.ndarray]) -> Calls:
    """The same in torch, with its own gradients; nothing where torch is not installed."""
    if not importlib.util.find_spec("torch"):
        return {}
    import torch

    torch.set_num_threads(1)
    tensors = {name: torch.from_numpy(array) for name, array in feeds.items()}
    x = tensors["x"].requires_grad_(is_trained)

    def index_select() -> Any:
        return torch.index_select(x, 3, torch.arange(KEPT))

    def narrow() -> Any:
        part = x.narrow(3, 0, KEPT)
        return part if consumer else part.contiguous()

    def call(pick: Callable[[], Any]) -> list[Any]:
        y = pick()
        if consumer == "exp":
            y = torch.exp(y)
        elif consumer == "add":
            y = y + tensors["a"]
        if not is_trained:
            return [y]
        x.grad = None
        y.backward(tensors["y_grad"])
        return [y.detach(), x.grad]

    return {
        pick.__name__: (
            lambda pick=pick: call(pick),
            lambda pick=pick: [tensor.numpy() for tensor in call(pick)],
        )
        for pick in (index_select, narrow)
    }


def xlnet_calls(file: Path, feeds: Mapping[str, np.ndarray], folder: Path) -> Calls:
    """An exported layer, and beside it the module in torch, which calls index_select."""
    calls = runtimes(onnx.load(str(file)), feeds, folder)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        module = torch.jit.load(str(file.with_suffix(".pt")))
        given = [torch.from_numpy(array) for array in feeds.values()]
        calls["index_select"] = (
            lambda: module(*given),
            lambda: [module(*given).numpy()],
        )
    return calls


def xlnet_feeds(file: Path) -> dict[str, np.ndarray]:
    """Random inputs for a sequence of KEPT tokens."""
    random = np.random.default_rng(0)
    h, positions = onnx.load(str(file)).graph.input
    width = h.type.tensor_type.shape.dim[2].dim_value
    return {
        value.name: random.standard_normal((factor * KEPT, 1, width), np.float32)
        for value, factor in ((h, 1), (positions, 2))
    }


def measure(calls: Calls, seconds: float) -> dict[str, Timing]:
    """Times of all columns, side by side. Raises ValueError where results differ."""
    results = {column: outputs() for column, (_, outputs) in calls.items()}
    expected = results["ostinato"]
    for column, outputs in results.items():
        if not harness.difference(outputs, expected) < harness.WRONG_ABOVE:
            raise ValueError(f"{column} gives something else")
    return interleave({column: step for column, (step, _) in calls.items()}, seconds)


def main() -> None:
    """Measure and print."""
    parser = harness.parser("columns picked by a range")
    parser.add_argument("--xlnet", type=Path, nargs="+", default=[], metavar="FILE")
    parser.set_defaults(peers=["ostinato", "onnxruntime"])
    arguments = parser.parse_args()
    harness.start(arguments)
    if importlib.util.find_spec("torch"):
        harness.console.print(f"torch {importlib.metadata.version('torch')}")
    cases = {
        ", ".join(filter(None, (indices, consumer, "backward" if is_trained else ""))): (
            indices,
            consumer,
            is_trained,
        )
        for is_trained in (False, True)
        for indices in RANGES
        for consumer in CONSUMERS
        if not is_trained or (consumer != "add" and indices != "range to e")
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def one(case: str) -> dict[str, Timing]:
            if case not in cases:
                return measure(xlnet_calls(Path(case), xlnet_feeds(Path(case)), folder), seconds)
            indices, consumer, is_trained = cases[case]
            proto = (trained if is_trained else model)(indices, consumer)
            feeds = feeds_of(proto)
            calls = runtimes(proto, feeds, folder)
            calls |= numpy_call(consumer, is_trained, feeds)
            return measure(calls | torch_calls(consumer, is_trained, feeds), seconds)

        seconds = arguments.seconds
        names = [*cases, *map(str, arguments.xlnet)]
        rows = dict(zip(names, harness.each("relative shift", names, one), strict=True))
    table = harness.table("Columns picked by a range, f32", "us per call", COLUMNS)
    for case, timings in rows.items():
        cells = [timings.get(column) for column in COLUMNS]
        label = Path(case).name if case in map(str, arguments.xlnet) else case
        table.add_row(label, *(f"{t.median * 1e6:,.0f}" if t else "-" for t in cells))
    harness.console.print(table)
    medians = {case: {c: t.median for c, t in row.items()} for case, row in rows.items()}
    harness.save(arguments.json, {"seconds": medians})


if __name__ == "__main__":
    main()
