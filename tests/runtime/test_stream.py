from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import InputError, RunError, StreamError
from ostinato.ops import LOWERINGS
from tests.golden import parse

F32 = np.float32
HIDDEN, WIDTH = 8, 5

GRU = f"""<ir_version: 8, opset_import: ["": 17]>
gru (float[T, N, {WIDTH}] x, float[1, N, {HIDDEN}] h_in)
    => (float[T, 1, N, {HIDDEN}] y, float[1, N, {HIDDEN}] h_out)
{{ y, h_out = GRU <hidden_size = {HIDDEN}, linear_before_reset = 1> (x, W, R, , , h_in) }}"""


def gru_model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(GRU)
    rng = np.random.default_rng(0)
    for name, width in (("W", WIDTH), ("R", HIDDEN)):
        weights = rng.uniform(-0.5, 0.5, (1, 3 * HIDDEN, width)).astype(F32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


@pytest.fixture(scope="module")
def gru() -> ostinato.InferenceSession:
    return ostinato.InferenceSession(gru_model())


PAIR = {"h_in": "h_out"}


def compiled(text: str, **options: Any) -> ostinato.InferenceSession:
    header = '<ir_version: 8, opset_import: ["": 17]> '
    return ostinato.InferenceSession(onnx.parser.parse_model(header + text), **options)


@pytest.fixture(scope="module")
def counter() -> ostinato.InferenceSession:
    """y = s + x, next s = the same; every size is fixed."""
    return compiled("g (float[2] x, float[2] s) => (float[2] y, float[2] t) "
                    "{ y = Add(x, s)  t = Add(s, x) }")  # fmt: skip


def signal(steps: int, batch: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((steps, batch, WIDTH)).astype(F32)


# Same bits


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("cuts", [[1] * 12, [5, 7], [3, 1, 8], [12], [4, 4, 4]])
def test_frames_and_chunks_give_the_bits_of_one_call(
    gru: ostinato.InferenceSession, batch: int, cuts: list[int]
) -> None:
    x = signal(12, batch)
    initial = np.full((1, batch, HIDDEN), 0.25, F32)
    y, h = gru.run(None, {"x": x, "h_in": initial})
    stream = gru.stream(PAIR, {"h_in": initial})
    parts = [stream.step({"x": part})[0] for part in np.split(x, np.cumsum(cuts)[:-1])]
    np.testing.assert_array_equal(np.concatenate(parts), y)
    np.testing.assert_array_equal(stream.state["h_in"], h)


def test_several_threads_a_step() -> None:
    x = signal(6, 3)
    stream = ostinato.InferenceSession(gru_model(), threads=2).stream(PAIR)
    parts = [stream.step({"x": x[t : t + 1]})[0] for t in range(6)]
    (y,) = ostinato.InferenceSession(gru_model()).stream(PAIR).step({"x": x})
    np.testing.assert_array_equal(np.concatenate(parts), y)


def test_all_ways_to_step_share_one_state(gru: ostinato.InferenceSession) -> None:
    x = signal(8)
    expected, last = gru.run(None, {"x": x, "h_in": np.zeros((1, 1, HIDDEN), F32)})
    stream = gru.stream(PAIR)
    frame, y = np.empty((1, 1, WIDTH), F32), np.empty((1, 1, 1, HIDDEN), F32)
    bound = stream.bind({"x": frame}, {"y": y})
    other = stream.bind({"x": frame})
    for t in range(8):
        frame[0] = x[t]
        if t % 4 == 0:
            assert stream.step({"x": frame}, out={"y": y})[0] is y
            got = y
        elif t % 4 == 1:
            bound()
            got = y
        elif t % 4 == 2:
            other()
            got = other.outputs["y"]
        else:
            (got,) = stream.step({"x": frame.tolist()})
        np.testing.assert_array_equal(got[0], expected[t])
    np.testing.assert_array_equal(stream.state["h_in"], last)


def test_the_session_stays_pure(gru: ostinato.InferenceSession) -> None:
    feeds = {"x": signal(2), "h_in": np.zeros((1, 1, HIDDEN), F32)}
    before = gru.run(None, feeds)
    stream = gru.stream(PAIR)
    stream.step({"x": signal(2, seed=1)})
    for a, b in zip(before, gru.run(None, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def test_streams_do_not_disturb_each_other(gru: ostinato.InferenceSession) -> None:
    xs = [signal(6, seed=i) for i in range(4)]
    alone = []
    for x in xs:
        stream = gru.stream(PAIR)
        alone.append([stream.step({"x": x[t : t + 1]})[0] for t in range(6)])
    streams = [gru.stream(PAIR) for _ in xs]
    for t in range(6):
        for i, stream in enumerate(streams):
            (y,) = stream.step({"x": xs[i][t : t + 1]})
            np.testing.assert_array_equal(y, alone[i][t])


def test_outputs_belong_to_the_caller(counter: ostinato.InferenceSession) -> None:
    stream = counter.stream({"s": "t"})
    first = stream.step({"x": np.ones(2, F32)})[0]
    second = stream.step({"x": np.ones(2, F32)})[0]
    assert first.tolist() == [1, 1]
    assert second.tolist() == [2, 2]


def test_an_output_may_be_written_over_an_input(counter: ostinato.InferenceSession) -> None:
    stream = counter.stream({"s": "t"})
    x = np.array([1, 2], F32)
    for expected in ([1, 2], [2, 4], [4, 8]):
        assert stream.step({"x": x}, out={"y": x})[0] is x
        assert x.tolist() == expected


def test_two_states_and_a_model_whose_inputs_are_in_any_order() -> None:
    session = compiled(
        "g (float[2] a, float[2] x, int64 n) => (int64 m, float[2] y, float[2] b) "
        "{ one = Constant <value_int = 1> ()  m = Add(n, one)  y = Sub(x, a)  b = Add(a, x) }"
    )
    stream = session.stream([("n", "m"), ("a", "b")], initial={"n": 5})
    x = np.array([1, 2], F32)
    assert stream.step({"x": x})[0].tolist() == [1, 2]
    assert stream.step({"x": x})[0].tolist() == [0, 0]
    assert {k: v.tolist() for k, v in stream.state.items()} == {"a": [2, 4], "n": 7}


# State


def test_reset_fork_and_setting(gru: ostinato.InferenceSession) -> None:
    x = signal(4)
    initial = np.full((1, 1, HIDDEN), 0.5, F32)
    stream = gru.stream(PAIR, {"h_in": initial})
    first = stream.step({"x": x})[0]
    twin = stream.fork()
    middle = stream.state["h_in"]
    second = stream.step({"x": x})[0]
    np.testing.assert_array_equal(twin.step({"x": x})[0], second)
    stream.state["h_in"] = middle
    np.testing.assert_array_equal(stream.step({"x": x})[0], second)
    stream.reset()
    np.testing.assert_array_equal(stream.state["h_in"], initial)
    np.testing.assert_array_equal(stream.step({"x": x})[0], first)
    assert not np.array_equal(first, second)


def test_reading_and_setting_state_copy(counter: ostinato.InferenceSession) -> None:
    stream = counter.stream({"s": "t"})
    stream.state["s"][:] = 9
    given = np.array([1, 2], F32)
    stream.state["s"] = given
    given[:] = 7
    assert stream.state["s"].tolist() == [1, 2]
    assert list(stream.state) == ["s"]
    assert len(stream.state) == 1
    assert "float32[2]" in repr(stream.state)


def test_a_fork_before_the_first_step(gru: ostinato.InferenceSession) -> None:
    twin = gru.stream(PAIR, sizes={"N": 2}).fork()
    assert twin.state["h_in"].shape == (1, 2, HIDDEN)
    assert gru.stream(PAIR).fork().step({"x": signal(1)})[0].shape == (1, 1, 1, HIDDEN)


def test_sizes_come_from_the_caller_the_initial_value_or_the_first_step(
    gru: ostinato.InferenceSession,
) -> None:
    assert gru.stream(PAIR, sizes={"N": 3}).state["h_in"].shape == (1, 3, HIDDEN)
    of_initial = gru.stream(PAIR, {"h_in": np.zeros((1, 4, HIDDEN), F32)})
    assert of_initial.state["h_in"].shape == (1, 4, HIDDEN)
    stream = gru.stream(PAIR)
    with pytest.raises(StreamError, match="no size before the first step"):
        stream.state["h_in"]
    stream.reset()
    stream.step({"x": signal(1, 2)})
    assert stream.state["h_in"].shape == (1, 2, HIDDEN)
    stream = gru.stream(PAIR)
    stream.state["h_in"] = np.ones((1, 2, HIDDEN), F32)
    stream.reset()
    assert stream.state["h_in"].tolist() == np.zeros((1, 2, HIDDEN)).tolist()


def test_an_axis_of_size_1_is_repeated(gru: ostinato.InferenceSession) -> None:
    row = np.arange(HIDDEN, dtype=F32).reshape(1, 1, HIDDEN)
    stream = gru.stream(PAIR, {"h_in": row}, sizes={"N": 3})
    np.testing.assert_array_equal(stream.state["h_in"], np.repeat(row, 3, axis=1))
    stream = gru.stream(PAIR, {"h_in": row})
    np.testing.assert_array_equal(stream.state["h_in"], row)
    np.testing.assert_array_equal(stream.fork().state["h_in"], row)
    stream.step({"x": signal(1, 4)})
    stream.reset()
    np.testing.assert_array_equal(stream.state["h_in"], np.repeat(row, 4, axis=1))
    with pytest.raises(InputError, match=r"expected float32\[1, 3, 8\], got float32\[1, 2, 8\]"):
        gru.stream(PAIR, {"h_in": np.zeros((1, 2, HIDDEN), F32)}, sizes={"N": 3})


def test_a_size_only_the_state_has_must_be_told() -> None:
    session = compiled("g (float x, float[N] s) => (float y, float[N] t) "
                       "{ t = Add(s, x)  y = ReduceSum <keepdims = 0> (t) }")  # fmt: skip
    stream = session.stream({"s": "t"})
    with pytest.raises(InputError, match=r'the size of N; pass `sizes=\{"N": ...\}`'):
        stream.step({"x": F32(1)})
    stream = session.stream({"s": "t"}, sizes={"N": 3})
    assert stream.step({"x": F32(1)})[0] == 3


def test_saved_state_goes_on(gru: ostinato.InferenceSession, tmp_path: Path) -> None:
    path = tmp_path / "state"
    x = signal(3)
    stream = gru.stream(PAIR)
    stream.step({"x": x})
    stream.save(path)
    expected = stream.step({"x": x})[0]
    # A stream that has not been stepped takes its sizes from the file.
    other = ostinato.InferenceSession(gru_model(), disable=("fuse",)).stream(PAIR)
    other.load(path)
    np.testing.assert_array_equal(other.step({"x": x})[0], expected)


def test_files_that_do_not_fit_are_refused_and_change_nothing(
    gru: ostinato.InferenceSession, counter: ostinato.InferenceSession, tmp_path: Path
) -> None:
    stream = counter.stream({"s": "t"}, {"s": [1, 2]})
    path = tmp_path / "state.npz"
    gru.stream(PAIR, sizes={"N": 1}).save(path)
    with pytest.raises(InputError, match="the state of another model"):
        stream.load(path)
    path.write_bytes(b"PK\x03\x04 something")
    with pytest.raises(InputError, match="no saved state"):
        stream.load(path)
    with pytest.raises(InputError, match="no saved state"):
        stream.load(tmp_path / "absent")
    np.save(tmp_path / "pickled.npy", np.array([{}], object))
    with pytest.raises(InputError, match="no saved state"):
        stream.load(tmp_path / "pickled.npy")
    wide = gru.stream(PAIR, sizes={"N": 2})
    wide.save(path)
    narrow = gru.stream(PAIR, sizes={"N": 1})
    with pytest.raises(InputError, match=r"expected float32\[1, 1, 8\], got float32\[1, 2, 8\]"):
        narrow.load(path)
    with pytest.raises(StreamError, match="no size"):
        gru.stream(PAIR).save(path)
    assert stream.state["s"].tolist() == [1, 2]


# Other kinds of models


def test_small_floats(tmp_path: Path) -> None:
    session = compiled(
        "g (bfloat16[2] x, bfloat16[2] s) => (bfloat16[2] y, bfloat16[2] t) "
        "{ y = Add(x, s)  t = Add(s, x) }"
    )
    stream = session.stream({"s": "t"})
    x = np.array([1, 2], ml_dtypes.bfloat16)
    call = stream.bind({"x": x})
    stream.step({"x": x})
    call()
    assert call.outputs["y"].tolist() == [2, 4]
    stream.save(tmp_path / "s")
    other = session.stream({"s": "t"})
    other.load(tmp_path / "s")
    assert other.step({"x": x})[0].tolist() == [3, 6]


def test_fallback_kernels_keep_state_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOWERINGS, "Det")
    text = """<ir_version: 8, opset_import: ["": 20]>
    g (float[N, 2, 2] x, float[N] s) => (float[N] y, float[N] t)
    { d = Det(x)  y = Add(d, s)  t = Add(s, d) }"""
    session = ostinato.InferenceSession(onnx.parser.parse_model(text), cache_dir=None)
    assert session.report()["fallback"], "no longer a model with a fallback node"
    stream = session.stream({"s": "t"})
    x = np.array([[[2, 0], [0, 1]], [[1, 0], [0, 1]]], F32)
    assert stream.step({"x": x})[0].tolist() == [2, 1]
    call = stream.bind({"x": x})
    assert stream.state["s"].tolist() == [2, 1]
    call()
    assert call.outputs["y"].tolist() == [4, 2]
    y = np.empty(2, F32)
    assert stream.step({"x": x}, out={"y": y})[0] is y
    assert y.tolist() == [6, 3]
    stream.reset()
    assert stream.step({"x": x})[0].tolist() == [2, 1]


def test_sizes_that_depend_on_values() -> None:
    session = compiled(
        "g (float[8] x, int64[1] n, float s) => (float[M] y, float t) "
        "{ zero = Constant <value_ints = [0]> ()  y = Slice(x, zero, n)"
        "  r = ReduceSum <keepdims = 0> (y)  t = Add(s, r) }"
    )
    stream = session.stream({"s": "t"})
    x, n = np.arange(8, dtype=F32), np.array([3])
    assert stream.step({"x": x, "n": n})[0].tolist() == [0, 1, 2]
    assert stream.step({"x": x, "n": np.array([2])})[0].tolist() == [0, 1]
    call = stream.bind({"x": x, "n": n})
    call()
    assert stream.state["s"] == 7


def test_a_state_that_decides_sizes() -> None:
    session = compiled(
        "g (float[8] x, int64[1] n) => (float[M] y, int64[1] m) "
        "{ zero = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()"
        "  y = Slice(x, zero, n)  m = Add(n, one) }"
    )
    stream = session.stream({"n": "m"}, {"n": [1]})
    x = np.arange(8, dtype=F32)
    assert [len(stream.step({"x": x})[0]) for _ in range(4)] == [1, 2, 3, 4]


def test_a_state_that_is_declared_to_keep_its_size_does() -> None:
    session = compiled("g (float[1] x, float[P] s) => (float[1] y, float[P] t) "
                       "{ t = Concat <axis = 0> (x, s, x)  y = Neg(x) }")  # fmt: skip
    stream = session.stream({"s": "t"}, sizes={"P": 2})
    with pytest.raises(InputError, match=r"state 's' is \[2\] and output 't' became \[4\]"):
        stream.step({"x": np.ones(1, F32)})
    assert stream.state["s"].tolist() == [0, 0]


# What exporters make of `x.squeeze(1)` when they do not know the size of axis 1.
SQUEEZE = """g (float[N, M, 3] x, float s) => (float[K] y, float t)
<int64 one = {1}, int64[1] axis = {1}, int64[1] flat = {-1}>
{
    shape = Shape(x)
    size = Gather(shape, one)
    condition = Equal(size, one)
    narrow = If (condition) <
        then_branch = then () => (float[] a) { a = Squeeze(x, axis) },
        else_branch = otherwise () => (float[] b) { b = Identity(x) }
    >
    sums = CumSum(narrow, one)
    y = Reshape(sums, flat)
    total = ReduceSum <keepdims = 0> (y)
    t = Add(s, total)
}"""


def test_sizes_that_need_another_program() -> None:
    session = compiled(SQUEEZE)
    assert session.report()["assumptions"], "no longer a model that is compiled for some sizes"
    stream = session.stream({"s": "t"})
    expected = 0.0
    for size in (1, 2, 1, 3):
        x = np.arange(6 * size, dtype=F32).reshape(2, size, 3)
        sums = np.cumsum(x[:, 0] if size == 1 else x, axis=1)
        np.testing.assert_array_equal(stream.step({"x": x})[0], sums.reshape(-1))
        call = stream.bind({"x": x})
        call()
        np.testing.assert_array_equal(call.outputs["y"], sums.reshape(-1))
        expected += 2 * sums.sum()
        assert stream.state["s"] == expected


def test_steps_of_many_shapes_are_planned_again(
    gru: ostinato.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = gru.stream(PAIR)
    stream.step({"x": signal(1)})
    assert stream._stepper is not None
    monkeypatch.setattr(stream._stepper, "_most", 3)
    lengths = [5, 1, 4, 2, 3, 9, 1, 5, 5, 2]
    x = signal(sum(lengths))
    stream.reset()
    parts = [stream.step({"x": part})[0] for part in np.split(x, np.cumsum(lengths)[:-1])]
    (y,) = gru.stream(PAIR).step({"x": x})
    np.testing.assert_array_equal(np.concatenate(parts), y)
    assert len(stream._stepper._steps) == 3


def test_a_batch_of_nothing(gru: ostinato.InferenceSession) -> None:
    stream = gru.stream(PAIR)
    assert stream.step({"x": signal(2, 0)})[0].shape == (2, 1, 0, HIDDEN)
    assert stream.step({"x": signal(1, 0)})[0].shape == (1, 1, 0, HIDDEN)
    assert stream.state["h_in"].shape == (1, 0, HIDDEN)


# Mistakes


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"h": "h_out"}, "unknown input 'h'"),
        ({"h_in": "h"}, "unknown output 'h'"),
        ({"x": "h_out"}, "a state keeps its shape"),
        ({"h_in": "y"}, "a state keeps its shape"),
        (None, "got NoneType"),
        ("h_in", "got str"),
        (["h_in"], "got 'h_in'"),
        ([("h_in", "h_out"), ("h_in", "y")], "input 'h_in' is in two pairs"),
        ([("h_in", "h_out"), ("x", "h_out")], "output 'h_out' is in two pairs"),
        ({"h_in": 3}, "unknown output 3"),
    ],
)
def test_pairs_that_do_not_fit(gru: ostinato.InferenceSession, states: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gru.stream(states)


def test_a_model_without_states_streams_too() -> None:
    """As a conversion of what treats each frame alone gives it."""
    session = compiled("g (float[N, 2] x) => (float[N, 2] y) { y = Neg (x) }")
    x = np.ones((3, 2), np.float32)
    with session.stream({}, {}) as stream:
        np.testing.assert_array_equal(stream.step({"x": x})[0], -x)
        assert dict(stream.fork().state) == {}
        with pytest.raises(StreamError, match="no state of this stream grows"):
            stream.rewind(1)


def test_a_state_has_one_dtype_and_is_a_tensor_of_numbers() -> None:
    session = compiled("g (float[2] x, float[2] s) => (double[2] y, float[2] t) "
                       "{ y = Cast <to = 11> (x)  t = Neg(s) }")  # fmt: skip
    with pytest.raises(InputError, match=r"output 'y' float64\[2\]: .*one dtype"):
        session.stream({"x": "y"})
    session = compiled("g (string[2] s) => (string[2] t) { t = Identity(s) }")
    with pytest.raises(InputError, match="tensor of numbers"):
        session.stream({"s": "t"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initial": {"x": 0}}, "unknown state 'x'"),
        ({"initial": {"h_in": np.zeros((1, 1, HIDDEN))}}, "float64"),
        ({"initial": {"h_in": np.zeros(3, F32)}}, r"expected float32\[1, N, 8\], got float32\[3\]"),
        ({"initial": {"h_in": np.zeros((2, 1, HIDDEN), F32)}}, r"got float32\[2, 1, 8\]"),
        ({"initial": 3}, "expected a dict"),
        ({"sizes": {"M": 2}}, "unknown dimension 'M'"),
        ({"sizes": {"N": -1}}, "N is -1"),
        ({"sizes": {"N": 1.0}}, "N is 1.0"),
    ],
)
def test_initial_values_and_sizes_that_do_not_fit(
    gru: ostinato.InferenceSession, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        gru.stream(PAIR, **arguments).step({"x": signal(1)})


@pytest.mark.parametrize("size", [10**12, 2**62, 10**30])
def test_states_that_do_not_fit_into_memory(gru: ostinato.InferenceSession, size: int) -> None:
    with pytest.raises(RunError, match="GiB are available"):
        gru.stream(PAIR, sizes={"N": size})


FEEDS: dict[str, tuple[Callable[[], Any], str]] = {
    "missing": (lambda: {}, "missing input 'x'"),
    "unknown": (lambda: {"x": signal(1), "z": signal(1)}, "unknown input 'z'"),
    "a state": (lambda: {"x": signal(1), "h_in": 0}, "'h_in' is a state of this stream"),
    "a list": (lambda: [signal(1)], "expected a dict"),
    "float64": (lambda: {"x": signal(1).astype(float)}, "float64"),
    "rank": (lambda: {"x": signal(1)[0]}, "input 'x'"),
    "width": (lambda: {"x": signal(1)[..., 1:]}, r"got float32\[1, 1, 4\]"),
    "batch": (lambda: {"x": signal(1, 2)}, "N is 1 in input 'h_in'"),
}


@pytest.mark.parametrize("name", FEEDS)
def test_bad_frames_change_nothing(gru: ostinato.InferenceSession, name: str) -> None:
    make, message = FEEDS[name]
    stream = gru.stream(PAIR)
    stream.step({"x": signal(2)})
    before = stream.state["h_in"]
    with pytest.raises(InputError, match=message):
        stream.step(make())
    with pytest.raises(InputError, match=message):
        stream.bind(make())
    np.testing.assert_array_equal(stream.state["h_in"], before)
    stream.step({"x": signal(2)})


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"h_out": np.zeros((1, 1, HIDDEN), F32)}, "unknown output 'h_out'"),
        ({"y": np.zeros((1, 1, 1, 7), F32)}, "output 'y'"),
        ({"y": np.zeros((1, 1, 1, HIDDEN))}, "output 'y'"),
        ({"y": None}, "output 'y'"),
        (3, "out"),
    ],
)
def test_bad_outputs_change_nothing(gru: ostinato.InferenceSession, out: Any, message: str) -> None:
    stream = gru.stream(PAIR)
    stream.step({"x": signal(1)})
    before = stream.state["h_in"]
    with pytest.raises(InputError, match=message):
        stream.step({"x": signal(1)}, out=out)
    with pytest.raises(InputError, match=message):
        stream.bind({"x": signal(1)}, out)
    np.testing.assert_array_equal(stream.state["h_in"], before)


def test_a_bound_output_may_not_overlap_an_input(counter: ostinato.InferenceSession) -> None:
    x = np.zeros(2, F32)
    with pytest.raises(InputError, match="overlaps an input"):
        counter.stream({"s": "t"}).bind({"x": x}, {"y": x})


@pytest.mark.parametrize("value", [np.zeros(3, F32), np.zeros(2), None, np.zeros((1, 2), F32)])
def test_states_of_another_shape_or_dtype_are_refused(
    counter: ostinato.InferenceSession, value: Any
) -> None:
    stream = counter.stream({"s": "t"}, {"s": [1, 2]})
    with pytest.raises(InputError, match="'s'"):
        stream.state["s"] = value
    with pytest.raises(InputError, match=r"state 's': expected float32.*, got float32\[\]"):
        counter.stream({"s": "t"}).state["s"] = 5
    with pytest.raises(InputError, match="unknown state 'q'"):
        stream.state.update({"s": np.zeros(2, F32), "q": 1})
    with pytest.raises(InputError, match="unknown state 'q'"):
        stream.state["q"]
    assert stream.state["s"].tolist() == [1, 2]


def test_a_failed_check_leaves_the_state() -> None:
    session = compiled("g (int64[1] i, float[1] s) => (float[1] y, float[1] t) "
                       "{ d = Constant <value_floats = [1.0, 2.0]> ()  y = Gather(d, i)"
                       "  t = Add(s, y) }")  # fmt: skip
    stream = session.stream({"s": "t"})
    index = np.array([1])
    call = stream.bind({"i": index})
    call()
    index[:] = 5
    with pytest.raises(RunError):
        call()
    with pytest.raises(RunError):
        stream.step({"i": index})
    assert stream.state["s"] == 2
    index[:] = 0
    call()
    assert stream.state["s"] == 3


def test_a_closed_stream_can_do_nothing(counter: ostinato.InferenceSession, tmp_path: Path) -> None:
    x = np.ones(2, F32)
    with counter.stream({"s": "t"}) as stream:
        stream.step({"x": x})
        call = stream.bind({"x": x})
        call()
    y = call.outputs["y"].copy()
    uses: list[Callable[[], Any]] = [
        lambda: stream.step({"x": x}),
        lambda: stream.bind({"x": x}),
        call,
        stream.reset,
        stream.fork,
        lambda: stream.state["s"],
        lambda: stream.state.update({"s": x}),
        lambda: stream.save(tmp_path / "s"),
    ]
    for use in uses:
        with pytest.raises(StreamError, match="closed"):
            use()
    np.testing.assert_array_equal(call.outputs["y"], y)
    assert "closed" in repr(stream)
    stream.close()


def test_description(gru: ostinato.InferenceSession) -> None:
    stream = gru.stream(PAIR)
    assert repr(stream) == "<Stream h_in <- h_out>"
    head, row = stream.describe().splitlines()
    assert head.split() == ["state", "next", "state", "shape", "dtype", "initial"]
    assert row.split() == ["h_in", "h_out", "[1,", "N,", "8]", "float32", "zeros"]
    given = gru.stream(PAIR, {"h_in": np.zeros((1, 2, HIDDEN), F32)})
    assert given.describe().splitlines()[1].split()[2:] == ["[1,", "2,", "8]", "float32", "given"]


# Threads


LONG = """g (float[512, 512] x, float[512, 512] s) => (float[512, 512] y, float[512, 512] t)
{ a = MatMul(x, x)  y = MatMul(a, x)  t = Add(s, y) }"""


@pytest.fixture(scope="module")
def long() -> ostinato.InferenceSession:
    return compiled(LONG)


def _running(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


def test_a_long_step_lets_other_threads_run(long: ostinato.InferenceSession) -> None:
    x = np.zeros((512, 512), F32)
    stream = long.stream({"s": "t"})
    call = stream.bind({"x": x})
    for step in (call, lambda: stream.step({"x": x}), long.bind({"x": x, "s": x})):
        step()
        start = time.perf_counter()
        step()
        alone = time.perf_counter() - start
        thread, errors = _running(step)
        beats = 0
        while thread.is_alive():
            # Each sleep ends with taking the GIL, which a call that keeps it would delay.
            time.sleep(alone / 100)
            beats += 1
        thread.join()
        assert not errors
        assert beats > 60, beats


def test_one_stream_in_two_threads_is_an_error_and_no_race(long: ostinato.InferenceSession) -> None:
    x = np.full((512, 512), 1e-3, F32)
    stream = long.stream({"s": "t"})
    stream.step({"x": x})
    refused: list[str] = []
    thread, errors = _running(lambda: stream.step({"x": x}))
    uses: list[Callable[[], Any]] = [
        lambda: stream.step({"x": x}),
        lambda: stream.state["s"],
        stream.reset,
        stream.fork,
        stream.close,
    ]
    while thread.is_alive() and len(refused) < len(uses):
        try:
            uses[len(refused)]()
        except StreamError as error:
            refused.append(str(error))
    thread.join()
    assert len(refused) == len(uses)
    assert all("another thread" in message for message in refused)
    assert all("another thread" in str(error) for error in errors)


def test_threads_with_streams_of_their_own(gru: ostinato.InferenceSession) -> None:
    x = signal(400, 2)
    expected = gru.run(None, {"x": x, "h_in": np.zeros((1, 2, HIDDEN), F32)})[0]
    wrong: list[int] = []

    def work(chunk: int) -> None:
        stream = gru.stream(PAIR)
        parts = [stream.step({"x": x[t : t + chunk]})[0] for t in range(0, 400, chunk)]
        if not np.array_equal(np.concatenate(parts), expected):
            wrong.append(chunk)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(chunk,)) for chunk in (1, 2, 4, 5) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_long_steps_of_several_streams_at_once(long: ostinato.InferenceSession) -> None:
    random = np.random.default_rng(0)
    frames = [0.05 * random.standard_normal((512, 512)).astype(F32) for _ in range(2)]
    expected = []
    for x in frames:
        stream = long.stream({"s": "t"})
        expected.append([stream.step({"x": x})[0] for _ in range(3)])
        expected[-1].append(stream.state["s"])
    right: list[int] = []

    def work(place: int) -> None:
        for _ in range(3):
            stream = long.stream({"s": "t"})
            got = [stream.step({"x": frames[place]})[0] for _ in range(3)]
            for a, b in zip([*got, stream.state["s"]], expected[place], strict=True):
                np.testing.assert_array_equal(a, b)
        right.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(right) == [0, 0, 1, 1]


def test_memory_of_a_stream_goes_with_it(gru: ostinato.InferenceSession) -> None:
    import gc
    import weakref

    stream = gru.stream(PAIR, sizes={"N": 1})
    stream.step({"x": signal(1)})
    assert stream._stepper is not None
    buffer = weakref.ref(stream._stepper.workspace)
    del stream
    gc.collect()
    assert buffer() is None


def test_a_conversion_in_place_of_its_states_is_told_apart() -> None:
    model = parse("g (float[N, T, 4] x) => (float[N, T, 4] y) { y = CumSum(x, one) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    converted = ostinato.streaming.convert(model, "T")
    session = ostinato.InferenceSession(converted.model, cache_dir=None)
    with pytest.raises(InputError, match="got Conversion, whose attribute 'states' is one"):
        session.stream(converted)
    session.stream(converted.states)
