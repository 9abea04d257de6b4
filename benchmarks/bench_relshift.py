"""Half of the columns picked by a range, as in the relative shift of XLNet.

    taskset -c 1 python -m benchmarks.bench_relshift [--xlnet FILE ...] [--json FILE] [--seconds S]

[1, 12, 512, 1024] -> [..., :512], f32, one thread. "Range" is Gather by Range(0, 512), "range to e"
by Range(0, e) with an input e, "arange as data" by an input, of which nothing is known. "backward"
also gives the gradient of the input for a given one of the output. The columns:

    ostinato      as it is                        numpy         slices, results in place
    pass off      without gather_to_slice,        index_select  of torch, by an arange it makes
                  in the gradient as well         narrow        of torch, and a copy where no
    onnxruntime   all optimisations, without it                 other operator reads it
    ort + pass    the same, of the model that
                  `ostinato.optimize` gives

`--xlnet` takes attention layers that `tools.export_xlnet` exported; their backward gives the
gradients of the layer's input h and of all weights, for a given one of its output. torch and
onnxruntime are left out where they are not installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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

PASS = "gather_to_slice"

Writer = Callable[[tuple[str, ...]], onnx.ModelProto]
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


def trained(indices: str, consumer: str, disable: tuple[str, ...] = ()) -> onnx.ModelProto:
    """The model that gives y and the gradient of x, for a given gradient of y."""
    return with_gradients(model(indices, consumer, is_trained=True), ["x"], disable)


def with_gradients(
    proto: onnx.ModelProto, wrt: Sequence[str], disable: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """The model with gradients of its output loss in place of that."""
    result = gradient(proto, "loss", wrt, disable=disable)
    (loss,) = [value for value in result.graph.output if value.name == "loss"]
    result.graph.output.remove(loss)
    return result


def forward(indices: str, consumer: str, disable: tuple[str, ...]) -> onnx.ModelProto:
    """The model that gives y; no pass has run on it."""
    return model(indices, consumer)


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


def runtimes(write: Writer, feeds: Mapping[str, np.ndarray], folder: Path) -> Calls:
    """The model in this compiler, with and without the pass, and in onnxruntime.

    write: makes the model, without some passes.
    """
    calls: Calls = {}
    for column, disable in (("ostinato", ()), ("pass off", (PASS,))):
        session = ostinato.InferenceSession(write(disable), cache_dir=None, disable=disable)
        bound = session.bind(feeds)
        calls[column] = bound, lambda bound=bound: (bound(), list(bound.outputs.values()))[1]
    if not peers.version("onnxruntime"):
        return calls
    proto = write((PASS,))
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


def xlnet_calls(file: Path, is_trained: bool, folder: Path) -> Calls:
    """An exported layer, and beside it the module in torch, which calls index_select."""
    proto, random = onnx.load(str(file)), np.random.default_rng(0)
    h, positions = proto.graph.input
    width = h.type.tensor_type.shape.dim[2].dim_value
    feeds = {
        value.name: random.standard_normal((factor * KEPT, 1, width), np.float32)
        for value, factor in ((h, 1), (positions, 2))
    }
    weights = [t.name for t in proto.graph.initializer if t.data_type == TensorProto.FLOAT]
    weights = [name for name in weights if name.startswith("attention.")]
    if is_trained:
        feeds["y_grad"] = random.standard_normal((KEPT, 1, width), np.float32)
        wrt = [h.name, *weights]
        calls = runtimes(partial(with_gradients, with_loss(proto), wrt), feeds, folder)
    else:
        calls = runtimes(lambda _: proto, feeds, folder)
    if importlib.util.find_spec("torch"):
        calls["index_select"] = xlnet_in_torch(file.with_suffix(".pt"), weights, feeds)
    return calls


def with_loss(layer: onnx.ModelProto) -> onnx.ModelProto:
    """The layer with `loss = sum(y * y_grad)`, for a given gradient of its output y."""
    y_grad = layer.graph.input.add(name="y_grad")
    y_grad.type.CopyFrom(layer.graph.input[0].type)
    layer.graph.node.append(helper.make_node("Mul", ["y", "y_grad"], ["weighted"]))
    layer.graph.node.append(helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0))
    layer.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    return layer


def xlnet_in_torch(
    file: Path, weights: list[str], feeds: Mapping[str, np.ndarray]
) -> tuple[Callable[[], object], Callable[[], list[np.ndarray]]]:
    """The layer as a TorchScript module; with y_grad among the feeds also its gradients."""
    import torch

    torch.set_num_threads(1)
    is_trained = "y_grad" in feeds
    module = torch.jit.load(str(file))
    parameters = dict(module.named_parameters())
    for parameter in parameters.values():
        parameter.requires_grad_(is_trained)
    h, positions, *y_grad = [torch.from_numpy(array) for array in feeds.values()]
    wrt = [h.requires_grad_(is_trained), *(parameters[name] for name in weights)]

    def call() -> list[Any]:
        y = module(h, positions)
        if not is_trained:
            return [y]
        return [y.detach(), *torch.autograd.grad(y, wrt, y_grad)]

    return call, lambda: [tensor.numpy() for tensor in call()]


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
    layers = {
        file.name + (", backward" if is_trained else ""): (file, is_trained)
        for file in arguments.xlnet
        for is_trained in (False, True)
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def one(case: str) -> dict[str, Timing]:
            if case in layers:
                return measure(xlnet_calls(*layers[case], folder), seconds)
            indices, consumer, is_trained = cases[case]
            feeds = feeds_of(model(indices, consumer, is_trained))
            write = partial(trained if is_trained else forward, indices, consumer)
            calls = runtimes(write, feeds, folder)
            calls |= numpy_call(consumer, is_trained, feeds)
            return measure(calls | torch_calls(consumer, is_trained, feeds), seconds)

        seconds = arguments.seconds
        names = [*cases, *layers]
        rows = dict(zip(names, harness.each("relative shift", names, one), strict=True))
    table = harness.table("Columns picked by a range, f32", "us per call", COLUMNS)
    for case, timings in rows.items():
        cells = [timings.get(column) for column in COLUMNS]
        table.add_row(case, *(f"{t.median * 1e6:,.0f}" if t else "-" for t in cells))
    harness.console.print(table)
    medians = {case: {c: t.median for c, t in row.items()} for case, row in rows.items()}
    harness.save(arguments.json, {"seconds": medians})


if __name__ == "__main__":
    main()
