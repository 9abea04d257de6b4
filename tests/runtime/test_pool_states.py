"""Pools of streams whose states grow: each has the bits that it has alone, whatever its length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ostinato
from ostinato.errors import InputError, PoolError, StreamError, UnsupportedError
from tests.runtime.test_growing import STATES, decoder, llama, of_axis, text_model, wide

F32 = np.float32
RANDOM = np.random.default_rng(3)
LAYERS = {f"{kind}_{i}": f"next_{kind}_{i}" for i in (0, 1) for kind in ("keys", "values")}

Frame = Callable[[int], dict[str, np.ndarray]]


def token(_: int) -> dict[str, np.ndarray]:
    return {"token": RANDOM.integers(0, 20, (1, 1))}


def masked_token(rows: int) -> dict[str, np.ndarray]:
    mask = (np.arange(rows + 1) >= rows // 3).astype(np.int64)
    return {"token": RANDOM.integers(0, 40, (1, 1)), "mask": mask[None]}


def vector(width: int, name: str = "x") -> Frame:
    return lambda _: {name: RANDOM.standard_normal((1, 1, width)).astype(F32)}


def check(
    session: ostinato.InferenceSession,
    states: dict[str, str],
    frame: Frame,
    steps: int = 90,
    **options: Any,
) -> None:
    """Streams that open, stall, fork, rewind and close at random, against streams of their own."""
    pool = session.pool(states, 5, batch="N", sizes={"N": 1}, **options)
    alone: dict[int, Any] = {}
    rows: dict[int, int] = {}
    can_rewind = not [*pool._states._fixed(0)]
    for number in range(steps):
        draw = RANDOM.random()
        if number % 9 == 0 and len(alone) < 5:
            handle = pool.open()
            alone[handle], rows[handle] = session.stream(states, sizes={"N": 1}), 0
        elif draw < 0.05 and 1 < len(alone) < 5:
            old = next(iter(alone))
            handle = pool.fork(old)
            alone[handle], rows[handle] = alone[old].fork(), rows[old]
        elif draw < 0.1 and len(alone) > 3:
            pool.close(next(iter(alone)))
            alone.pop(next(iter(alone))).close()
        elif draw < 0.2 and can_rewind:
            handle = list(alone)[-1]
            count = min(3, rows[handle])
            pool.rewind(handle, count)
            alone[handle].rewind(count)
            rows[handle] -= count
        expected = {}
        for handle, stream in alone.items():
            if RANDOM.random() < 0.7:
                feeds = frame(rows[handle])
                expected[handle] = stream.step(feeds)
                pool.push(handle, feeds)
                rows[handle] += 1
        results = pool.step()
        assert results.keys() == expected.keys()
        for handle, arrays in expected.items():
            for made, wanted in zip(results[handle], arrays, strict=True):
                np.testing.assert_array_equal(made, wanted)
    for handle, stream in alone.items():
        state = pool.state(handle)
        for name, wanted in stream.state.items():
            np.testing.assert_array_equal(state[name], wanted)


@pytest.mark.parametrize("rows", [None, 100], ids=str)
def test_streams_of_different_lengths_have_the_bits_that_they_have_alone(rows: int | None) -> None:
    check(decoder(), STATES, token, steps=160 if rows is None else 60, rows=rows)


def test_masks_of_different_lengths() -> None:
    session = llama()
    check(session, LAYERS, masked_token, rows=90)
    with pytest.raises(InputError, match="'mask' is as long as the states"):
        session.pool(LAYERS, 2, batch="N")
    pool = session.pool(LAYERS, 2, batch="N", rows=4)
    frame = {"token": np.zeros((1, 1), np.int64), "mask": np.ones((1, 500), np.int64)}
    with pytest.raises(InputError, match=r"'mask': .* is longer than"):
        pool.push(pool.open(), frame)


@pytest.mark.parametrize("name", ["with positions behind the past", "with the last positions"])
def test_positions_that_masks_tell(name: str) -> None:
    def frame(rows: int) -> dict[str, np.ndarray]:
        x = RANDOM.standard_normal((1, 1, 8)).astype(F32)
        return {"x": x, "mask": RANDOM.random((1, rows + 1)) < 0.8}

    check(of_axis(name), {"past": "present"}, frame, 50, rows=60)
    with pytest.raises(InputError, match=r"'mask' is as long as the states .* pass `rows`"):
        of_axis(name).pool({"past": "present"}, 2, batch="N")


def test_masks_of_one_element_are_repeated() -> None:
    model = text_model(
        """g (float[N, 1, 4] x, float[N, P, 4] past, float[N, M] mask)
            => (float[N, 1, 4] y, float[N, Q, 4] present) {
                one = Constant<value_ints = [1]>()  present = Concat<axis = 1>(past, x)
                t = Transpose<perm = [0, 2, 1]>(present)  s = MatMul(x, t)
                m = Unsqueeze(mask, one)  e = Add(s, m)  w = Softmax(e)  y = MatMul(w, present)
        }"""
    )

    def frame(rows: int) -> dict[str, np.ndarray]:
        extent = rows + 1 if RANDOM.random() < 0.5 else 1
        x, mask = RANDOM.standard_normal((1, 1, 4)), RANDOM.standard_normal((1, extent))
        return {"x": x.astype(F32), "mask": mask.astype(F32)}

    session = ostinato.InferenceSession(model)
    check(session, {"past": "present"}, frame, 40, rows=40)
    pool = session.pool({"past": "present"}, 2, batch="N", rows=8)
    wrong, right = pool.open({"past": np.ones((1, 4, 4), F32)}), pool.open()
    pool.push(wrong, frame(4) | {"mask": np.zeros((1, 3), F32)})
    pool.push(right, frame(0))
    with pytest.raises(PoolError, match="'mask': its axis 1 is not as long as the states") as error:
        pool.step()
    assert list(error.value.results) == [right] and pool.state(wrong)["past"].shape == (1, 4, 4)


def test_other_layouts_and_states_that_do_not_grow() -> None:
    check(wide(), {"past": "present", "h": "next_h"}, vector(24))


@pytest.mark.parametrize("name", ["in front", "two layers", "of layers", "with a relative shift"])
def test_either_end(name: str) -> None:
    session = text_model_session(TWO_LAYERS) if name == "two layers" else of_axis(name)
    states = {"a": "b", "c": "d"} if name == "two layers" else {"past": "present"}
    check(session, states, vector(8, session.get_inputs()[0].name), steps=100)


# Positions are counted in the model, scores are shifted by what both layers read.
@pytest.mark.parametrize(
    "ends",
    [
        # A query whose parts are added up one after the other, computed outside of the loop.
        "u = Tanh (x)  q = Concat <axis = 2> (u, x)  s = MatMul (q, t)  w = Softmax (s)"
        "  y = MatMul (w, v)",
        # What the loop makes, in parts, of which the last product is added up outside of it.
        "s = MatMul (x2, t)  w = Softmax (s)  a = MatMul (w, v)  b = Tanh (a)"
        "  c = Concat <axis = 2> (a, b)  y = MatMul (c, W)",
    ],
    ids=["before the loop", "behind the loop"],
)
def test_products_of_what_is_joined(ends: str) -> None:
    model = text_model(
        f"""g (float[N, 1, 6] x, float[N, P, 12] past)
            => (float[N, 1, K] y, float[N, Q, 12] present) {{
                x2 = Concat <axis = 2> (x, x)  present = Concat <axis = 1> (past, x2)
                t = Transpose <perm = [0, 2, 1]> (present)  v = Sin (present)
                {ends}
        }}""",
        W=RANDOM.standard_normal((24, 5)).astype(F32),
    )
    check(ostinato.InferenceSession(model), {"past": "present"}, vector(6), 40)


TWO_LAYERS = """g (float[N, T, 8] x, float[N, P, 8] a, float[N, P, 8] c)
    => (float[N, T, 8] y, float[N, Q, 8] b, float[N, Q, 8] d) {
    zero = Constant<value_int = 0>()  one = Constant<value_int = 1>()
    k = MatMul(x, W)  b = Concat<axis = 1>(a, k)
    size = Shape<start = 1, end = 2>(b)  flat = Squeeze(size)  range = Range(zero, flat, one)
    f = Cast<to = 1>(range)  tenth = Constant<value = float {0.1}>()  shift = Mul(f, tenth)
    t = Transpose<perm = [0, 2, 1]>(b)  s = MatMul(x, t)  u = Add(s, shift)
    p = Softmax<axis = -1>(u)  v = MatMul(p, b)  h = MatMul(v, W)
    l = MatMul(h, W)  d = Concat<axis = 1>(c, l)
    t2 = Transpose<perm = [0, 2, 1]>(d)  s2 = MatMul(h, t2)  u2 = Add(s2, shift)
    p2 = Softmax<axis = -1>(u2)  v2 = MatMul(p2, d)  y = MatMul(v2, W)
}"""


def text_model_session(source: str) -> ostinato.InferenceSession:
    weights = {"W": RANDOM.standard_normal((8, 8)).astype(F32) / 3}
    return ostinato.InferenceSession(text_model(source, **weights))


def test_a_full_stream_does_not_stop_the_others() -> None:
    pool = decoder().pool(STATES, 3, rows=6)
    full, other = pool.open(), pool.open()
    for number in range(6):
        pool.push(full, token(0))
        if number % 2:
            pool.push(other, token(0))
        pool.step()
    before = pool.state(full)
    feeds = token(0)
    for handle in (full, other):
        pool.push(handle, feeds)
    expected = decoder().stream(STATES, pool.state(other)).step(feeds)[0]
    with pytest.raises(PoolError) as raised:
        pool.step()
    assert "'keys' is full: its 6 rows of axis 'P'" in str(raised.value.errors[full])
    np.testing.assert_array_equal(raised.value.results[other][0], expected)
    for name, rows in before.items():
        np.testing.assert_array_equal(pool.state(full)[name], rows)
    pool.rewind(full, 2)
    pool.push(full, feeds)
    pool.step()
    assert pool.state(full)["keys"].shape[2] == 5


def test_states_are_given_and_taken() -> None:
    stream = decoder().stream(STATES, sizes={"N": 1})
    for _ in range(70):
        stream.step(token(0))
    pool = decoder().pool(STATES, 2)
    handle = pool.open(stream.state)
    feeds = token(0)
    pool.push(handle, feeds)
    np.testing.assert_array_equal(pool.step()[handle][0], stream.step(feeds)[0])
    pool.reset(handle)
    assert pool.state(handle)["keys"].shape == (1, 2, 0, 8)
    assert "[N, 2, P, 8]" in pool.describe()


def test_what_does_not_fit_is_refused_by_name() -> None:
    pool = decoder().pool(STATES, 1)
    with pytest.raises(InputError, match="cache"):
        pool.open({"cache": np.zeros((1, 2, 0, 8), F32)})
    with pytest.raises(InputError, match="'keys'"):
        pool.open({"keys": np.zeros((1, 2, 3, 7), F32)})
    with pytest.raises(InputError, match="P"):
        pool.open({"keys": np.zeros((1, 2, 3, 8), F32)})
    handle = pool.open()
    with pytest.raises(StreamError, match="all 1 streams"):
        pool.fork(handle)
    with pytest.raises(InputError, match="1 rows, there are 0"):
        pool.rewind(handle, 1)
    with pytest.raises(InputError, match="rows is 0"):
        decoder().pool(STATES, 1, rows=0)
    pool.close(handle)
    with pytest.raises(StreamError, match="closed"):
        pool.fork(handle)
    with pytest.raises(StreamError, match="'h' does not grow"):
        both = wide().pool({"past": "present", "h": "next_h"}, 1, batch="N")
        both.rewind(both.open(), 0)
    model = text_model(
        "g (float[N] x, float[N] h) => (float[N] y, float[N] n) { n = Add(x, h) y = Tanh(n) }"
    )
    with pytest.raises(InputError, match="no state of this pool grows"):
        ostinato.InferenceSession(model).pool({"h": "n"}, 2, rows=3)
    with pytest.raises(UnsupportedError, match=r"'s'.*differs from stream to stream"):
        of_axis("of columns").pool({"past": "present"}, 2, batch="N")
