"""Every runtime behind one function: `load(peer, model, feeds)`.

One thread, f32, and the fastest way to call it that its documentation offers: buffers bound once
where there is such a thing. A runtime that is not installed, or that refuses the model, raises.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Feeds = Mapping[str, np.ndarray]
THREADS = 1


@dataclass(frozen=True)
class Loaded:
    """A model in a runtime.

    run: inputs by name -> outputs in the model's order, through the runtime's Python interface.
    step: the bare call on buffers bound once to the inputs given at loading.
    keep: what must live as long as `step` is called.
    """

    run: Callable[[Feeds], list[np.ndarray]]
    step: Callable[[], object]
    keep: Any = None


def _ostinato(model: Path, feeds: Feeds) -> Loaded:
    import ostinato

    session = ostinato.InferenceSession(model)
    return Loaded(lambda inputs: session.run(None, inputs), session.bind(feeds), session)


def _onnxruntime(model: Path, feeds: Feeds) -> Loaded:
    from ostinato.cli.witness import onnxruntime_bound_call, onnxruntime_session

    session = onnxruntime_session(model)
    step, _ = onnxruntime_bound_call(session, feeds)
    return Loaded(lambda inputs: session.run(None, inputs), step)


def _openvino(model: Path, feeds: Feeds) -> Loaded:
    import openvino
    from openvino._pyopenvino import InferRequest

    core = openvino.Core()
    network = core.read_model(str(model))
    network.reshape({name: list(array.shape) for name, array in feeds.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": THREADS,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        # Left alone it computes in bf16 where the processor can.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    bound = {name: np.array(array, order="C") for name, array in feeds.items()}
    tensors = {name: openvino.Tensor(array, shared_memory=True) for name, array in bound.items()}
    for name, tensor in tensors.items():
        request.set_tensor(name, tensor)

    # The wrapper around this method costs several microseconds of Python.
    def step(infer: Any = InferRequest.infer, empty: dict[str, Any] = {}) -> None:  # noqa: B006
        infer(request, empty, share_outputs=True, decode_strings=False)

    def run(inputs: Feeds) -> list[np.ndarray]:
        for name, array in bound.items():
            array[...] = inputs[name]
        step()
        count = len(compiled.outputs)
        return [request.get_output_tensor(i).data.copy() for i in range(count)]

    return Loaded(run, step, tensors)


_TRACT_TYPES = {"float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32", "bool": "bool"}


def _tract(model: Path, feeds: Feeds) -> Loaded:
    import tract
    from tract.bindings import check, lib

    network = tract.onnx().load(str(model))
    names = [network.input_name(i) for i in range(network.input_count())]
    for i, name in enumerate(names):
        array = feeds[name]
        fact = ",".join([*map(str, array.shape), _TRACT_TYPES[str(array.dtype)]])
        network.set_input_fact(i, fact)
    for i in range(network.output_count()):
        # Declared output shapes may hold symbols; without them tract infers the shapes.
        network.set_output_fact(i, None)
    runnable = network.into_model().into_runnable()

    # The C call on ready tensors: converting outputs is 5 us of ctypes each, not tract's doing.
    # The runnable starts from a fresh state at every call; a tract State would keep that of Scan.
    tensors = [tract.Tensor.from_numpy(np.ascontiguousarray(feeds[name])) for name in names]
    inputs = (ctypes.c_void_p * len(tensors))(*[tensor.ptr for tensor in tensors])
    outputs = (ctypes.c_void_p * runnable.output_count())()
    slots = [ctypes.byref(outputs, 8 * i) for i in range(len(outputs))]
    call, drop, pointer = lib.tract_runnable_run, lib.tract_tensor_destroy, runnable.ptr

    def step() -> None:
        if call(pointer, inputs, outputs):
            check(1)
        for slot in slots:
            drop(slot)

    def run(given: Feeds) -> list[np.ndarray]:
        return [tensor.to_numpy() for tensor in runnable.run([given[name] for name in names])]

    return Loaded(run, step, (tensors, runnable))


def _litert(model: Path, feeds: Feeds) -> Loaded:
    """Runs the .tflite file beside the ONNX file; inputs and outputs are matched by their shape."""
    from ai_edge_litert.interpreter import Interpreter

    file = model.with_suffix(".tflite")
    if not file.exists():
        raise NotImplementedError(f"no {file.name} beside the ONNX model")
    interpreter = Interpreter(model_path=str(file), num_threads=THREADS)
    interpreter.allocate_tensors()
    index = {tuple(d["shape"]): d["index"] for d in interpreter.get_input_details()}
    order = {tuple(d["shape"]): d["index"] for d in interpreter.get_output_details()}
    inputs = {name: index[array.shape] for name, array in feeds.items()}
    outputs = [order[shape] for shape in _output_shapes(model)]

    def run(given: Feeds) -> list[np.ndarray]:
        for name, i in inputs.items():
            interpreter.set_tensor(i, given[name])
        interpreter.invoke()
        return [interpreter.get_tensor(i) for i in outputs]

    run(feeds)
    return Loaded(run, interpreter.invoke)


def _output_shapes(model: Path) -> list[tuple[int, ...]]:
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    return [tuple(d.dim_value or 1 for d in v.type.tensor_type.shape.dim) for v in graph.output]


def _mnn(model: Path, feeds: Feeds) -> Loaded:
    import MNN
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    outputs = [value.name for value in graph.output]
    settings = {"backend": 0, "numThread": THREADS, "precision": "high", "power": "high"}
    manager = MNN.nn.create_runtime_manager((settings,))
    with tempfile.TemporaryDirectory() as folder:
        module = MNN.nn.load_module_from_file(
            _convert_to_mnn(model, Path(folder)), list(feeds), outputs, runtime_manager=manager
        )
    types = {"float32": MNN.expr.dtype.float, "int32": MNN.expr.dtype.int}

    # MNN keeps signals of one dimension as images and returns them as such. Where the model does
    # not tell its output shapes, there is nothing to undo that with.
    shapes = _output_shapes(model)

    def variable(array: np.ndarray) -> Any:
        array = array.astype(np.int32) if array.dtype == np.int64 else array
        result = MNN.expr.placeholder(list(array.shape), MNN.expr.NCHW, types[str(array.dtype)])
        result.write(np.ascontiguousarray(array) if array.ndim else array.reshape(-1).tolist())
        return result

    def run(given: Feeds) -> list[np.ndarray]:
        result = module.forward([variable(given[name]) for name in feeds])
        values = result if isinstance(result, (list, tuple)) else [result]
        arrays = [np.array(value.read()) for value in values]
        return [
            array.reshape(shape) if array.size == np.prod(shape) else array
            for array, shape in zip(arrays, shapes, strict=True)
        ]

    variables = [variable(array) for array in feeds.values()]
    return Loaded(run, lambda: module.forward(variables), manager)


def _convert_to_mnn(model: Path, folder: Path) -> str:
    """Convert with the library's own converter.

    Its console script installs a package and sends usage data; the function behind it does not.
    """
    target = folder / "model.mnn"
    code = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
    options = ["-f", "ONNX", "--modelFile", str(model), "--MNNModel", str(target), "--bizCode", "x"]
    result = subprocess.run(
        [sys.executable, "-c", code, *options], capture_output=True, text=True, timeout=120
    )
    if not target.exists():
        lines = (result.stdout + result.stderr).strip().splitlines()
        raise RuntimeError(f"mnnconvert failed: {lines[-1] if lines else result.returncode}")
    return str(target)


_LOADERS: dict[str, tuple[str, Callable[[Path, Feeds], Loaded]]] = {
    "ostinato": ("ostinato", _ostinato),
    "onnxruntime": ("onnxruntime", _onnxruntime),
    "openvino": ("openvino", _openvino),
    "tract": ("tract", _tract),
    "litert": ("ai-edge-litert", _litert),
    "mnn": ("MNN", _mnn),
}
PEERS = tuple(_LOADERS)


def load(peer: str, model: Path, feeds: Feeds) -> Loaded:
    """`model` in the runtime `peer`, with the shapes of `feeds`. Raises what the runtime raises."""
    with _silence():
        return _LOADERS[peer][1](model, feeds)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep what native libraries print at loading out of the tables."""
    sys.stdout.flush()
    saved = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        with open(os.devnull, "w") as nowhere:
            for descriptor in (1, 2):
                os.dup2(nowhere.fileno(), descriptor)
        yield
    finally:
        for descriptor, original in zip((1, 2), saved, strict=True):
            os.dup2(original, descriptor)
            os.close(original)


def version(peer: str) -> str | None:
    """The installed version, None where `peer` is not installed."""
    if peer == "ostinato":
        from ostinato import __version__

        return __version__
    try:
        return importlib.metadata.version(_LOADERS[peer][0])
    except importlib.metadata.PackageNotFoundError:
        return None
