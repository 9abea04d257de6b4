"""What a forked child may do while other threads of its parent were in the middle of something."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.locks import new_lock
from ostinato.native.workspace import BUSY
from ostinato.runtime.frames import Frames
from ostinato.runtime.pool import Pool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

# A product that takes some milliseconds, so that a bound call gives up the GIL.
MODEL = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N, 512] x) => (float[N, 512] y) <float[512, 512] w> { y = MatMul(x, w) }
"""
SECONDS = 20


def in_child(what: Callable[[], bool]) -> bool:
    """Whether `what` is true in a child of this process, which gets some time for it."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if what() else 1)
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(2)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_call_that_another_thread_is_in_runs_in_the_child() -> None:
    model = onnx.parser.parse_model(MODEL.replace("<float[512, 512] w>", ""))
    weights = onnx.numpy_helper.from_array(np.eye(512, dtype=np.float32), "w")
    model.graph.initializer.append(weights)
    x = np.random.default_rng(0).standard_normal((3000, 512), np.float32)
    call = ostinato.InferenceSession(model, cache_dir=None).bind({"x": x})
    call()
    call()
    expected = call.outputs["y"].copy()
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            call()

    thread = threading.Thread(target=busy)
    thread.start()

    def works() -> bool:
        call.outputs["y"][:] = 0
        call()
        return np.array_equal(call.outputs["y"], expected)

    try:
        # Most of the time the thread is in the call.
        assert all([in_child(works) for _ in range(5)])
    finally:
        stop.set()
        thread.join()


POOLED = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N, 512] x, float[N, 512] s) => (float[N, 512] y, float[N, 512] t)
    <float[512, 512] w> { t = Add(s, x)  y = MatMul(t, w) }
"""


def pooled() -> tuple[Pool, list[int]]:
    """A pool with two streams whose outputs are what they were pushed so far."""
    model = onnx.parser.parse_model(POOLED.replace("<float[512, 512] w>", ""))
    weights = onnx.numpy_helper.from_array(np.eye(512, dtype=np.float32), "w")
    model.graph.initializer.append(weights)
    session = ostinato.InferenceSession(model, cache_dir=None)
    pool = session.pool(states={"s": "t"}, capacity=2)
    return pool, [pool.open(), pool.open()]


def goes_on(pool: Pool, handles: list[int], before: float) -> bool:
    """Whether a step adds 1 to the states, which are all the same."""
    for handle in handles:
        pool.reset(handle, {"s": np.full((1, 512), before, np.float32)})
        pool.push(handle, {"x": np.ones((1, 512), np.float32)})
    results = pool.step()
    return all(bool((results[handle][0] == before + 1).all()) for handle in handles)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_pool_that_another_thread_steps_goes_on_in_the_child() -> None:
    pool, handles = pooled()
    stop = threading.Event()
    ones = {"x": np.ones((1, 512), np.float32)}

    def busy() -> None:
        while not stop.is_set():
            for handle in handles:
                pool.push(handle, ones)
            pool.step()

    def works() -> bool:
        # The frames that the other thread has pushed and not stepped.
        pool.step()
        return goes_on(pool, handles, 3.0)

    busy_once = threading.Thread(target=busy)
    busy_once.start()
    try:
        assert all([in_child(works) for _ in range(5)])
    finally:
        stop.set()
        busy_once.join()


class _Slow(bytearray):
    """Marks that are looked through until somebody says so."""

    reached, go_on = threading.Event(), threading.Event()

    def __contains__(self, mark: object) -> bool:
        self.reached.set()
        self.go_on.wait()
        return super().__contains__(mark)  # type: ignore[operator]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_frames_are_kept_in_the_child_while_another_thread_has_the_turn() -> None:
    value = np.ones((1, 3), np.float32)
    frames = Frames({"x": value}, {"x": 0}, 2)
    frames._marks = _Slow(2), _Slow(2)
    keep = frames.keeper(0)
    thread = threading.Thread(target=frames.done)
    thread.start()
    _Slow.reached.wait()

    def works() -> bool:
        return keep(value) is None and keep(value) == 1 and frames.take()[0] == b"\1\0"

    try:
        assert keep(value) == BUSY
        assert in_child(works)
    finally:
        _Slow.go_on.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_that_another_thread_holds_is_open_in_the_child() -> None:
    lock, held, stop = new_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            stop.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: lock.acquire(timeout=1))
        assert lock.locked()
    finally:
        stop.set()
        thread.join()
