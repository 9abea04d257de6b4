"""The streams of a pool that are stepped together, some of whose states a step changes in place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import PoolError, StreamError
from ostinato.runtime.pool import Pool
from tests.runtime.test_fork import in_child

PAIRS = {"cache": "next", "count": "next_count"}
PLACES = 6
NOBODY = -1

# The batch is the first axis of the cache, or another.
CACHED = """<ir_version: 10, opset_import: ["": 24]>
g (float[CACHE] cache, int64[N] count, float[N, 1, 4] x, int64[N] p)
    => (float[N] y, float[CACHE] next, int64[N] next_count) {
    one = Constant<value_ints = [1]>()  both = Constant<value_ints = [1, 2]>()
    next_count = Add(count, one)
    before = ORDER(cache)  after = TensorScatter<axis = 1>(before, x, p)  next = ORDER(after)
    t = Tanh(after)  s = ReduceSum<keepdims = 0>(t, both)  c = Cast<to = 1>(next_count)
    y = Mul(s, c) }"""
FORMS = {
    "first": ("N, 6, 4", "Identity"),
    "second": ("6, N, 4", "Transpose<perm = [1, 0, 2]>"),
}


def cached(form: str = "first", **options: Any) -> ostinato.InferenceSession:
    cache, order = FORMS[form]
    text = CACHED.replace("CACHE", cache).replace("ORDER", order)
    return ostinato.InferenceSession(onnx.parser.parse_model(text), cache_dir=None, **options)


@pytest.fixture(scope="module")
def session() -> ostinato.InferenceSession:
    return cached()


def feeds(rng: np.random.Generator, place: int | None = None) -> dict[str, np.ndarray]:
    chosen = rng.integers(PLACES) if place is None else place
    return {"x": rng.standard_normal((1, 1, 4), np.float32), "p": np.array([chosen])}


def replaced(pool: Pool) -> list[str]:
    return [pair.name for pair in pool._batch._stepper.replaced]


def require_same(pool: Pool, alone: Mapping[int, ostinato.Stream]) -> None:
    for handle, stream in alone.items():
        for name, value in pool.state(handle).items():
            np.testing.assert_array_equal(value, stream.state[name])


@pytest.mark.parametrize("disable", [(), ("store_in_place", "elide_copies")])
@pytest.mark.parametrize("form", FORMS)
def test_caches_that_steps_change_in_place_have_the_bits_of_singles(
    form: str, disable: tuple[str, ...]
) -> None:
    session, rng = cached(form, disable=disable), np.random.default_rng(1)
    pool = session.pool(PAIRS, capacity=6)
    alone: dict[int, ostinato.Stream] = {}
    for number in range(150):
        draw = rng.random()
        handle = int(rng.choice([*alone, NOBODY]))
        if draw < 0.25 and len(alone) < 6:
            alone[pool.open()] = session.stream(PAIRS, sizes={"N": 1})
        elif handle != NOBODY and draw < 0.32:
            pool.close(handle)
            alone.pop(handle).close()
        elif handle != NOBODY and draw < 0.4 and len(alone) < 6:
            alone[pool.fork(handle)] = alone[handle].fork()
        elif handle != NOBODY and draw < 0.45:
            pool.reset(handle)
            alone[handle].reset()
        share = rng.choice([0.5, 1.0])
        given = {handle: feeds(rng) for handle in alone if rng.random() < share}
        for handle, frame in given.items():
            pool.push(handle, frame)
        results = pool.step()
        assert results.keys() == given.keys()
        for handle, frame in given.items():
            np.testing.assert_array_equal(results[handle][0], alone[handle].step(frame)[0])
        if number % 10 == 0:
            require_same(pool, alone)
    require_same(pool, alone)
    assert replaced(pool) == ([] if disable else ["cache"])


def test_one_streams_failure_leaves_all_caches(session: ostinato.InferenceSession) -> None:
    pool, rng = session.pool(PAIRS, capacity=3), np.random.default_rng(0)
    handles = [pool.open() for _ in range(3)]
    alone = {handle: session.stream(PAIRS, sizes={"N": 1}) for handle in handles}
    for bad in (NOBODY, handles[1], handles[2]):
        for handle, stream in alone.items():
            frame = feeds(rng, PLACES if handle == bad else 2)
            pool.push(handle, frame)
            if handle != bad:
                stream.step(frame)
        if bad == NOBODY:
            pool.step()
            continue
        with pytest.raises(PoolError, match="out of range") as caught:
            pool.step()
        assert list(caught.value.errors) == [bad]
        require_same(pool, alone)


def test_an_interrupted_step_loses_the_states_of_its_streams(
    session: ostinato.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, rng = session.pool(PAIRS, capacity=4), np.random.default_rng(0)
    lost, other = pool.open(), pool.open()
    for handle in (other, lost):
        pool.push(handle, feeds(rng))
        pool.step()
    kept = pool.state(other)
    stepper = pool._batch._stepper

    def interrupted(*arrays: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stepper, "run", lambda *_: stepper._watched(interrupted)())
        # The call for one stream is known by now.
        pool._batch._quick.clear()
        pool.push(lost, feeds(rng))
        with pytest.raises(KeyboardInterrupt):
            pool.step()
    uses = (lambda: pool.push(lost, feeds(rng)), lambda: pool.state(lost), lambda: pool.fork(lost))
    for use in uses:
        with pytest.raises(StreamError, match="'cache' is lost"):
            use()
    # Others go on, and so does the stream with a state that is known.
    assert pool.step() == {}
    np.testing.assert_array_equal(pool.state(other)["cache"], kept["cache"])
    pool.reset(lost, kept)
    for handle in (lost, other):
        pool.push(handle, feeds(np.random.default_rng(5)))
    results = pool.step()
    np.testing.assert_array_equal(results[lost][0], results[other][0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_another_thread_was_changing_is_lost_in_a_forked_child(
    session: ostinato.InferenceSession,
) -> None:
    pool, rng = session.pool(PAIRS, capacity=2), np.random.default_rng(0)
    handles = [pool.open(), pool.open()]
    pool.push(handles[0], feeds(rng))
    pool.step()

    def is_lost() -> bool:
        pool.push(handles[0], feeds(rng))
        pool.push(handles[1], feeds(rng))
        try:
            pool.step()
        except StreamError as error:
            # The frame of the other one is still there.
            return "'cache' is lost" in str(error) and list(pool.step()) == handles[1:]
        return False

    workspace = pool._batch._stepper.workspace
    with workspace.taken():
        assert in_child(is_lost)
    assert not workspace.is_abandoned
