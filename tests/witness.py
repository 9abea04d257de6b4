"""onnxruntime as a second witness, in a process of its own because it can abort.

One worker process serves all calls and is started anew after it dies. Messages are pickles with
their length in front, over the worker's standard input and output.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

TIMEOUT_SECONDS = 60
# The newest version for Python 3.10 is an older one, and says one of these of what came behind it.
_KNOWS_ALL = (1, 31)
_UNKNOWN = ("is not a registered function/op", "ValidateOpsetForDomain")


class WitnessError(Exception):
    """onnxruntime refused the model or the feeds, crashed, or did not answer in time."""


def run(
    model: bytes,
    feeds: Mapping[str, np.ndarray],
    *,
    optimized: bool = False,
    saturating: bool = False,
) -> list[np.ndarray]:
    """The outputs of the serialised `model` as onnxruntime computes them on one thread.

    `optimized` turns its graph optimisations on. Skips the calling test where onnxruntime is not
    installed or too old, and where it saturates sums of bytes, unless `saturating` asks for these.
    Raises `WitnessError` with onnxruntime's message, or with the signal that ended it.
    """
    return run_steps(model, [feeds], {}, optimized=optimized, saturating=saturating)[0]


def run_steps(
    model: bytes,
    steps: Sequence[Mapping[str, np.ndarray]],
    carried: Mapping[str, str],
    *,
    optimized: bool = False,
    saturating: bool = False,
) -> list[list[np.ndarray]]:
    """The outputs of each of `steps` in one session of onnxruntime; see `run`.

    carried: an output, by input; after the first step the input takes the value of that output of
    the step before.
    """
    import pytest

    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    if not saturating and _multiplies_bytes(model, optimized) and _saturates():
        pytest.skip("onnxruntime saturates sums of bytes on this CPU, which has no VNNI")
    ok, answer = _ask((model, [dict(feeds) for feeds in steps], dict(carried), optimized))
    if not ok:
        if _is_older() and any(words in answer for words in _UNKNOWN):
            pytest.skip("onnxruntime is too old to know the operator or its version")
        raise WitnessError(answer)
    return answer


@functools.cache
def _is_older() -> bool:
    version = importlib.metadata.version("onnxruntime").split(".")
    return tuple(map(int, version[:2])) < _KNOWS_ALL


# Operators, and beginnings of their names, whose kernels multiply uint8 by int8.
_PRODUCTS = (
    b"MatMulInteger",
    b"ConvInteger",
    b"QLinear",
    b"DynamicQuantize",
    b"QGemm",
    b"QAttention",
)


def _multiplies_bytes(model: bytes, optimized: bool) -> bool:
    found = _PRODUCTS + (b"QuantizeLinear",) * optimized
    return any(name in model for name in found)


@functools.cache
def _saturates() -> bool:
    """Whether sums of two products of uint8 and int8 are cut to 16 bits, as `vpmaddubsw` does."""
    import onnx

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (uint8[1, 2] a, int8[2, 1] b) => (int32[1, 1] y)'
        "{ y = MatMulInteger(a, b) }"
    )
    feeds = {"a": np.full((1, 2), 255, np.uint8), "b": np.full((2, 1), -128, np.int8)}
    ok, answer = _ask((model.SerializeToString(), [feeds], {}, False))
    return not ok or int(answer[0][0][0, 0]) != -255 * 256


_worker: subprocess.Popen[bytes] | None = None


def _ask(request: Any) -> tuple[bool, Any]:
    global _worker
    if _worker is None or _worker.poll() is not None:
        _worker = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    assert _worker.stdin is not None and _worker.stdout is not None
    watchdog = threading.Timer(TIMEOUT_SECONDS, _worker.kill)
    watchdog.start()
    try:
        _send(_worker.stdin, request)
        answer: tuple[bool, Any] = _receive(_worker.stdout)
    except (EOFError, BrokenPipeError):
        return False, f"onnxruntime ended with code {_worker.wait()}"
    finally:
        watchdog.cancel()
    return answer


@atexit.register
def _stop() -> None:
    if _worker is not None:
        _worker.kill()


def _send(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _receive(stream: BinaryIO) -> Any:
    header = stream.read(8)
    if len(header) < 8:
        raise EOFError
    (length,) = struct.unpack("<Q", header)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def _serve() -> None:
    """Answer requests until the standard input ends."""
    # What the library prints must not get between the messages.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    levels = onnxruntime.GraphOptimizationLevel
    while True:
        try:
            model, steps, carried, optimized = _receive(sys.stdin.buffer)
        except EOFError:
            return
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
        options.graph_optimization_level = level
        if not optimized:
            # A packed weight is summed in another order: bits must not tell whether it is constant.
            options.add_session_config_entry("session.disable_prepacking", "1")
        try:
            session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
            names = [output.name for output in session.get_outputs()]
            answer = True, _run_steps(session.run, names, steps, carried)
        except Exception as error:
            answer = False, f"{type(error).__name__}: {error}"
        _send(replies, answer)


def _run_steps(
    run: Callable[[None, Mapping[str, np.ndarray]], list[np.ndarray]],
    names: list[str],
    steps: list[dict[str, np.ndarray]],
    carried: dict[str, str],
) -> list[list[np.ndarray]]:
    results: list[list[np.ndarray]] = []
    for feeds in steps:
        if results:
            last = dict(zip(names, results[-1], strict=True))
            feeds = feeds | {name: last[output] for name, output in carried.items()}
        results.append(run(None, feeds))
    return results


if __name__ == "__main__":
    _serve()
