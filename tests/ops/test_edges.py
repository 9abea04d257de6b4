"""Sizes and values at the edge of what operators are defined for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.errors import RunError, ShapeError
from tests import witness


def session(text: str, opset: int = 21) -> ostinato.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
    return ostinato.InferenceSession(model, cache_dir=None, fallback=False)


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_the_sign_of_either_zero_is_zero(dtype: str) -> None:
    compiled = session(f"g ({dtype}[N] x) => ({dtype}[N] y) {{ y = Sign(x) }}")
    x = np.array([0.0, -0.0, 3, -3, np.nan, np.inf, -np.inf, 5e-324, -1e-40], dtype.replace(
        "float", "float32"))  # fmt: skip
    (y,) = compiled.run(None, {"x": x})
    np.testing.assert_array_equal(y[2:], np.sign(x[2:]))
    assert y[:2].tobytes() == bytes(2 * x.itemsize)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8"])
@pytest.mark.parametrize("node", ["Div", "Mod", "Mod<fmod = 1>"])
def test_integers_divided_by_zero_give_zero(node: str, dtype: str) -> None:
    compiled = session(f"g ({dtype}[N] x, {dtype}[N] z) => ({dtype}[N] y) {{ y = {node}(x, z) }}")
    (y,) = compiled.run(None, {n: np.array(a, dtype) for n, a in (("x", [7, 9]), ("z", [0, 5]))})
    assert y.tolist() == [0, 1 if node == "Div" else 4]


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_constants_divided_by_zero_give_what_inputs_give(dtype: str) -> None:
    constants = f"<{dtype}[2] x = {{7, 9}}, {dtype}[2] z = {{0, 5}}>"
    (y,) = session(f"g () => ({dtype}[2] y) {constants} {{ y = Div(x, z) }}").run(None, {})
    assert y.tolist() == [0, 1]


def test_scales_tell_how_many_channels_there_are() -> None:
    compiled = session(
        """g (float[B, C, 4] x) => (float[B, C, 4] y)
        <float[4] s = {1, 2, 3, 4}, float[4] b = {0, 0, 0, 1}>
        { y = GroupNormalization<num_groups = 2>(x, s, b) }"""
    )
    x = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    groups = x.reshape(2, 2, 8)
    normal = groups - groups.mean(-1, keepdims=True)
    normal = normal / np.sqrt((normal**2).mean(-1, keepdims=True) + 1e-5)
    scale, bias = np.array([[1], [2], [3], [4]]), np.array([[0], [0], [0], [1]])
    expected = normal.reshape(x.shape) * scale + bias
    np.testing.assert_allclose(compiled.run(None, {"x": x})[0], expected, atol=1e-5)
    with pytest.raises(ShapeError, match=r"C and 4 differ|4 and C differ"):
        compiled.run(None, {"x": x[:, :2]})


def test_an_axis_without_elements_has_none_to_repeat() -> None:
    compiled = session(
        """g (float[N] x) => (float[M] y) <int64[2] p = {1, 0}> { y = Pad<mode = "wrap">(x, p) }"""
    )
    with pytest.raises(ShapeError, match="no elements to repeat"):
        compiled.run(None, {"x": np.zeros(0, np.float32)})


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrence(operator: str, steps: int | str) -> str:
    rows = 2 * GATES[operator]
    return f"""g (float[{steps}, B, 3] x, float[1, {rows}, 3] w, float[1, {rows}, 2] r,
        int32[B] lens) => (float[T, 1, B, 2] y)
        {{ y = {operator}<hidden_size = 2>(x, w, r, , lens) }}"""


def feeds(operator: str, lens: list[int]) -> dict[str, Any]:
    random, rows = np.random.default_rng(0), 2 * GATES[operator]
    shapes = {"x": (5, len(lens), 3), "w": (1, rows, 3), "r": (1, rows, 2)}
    arrays = {n: random.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    return {**arrays, "lens": np.array(lens, np.int32)}


@pytest.mark.parametrize("steps", [5, "S"])
@pytest.mark.parametrize("operator", GATES)
def test_lengths_beyond_the_sequence_are_refused_by_name(operator: str, steps: int | str) -> None:
    text = recurrence(operator, steps)
    compiled = session(text, 14)
    for lens in ([5, 0], [2, 4]):
        given = feeds(operator, lens)
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 14]> {text}')
        (expected,) = witness.run(model.SerializeToString(), given)
        np.testing.assert_allclose(compiled.run(None, given)[0], expected, atol=1e-6)
    for lens in ([100, 1], [1, -1], [6, 5], [-(2**31), 0]):
        with pytest.raises(RunError, match=r"sequence_lens.*out of range.*(6|S \+ 1) elements"):
            compiled.run(None, feeds(operator, lens))


def test_sequences_without_steps_have_lengths_of_zero() -> None:
    compiled, given = session(recurrence("GRU", "S"), 14), feeds("GRU", [0, 0])
    given["x"] = given["x"][:0]
    assert compiled.run(None, given)[0].shape == (0, 1, 2, 2)
    given["lens"][1] = 1
    with pytest.raises(RunError, match="sequence_lens"):
        compiled.run(None, given)


@pytest.mark.parametrize(("rows", "states"), [(1, 3), (3, 1), (2, 3)])
def test_initial_states_are_not_repeated(rows: int, states: int) -> None:
    text = """g (float[S, N, 3] x, float[1, M, 2] h, float[1, 6, 3] w, float[1, 6, 2] r)
        => (float[T, 1, B, 2] y) { y = GRU<hidden_size = 2>(x, w, r, , , h) }"""
    given = feeds("GRU", [5] * rows)
    del given["lens"]
    with pytest.raises(ShapeError, match=r"initial_h.*M.*N"):
        session(text, 14).run(None, {**given, "h": np.zeros((1, states, 2), np.float32)})


def test_a_range_of_one_float_that_a_size_tells() -> None:
    compiled = session(
        """g (float[N] x) => (float[M] y) {
            n = Shape(x)  a = Squeeze(n)  one = Constant<value = int64 {1}>()  b = Add(a, one)
            c = Cast<to = 1>(a)  d = Cast<to = 1>(b)  step = Cast<to = 1>(one)
            y = Range(c, d, step)
        }"""
    )
    assert compiled.run(None, {"x": np.zeros(5, np.float32)})[0].tolist() == [5.0]


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (np.nan, "from 0.0 to nan in steps of 1.0 has no end"),
        (np.inf, "from 0.0 to inf in steps of 1.0 has no end"),
        (1e30, "no memory for 1.0000000150474662e\\+30 elements"),
    ],
)
def test_a_range_without_an_end_is_an_error(limit: float, message: str) -> None:
    compiled = ranged()
    with pytest.raises(RunError, match=message):
        compiled.run(None, {"x": np.array(limit, "f")})


def test_a_range_to_far_below_its_start_is_empty() -> None:
    assert ranged().run(None, {"x": np.array(-np.inf, "f")})[0].shape == (0,)


def ranged() -> ostinato.InferenceSession:
    text = "g (float x) => (float[N] y) <float a = {0}, float d = {1}> { y = Range(a, x, d) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}')
    return ostinato.InferenceSession(model, cache_dir=None)


def test_an_interpreted_loop_needs_memory_for_what_it_collects() -> None:
    text = """g (int64 n) => (string[A] y, float[B] z) <string[1] a = {"a"}, float b = {1}> {
        y, z = Loop (n, "", a) <body = f (int64 i, bool c, string[M] s) =>
            (bool d, string[O] t, float q) { d = Identity(c)  t = Concat<axis = 0>(s, a)
            q = Identity(b) }>
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}')
    compiled = ostinato.InferenceSession(model, cache_dir=None)
    assert compiled.run(None, {"n": np.array(2)})[1].tolist() == [1, 1]
    with pytest.raises(RunError, match="not enough memory for 4611686018427387904 steps"):
        compiled.run(None, {"n": np.array(2**62)})


def test_an_interpreted_loop_that_its_condition_ends_may_have_any_trip_count() -> None:
    text = """g (int64 n) => (string[A] y, int64[B] z)
        <string[1] a = {"a"}, int64 most = {4}, bool yes = {1}> {
        y, z = Loop (n, yes, a) <body = f (int64 i, bool c, string[M] s) =>
            (bool d, string[O] t, int64 q) { d = Less(i, most)  t = Concat<axis = 0>(s, a)
            q = Identity(i) }>
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}')
    compiled = ostinato.InferenceSession(model, cache_dir=None)
    assert compiled.run(None, {"n": np.array(2**62)})[1].tolist() == [0, 1, 2, 3, 4]
