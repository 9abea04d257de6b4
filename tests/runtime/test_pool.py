from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import InputError, PoolError, RunError, StreamError
from ostinato.ops import LOWERINGS
from ostinato.runtime.pool import MixedRows

F32 = np.float32
HIDDEN, WIDTH = 6, 4
LSTM = f"""<ir_version: 8, opset_import: ["": 17]>
lstm (float[1, N, {WIDTH}] x, float[1, N, {HIDDEN}] h, float[1, N, {HIDDEN}] c)
    => (float[1, 1, N, {HIDDEN}] y, float[1, N, {HIDDEN}] hn, float[1, N, {HIDDEN}] cn)
{{ y, hn, cn = LSTM <hidden_size = {HIDDEN}> (x, W, R, , , h, c) }}"""
PAIRS = {"h": "hn", "c": "cn"}


@pytest.fixture(scope="module")
def lstm() -> ostinato.InferenceSession:
    model = onnx.parser.parse_model(LSTM)
    rng = np.random.default_rng(0)
    for name, width in (("W", WIDTH), ("R", HIDDEN)):
        weights = rng.uniform(-0.5, 0.5, (1, 4 * HIDDEN, width)).astype(F32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return ostinato.InferenceSession(model)


def compiled(text: str, opset: int = 17, **options: Any) -> ostinato.InferenceSession:
    header = f'<ir_version: 8, opset_import: ["": {opset}]> '
    return ostinato.InferenceSession(onnx.parser.parse_model(header + text), **options)


@pytest.fixture(scope="module")
def counter() -> ostinato.InferenceSession:
    return compiled("g (float[N, 2] x, float[N, 2] s) => (float[N, 2] y, float[N, 2] t) "
                    "{ y = Add(x, s)  t = Add(s, x) }")  # fmt: skip


def frame(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full((1, 2), value, F32)}


def random_frame(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((1, 1, WIDTH)).astype(F32)}


# Same bits


@pytest.mark.parametrize("seed", range(4))
def test_streams_that_come_go_and_stall_have_the_bits_of_singles(
    lstm: ostinato.InferenceSession, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pool = lstm.pool(PAIRS, capacity=9)
    alone: dict[int, ostinato.Stream] = {}
    steps = 0
    for _ in range(120):
        if alone and (len(alone) == 9 or rng.random() < 0.1):
            handle = int(rng.choice(list(alone)))
            pool.close(handle)
            alone.pop(handle).close()
        elif rng.random() < 0.4:
            alone[pool.open()] = lstm.stream(PAIRS, sizes={"N": 1})
        share = rng.choice([0.0, 0.3, 1.0])
        expected = {}
        for handle, stream in alone.items():
            if rng.random() < share:
                feeds = random_frame(rng)
                pool.push(handle, feeds)
                expected[handle] = stream.step(feeds)
        results = pool.step()
        assert results.keys() == expected.keys()
        for handle, outputs in results.items():
            assert len(outputs) == 1
            np.testing.assert_array_equal(outputs[0], expected[handle][0])
            steps += 1
    for handle, stream in alone.items():
        for name, value in pool.state(handle).items():
            np.testing.assert_array_equal(value, stream.state[name])
    assert sorted(pool.handles) == sorted(alone)
    assert steps > 100


def test_every_number_of_streams_is_planned_once(
    counter: ostinato.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = counter.pool({"s": "t"}, capacity=70)
    handles = [pool.open() for _ in range(70)]
    native = counter._native
    assert native is not None
    planned, plan = [], native.plan
    monkeypatch.setattr(native, "plan", lambda *key: planned.append(key) or plan(*key))
    for _ in range(2):
        for count in range(1, 71):
            for handle in handles[:count]:
                pool.push(handle, frame(1))
            assert len(pool.step()) == count
    assert len(planned) == 70
    assert pool.state(handles[0])["s"].tolist() == [[140, 140]]
    assert pool.state(handles[69])["s"].tolist() == [[2, 2]]


def test_a_batch_axis_between_others() -> None:
    session = compiled(
        "g (float[3, N, 2] x, float[2, N, 2] s) => (float[3, N, 2] y, float[2, N, 2] t) "
        "{ a = Constant <value_ints = [0]> ()  b = Constant <value_ints = [2]> ()"
        "  f = Slice(x, a, b)  t = Add(s, f)  r = ReduceSum <keepdims = 1> (t, a)"
        "  y = Add(x, r) }"
    )
    rng = np.random.default_rng(0)
    pool = session.pool({"s": "t"}, capacity=4)
    alone = {pool.open(): session.stream({"s": "t"}) for _ in range(4)}
    for step in range(6):
        expected = {}
        for handle, stream in alone.items():
            if (handle + step) % 3:
                feeds = {"x": rng.standard_normal((3, 1, 2)).astype(F32)}
                pool.push(handle, feeds)
                expected[handle] = stream.step(feeds)
        for handle, (y,) in pool.step().items():
            np.testing.assert_array_equal(y, expected.pop(handle)[0])
        assert not expected


def test_a_pushed_frame_and_results_are_the_callers(counter: ostinato.InferenceSession) -> None:
    pool = counter.pool({"s": "t"}, capacity=2)
    a, b = pool.open(), pool.open()
    feeds = frame(1)
    pool.push(a, feeds)
    feeds["x"][:] = 9
    first = pool.step()
    assert list(first) == [a]
    assert first[a][0].tolist() == [[1, 1]]
    pool.push(b, frame(5))
    pool.push(a, frame(2))
    second = pool.step()
    assert second[a][0].tolist() == [[3, 3]]
    assert second[b][0].tolist() == [[5, 5]]
    assert first[a][0].tolist() == [[1, 1]]
    assert pool.step() == {}


def test_states_move_between_streams_and_pools(counter: ostinato.InferenceSession) -> None:
    stream = counter.stream({"s": "t"})
    stream.step(frame(3))
    pool = counter.pool({"s": "t"}, capacity=3, initial={"s": [[1, 2]]})
    moved, fresh = pool.open(stream.state), pool.open()
    for handle in (moved, fresh):
        pool.push(handle, frame(1))
    results = pool.step()
    assert results[moved][0].tolist() == [[4, 4]]
    assert results[fresh][0].tolist() == [[2, 3]]
    pool.reset(moved)
    assert pool.state(moved)["s"].tolist() == [[1, 2]]
    assert pool.state(fresh)["s"].tolist() == [[2, 3]]
    pool.reset(moved, {"s": np.array([[7, 7]], F32)})
    stream.state.update(pool.state(moved))
    assert stream.step(frame(0))[0].tolist() == [[7, 7]]


def test_a_closed_streams_row_starts_anew(counter: ostinato.InferenceSession) -> None:
    pool = counter.pool({"s": "t"}, capacity=1)
    for value in (1, 2, 3):
        handle = pool.open()
        pool.push(handle, frame(value))
        assert pool.step()[handle][0].tolist() == [[value, value]]
        pool.push(handle, frame(value))
        pool.close(handle)
    assert pool.step() == {}


# Kinds of models


def test_inputs_in_common_and_chunks() -> None:
    session = compiled(
        "g (float[T, N] x, float gain, float[N] s) => (float[T, N] y, float[N] t) "
        "{ y = Mul(x, gain)  a = Constant <value_ints = [0]> ()"
        "  r = ReduceSum <keepdims = 0> (y, a)  t = Add(s, r) }"
    )
    pool = session.pool({"s": "t"}, capacity=2, shared={"gain": 2.0})
    a, b = pool.open(), pool.open()
    pool.push(a, {"x": np.ones((3, 1), F32)})
    with pytest.raises(InputError, match=r"expected float32\[3, 1\] .*got float32\[2, 1\]"):
        pool.push(b, {"x": np.ones((2, 1), F32)})
    pool.push(b, {"x": np.zeros((3, 1), F32)})
    results = pool.step()
    assert results[a][0].tolist() == [[2], [2], [2]]
    assert pool.state(a)["s"] == 6
    with pytest.raises(InputError, match="frame: T is 1, `sizes` says 2"):
        pool = session.pool({"s": "t"}, 2, shared={"gain": 2.0}, sizes={"T": 2})
        pool.push(pool.open(), {"x": np.ones((1, 1), F32)})


def test_fallback_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOWERINGS, "Det")
    text = """g (float[N, 2, 2] x, float[N] s) => (float[N] y, float[N] t) {
        d = Det(x)  y = Add(d, s)  t = Add(s, d) }"""
    session = compiled(text, 20, cache_dir=None)
    assert session.report()["fallback"], "no longer a model with a fallback node"
    pool = session.pool({"s": "t"}, capacity=3)
    a, b = pool.open(), pool.open()
    for value, handles in ((1.0, (a, b)), (2.0, (b,)), (3.0, (a, b))):
        for handle in handles:
            pool.push(handle, {"x": value * np.eye(2, dtype=F32)[None]})
        results = pool.step()
    assert results[a][0].tolist() == [10]
    assert results[b][0].tolist() == [14]


LOOKUP = """g (int64[N] i, float[N] s) => (float[N] y, float[N] t)
{ d = Constant <value_floats = [1.0, 2.0]> ()  y = Gather(d, i)  t = Add(s, y) }"""


def test_one_streams_failure_is_its_own() -> None:
    session = compiled(LOOKUP)
    pool = session.pool({"s": "t"}, capacity=4)
    good, bad, other = pool.open(), pool.open(), pool.open()
    for expected in (2, 4):
        for handle, index in ((good, 1), (bad, 7), (other, 0)):
            pool.push(handle, {"i": np.array([index])})
        with pytest.raises(PoolError, match=f"1 of 3 streams failed: stream {bad}: ") as caught:
            pool.step()
        assert list(caught.value.errors) == [bad]
        assert {h: y.tolist() for h, (y,) in caught.value.results.items()} == {
            good: [2.0],
            other: [1.0],
        }
        assert pool.state(good)["s"] == expected
        assert pool.state(bad)["s"] == 0
    pool.push(bad, {"i": np.array([1])})
    assert pool.step()[bad][0] == 2


# Mistakes


def test_misuse_of_handles(counter: ostinato.InferenceSession) -> None:
    pool = counter.pool({"s": "t"}, capacity=2)
    a, b = pool.open(), pool.open()
    with pytest.raises(StreamError, match="all 2 streams of this pool are open"):
        pool.open()
    pool.push(a, frame(1))
    with pytest.raises(StreamError, match="has a frame that no step has taken"):
        pool.push(a, frame(2))
    pool.close(b)
    uses: list[Callable[[Any], Any]] = [
        lambda handle: pool.push(handle, frame(1)),
        lambda handle: pool.close(handle),
        pool.state,
        pool.reset,
    ]
    strangers: list[Any] = [b, 99, "a", []]
    for use in uses:
        for handle in strangers:
            with pytest.raises(StreamError, match="is closed, or none of this pool"):
                use(handle)
    assert len(pool) == 1
    assert pool.step()[a][0].tolist() == [[1, 1]]


def test_a_closed_pool(counter: ostinato.InferenceSession) -> None:
    pool = counter.pool({"s": "t"}, capacity=2)
    handle = pool.open()
    with pool:
        pool.push(handle, frame(1))
    uses: list[Callable[[], Any]] = [
        pool.open,
        pool.step,
        lambda: pool.push(handle, frame(1)),
        lambda: pool.close(handle),
        lambda: pool.state(handle),
    ]
    for use in uses:
        with pytest.raises(StreamError, match="this pool is closed"):
            use()
    assert "closed" in repr(pool)
    pool.close()


FRAMES: dict[str, tuple[Any, str]] = {
    "missing": ({}, "missing input 'x'"),
    "unknown": ({"x": np.zeros((1, 2), F32), "z": 1}, "unknown input 'z'"),
    "state": ({"x": np.zeros((1, 2), F32), "s": np.zeros((1, 2), F32)}, "unknown input 's'"),
    "dtype": ({"x": np.zeros((1, 2))}, "float64"),
    "batch": ({"x": np.zeros((2, 2), F32)}, r"\[2, 2\]"),
    "width": ({"x": np.zeros((1, 3), F32)}, r"\[1, 3\]"),
    "rank": ({"x": np.zeros(2, F32)}, r"\[2\]"),
    "no dict": (3, "expected a dict"),
}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", FRAMES)
def test_bad_frames_harm_nobody(
    counter: ostinato.InferenceSession, name: str, is_first: bool
) -> None:
    feeds, message = FRAMES[name]
    pool = counter.pool({"s": "t"}, capacity=2)
    a, b = pool.open(), pool.open()
    if not is_first:
        pool.push(a, frame(1))
    with pytest.raises(InputError, match=message):
        pool.push(b, feeds)
    if is_first:
        pool.push(a, frame(1))
    assert {h: y.tolist() for h, (y,) in pool.step().items()} == {a: [[1, 1]]}
    pool.push(b, {"x": [[2.0, 2.0]]})
    assert pool.step()[b][0].tolist() == [[2, 2]]


@pytest.mark.parametrize("state", [{"q": 1}, {"s": np.zeros((2, 2), F32)}, {"s": np.zeros((1, 2))}])
def test_bad_states_open_nothing(counter: ostinato.InferenceSession, state: Any) -> None:
    pool = counter.pool({"s": "t"}, capacity=1)
    with pytest.raises(InputError):
        pool.open(state)
    pool.open()


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, None])
def test_bad_capacities(counter: ostinato.InferenceSession, capacity: Any) -> None:
    with pytest.raises(InputError, match="capacity"):
        counter.pool({"s": "t"}, capacity=capacity)


def test_what_does_not_fit_into_memory(counter: ostinato.InferenceSession) -> None:
    with pytest.raises(RunError, match="GiB are available"):
        counter.pool({"s": "t"}, capacity=10**12)


@pytest.mark.parametrize(
    ("head", "arguments", "message"),
    [
        ("(float[1, 2] x, float[1, 2] s) => (float[1, 2] y, float[1, 2] t)", {}, "there is none"),
        ("(float[2] x, float[N, 2] s) => (float[N, 2] y, float[N, 2] t)", {}, "there is none"),
        ("(float[N, M] x, float[N, M] s) => (float[N, M] y, float[N, M] t)", {}, "several: N, M"),
        (
            "(float[N, M] x, float[N, M] s) => (float[N, M] y, float[N, M] t)",
            {"batch": "K"},
            "batch='K' is no dimension",
        ),
        (
            "(float[N, M] x, float[N, M] s) => (float[N, M] y, float[N, M] t)",
            {"batch": "N"},
            r"the size of M; pass `sizes",
        ),
        (
            "(float[N, N] x, float[N, N] s) => (float[N, N] y, float[N, N] t)",
            {},
            "as one of its dimensions",
        ),
        (
            "(float[N, 2] x, float[N, 2] s) => (float[K, 2] y, float[N, 2] t)",
            {},
            "'y' is float32",
        ),
        (
            "(float[N, 2] x, float[N, 2] s) => (float[N, 2] y, float[N, 2] t)",
            {"shared": {"q": 1}},
            "unknown input 'q'",
        ),
    ],
)
def test_the_batch_must_be_declared(head: str, arguments: dict[str, Any], message: str) -> None:
    session = compiled("g " + head + " { y = Add(x, s)  t = Sub(s, x) }")
    with pytest.raises(InputError, match=message):
        session.pool({"s": "t"}, 4, **arguments)


def test_one_of_several_dimensions() -> None:
    session = compiled("g (float[N, M] x, float[N, M] s) => (float[N, M] y, float[N, M] t) "
                       "{ y = Add(x, s)  t = Add(s, x) }")  # fmt: skip
    pool = session.pool({"s": "t"}, 4, batch="M", sizes={"N": 2})
    a = pool.open()
    pool.push(a, {"x": np.array([[1], [2]], F32)})
    assert pool.step()[a][0].tolist() == [[1], [2]]
    assert pool.describe().splitlines()[1].split() == ["s", "t", "[2,", "1]", "float32"]
    assert repr(pool) == "<Pool s <- t, 1 of 4 streams>"


# Threads and event loops


def test_threads_push_while_another_steps(lstm: ostinato.InferenceSession) -> None:
    pool = lstm.pool(PAIRS, capacity=4)
    right: list[int] = []
    results: dict[int, list[np.ndarray]] = {}
    lock = threading.Condition()

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        alone, handle = lstm.stream(PAIRS), pool.open()
        for _ in range(50):
            feeds = random_frame(rng)
            with lock:
                pool.push(handle, feeds)
                assert lock.wait_for(lambda: handle in results, 10)
                (y,) = results.pop(handle)
            np.testing.assert_array_equal(y, alone.step(feeds)[0])
        pool.close(handle)
        right.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stepped = pool.step()
        with lock:
            results.update(stepped)
            lock.notify_all()
    assert sorted(right) == [0, 1, 2, 3]


def run(main: Callable[[], Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(main(), 30)

    return asyncio.run(limited())


def test_asynchronous_streams_have_the_bits_of_singles(lstm: ostinato.InferenceSession) -> None:
    pool = lstm.pool(PAIRS, capacity=5)

    async def one(seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        frames = [random_frame(rng) for _ in range(count)]
        async with pool.connect(depth=3) as stream:

            async def send() -> None:
                for feeds in frames:
                    await stream.send(feeds)
                stream.finish()

            sender = asyncio.create_task(send())
            got = [outputs async for outputs in stream]
            await sender
        alone = lstm.stream(PAIRS)
        assert len(got) == count
        for (y,), feeds in zip(got, frames, strict=True):
            np.testing.assert_array_equal(y, alone.step(feeds)[0])

    async def main() -> None:
        await asyncio.gather(*(one(seed, 10 + 7 * seed) for seed in range(5)))

    run(main)
    assert len(pool) == 0
    # Without streams of an event loop the pool is stepped by hand again, or by another loop.
    handle = pool.open()
    pool.push(handle, random_frame(np.random.default_rng(0)))
    assert list(pool.step()) == [handle]
    pool.close(handle)
    run(main)


def test_one_task_may_send_everything_before_it_reads(counter: ostinato.InferenceSession) -> None:
    async def main() -> None:
        async with counter.pool({"s": "t"}, 1).connect(depth=2) as stream:
            for value in (1, 2, 3, 4, 5, 6):
                await stream.send(frame(value))
                assert len(stream._frames) <= 2
            stream.finish()
            assert [y[0, 0] async for (y,) in stream] == [1, 3, 6, 10, 15, 21]

    run(main)


def test_sending_waits_while_frames_wait_to_be_stepped(counter: ostinato.InferenceSession) -> None:
    async def main() -> None:
        pool = counter.pool({"s": "t"}, 1)
        stream = pool.connect(depth=2)
        may_step, step = threading.Event(), pool._step
        pool._step = lambda: may_step.wait(10) and step()  # type: ignore[method-assign]
        for value in (1, 2):
            await stream.send(frame(value))
        # The pool takes one frame, and then does not come to an end with it.
        await stream.send(frame(3))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stream.send(frame(4)), 0.05)
        may_step.set()
        assert (await anext(stream))[0].tolist() == [[1, 1]]
        stream.finish()
        stream.finish()
        assert [y.tolist() async for (y,) in stream] == [[[3, 3]], [[6, 6]]]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        with pytest.raises(StreamError, match="finished"):
            await stream.send(frame(1))
        stream.close()
        stream.close()
        with pytest.raises(StreamError, match="closed"):
            await stream.send(frame(1))

    run(main)


def test_frames_that_do_not_fit_or_fail_harm_nobody() -> None:
    session = compiled(LOOKUP)

    async def main() -> None:
        pool = session.pool({"s": "t"}, 2)
        async with pool.connect() as good, pool.connect() as bad:
            with pytest.raises(InputError, match="missing input"):
                await bad.send({})
            for index in (1, 5, 0):
                await bad.send({"i": np.array([index])})
                await good.send({"i": np.array([1])})
            assert (await anext(bad))[0] == 2
            with pytest.raises(RunError):
                await anext(bad)
            assert (await anext(bad))[0] == 1
            good.finish()
            assert [float(y[0]) async for (y,) in good] == [2, 2, 2]
            with pytest.raises(StreamError, match="stepped as they come"):
                pool.step()

    run(main)


def test_closing_wakes_those_who_wait(counter: ostinato.InferenceSession) -> None:
    async def main() -> None:
        pool = counter.pool({"s": "t"}, 1)
        stream = pool.connect(depth=1)
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        stream.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        stream = pool.connect(depth=1)
        await stream.send(frame(1))
        # They come before the task that steps the pool, so all but the first of them wait.
        sending = [asyncio.create_task(stream.send(frame(2))) for _ in range(5)]
        await asyncio.sleep(0)
        stream.close()
        results = await asyncio.gather(*sending, return_exceptions=True)
        assert len([result for result in results if isinstance(result, StreamError)]) >= 4
        assert len(pool) == 0

    run(main)


def test_an_idle_pool_does_no_work(counter: ostinato.InferenceSession) -> None:
    async def main() -> int:
        stream = counter.pool({"s": "t"}, 1).connect()
        await stream.send(frame(1))
        await anext(stream)
        driver = stream._driver
        beats = 0
        push = driver._push

        def counted() -> Any:
            nonlocal beats
            beats += 1
            return push()

        driver._push = counted  # type: ignore[method-assign]
        await asyncio.sleep(0.1)
        stream.close()
        return beats

    assert run(main) <= 2


def test_connecting_needs_an_event_loop_and_a_depth(counter: ostinato.InferenceSession) -> None:
    pool = counter.pool({"s": "t"}, 1)
    with pytest.raises(StreamError, match="running event loop"):
        pool.connect()

    async def main() -> None:
        with pytest.raises(InputError, match="depth"):
            pool.connect(depth=0)
        pool.connect()
        with pytest.raises(StreamError, match="all 1 streams"):
            pool.connect()

    run(main)


def test_streams_that_change_each_other_are_told() -> None:
    session = compiled(
        "g (float[N, 2] x, float[N, 2] s) => (float[N, 2] y, float[N, 2] t)"
        " { t = Add (x, s)  q, a, z = DynamicQuantizeLinear (t)  y = DequantizeLinear (q, a, z) }"
    )
    with pytest.warns(MixedRows, match=r"change each other's results: node 'q' .* along 'N'"):
        pool = session.pool({"s": "t"}, capacity=2)
    assert pool.mixes is not None


def test_streams_of_rows_that_are_alone_are_not(counter: ostinato.InferenceSession) -> None:
    assert counter.pool({"s": "t"}, capacity=2).mixes is None
