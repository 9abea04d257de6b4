from __future__ import annotations

import os
import re
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import InputError, RunError, StreamError, UnsupportedError
from ostinato.runtime.growing import GrowingStream
from tests.runtime.test_fork import in_child

DECODER = Path(__file__).parents[1] / "models" / "cached_decoder.script.onnx"
STATES = {"keys": "next_keys", "values": "next_values"}
RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(0, 20, (2, 90))


def text_model(source: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {source}')
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@cache
def decoder() -> ostinato.InferenceSession:
    return ostinato.InferenceSession(DECODER)


@cache
def llama() -> ostinato.InferenceSession:
    return ostinato.InferenceSession(DECODER.parent / "generation" / "llama.onnx")


@cache
def wide() -> ostinato.InferenceSession:
    """Attention whose keys are better read with rows as neighbours, and a recurrent state."""
    return ostinato.InferenceSession(
        text_model(
            """g (float[N, T, 24] x, float[N, 3, P, 8] past, float[N, 24] h)
                => (float[N, T, 24] y, float[N, 3, Q, 8] present, float[N, 24] next_h) {
                heads = Constant<value_ints = [0, 0, 3, 8]>()
                split = Reshape(x, heads)  q = Transpose<perm = [0, 2, 1, 3]>(split)
                k = MatMul(q, W)  present = Concat<axis = 2>(past, k)
                t = Transpose<perm = [0, 1, 3, 2]>(present)  s = MatMul(q, t)
                p = Softmax<axis = -1>(s)  v = MatMul(p, present)
                o = Transpose<perm = [0, 2, 1, 3]>(v)  flat = Constant<value_ints = [0, 0, 24]>()
                z = Reshape(o, flat)  one = Constant<value_ints = [1]>()
                m = ReduceMean<axes = [1], keepdims = 0>(z)  a = Add(h, m)  next_h = Tanh(a)
                g = Unsqueeze(h, one)  y = Add(z, g)
            }""",
            W=RANDOM.standard_normal((8, 8)).astype(np.float32) / 3,
        )
    )


def reference(chunks: list[np.ndarray]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Logits of each chunk and the caches at the end, with caches carried by the caller."""
    rows = len(chunks[0])
    caches = {name: np.zeros((rows, 2, 0, 8), np.float32) for name in STATES}
    logits = []
    for chunk in chunks:
        made, keys, values = decoder().run(None, {"token": chunk, **caches})
        caches = {"keys": keys, "values": values}
        logits.append(made)
    return logits, caches


def places(stream: GrowingStream) -> list[int]:
    """The addresses of the caches."""
    assert stream._stepper is not None
    return [array.ctypes.data for array in stream._stepper.caches.arrays]


def cut(sizes: list[int], rows: int = 2) -> list[np.ndarray]:
    return np.split(TOKENS[:rows, : sum(sizes)], np.cumsum(sizes)[:-1], axis=1)


def test_steps_have_the_bits_of_one_step_over_the_whole_sequence() -> None:
    """Causal attention: sums over rows have one order, whatever the room."""
    (whole,) = decoder().stream(STATES).step({"token": TOKENS[:1]})
    stream = decoder().stream(STATES)
    each = [stream.step({"token": token})[0] for token in cut([1] * 90, 1)]
    np.testing.assert_array_equal(whole, np.concatenate(each, 1))


@pytest.mark.parametrize("capacity", [None, 90, 512])
@pytest.mark.parametrize("sizes", [[1] * 90, [5, 1, 1, 60, 3], [90]], ids=lambda s: str(len(s)))
def test_steps_have_the_bits_of_caches_that_are_copied(
    sizes: list[int], capacity: int | None
) -> None:
    chunks = cut(sizes)
    expected, caches = reference(chunks)
    stream = decoder().stream(STATES, capacity=capacity)
    assert isinstance(stream, GrowingStream)
    for chunk, logits in zip(chunks, expected, strict=True):
        np.testing.assert_array_equal(stream.step({"token": chunk})[0], logits)
    for name, expected_cache in caches.items():
        np.testing.assert_array_equal(stream.state[name], expected_cache)


def test_other_layouts_and_states_that_do_not_grow() -> None:
    session, x = wide(), RANDOM.standard_normal((1, 70, 24)).astype(np.float32)
    stream = session.stream({"past": "present", "h": "next_h"})
    past, h = np.zeros((1, 3, 0, 8), np.float32), np.zeros((1, 24), np.float32)
    for frame in range(70):
        feeds = {"x": x[:, frame : frame + 1]}
        y, past, h = session.run(None, {**feeds, "past": past, "h": h})
        np.testing.assert_array_equal(stream.step(feeds)[0], y)
    np.testing.assert_array_equal(stream.state["past"], past)
    np.testing.assert_array_equal(stream.state["h"], h)
    with pytest.raises(StreamError, match="'h' does not grow"):
        stream.rewind(1)


TWO = """g (float[N, 1, 8] x, float[N, P, 8] keys, float[N, P, 8] values)
    => (float[N, 1, 8] y, float[N, Q, 8] next_keys, float[N, Q, 8] next_values) {
    next_keys = Concat<axis = 1>(keys, x)  m = MatMul(x, W)
    next_values = Concat<axis = 1>(values, m)
    t = Transpose<perm = [0, 2, 1]>(next_keys)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)
    y = MatMul(p, next_values)
}"""


@pytest.mark.parametrize("capacity", [None, 77])
def test_states_of_one_length_in_several_layouts(capacity: int | None) -> None:
    session = ostinato.InferenceSession(text_model(TWO, W=np.eye(8, dtype=np.float32)[::-1]))
    stream = session.stream(STATES, capacity=capacity)
    caches = {name: np.zeros((2, 0, 8), np.float32) for name in STATES}
    for _ in range(77):
        x = RANDOM.standard_normal((2, 1, 8)).astype(np.float32)
        y, *after = session.run(None, {"x": x, **caches})
        caches = dict(zip(STATES, after, strict=True))
        np.testing.assert_array_equal(stream.step({"x": x})[0], y)
    assert len({state.is_last for state in stream._kept.values()}) == 2
    if capacity is not None:
        with pytest.raises(StreamError, match="its 77 rows"):
            stream.step({"x": x})
    np.testing.assert_array_equal(stream.state["values"], caches["values"])


AXES = {
    "in front": """g (float[N, T, 8] x, float[N, P, 8] past)
        => (float[N, T, 8] y, float[N, Q, 8] present) {
        m = MatMul(x, W)  present = Concat<axis = 1>(m, past)
        t = Transpose<perm = [0, 2, 1]>(present)
        s = MatMul(x, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, present) }""",
    "in front, of a list": """g (float[N, T, 8] x, float[P, 8] past)
        => (float[Q] y, float[Q, 8] present) {
        m = MatMul(x, W)  r = ReduceMean<axes = [0], keepdims = 0>(m)
        present = Concat<axis = 0>(r, past)  y = ReduceSum<keepdims = 0>(present, one) }""",
    "of columns": """g (float[N, T, 8] x, float[N, 8, P] past)
        => (float[N, T, Q] s, float[N, 8, Q] present) {
        m = MatMul(x, W)  t = Transpose<perm = [0, 2, 1]>(m)
        present = Concat<axis = -1>(past, t)  s = MatMul(x, present) }""",
    "of two lengths": """g (float[N, T, 8] x, float[N, P, 8] past, float[S, 8] sums)
        => (float[N, T, 8] y, float[N, Q, 8] present, float[R, 8] next_sums) {
        m = MatMul(x, W)  present = Concat<axis = 1>(past, m, m)
        u = ReduceSum<keepdims = 0>(m, one)
        next_sums = Concat<axis = 0>(u, sums)  t = Transpose<perm = [0, 2, 1]>(present)
        s = MatMul(x, t)  p = Softmax<axis = -1>(s)  v = MatMul(p, present)
        c = ReduceMean<axes = [0], keepdims = 1>(next_sums)  y = Add(v, c) }""",
    "with a mask": """g (float[N, T, 8] x, float[N, P, 8] past, bool[N, M] mask)
        => (float[N, T, 8] y, float[N, T, Q] p, float[N, Q, 8] present) {
        m = MatMul(x, W)  present = Concat<axis = 1>(past, m)
        t = Transpose<perm = [0, 2, 1]>(present)
        s = MatMul(x, t)  seen = Unsqueeze(mask, one)  w = Where(seen, s, low)
        p = Softmax<axis = -1>(w)  y = MatMul(p, present) }""",
}
# Positions that a mask tells, and a table of what each row sees, of which steps take their rows.
POSITIONS = """g (float[N, T, 8] x, float[N, P, 8] past, bool[N, M] mask)
    => (float[N, T, 8] y, float[N, Q, 8] present) {
    n = Shape<start = 1, end = 2>(x)  before = Shape<start = 1, end = 2>(past)  START
    at = Slice(mask, from, far, one)  b = Cast<to = 1>(at)  c = Unsqueeze(b, two)  d = Add(x, c)
    present = Concat<axis = 1>(past, d)  all = Shape<start = 1, end = 2>(present)
    new = Sub(all, n)  rows = Slice(table, new, all, zero)  sees = Slice(rows, zero, all, one)
    t = Transpose<perm = [0, 2, 1]>(present)  s = MatMul(d, t)  u = Where(sees, s, low)
    v = Unsqueeze(mask, one)  w = Where(v, u, low)  p = Softmax<axis = -1>(w)
    y = MatMul(p, present) }"""
AXES["with positions behind the past"] = POSITIONS.replace("START", "from = Identity(before)")
AXES["with the last positions"] = POSITIONS.replace("START", "from = Neg(n)")
# Distances to all rows, whose scores are shifted row by row: pad, reshape, slice.
AXES["with a relative shift"] = """g (float[N, T, 8] x, float[N, P, 8] past)
    => (float[N, T, 8] y, float[N, Q, 8] present) {
    present = Concat<axis = 1>(past, x)  n = Shape<start = 1, end = 2>(x)
    all = Shape<start = 1, end = 2>(present)  first = Sub(all, one)  scalar = Squeeze(first)
    a = Cast<to = 1>(scalar)  back = Constant<value = float {-1.0}>()  d = Range(a, back, back)
    e = Unsqueeze(d, one)  f = Mul(e, half)  r = Sin(f)  m = MatMul(x, W)  h = Transpose(r)
    b = MatMul(m, h)  c = Pad(b, pads)  more = Add(all, one)
    turned = Concat<axis = 0>(zero, more, n)  i = Reshape(c, turned)  j = Slice(i, one, far, one)
    size = Shape(b)  k = Reshape(j, size)  t = Transpose<perm = [0, 2, 1]>(present)
    s = MatMul(x, t)  z = Add(s, k)  p = Softmax<axis = -1>(z)  y = MatMul(p, present) }"""
# Two layers, each of which reads its part of one state, and rows of the one before.
LAYERS = """t{i} = Transpose<perm = [0, 2, 1]>(k{i})  s{i} = MatMul(x{i}, t{i})
    p{i} = Softmax<axis = -1>(s{i})  v{i} = MatMul(p{i}, k{i})  {next} = MatMul(v{i}, W)"""
FIRST, SECOND = (LAYERS.format(i=i, next=after) for i, after in enumerate(("x1", "y")))
AXES["of layers"] = f"""g (float[N, T, 8] x0, float[2, N, P, 8] past)
    => (float[N, T, 8] y, float[2, N, Q, 8] present) {{
    a, b = Split<axis = 0>(past)  u = Squeeze(a, zero)  k0 = Concat<axis = 1>(u, x0)  {FIRST}
    v = Squeeze(b, zero)  k1 = Concat<axis = 1>(v, x1)  {SECOND}
    c = Unsqueeze(k0, zero)  d = Unsqueeze(k1, zero)  present = Concat<axis = 0>(c, d) }}"""
AXES["of layers, joined at last"] = f"""g (float[N, T, 8] x0, float[N, 2, P, 8] past)
    => (float[N, T, 8] y, float[N, 2, Q, 8] present) {{
    first = Squeeze(zero)  u = Gather<axis = 1>(past, first)  k0 = Concat<axis = 1>(u, x0)  {FIRST}
    last = Squeeze(one)  v = Gather<axis = 1>(past, last)  k1 = Concat<axis = 1>(v, x1)  {SECOND}
    c = Unsqueeze(x0, one)  d = Unsqueeze(x1, one)  e = Concat<axis = 1>(c, d)
    present = Concat<axis = 2>(past, e) }}"""
EMPTY = {
    "of columns": (2, 8, 0),
    "in front, of a list": (0, 8),
    "of layers": (2, 2, 0, 8),
    "of layers, joined at last": (2, 2, 0, 8),
}


@cache
def of_axis(name: str) -> ostinato.InferenceSession:
    weights = {
        "W": RANDOM.standard_normal((8, 8)).astype(np.float32) / 3,
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "far": np.array([2**63 - 1]),
        "half": np.full((1, 8), 0.5, np.float32),
        "pads": np.array([0, 0, 1, 0, 0, 0]),
        "table": np.tri(96, dtype=bool),
        "low": np.float32(-1e9),
    }
    used = {n: w for n, w in weights.items() if re.search(rf"[(,] ?{n}[,)]", AXES[name])}
    return ostinato.InferenceSession(text_model(AXES[name], **used))


@pytest.mark.parametrize("capacity", [None, 150], ids=str)
@pytest.mark.parametrize("name", AXES)
def test_any_axis_either_end_and_several_lengths(name: str, capacity: int | None) -> None:
    session = of_axis(name)
    past = EMPTY.get(name, (2, 0, 8))
    caches = {"past": np.zeros(past, np.float32), "sums": np.zeros((0, 8), np.float32)}
    states = {"past": "present", "sums": "next_sums"}
    names = [node.name for node in session.get_inputs()]
    states = {state: after for state, after in states.items() if state in names}
    caches = {state: caches[state] for state in states}
    stream = session.stream(states, caches, capacity=capacity)
    outputs = [node.name for node in session.get_outputs()]
    for count in [1, 1, 2, 57, 1, 1, 3, 1, 1, 1]:
        feeds = {names[0]: RANDOM.standard_normal((2, count, 8)).astype(np.float32)}
        if "mask" in names:
            feeds["mask"] = RANDOM.random((2, caches["past"].shape[1] + count)) < 0.8
        made = dict(zip(outputs, session.run(None, {**feeds, **caches}), strict=True))
        caches = {state: made.pop(after) for state, after in states.items()}
        for mine, expected in zip(stream.step(feeds), made.values(), strict=True):
            np.testing.assert_array_equal(mine, expected)
    for state, expected in caches.items():
        np.testing.assert_array_equal(stream.state[state], expected)
    stream.rewind(3)
    np.testing.assert_array_equal(
        stream.state["past"], dropped(caches["past"], name.startswith("in front"), name)
    )


def test_states_of_several_layers_take_no_more_kernels_than_one_of_each() -> None:
    source = AXES["of layers"].replace("a, b = Split<axis = 0>(past)", "")
    for old, new in (
        ("float[2, N, P, 8] past", "float[1, N, P, 8] a, float[1, N, P, 8] b"),
        ("float[2, N, Q, 8] present", "float[1, N, Q, 8] c, float[1, N, Q, 8] d"),
        ("present = Concat<axis = 0>(c, d)", ""),
    ):
        source = source.replace(old, new)
    weights = {"W": np.eye(8, dtype=np.float32), "zero": np.array([0])}
    apart = ostinato.InferenceSession(text_model(source, **weights)).stream({"a": "c", "b": "d"})
    whole = of_axis("of layers").stream({"past": "present"})
    counts = [len(stream._session.report()["kernels"]) for stream in (whole, apart)]
    assert counts[0] == counts[1]


def dropped(rows: np.ndarray, in_front: bool, name: str) -> np.ndarray:
    """Without the three rows that came last."""
    axis = EMPTY.get(name, (2, 0, 8)).index(0)
    kept = slice(3, None) if in_front else slice(-3)
    return rows[(slice(None),) * axis + (kept,)]


def test_a_mask_that_grows_is_planned_once() -> None:
    session = llama()
    names = ("keys_0", "values_0", "keys_1", "values_1")
    stream = session.stream({name: f"next_{name}" for name in names}, capacity=64)
    made, token = [], np.zeros((1, 1), np.int64)
    for rows in range(40):
        made += stream.step({"token": token, "mask": np.ones((1, rows + 1), np.int64)})
    assert len(stream._stepper._stepper._steps) == 1
    for mask in (np.ones((1, 40), np.int64), np.ones((1, 90), np.int64)):
        with pytest.raises(RunError, match="'mask': its axis 1 is not as long as the states"):
            stream.step({"token": token, "mask": mask})
    with pytest.raises(InputError, match="mask"):
        stream.step({"token": token, "mask": np.ones((2, 41), np.int64)})
    stream.rewind(1)
    again = stream.step({"token": token, "mask": np.ones((1, 40), np.int64)})
    np.testing.assert_array_equal(again[0], made[-1])


def test_a_mask_of_one_element_is_repeated() -> None:
    session = ostinato.InferenceSession(
        text_model(
            """g (float[T, 3] x, float[P, 3] past, float[M] mask)
                => (float[3] y, float[Q, 3] present) {
                present = Concat<axis = 0>(past, x)  t = Transpose(present)
                w = Mul(t, mask)  y = ReduceMax<axes = [1], keepdims = 0>(w)
            }"""
        )
    )
    stream, past = session.stream({"past": "present"}), np.zeros((0, 3), np.float32)
    for number, extent in enumerate((1, 1, 3, 1, 5)):
        x, mask = RANDOM.random((1, 3), np.float32), RANDOM.random(extent, np.float32)
        past = np.concatenate([past, x])
        (y,) = stream.step({"x": x, "mask": mask})
        np.testing.assert_array_equal(y, (past.T * mask).max(1), str(number))
    with pytest.raises(RunError, match="'mask'"):
        stream.step({"x": x, "mask": RANDOM.random(3, np.float32)})


def test_rows_stay_where_they_are() -> None:
    stream = decoder().stream(STATES, capacity=64)
    stream.step({"token": TOKENS[:1, :1]})
    before = places(stream)
    for _ in range(60):
        stream.step({"token": TOKENS[:1, :1]})
    assert before == places(stream)


def test_forks_share_rows_until_one_appends() -> None:
    stream = decoder().stream(STATES)
    for chunk in cut([1] * 10, 1):
        stream.step({"token": chunk})
    twin = stream.fork()
    assert places(twin) == places(stream)
    one, other = np.array([[3]]), np.array([[7]])
    expected = {}
    for token in (3, 7):
        tokens = np.concatenate([TOKENS[:1, :10], [[token]], [[5]]], 1)
        expected[token] = reference([*np.split(tokens, 12, axis=1)])[0][-1]
    stream.step({"token": one})
    twin.step({"token": other})
    assert not set(places(twin)) & set(places(stream))
    np.testing.assert_array_equal(stream.step({"token": [[5]]})[0], expected[3])
    np.testing.assert_array_equal(twin.step({"token": [[5]]})[0], expected[7])
    # The last one to read the memory appends in place.
    before = places(stream), places(twin)
    stream.step({"token": one}), twin.step({"token": one})
    assert before == (places(stream), places(twin))


def test_rewinding_drops_the_last_rows() -> None:
    stream = decoder().stream(STATES)
    for chunk in cut([1] * 8, 1):
        stream.step({"token": chunk})
    stream.rewind(3)
    assert stream.state["keys"].shape == (1, 2, 5, 8)
    expected = reference(cut([1] * 6, 1))[0][-1]
    np.testing.assert_array_equal(stream.step({"token": TOKENS[:1, 5:6]})[0], expected)
    with pytest.raises(InputError, match="7 rows, there are 6"):
        stream.rewind(7)
    stream.reset()
    assert stream.state == {}
    first = reference(cut([1], 1))[0][0]
    np.testing.assert_array_equal(stream.step({"token": TOKENS[:1, :1]})[0], first)


def test_a_stream_that_is_full_says_so_and_goes_on_after_rewinding() -> None:
    stream = decoder().stream(STATES, capacity=4)
    for _ in range(2):
        for chunk in cut([1] * 4, 1):
            stream.step({"token": chunk})
        before = stream.state
        with pytest.raises(StreamError, match="'keys' is full: its 4 rows of axis 'P'"):
            stream.step({"token": TOKENS[:1, :1]})
        with pytest.raises(StreamError, match="is full"):
            stream.step({"token": TOKENS[:1, :2]})
        for name, array in before.items():
            np.testing.assert_array_equal(stream.state[name], array)
        stream.rewind(4)


def test_initial_rows_and_files(tmp_path: Path) -> None:
    stream = decoder().stream(STATES)
    for chunk in cut([1] * 6, 1):
        stream.step({"token": chunk})
    other = decoder().stream(STATES, initial=stream.state)
    stream.save(tmp_path / "state.npz")
    loaded = decoder().stream(STATES)
    loaded.load(tmp_path / "state.npz")
    expected = stream.step({"token": [[2]]})[0]
    for one in (other, loaded):
        np.testing.assert_array_equal(one.step({"token": [[2]]})[0], expected)
    other.reset()
    np.testing.assert_array_equal(other.step({"token": [[2]]})[0], expected)


def test_bound_steps_advance() -> None:
    stream, token = decoder().stream(STATES), np.zeros((1, 1), np.int64)
    call = stream.bind({"token": token})
    expected = reference(cut([1] * 5, 1))[0]
    for number in range(5):
        token[...] = TOKENS[0, number]
        call()
        np.testing.assert_array_equal(call.outputs["logits"], expected[number])
    out = np.empty((1, 1, 20), np.float32)
    (result,) = stream.step({"token": token}, out={"logits": out})
    assert result is out


def test_memory_stays_flat_with_rewinding() -> None:
    stream = decoder().stream(STATES)
    token = {"token": TOKENS[:1, :1]}
    for _ in range(40):
        stream.step(token)
    before = places(stream)
    for _ in range(200):
        stream.rewind(1)
        stream.step(token)
    assert before == places(stream)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "token"),
        ({"token": [[1]], "keys": [[1]]}, "'keys' is a state"),
        ({"token": [[1], [2]]}, "N"),
        ({"token": [[1.5]]}, "token"),
        ({"token": [[99]]}, "out of range"),
    ],
    ids=str,
)
def test_a_step_that_is_refused_leaves_the_states(feeds: dict[str, Any], message: str) -> None:
    stream = decoder().stream(STATES)
    stream.step({"token": [[1]]})
    with pytest.raises(ostinato.OstinatoError, match=message):
        stream.step(feeds)
    expected = reference([np.array([[1]]), np.array([[2]])])[0][1]
    np.testing.assert_array_equal(stream.step({"token": [[2]]})[0], expected)


def test_capacity_is_checked() -> None:
    with pytest.raises(InputError, match="capacity is 0"):
        decoder().stream(STATES, capacity=0)
    model = text_model(
        "g (float[N] x, float[N] h) => (float[N] y, float[N] n) { n = Add(x, h) y = Tanh(n) }"
    )
    with pytest.raises(InputError, match="no state of this stream grows"):
        ostinato.InferenceSession(model).stream({"h": "n"}, capacity=3)


@pytest.mark.parametrize("sizes", [{"Q": 3}, {"P": -1}, {"P": 1.5}], ids=str)
def test_sizes_are_checked(sizes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(sizes))):
        decoder().stream(STATES, sizes=sizes)


def test_a_closed_stream_is_closed() -> None:
    with decoder().stream(STATES) as stream:
        stream.step({"token": [[1]]})
    for use in (lambda: stream.step({"token": [[1]]}), lambda: stream.state, stream.fork):
        with pytest.raises(StreamError, match="closed"):
            use()
    assert "closed" in repr(stream)


def test_threads_do_not_share_a_stream() -> None:
    stream = decoder().stream(STATES)
    stream.step({"token": [[1]]})
    with stream._stepper.taken(), pytest.raises(StreamError, match="another thread"):
        stream.step({"token": [[1]]})
    errors: list[Exception] = []

    def work(one: GrowingStream) -> None:
        try:
            for chunk in cut([1] * 30, 1):
                one.step({"token": chunk})
        except Exception as error:
            errors.append(error)

    streams = [decoder().stream(STATES) for _ in range(3)]
    threads = [threading.Thread(target=work, args=(one,)) for one in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for one in streams[1:]:
        np.testing.assert_array_equal(one.state["keys"], streams[0].state["keys"])


def test_what_cannot_be_native_is_refused_by_name() -> None:
    model = text_model(
        """g (string[N, T] s, float[N, P] past) => (string[N, T] u, float[N, Q] present) {
            u = StringNormalizer<case_change_action = "LOWER">(s)
            n = Shape(s)  one = Constant<value_ints = [1]>()  m = Gather(n, one)
            zero = Constant<value_ints = [0]>()  rows = Gather(n, zero)
            shape = Concat<axis = 0>(rows, m)  f = ConstantOfShape(shape)
            present = Concat<axis = 1>(past, f)
        }"""
    )
    session = ostinato.InferenceSession(model)
    with pytest.raises(UnsupportedError, match="StringNormalizer"):
        session.stream({"past": "present"})


def test_streams_of_a_session_share_what_is_compiled() -> None:
    session = ostinato.InferenceSession(DECODER, cache_dir=None)
    one, other = (session.stream(STATES) for _ in range(2))
    assert one._session is other._session


def test_the_table_tells_the_room() -> None:
    stream = decoder().stream(STATES, capacity=40)
    assert "40 rows of P" in stream.describe()
    stream.step({"token": [[1]]})
    assert "[1, 2, 1, 8]" in stream.describe()
    assert repr(stream) == "<GrowingStream keys <- next_keys, values <- next_values>"


@cache
def beams(given: str = "", made: str = "", late: str = "p = Softmax") -> ostinato.InferenceSession:
    """A step whose rows go on from other rows; it fails where a token is no row of the table.

    given, made: an input and an output more. late: what there is before the Softmax.
    """
    given, made = given and f", {given}", made and f", {made}"
    return ostinato.InferenceSession(
        text_model(
            f"""g (int64[B] token, int64[B] order, float[B, 2, P, 8] keys, float[2, B, R] marks
                {given}) => (float[B, 2, 1, 8] y, float[B, 2, Q, 8] next_keys,
                float[2, B, S] next_marks {made}) {{
                kept = Gather<axis = 0>(keys, order)  x = Gather(W, token)
                shape = Constant<value_ints = [0, 2, 1, 8]>()  q = Reshape(x, shape)
                next_keys = Concat<axis = 2>(kept, q)
                t = Transpose<perm = [0, 1, 3, 2]>(next_keys)  s = MatMul(q, t)
                {late}<axis = -1>(s)  y = MatMul(p, next_keys)
                moved = Gather<axis = 1>(marks, order)
                m = ReduceSum<keepdims = 0>(q, axes)  h = Transpose(m)
                h3 = Unsqueeze(h, last)  next_marks = Concat<axis = -1>(h3, moved)
            }}""",
            W=RANDOM.standard_normal((20, 16)).astype(np.float32),
            axes=np.array([2, 3]),
            last=np.array([2]),
        )
    )


BEAMS = {"keys": "next_keys", "marks": "next_marks"}


@pytest.mark.parametrize("capacity", [None, 90])
def test_rows_that_change_places_do_so_in_memory(capacity: int | None) -> None:
    stream = beams().stream(BEAMS, capacity=capacity)
    keys, marks = np.zeros((3, 2, 0, 8), np.float32), np.zeros((2, 3, 0), np.float32)
    orders = RANDOM.integers(-3, 3, (80, 3))
    for number, order in enumerate(orders):
        feeds = {"token": RANDOM.integers(0, 20, 3), "order": order}
        (y,) = stream.step(feeds)
        expected, keys, marks = beams().run(None, {**feeds, "keys": keys, "marks": marks})
        np.testing.assert_array_equal(y, expected)
        if number == 40:
            stream, old = stream.fork(), stream
            old.step(feeds)
            stream.rewind(2)
            keys, marks = keys[:, :, :-2], marks[:, :, 2:]
    np.testing.assert_array_equal(stream.state["keys"], keys)
    np.testing.assert_array_equal(stream.state["marks"], marks)


@pytest.mark.parametrize("bad", [{"order": [0, 1, 3]}, {"token": [1, 2, 20], "order": [0, 0, 1]}])
def test_indices_are_checked_before_rows_change_places(bad: dict[str, list[int]]) -> None:
    stream, other = beams().stream(BEAMS), beams().stream(BEAMS)
    good = {"token": np.array([1, 2, 3]), "order": np.array([1, 2, 0])}
    for _ in range(3):
        with pytest.raises(RunError, match="out of range"):
            stream.step({**good, **{name: np.array(values) for name, values in bad.items()}})
        np.testing.assert_array_equal(stream.step(good)[0], other.step(good)[0])
    for name, rows in other.state.items():
        np.testing.assert_array_equal(stream.state[name], rows)


def test_rows_that_have_changed_places_in_a_step_that_fails_are_lost() -> None:
    """What decides about an index follows from the rows, which change places before."""
    late = """most = ReduceMax<keepdims = 0>(next_keys)  scaled = Mul(most, scale)
        place = Cast<to = 7>(scaled)  z = Gather(W, place)  p = Softmax"""
    stream = beams("float scale", "float[16] z", late).stream(BEAMS)
    good = {"token": np.array([1, 2, 3]), "order": np.array([1, 2, 0]), "scale": np.float32(0)}
    stream.step(good)
    for far in ({"scale": np.float32(1e4)}, {"token": np.array([1, 2, 20])}):
        with pytest.raises(RunError, match="out of range"):
            stream.step({**good, **far})
        if "scale" not in far:
            stream.step(good)
            continue
        for use in (lambda: stream.step(good), lambda: stream.state, stream.fork):
            with pytest.raises(StreamError, match="is lost"):
                use()
        stream.reset()
        assert stream.step(good)[0].shape == (3, 2, 1, 8)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_rows_that_another_thread_was_moving_are_lost_in_a_forked_child() -> None:
    stream = beams().stream(BEAMS)
    feeds = {"token": np.array([1, 2, 3]), "order": np.array([1, 2, 0])}
    stream.step(feeds)

    def is_lost() -> bool:
        for use in (lambda: stream.step(feeds), lambda: stream.state):
            with pytest.raises(StreamError, match="'keys' is lost"):
                use()
        return True

    with stream._stepper.taken():  # type: ignore[union-attr]
        assert in_child(is_lost)
    stream.step(feeds)


def test_pools_keep_rows_in_their_places() -> None:
    with pytest.raises(InputError, match="no pool"):
        beams().pool(BEAMS, capacity=4, batch="B")


def test_states_are_set() -> None:
    """A copy of earlier states, with another number of rows, is where the stream goes on from."""
    frames = [{"token": np.array([[i]])} for i in range(6)]
    stream = decoder().stream(STATES)
    expected = [stream.step(frame)[0] for frame in frames[:2]]
    kept = dict(stream.state)
    expected += [stream.step(frame)[0] for frame in frames[2:]]
    stream.state.update(kept)
    assert all(np.array_equal(stream.state[name], array) for name, array in kept.items())
    for frame, wanted in zip(frames[2:], expected[2:], strict=True):
        np.testing.assert_array_equal(stream.step(frame)[0], wanted)
    before = dict(stream.state)
    (name, array), *_ = before.items()
    for wrong in (array[..., :-1], array.astype(np.float64), "x"):
        with pytest.raises(InputError, match=name):
            stream.state[name] = wrong
    with pytest.raises(InputError, match="unknown state 'nothing'"):
        stream.state.update({"nothing": array})
    assert all(np.array_equal(stream.state[name], array) for name, array in before.items())


def test_more_room_than_there_is_memory() -> None:
    with pytest.raises(RunError, match="are available"):
        decoder().stream(STATES, capacity=1 << 62).step({"token": np.array([[1]])})
