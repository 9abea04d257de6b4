"""Streams of states whose shapes change in other ways than by rows behind the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import InputError, StreamError
from ostinato.runtime.growing import GrowingStream
from ostinato.runtime.stream import Stream

RANDOM = np.random.default_rng(0)
FRAMES = list(RANDOM.standard_normal((9, 1, 4)).astype(np.float32))

WINDOW = """g (float[T, 4] x, float[P, 4] past) => (float[T, 4] y, float[Q, 4] present)
    <int64[1] first = {-3}, int64[1] end = {9223372036854775807}, int64[1] axis = {0}> {
        all = Concat<axis = 0>(past, x)  present = Slice(all, first, end, axis)
        t = Transpose(all)  s = MatMul(x, t)  p = Softmax(s)  y = MatMul(p, all)
    }"""

EVICTED = """g (float[T, 4] x, float[P, 4] past) => (float[T, 4] y, float[Q, 4] present)
    <int64[1] axis = {1}, int64[1] three = {3}> {
        all = Concat<axis = 0>(past, x)  squares = Mul(all, all)
        norms = ReduceSum<keepdims = 0>(squares, axis)
        size = Shape<end = 1>(all)  k = Min(size, three)
        kept, where = TopK<axis = 0>(norms, k)  order, i = TopK<axis = 0, largest = 0>(where, k)
        present = Gather(all, order)
        t = Transpose(all)  s = MatMul(x, t)  p = Softmax(s)  y = MatMul(p, all)
    }"""

# The products of all rows so far, which grow along two axes, beside the rows.
SQUARE = """g (float[T, 4] x, float[P, 4] past, float[P, P] table)
    => (float[A, A] y, float[Q, 4] present, float[R, R] next_table) {
        present = Concat<axis = 0>(past, x)  turned = Transpose(x)
        right = MatMul(past, turned)  corner = MatMul(x, turned)  under = Transpose(right)
        upper = Concat<axis = 1>(table, right)  lower = Concat<axis = 1>(under, corner)
        next_table = Concat<axis = 0>(upper, lower)  y = Neg(next_table)
    }"""

MERGED = """g (float[T, 4] x, bool begins, float[P, 4] past)
    => (float[T, 4] y, float[Q, 4] present) {
    present = If(begins)<
        then_branch = a () => (float[A, 4] first) { first = Neg(x) },
        else_branch = b () => (float[B, 4] longer) { longer = Concat<axis = 0>(past, x) }
    >
    t = Transpose(present)  s = MatMul(x, t)  p = Softmax(s)  y = MatMul(p, present)
}"""

STATES = {
    WINDOW: {"past": "present"},
    EVICTED: {"past": "present"},
    SQUARE: {"past": "present", "table": "next_table"},
    MERGED: {"past": "present"},
}


def compiled(source: str) -> ostinato.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {source}')
    return ostinato.InferenceSession(model)


def feeds_of(source: str) -> list[dict[str, np.ndarray]]:
    begins: Callable[[int], Mapping[str, np.ndarray]] = (
        (lambda i: {"begins": np.array(i in (0, 5))}) if source == MERGED else (lambda _: {})
    )
    return [{"x": x, **begins(i)} for i, x in enumerate(FRAMES)]


def carried(source: str) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]]]:
    """Results, and the states behind each step, where the caller carries the states."""
    session, results, states = compiled(source), [], []
    names = [output.name for output in session.get_outputs()]
    now = {"past": np.zeros((0, 4), np.float32), "table": np.zeros((0, 0), np.float32)}
    now = {name: now[name] for name in STATES[source]}
    for feeds in feeds_of(source):
        made = dict(zip(names, session.run(None, {**feeds, **now}), strict=True))
        now = {name: made[output] for name, output in STATES[source].items()}
        results.append(made["y"])
        states.append(now)
    return results, states


def opened(source: str) -> Stream:
    stream = compiled(source).stream(STATES[source], sizes={"P": 0})
    assert isinstance(stream, Stream)
    return stream


@pytest.mark.parametrize("source", STATES, ids=["window", "evicted", "square", "merged"])
def test_steps_have_the_bits_of_states_that_are_carried(source: str) -> None:
    results, states = carried(source)
    stream = opened(source)
    for _ in range(2):
        for feeds, y, now in zip(feeds_of(source), results, states, strict=True):
            np.testing.assert_array_equal(stream.step(feeds)[0], y)
            for name, array in now.items():
                np.testing.assert_array_equal(stream.state[name], array)
        stream.reset()
        assert all(0 in stream.state[name].shape for name in stream.state)


def test_states_that_may_change_and_do_not_have_memory_of_their_own() -> None:
    """A window that is full keeps its two buffers, and a bound step their addresses."""
    results, states = carried(WINDOW)
    stream = compiled(WINDOW).stream({"past": "present"}, initial=states[3])
    x, y = FRAMES[4].copy(), np.empty_like(FRAMES[0])
    bound = stream.bind({"x": x}, {"y": y})
    for place in range(4, 9):
        x[...] = FRAMES[place]
        bound()
        np.testing.assert_array_equal(y, results[place])
    stepper = stream._stepper
    assert stepper is not None and stream.step({"x": x}) and stream._stepper is stepper


def test_a_window_that_is_full_has_memory_of_its_own() -> None:
    results, _ = carried(WINDOW)
    stream = opened(WINDOW)
    kinds = []
    for x, y in zip(FRAMES, results, strict=True):
        np.testing.assert_array_equal(stream.step({"x": x})[0], y)
        kinds.append(stream._carried is None)
    assert kinds == [False] * 6 + [True] * 3


def test_a_bound_step_follows_states_that_got_other_shapes() -> None:
    results, states = carried(WINDOW)
    stream = compiled(WINDOW).stream({"past": "present"}, initial=states[3])
    x, y = FRAMES[1].copy(), np.empty_like(FRAMES[0])
    bound = stream.bind({"x": x}, {"y": y})
    stream.state.update(states[0])
    bound()
    np.testing.assert_array_equal(y, results[1])
    np.testing.assert_array_equal(stream.state["past"], states[1]["past"])


def test_forks_files_and_values_of_other_shapes(tmp_path: Path) -> None:
    results, states = carried(WINDOW)
    stream, path = opened(WINDOW), tmp_path / "states.npz"
    for x in FRAMES[:2]:
        stream.step({"x": x})
    twin = stream.fork()
    stream.save(path)
    other = opened(WINDOW)
    other.load(path)
    for each in (stream, twin, other):
        np.testing.assert_array_equal(each.step({"x": FRAMES[2]})[0], results[2])
    assert "[3, 4]" in stream.describe()
    with pytest.raises(InputError, match="past"):
        stream.state["past"] = np.zeros((2, 5), np.float32)
    np.testing.assert_array_equal(stream.state["past"], states[2]["past"])
    stream.close()
    with pytest.raises(StreamError, match="closed"):
        stream.step({"x": FRAMES[0]})


def test_states_that_are_carried_begin_anew_with_the_shape_of_the_first_ones() -> None:
    stream = compiled(WINDOW).stream({"past": "present"}, initial={"past": FRAMES[0]})
    stream.step({"x": FRAMES[1]})
    stream.state.update({"past": FRAMES[2]})
    stream.reset()
    np.testing.assert_array_equal(stream.state["past"], FRAMES[0])


def test_a_step_that_raises_leaves_the_states() -> None:
    stream = opened(WINDOW)
    stream.step({"x": FRAMES[0]})
    with pytest.raises(InputError, match="x"):
        stream.step({"x": np.zeros((1, 5), np.float32)})
    np.testing.assert_array_equal(stream.state["past"], FRAMES[0])


def test_rows_whose_number_values_tell() -> None:
    """Frames that are loud are kept, in memory with room for more."""
    session = compiled(
        """g (float[T, 4] x, float[P, 4] past) => (float[T, 4] y, float[Q, 4] present)
        <int64[1] axis = {1}, float zero = {0}> {
            sums = ReduceSum<keepdims = 0>(x, axis)  loud = Greater(sums, zero)
            rows = Compress<axis = 0>(x, loud)  present = Concat<axis = 0>(past, rows)
            t = Transpose(present)  s = MatMul(x, t)  c = ReduceSum(s, axis)  y = Add(x, c)
        }"""
    )
    stream, past = session.stream({"past": "present"}), np.zeros((0, 4), np.float32)
    assert isinstance(stream, GrowingStream)
    for _ in range(20):
        x = RANDOM.standard_normal((5, 4)).astype(np.float32)
        y, past = session.run(None, {"x": x, "past": past})
        np.testing.assert_array_equal(stream.step({"x": x})[0], y)
    np.testing.assert_array_equal(stream.state["past"], past)


# The number of rows to keep is an input, on whose element sizes depend.
KEEPING = """g (float[T, 4] x, int64[1] first, float[P, 4] past)
    => (float[A, 4] y, float[Q, 4] present)
    <int64[1] end = {9223372036854775807}, int64[1] axis = {0}> {
        all = Concat<axis = 0>(past, x)  present = Slice(all, first, end, axis)  y = Neg(present)
    }"""

# Two states of one length, which an input can let become of different ones.
UNEQUAL = """g (float[T, 4] x, int64[1] first, float[P, 4] a, float[P, 4] b)
    => (float[T, 4] y, float[Q, 4] next_a, float[R, 4] next_b)
    <int64[1] end = {9223372036854775807}, int64[1] axis = {0}, int64[1] nine = {-9}> {
        all_a = Concat<axis = 0>(a, x)  next_a = Slice(all_a, nine, end, axis)
        all_b = Concat<axis = 0>(b, x)  next_b = Slice(all_b, first, end, axis)  y = Neg(x)
    }"""


def plans(stream: Stream) -> int:
    """How many shapes the function that steps the stream is planned for."""
    native = stream._session._flow.whole()
    assert native is not None
    return len(native._plans)


@pytest.mark.parametrize("source", [SQUARE, MERGED], ids=["square", "merged"])
def test_steps_of_other_shapes_are_not_planned(source: str) -> None:
    stream = opened(source)
    for feeds in feeds_of(source):
        stream.step(feeds)
    assert plans(stream) == 2


def test_many_rows_at_a_time_make_room_for_what_is_between() -> None:
    """Results and intermediate values become larger than any before, and memory is used again."""
    session = compiled(MERGED)
    stream, past = opened(MERGED), np.zeros((0, 4), np.float32)
    begins = np.array(False)
    for x in RANDOM.standard_normal((30, 300, 4)).astype(np.float32):
        y, past = session.run(None, {"x": x, "begins": begins, "past": past})
        np.testing.assert_array_equal(stream.step({"x": x, "begins": begins})[0], y)
    np.testing.assert_array_equal(stream.state["past"], past)
    assert plans(stream) <= 2


def test_outputs_are_written_where_steps_of_other_shapes_are_told_to() -> None:
    results, _ = carried(WINDOW)
    stream, y = opened(WINDOW), np.empty((1, 4), np.float32)
    for x, expected in zip(FRAMES[:5], results, strict=False):
        assert stream.step({"x": x}, {"y": y})[0] is y
        np.testing.assert_array_equal(y, expected)
    merged = opened(SQUARE)
    for x in FRAMES[:3]:
        merged.step({"x": x})
    before = merged.state["past"]
    with pytest.raises(InputError, match="output 'y'"):
        merged.step({"x": FRAMES[3]}, {"y": np.empty((3, 3), np.float32)})
    np.testing.assert_array_equal(merged.state["past"], before)


def test_sizes_that_elements_tell() -> None:
    session = compiled(KEEPING)
    stream = session.stream({"past": "present"}, sizes={"P": 0})
    assert isinstance(stream, Stream) and session._flow.whole().artifact.values
    past = np.zeros((0, 4), np.float32)
    for i, x in enumerate([*FRAMES, *FRAMES]):
        feeds = {"x": x, "first": np.array([-1 - i // (1 + i % 2)])}
        y, past = session.run(None, {**feeds, "past": past})
        np.testing.assert_array_equal(stream.step(feeds)[0], y)
        for wrong in ([1.5], np.array([1.5]), np.array([2**63], np.uint64), np.zeros(0, int)):
            with pytest.raises(InputError, match="first"):
                stream.step({"x": x, "first": wrong})
        np.testing.assert_array_equal(stream.state["past"], past)


def test_inputs_as_the_last_ones_are_checked() -> None:
    """Lists and strided arrays are taken, others refused, with the states as they were."""
    results, states = carried(SQUARE)
    stream = opened(SQUARE)
    for x in FRAMES[:4]:
        stream.step({"x": x})
    for wrong in (np.zeros((1, 4)), np.zeros((1, 5), np.float32), None, "x"):
        with pytest.raises(InputError, match="x"):
            stream.step({"x": wrong})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="unknown input 'y'"):
        stream.step({"y": FRAMES[0]})
    np.testing.assert_array_equal(stream.state["table"], states[3]["table"])
    wide = np.repeat(FRAMES[4], 2, axis=1)[:, ::2]
    for x, expected in ((wide, results[4]), (FRAMES[5].tolist(), results[5])):
        np.testing.assert_array_equal(stream.step({"x": x})[0], expected)


def test_states_are_kept_in_the_order_that_compiled_code_reads() -> None:
    results, states = carried(SQUARE)
    stream = opened(SQUARE)
    for x in FRAMES[:4]:
        stream.step({"x": x})
    stream.state.update({name: np.asfortranarray(array) for name, array in states[4].items()})
    for x, expected in zip(FRAMES[5:8], results[5:8], strict=True):
        np.testing.assert_array_equal(stream.step({"x": x})[0], expected)


def test_states_that_come_not_to_fit_each_other() -> None:
    stream = compiled(UNEQUAL).stream({"a": "next_a", "b": "next_b"}, sizes={"P": 0})
    assert isinstance(stream, Stream)
    x, first = np.ones((2, 4), np.float32), np.array([-9])
    for _ in range(3):
        stream.step({"x": x, "first": first})
    with pytest.raises(InputError, match="P is 8 in input 'a'"):
        stream.step({"x": x, "first": np.array([-7])})
    assert stream.state["a"].shape == stream.state["b"].shape == (6, 4)
    stream.step({"x": x, "first": first})
    assert stream.state["b"].shape == (8, 4)
