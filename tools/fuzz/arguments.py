"""Public functions called with wrong arguments: what comes out is an error of this package.

Each call has one right argument for each parameter; one or two of them become something else, of
any type. An error that no line of this package raises by itself was not foreseen.
"""

from __future__ import annotations

import functools
import linecache
import logging
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

import ostinato
from ostinato import autodiff, decoding, streaming, training
from tools.fuzz.choosing import Chooser
from tools.fuzz.graphs import Outcome, in_child
from tools.fuzz.seeds import try_seeds

CALL_SECONDS = 120.0
PLAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x, float[N, 4] h) => (float[N, 4] y, float[N, 4] next) {
    a = MatMul(x, w) b = Add(a, h) next = Tanh(b) y = Relu(next)
}"""
LOSS = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x) => (float l) {
    a = MatMul(x, w) b = Tanh(a) l = ReduceSum <keepdims = 0> (b)
}"""
FRAMES = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 3, T] x) => (float[1, 2, U] y) { y = Conv <pads = [2, 0]> (x, k) }"""
STEP = """<ir_version: 8, opset_import: ["": 17]>
g (int64[1] t, float[1, 4] h) => (float[1, 3] logits, float[1, 4] next) {
    e = Gather(table, t) a = Add(e, h) next = Tanh(a) r = Transpose(w) logits = MatMul(next, r)
}"""


@functools.cache
def _model(text: str) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(text)
    shapes = {"w": (3, 4), "k": (2, 3, 3), "table": (3, 4)}
    read = {name for node in model.graph.node for name in node.input}
    for name in sorted(read & set(shapes)):
        array = random.standard_normal(shapes[name]).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@functools.cache
def _session() -> ostinato.InferenceSession:
    return ostinato.InferenceSession(_model(PLAIN), cache_dir=None)


def _x(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def _stepped(x: Any, **about: Any) -> Any:
    """A step of a stream."""
    return _session().stream(**about).step({"x": x})


def _pooled(handle: Any, x: Any, state: Any, **about: Any) -> Any:
    """A step of a pool."""
    pool = _session().pool(**about)
    pool.open(state)
    pool.push(handle, {"x": x})
    return pool.step()


def _trained(x: Any, y: Any, **about: Any) -> Any:
    """A step of training."""
    trainer = ostinato.Trainer(_model(FRAMES), cache_dir=None, **about)
    return trainer.step(x, y)


Call = tuple[Callable[..., Any], Callable[[], Mapping[str, Any]]]


def _calls() -> dict[str, Call]:
    """Each function with what makes right arguments for it."""
    states = {"h": "next"}
    steps = {"step_model": _model(STEP), "states": states, "token": "t", "logits": "logits"}
    return {
        "InferenceSession": (
            ostinato.InferenceSession,
            lambda: {
                "model": _model(PLAIN),
                "options": None,
                "threads": 1,
                "cache_dir": None,
                "disable": (),
                "specialize": {},
                "fallback": True,
                "target": "host",
                "precision": "f32",
                "seed": 0,
                "cache_bytes": 1 << 20,
                "flush_denormals": False,
            },
        ),
        "run": (
            _session().run,
            lambda: {
                "output_names": None,
                "input_feed": {"x": _x(2, 3), "h": _x(2, 4)},
                "out": {"y": _x(2, 4)},
            },
        ),
        "run inputs": (
            lambda x, h: _session().run(None, {"x": x, "h": h}),
            lambda: {"x": _x(2, 3), "h": _x(2, 4)},
        ),
        "bind": (
            _session().bind,
            lambda: {"inputs": {"x": _x(2, 3), "h": _x(2, 4)}, "outputs": None},
        ),
        "bind arrays": (
            lambda x, y: _session().bind({"x": x, "h": _x(2, 4)}, {"y": y})(),
            lambda: {"x": _x(2, 3), "y": _x(2, 4)},
        ),
        "stream": (
            _stepped,
            lambda: {"x": _x(1, 3), "states": states, "initial": None, "sizes": None},
        ),
        "pool": (
            _pooled,
            lambda: {
                "handle": 0,
                "x": _x(1, 3),
                "state": None,
                "states": states,
                "capacity": 4,
                "batch": "N",
                "initial": None,
                "sizes": None,
                "shared": None,
                "rows": None,
            },
        ),
        "optimize": (ostinato.optimize, lambda: {"model": _model(PLAIN), "disable": ()}),
        "quantize": (
            ostinato.quantize,
            lambda: {
                "model": _model(FRAMES),
                "weights": "int8",
                "activations": None,
                "calibration": [{"x": _x(1, 3, 9)}],
                "exclude": (),
                "block": None,
                "target_snr": None,
                "states": None,
            },
        ),
        "build": (
            ostinato.build,
            lambda: {
                "model": _model(PLAIN),
                "folder": tempfile.mkdtemp(),
                "target": "host",
                "states": states,
                "name": "name",
                "initial": None,
                "weights": "inside",
                "shared": False,
            },
        ),
        "convert": (
            streaming.convert,
            lambda: {"model": _model(FRAMES), "time": {"x": 2}, "chunk": 1, "context": None},
        ),
        "find_states": (streaming.find_states, lambda: {"model": _model(PLAIN)}),
        "gradient": (
            autodiff.gradient,
            lambda: {"model": _model(LOSS), "loss": "l", "wrt": ["w"], "checkpoint": None},
        ),
        "loop": (
            decoding.loop,
            lambda: {
                **steps,
                "position": None,
                "mask": None,
                "initial": (),
                "prefill": None,
                "method": "greedy",
                "max_tokens": 4,
                "end_token": None,
                "temperature": 1.0,
                "top_k": None,
                "top_p": None,
                "seed": None,
                "beams": 2,
                "length_penalty": 1.0,
            },
        ),
        "Trainer": (
            _trained,
            lambda: {
                "x": {"x": _x(1, 3, 9)},
                "y": _x(1, 2, 9),
                "loss": "mse",
                "optimizer": "sgd",
                "lr": 0.1,
                "outputs": None,
                "targets": None,
                "train": None,
                "freeze": (),
                "clip_norm": None,
                "states": None,
                "non_finite": "raise",
                "quantize": None,
                "block": None,
            },
        ),
        "Adam": (training.Adam, lambda: {"beta1": 0.9, "beta2": 0.9, "epsilon": 1e-8}),
        "Options": (
            ostinato.Options,
            lambda: {"threads": 1, "disable": (), "specialize": {}, "cache_dir": None, "seed": 0},
        ),
    }


def _wrong(random: Chooser) -> Any:
    """Anything."""
    model, array = _model(PLAIN), _x(2, 3)
    values: list[Callable[[], Any]] = [
        lambda: None,
        lambda: random.choose((0, 1, -1, 2**31, 2**63, 2**200, True, False, 3)),
        lambda: random.choose((0.5, -1.0, float("nan"), float("inf"), 1e300, 2.0, 1j)),
        lambda: random.choose(("", "x", "y", "h", "\0", "é", "/", "nothing", "x" * 5000, "1")),
        lambda: random.choose((b"", b"x", bytearray(3), memoryview(b"abc"))),
        lambda: random.choose(([], [1], ["x"], [None], [[1], [2, 3]], ["x", "x"], [array])),
        lambda: random.choose(((), (1,), ("y",), ("y", "y"), set(), {"x"}, frozenset())),
        lambda: random.choose(({}, {"x": 1}, {"x": "h"}, {1: 2}, {"h": None}, {"x": array})),
        lambda: random.choose(({"x": [1]}, {None: None}, {"h": "y"}, {"x": {"y": 1}}, {"x": -1})),
        lambda: random.choose((object(), len, int, type, Ellipsis, range(3), slice(1), lambda: 0)),
        lambda: np.zeros(random.choose(((), (0,), (3,), (2, 3), (1, 3, 9), (1,) * 9))),
        lambda: np.zeros((2, 3), random.choose(("i8", "?", "O", "U3", "c8", "M8[s]", "f2", ">f4"))),
        lambda: random.choose((np.float32(2), np.int64(-1), np.bool_(True), np.array("x"))),
        lambda: np.ma.masked_array(array, array > 0),
        lambda: np.broadcast_to(np.float32(1), (2, 3)),
        lambda: np.zeros((4, 6), np.float32)[::2, ::2],
        lambda: np.zeros(1, [("a", "f4"), ("b", "i4")]),
        lambda: random.choose((Path("nowhere"), Path("/"), Path("/dev/null"), Path("\0"))),
        lambda: random.choose((model, model.graph, onnx.ModelProto(), model.SerializeToString())),
        lambda: model.SerializeToString()[:40],
        lambda: random.choose((_session(), ostinato.Options(), iter([1]), (n for n in [1]))),
    ]
    return random.choose(values)()


def described(seed: int) -> tuple[str, Callable[..., Any], dict[str, Any], str]:
    """A function, its name, arguments, and which of them are wrong."""
    random = Chooser(np.random.default_rng(seed))
    calls = _calls()
    name = random.choose(sorted(calls))
    function, make = calls[name]
    arguments = dict(make())
    wrong = {}
    for _ in range(1 if random.chance(0.8) else 2):
        key, value = random.choose(sorted(arguments)), _wrong(random)
        # What a function of the caller raises is the caller's.
        if not (key == "loss" and callable(value)):
            wrong[key] = value
    text = ", ".join(f"{key} = {_short(value)}" for key, value in wrong.items())
    return name, function, arguments | wrong, f"{name}({text})"


def _short(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}" if isinstance(value, np.ndarray) else repr(value)
    return " ".join(text.split())[:120]


def _tried(seed: int) -> Outcome:
    logging.disable()
    warnings.simplefilter("ignore")
    name, function, arguments, text = described(seed)
    try:
        function(**arguments)
    except ostinato.OstinatoError as error:
        message = str(error)
        if "this package is wrong" in message:
            return Outcome("exception", f"{text}: {message[:400]}")
        return Outcome("refused") if message else Outcome("exception", f"{text}: no message")
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        line = linecache.getline(frame.filename, frame.lineno or 0).strip()
        is_ours = "/ostinato/" in frame.filename and line.startswith("raise ")
        if is_ours and isinstance(error, (TypeError, ValueError)):
            return Outcome("refused")
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return Outcome("exception", f"{text}: {type(error).__name__}: {error} at {place} {line}")
    return Outcome(f"{name} runs")


def tried(seed: int) -> Outcome:
    """One call in a process and a folder of its own, as names of files are among arguments."""
    with tempfile.TemporaryDirectory() as folder:

        def apart() -> tuple[Outcome, list[Any]]:
            os.chdir(folder)
            return _tried(seed), []

        outcome = in_child(apart, CALL_SECONDS)[0]
    assert isinstance(outcome, Outcome)
    return outcome


def run(
    seconds: float, seed: int = 0, count: int | None = None, *, folder: Path | None = None
) -> int:
    """Try calls from `seed` on for so many seconds, or `count` of them; how many fail."""
    assert folder is not None
    return try_seeds(tried, lambda n: described(n)[3], seconds, seed, count, folder)
