"""A signal ends a long call soon, and everything can be used as before.

All cases run in one child process. A thread of it waits until the call runs, sends SIGINT to the
process and notes the time of the processor, for other work on the machine is not to be counted.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ostinato
from ostinato.training import Trainer

MOST_SECONDS = 0.2
# A call has run for so many seconds, of which planning it takes milliseconds, before a signal.
RUNS_FOR = 0.1
F, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
FOR_EVER = np.int64(10**12)
# Steps of a loop that take about a fourth of a second.
LONG = 3 * 10**7

Call = Callable[[], Any]
value = helper.make_tensor_value_info


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    **constants: Any,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def matmul() -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    return model(
        [node], [value("a", F, ["N", "K"]), value("b", F, ["K", "M"])], [value("y", F, ["N", "M"])]
    )


LARGE = {"a": (4096, 4096), "b": (4096, 4096)}


@functools.cache
def large() -> dict[str, np.ndarray]:
    return fed(LARGE)


@functools.cache
def products(threads: int) -> ostinato.InferenceSession:
    """One session for calls that are bound and for those that are not."""
    return ostinato.InferenceSession(matmul(), cache_dir=None, threads=threads)


def fed(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


def loop(batch: int | str, ends: bool = True) -> onnx.ModelProto:
    """`n` steps of s = s / 2 + x, or as long as s is more than -1; s is a state, y is s."""
    shape = [batch, 4]
    nodes = [
        helper.make_node("Mul", ["s", "half"], ["t"]),
        helper.make_node("Add", ["t", "x"], ["s2"]),
        helper.make_node("Identity", ["c"], ["c2"]),
    ]
    if not ends:
        nodes[2:] = [
            helper.make_node("ReduceMax", ["s2"], ["m"], keepdims=0),
            helper.make_node("Greater", ["m", "limit"], ["c2"]),
        ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", INT, []), value("c", BOOL, []), value("s", F, shape)],
        [value("c2", BOOL, []), value("s2", F, shape)],
    )
    count = "n" if ends else ""
    main = [
        helper.make_node("Loop", [count, "yes", "h"], ["h2"], body=body),
        helper.make_node("Neg", ["h2"], ["y"]),
    ]
    inputs = [value("n", INT, []), value("x", F, shape), value("h", F, shape)]
    outputs = [value("y", F, shape), value("h2", F, shape)]
    constants = {"half": np.float32(0.5), "limit": np.float32(-1), "yes": np.array(True)}
    return model(main, inputs, outputs, **constants)


def steps(n: Any, x: float = 1.0) -> dict[str, np.ndarray]:
    return {"n": np.asarray(n, np.int64), "x": np.full((1, 4), x, np.float32)}


def zeros() -> dict[str, np.ndarray]:
    return {"h": np.zeros((1, 4), np.float32)}


# What runs long, and what is checked behind it: each case returns the two.


def case_run(threads: int) -> tuple[Call, Call]:
    session = products(threads)
    small = fed({"a": (2, 3), "b": (3, 4)})

    def check() -> None:
        assert (session.run(None, small)[0] == 3).all()

    check()
    feeds = large()
    return lambda: session.run(None, feeds), check


def case_run_out(threads: int) -> tuple[Call, Call]:
    session = ostinato.InferenceSession(loop(1), cache_dir=None, threads=threads)
    out = {name: np.zeros((1, 4), np.float32) for name in ("y", "h2")}

    def check() -> None:
        session.run(None, steps(2) | zeros(), out=out)
        assert (out["h2"] == 1.5).all()

    check()
    return lambda: session.run(None, steps(FOR_EVER) | zeros(), out=out), check


def case_bound(threads: int) -> tuple[Call, Call]:
    session = products(threads)
    small = session.bind(fed({"a": (2, 3), "b": (3, 4)}))
    call = session.bind(large())

    def check() -> None:
        small()
        assert (small.outputs["y"] == 3).all()

    return call, check


def case_while(threads: int) -> tuple[Call, Call]:
    session = ostinato.InferenceSession(loop(1, ends=False), cache_dir=None, threads=threads)

    def check() -> None:
        assert (session.run(None, steps(0, -3.0) | zeros())[1] == -3).all()

    check()
    return lambda: session.run(None, steps(0) | zeros()), check


def case_stream(threads: int) -> tuple[Call, Call]:
    session = ostinato.InferenceSession(loop(1), cache_dir=None, threads=threads)
    stream = session.stream({"h": "h2"})
    stream.step(steps(2))
    count = [0.0]

    def check() -> None:
        assert (stream.state["h"] == 1.5).all()
        assert (stream.fork().step(steps(1))[0] == -1.75).all()
        count[0] += 1

    return lambda: stream.step(steps(FOR_EVER)), check


def case_pool(threads: int) -> tuple[Call, Call]:
    session = ostinato.InferenceSession(loop("B"), cache_dir=None, threads=threads)
    count = np.array(2, np.int64)
    pool = session.pool({"h": "h2"}, 3, shared={"n": count})
    handles = [pool.open() for _ in range(2)]
    frame = {"x": np.ones((1, 4), np.float32)}
    for handle in handles:
        pool.push(handle, frame)
    pool.step()
    pool.push(handles[1], frame)
    shared = pool._shared["n"]
    shared[...] = FOR_EVER

    def check() -> None:
        shared[...] = 1
        assert (pool.state(handles[1])["h"] == 1.5).all()
        results = pool.step()
        assert list(results) == [handles[1]] and (results[handles[1]][0] == -1.75).all()

    return pool.step, check


def case_trainer(threads: int) -> tuple[Call, Call]:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    size = 2048
    weights = np.full((size, size), 0.25, np.float32)
    proto = model([node], [value("x", F, ["N", size])], [value("y", F, ["N", size])], w=weights)
    trainer = Trainer(proto, "mse", "sgd", lr=0.01, cache_dir=None, threads=threads)
    x, y = np.ones((4096, size), np.float32), np.zeros((4096, size), np.float32)

    def check() -> None:
        assert trainer.steps == 0 and (trainer.parameters["w"] == weights).all()
        assert np.isfinite(trainer.step({"x": x[:2]}, {"y": y[:2]}))
        assert trainer.steps == 1 and (trainer.parameters["w"] != weights).all()

    return lambda: trainer.step({"x": x}, {"y": y}), check


CASES = {
    "run": functools.partial(case_run, 1),
    "run on two threads": functools.partial(case_run, 2),
    "run, out=": functools.partial(case_run_out, 1),
    "bound call": functools.partial(case_bound, 1),
    "bound call on two threads": functools.partial(case_bound, 2),
    "while": functools.partial(case_while, 1),
    "while on two threads": functools.partial(case_while, 2),
    "stream": functools.partial(case_stream, 1),
    "pool": functools.partial(case_pool, 1),
    "trainer": functools.partial(case_trainer, 1),
}


def interrupted(long: Call) -> float:
    """How much time of processors passes from a signal to its exception."""
    sent = [0.0]

    def send() -> None:
        while time.process_time() < begun + RUNS_FOR:
            time.sleep(0.01)
        sent[0] = time.process_time()
        os.kill(os.getpid(), signal.SIGINT)

    begun = time.process_time()
    sender = threading.Thread(target=send)
    sender.start()
    try:
        long()
    except KeyboardInterrupt:
        return time.process_time() - sent[0]
    finally:
        sender.join()
    return float("inf")


def child() -> None:
    for name, make in CASES.items():
        long, check = make()
        delay = interrupted(long)
        check()
        print(f"{name}: {delay:.3f}", flush=True)


@functools.cache
def reported() -> dict[str, float]:
    """The delay of each case; those that did not end, or failed, are missing."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.Popen(
        [sys.executable, str(Path(__file__))],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        output, _ = done.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        done.kill()
        output, _ = done.communicate()
    pairs = (line.rpartition(": ") for line in output.splitlines())
    return {name: float(delay) for name, _, delay in pairs}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_signal_ends_a_long_call_and_the_next_one_is_right(name: str) -> None:
    delays = reported()
    assert name in delays, f"did not end, or what follows is wrong; others: {delays}"
    # The time of all threads is added up.
    assert delays[name] < MOST_SECONDS * (1 + name.endswith("two threads"))


def test_a_call_in_another_thread_keeps_nobody_from_being_interrupted() -> None:
    session = ostinato.InferenceSession(loop(1), cache_dir=None)
    session.run(None, steps(3) | zeros())
    results: list[Any] = []
    worker = threading.Thread(
        target=lambda: results.append(session.run(None, steps(LONG) | zeros())[1])
    )
    worker.start()
    begun = time.process_time()
    # The same function, whose memory the other call uses.
    assert (session.run(None, steps(2) | zeros())[1] == 1.5).all()
    assert time.process_time() - begun < MOST_SECONDS
    worker.join()
    assert (results[0] == 2.0).all()


def test_a_handler_that_does_not_raise_runs_during_the_call_and_may_run_the_session() -> None:
    session = ostinato.InferenceSession(loop(1), cache_dir=None)
    seen: list[np.ndarray] = []

    def handle(*_: object) -> None:
        seen.append(session.run(None, steps(2) | zeros())[1])

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        result = session.run(None, steps(LONG) | zeros())[1]
        count = len(seen)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count == 1 and (seen[0] == 1.5).all() and (result == 2.0).all()


if __name__ == "__main__":
    # Whoever runs the tests in the background may have it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    child()
