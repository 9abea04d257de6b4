"""States of which a step replaces some rows: they have one buffer, in which it does so."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import InputError, RunError, StreamError

PAIR = {"cache": "next"}
SIZES = {"N": 2}
ROWS = 6

# A row is stored at the place `p`, then everything is read: what `scores` sees is the new cache.
CACHED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 6, 3] cache, float[N, 1, 3] x, int64[1] p)
    => (float[N, 6] scores, float[N, 6, 3] next) {
    zero = Constant<value_ints = [0]>()  two = Constant<value_ints = [2]>()
    before = Transpose<perm = [1, 0, 2]>(cache)  row = Transpose<perm = [1, 0, 2]>(x)
    places = Unsqueeze(p, zero)  after = ScatterND(before, places, row)
    next = Transpose<perm = [1, 0, 2]>(after)
    MORE
    sums = ReduceSum<keepdims = 0>(next, two)  scores = SCORES }"""


def cached(scores: str = "Tanh(sums)", more: str = "", **options: Any) -> ostinato.InferenceSession:
    text = CACHED.replace("SCORES", scores).replace("MORE", more)
    return ostinato.InferenceSession(onnx.parser.parse_model(text), cache_dir=None, **options)


@pytest.fixture(scope="module")
def session() -> ostinato.InferenceSession:
    return cached()


def feeds(number: int, place: int | None = None) -> dict[str, np.ndarray]:
    x = np.random.default_rng(number).standard_normal((2, 1, 3), np.float32)
    return {"x": x, "p": np.array([number % ROWS if place is None else place])}


def replaced(stream: Any) -> list[str]:
    return [pair.name for pair in stream._stepper.replaced]


@pytest.mark.parametrize("disable", [(), ("checks_first",), ("elide_copies", "store_in_place")])
def test_steps_in_place_have_the_bits_of_calls(disable: tuple[str, ...]) -> None:
    session = cached(disable=disable)
    stream = session.stream(PAIR, sizes=SIZES)
    cache = np.zeros((2, ROWS, 3), np.float32)
    for number in range(9):
        (scores,) = stream.step(feeds(number))
        before = cache.copy()
        expected, following = session.run(None, {"cache": cache, **feeds(number)})
        np.testing.assert_array_equal(scores, expected)
        np.testing.assert_array_equal(cache, before)
        cache = following
        np.testing.assert_array_equal(stream.state["cache"], cache)
    assert replaced(stream) == ([] if "store_in_place" in disable else ["cache"])


def test_forks_and_bound_steps_change_their_own(session: ostinato.InferenceSession) -> None:
    stream = session.stream(PAIR, sizes=SIZES)
    stream.step(feeds(0))
    kept, twin = stream.state["cache"], stream.fork()
    call = twin.bind(feeds(1))
    call()
    call()
    np.testing.assert_array_equal(stream.state["cache"], kept)
    stream.step(feeds(1))
    np.testing.assert_array_equal(stream.state["cache"], twin.state["cache"])


def test_a_step_that_fails_changes_nothing(session: ostinato.InferenceSession) -> None:
    stream = session.stream(PAIR, sizes=SIZES)
    stream.step(feeds(0))
    kept = stream.state["cache"]
    for _ in range(2):
        with pytest.raises(RunError, match="out of range"):
            stream.step(feeds(1, place=ROWS))
        np.testing.assert_array_equal(stream.state["cache"], kept)
    stream.step(feeds(1))


@pytest.mark.parametrize(
    ("scores", "more"),
    [
        # The old cache is read behind the store, a check depends on what was computed.
        ("Add(sums, r)", "t = Tanh(next)  m = Max(t, cache)  r = ReduceSum<keepdims = 0>(m, two)"),
        (
            "Add(sums, r)",
            "c = ReduceSum<keepdims = 0>(next, two)  i = Cast<to = 7>(c)  r = GatherElements(c, i)",
        ),
    ],
    ids=["read again", "checked later"],
)
def test_what_is_needed_behind_the_store_has_two_buffers(scores: str, more: str) -> None:
    session = cached(scores, more)
    stream = session.stream(PAIR, sizes=SIZES)
    given = feeds(0) | {"x": np.zeros((2, 1, 3), np.float32)}
    (made,) = stream.step(given)
    cache = np.zeros((2, ROWS, 3), np.float32)
    np.testing.assert_array_equal(made, session.run(None, {"cache": cache, **given})[0])
    assert replaced(stream) == []


def test_an_interrupted_step_loses_the_state(session: ostinato.InferenceSession) -> None:
    stream = session.stream(PAIR, sizes=SIZES)
    stream.step(feeds(0))
    kept = stream.state["cache"]

    def interrupted(*arrays: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream._stepper._watched(interrupted)()  # type: ignore[union-attr]
    for use in (lambda: stream.step(feeds(1)), lambda: stream.state["cache"], stream.fork):
        with pytest.raises(StreamError, match="'cache' is lost"):
            use()
    stream.state["cache"] = kept
    stream.step(feeds(1))
    stream.reset()
    assert not stream.state["cache"].any()


def test_a_bound_call_replaces_rows_of_its_input(session: ostinato.InferenceSession) -> None:
    cache = np.random.default_rng(5).standard_normal((2, ROWS, 3), np.float32)
    expected, following = session.run(None, {"cache": cache, **feeds(2)})
    call = session.bind({"cache": cache, **feeds(2)}, {"next": cache})
    call()
    np.testing.assert_array_equal(call.outputs["scores"], expected)
    np.testing.assert_array_equal(cache, following)
    call.inputs["p"][:] = ROWS
    with pytest.raises(RunError, match="out of range"):
        call()
    np.testing.assert_array_equal(cache, following)


def test_an_input_that_is_read_behind_the_store_is_not_bound_as_an_output() -> None:
    session = cached("Add(sums, r)", "r = ReduceSum<keepdims = 0>(cache, two)")
    cache = np.zeros((2, ROWS, 3), np.float32)
    with pytest.raises(InputError, match="output 'next' overlaps an input"):
        session.bind({"cache": cache, **feeds(0)}, {"next": cache})


# A cache that grows where it has no room for as many rows as there are.
ROOMY = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, P, 3] cache, float[2, 1, 3] x, bool[T] seen) => (float[2, R, 3] next) {
    one = Constant<value_ints = [1]>()  three = Constant<value_ints = [3]>()
    two = Constant<value_ints = [2]>()
    p = Shape<start = 1, end = 2>(cache)  t = Shape(seen)  r = Max(p, t)  more = Sub(r, p)
    shape = Concat<axis = 0>(two, more, three)  blank = ConstantOfShape(shape)
    whole = Concat<axis = 1>(cache, blank)  place = Sub(t, one)
    xs = Shape(x)  index = Expand(place, xs)
    next = ScatterElements<axis = 1>(whole, index, x)
    }"""


def test_a_bound_call_replaces_rows_of_a_cache_that_has_room() -> None:
    session = ostinato.InferenceSession(onnx.parser.parse_model(ROOMY), cache_dir=None)
    cache = np.random.default_rng(6).standard_normal((2, ROWS, 3), np.float32)
    for rows in (1, 4, ROWS):
        given = {"cache": cache, "x": feeds(rows)["x"], "seen": np.ones(rows, bool)}
        (expected,) = session.run(None, given)
        session.bind(given, {"next": cache})()
        np.testing.assert_array_equal(cache, expected)
    given["seen"] = np.ones(ROWS + 1, bool)
    with pytest.raises(InputError, match="output 'next'"):
        session.bind(given, {"next": cache})
