"""Causal attention keeps keys and values in rings; what is not causal is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.cli.stream_check import runner, step_by_step
from ostinato.errors import OptionError
from ostinato.streaming import ConversionError, convert
from tests.streaming.streams import assert_streams, feeds_of, model

HEAD = 4
PROJECTIONS = {name: (8, 8) for name in ("Wq", "Wk", "Wv")}
SCALE = np.array(0.5, np.float32)

# Masks from x [N, T, 8]: nodes that make `masked` from `scores [N, 2, T, T]`, and constants.
MASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "trilu of minus infinity": (
        "m = ConstantOfShape <value = float[1] {-inf}> (tt)  u = Trilu <upper=1> (m, one0)"
        "  masked = Add (scores, u)",
        {},
    ),
    "trilu of ones": (
        "m = ConstantOfShape <value = float[1] {1.0}> (tt)  l = Trilu <upper=0> (m)"
        "  b = Cast <to=9> (l)  masked = Where (b, scores, never)",
        {},
    ),
    "comparison of numbers": (
        "r = Range (zero0, t0, one0)  c = Unsqueeze (r, zero)  d = Unsqueeze (r, one)"
        "  b = Greater (c, d)  masked = Where (b, lots, scores)",
        {"lots": np.array(-1e9, np.float32)},
    ),
    "large constant, sliced": (
        "b = Slice (big, zz, tt, za)  masked = Where (b, scores, never)",
        {
            "big": np.tril(np.ones((400, 400), bool)),
            "zz": np.array([0, 0]),
            "za": np.array([0, 1]),
        },
    ),
    "one minus ones": (
        "m = ConstantOfShape <value = float[1] {1.0}> (tt)  l = Trilu <upper=0> (m)"
        "  n = Sub (onef, l)  u = Mul (n, lots)  masked = Add (scores, u)",
        {"onef": np.array(1, np.float32), "lots": np.array(-1e9, np.float32)},
    ),
}
SIZES = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "zero0": np.array(0),
    "one0": np.array(1),
    "never": np.array(-np.inf, np.float32),
    "heads": np.array([0, 0, 2, HEAD]),
    "flat": np.array([0, 0, 8]),
    "scale": SCALE,
}


def attention(mask: str, after: str = "Identity (w)") -> str:
    return f"""g (float[N, T, 8] x) => (float[N, T, 8] y) {{
        q0 = MatMul (x, Wq)  q1 = Reshape (q0, heads)  q = Transpose <perm=[0, 2, 1, 3]> (q1)
        k0 = MatMul (x, Wk)  k1 = Reshape (k0, heads)  k = Transpose <perm=[0, 2, 3, 1]> (k1)
        v0 = MatMul (x, Wv)  v1 = Reshape (v0, heads)  v = Transpose <perm=[0, 2, 1, 3]> (v1)
        s = MatMul (q, k)
        scores = Mul (s, scale)
        h = Shape <start=1, end=2> (x)
        tt = Concat <axis=0> (h, h)
        t0 = Squeeze (h)
        {mask}
        w = Softmax (masked)
        p = {after}
        z = MatMul (p, v)
        z1 = Transpose <perm=[0, 2, 1, 3]> (z)
        y = Reshape (z1, flat)
    }}"""


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_all_kinds(name: str) -> None:
    nodes, weights = MASKS[name]
    proto = model(attention(nodes), PROJECTIONS | SIZES | weights)
    conversion = assert_streams(proto, context=352, T=336)
    # 352 frames and as many new ones, 32 at a time.
    assert {state.shape[-1] for state in conversion.state_list} >= {704}
    assert conversion.latency == 0


def test_a_guard_against_empty_rows_is_dropped() -> None:
    nodes, weights = MASKS["trilu of minus infinity"]
    guard = attention(nodes, "Where (nan, nothing, w)").replace("p = ", "nan = IsNaN (w)  p = ")
    extra = {"nothing": np.array(0, np.float32)}
    assert_streams(model(guard, PROJECTIONS | SIZES | weights | extra), context=336, T=336)


@pytest.mark.parametrize("window", [1, 5, 40])
def test_a_window_is_kept_whatever_the_context(window: int) -> None:
    """Once the ring turns, sums over keys are added up in another order."""
    nodes = (
        "r = Range (zero0, t0, one0)  c = Unsqueeze (r, zero)  d = Unsqueeze (r, one)"
        "  a = LessOrEqual (c, d)  e = Sub (d, width)  f = Greater (c, e)  b = And (a, f)"
        "  masked = Where (b, scores, never)"
    )
    weights = PROJECTIONS | SIZES | {"width": np.array(window)}
    assert_streams(
        model(attention(nodes), weights), context=64, T=336, tolerance=1e-6, chunks=(1, 7)
    )


LONG_WINDOW = (
    "r = Range (zero0, t0, one0)  c = Unsqueeze (r, zero)  d = Unsqueeze (r, one)"
    "  a = LessOrEqual (c, d)  e = Sub (d, width)  f = Greater (c, e)  b = And (a, f)"
    "  masked = Where (b, scores, never)"
)


@pytest.mark.parametrize("name", ["trilu of ones", "large constant, sliced", "a window"])
def test_all_frames_so_far_are_states_that_grow(name: str) -> None:
    nodes, weights = MASKS.get(name, (LONG_WINDOW, {"width": np.array(40)}))
    proto = model(attention(nodes), PROJECTIONS | SIZES | weights)
    conversion = assert_streams(proto, context="all", T=70, chunks=(1, 7))
    session = ostinato.InferenceSession(conversion.model, fallback=False)
    x = feeds_of(ostinato.InferenceSession(proto), T=70)["x"]
    (whole,) = ostinato.InferenceSession(proto).run(None, {"x": x})
    stream = session.stream(conversion.states, conversion.initial)
    assert isinstance(stream, ostinato.GrowingStream)
    each = [stream.step({"x": frames})[0] for frames in np.split(x, [1, 2, 35], axis=1)]
    np.testing.assert_array_equal(np.concatenate(each, 1), whole)


def test_a_conformer_that_sees_all_frames_so_far() -> None:
    weights = {
        "s0": (8,), "b0": (8,), "v0": np.full(8, 0.7), "half": SCALE,
        "F0": (8, 16), "F1": (16, 8), "P": (8, 16), "C": (8, 1, 7),
    }  # fmt: skip
    proto = model(CONFORMER, PROJECTIONS | weights, 23)
    assert_streams(proto, context="all", T=40, chunks=(1, 5))


@pytest.mark.parametrize("context", ["everything", 0])
def test_a_context_is_a_number_of_frames_or_all(context: Any) -> None:
    nodes, weights = MASKS["trilu of ones"]
    with pytest.raises(OptionError, match="context is"):
        convert(model(attention(nodes), PROJECTIONS | SIZES | weights), "T", context=context)


def test_the_operator_with_heads_side_by_side() -> None:
    text = """g (float[N, T, 8] x) => (float[N, T, 8] y) {
        q = MatMul (x, Wq)  k = MatMul (x, Wk)  v = MatMul (x, Wv)
        y = Attention <is_causal=1, q_num_heads=2, kv_num_heads=2> (q, k, v)
    }"""
    assert_streams(model(text, PROJECTIONS, 23), context=336, T=336)
    assert_streams(model(text, PROJECTIONS, 23), context="all", T=40, chunks=(1, 5))


def test_the_operator_with_shared_heads_and_a_cap() -> None:
    text = """g (float[N, 4, T, 6] q, float[N, 2, T, 6] k, float[N, 2, T, 5] v)
        => (float[N, 4, T, 5] y) { y = Attention <is_causal=1, softcap=3.0> (q, k, v) }"""
    assert_streams(model(text, opset=23), context=336, T=336)


def test_a_frame_sees_as_much_as_context_says_whatever_the_chunk() -> None:
    nodes, weights = MASKS["trilu of minus infinity"]
    proto = model(attention(nodes), PROJECTIONS | SIZES | weights)
    x = feeds_of(ostinato.InferenceSession(proto, cache_dir=None), T=200)["x"]
    found = []
    for chunk in (1, 4, 20):
        conversion = convert(proto, "T", chunk, context=30)
        step = runner(ostinato.InferenceSession(conversion.model, cache_dir=None))
        parts = [part["y"] for part in step_by_step(step, conversion, {"x": x}, chunk)]
        found.append(np.concatenate(parts, 1))
    whole = runner(ostinato.InferenceSession(proto, cache_dir=None))
    last = whole({"x": x[:, -30:].copy()})["y"][:, -1]
    for y in found:
        np.testing.assert_allclose(y, found[0], atol=1e-6)
        np.testing.assert_allclose(y[:, -1], last, atol=1e-6)
    assert np.abs(whole({"x": x})["y"][:, -1] - last).max() > 1e-4


def test_a_step_that_overruns_the_ring_is_an_error() -> None:
    nodes, weights = MASKS["trilu of minus infinity"]
    conversion = convert(
        model(attention(nodes), PROJECTIONS | SIZES | weights), "T", None, context=16
    )
    session = ostinato.InferenceSession(conversion.model, cache_dir=None)
    state = conversion.initial_values({"N": 1})
    session.run(None, {"x": np.zeros((1, 17, 8), np.float32), **state})
    with pytest.raises(ostinato.ShapeError, match=r"at most.*an index is out of range"):
        session.run(None, {"x": np.zeros((1, 18, 8), np.float32), **state})


def test_attention_after_look_ahead() -> None:
    nodes, weights = MASKS["trilu of minus infinity"]
    text = (
        attention(nodes)
        .replace("MatMul (x, ", "MatMul (c, ")
        .replace(
            "q0 = ",
            "a = Transpose <perm=[0, 2, 1]> (x)  b = Conv <pads=[1, 2]> (a, C, D)"
            "  c = Transpose <perm=[0, 2, 1]> (b)  q0 = ",
            1,
        )
    )
    weights = PROJECTIONS | SIZES | weights | {"C": (8, 8, 4), "D": (8,)}
    conversion = assert_streams(model(text, weights), context=336, T=336)
    assert conversion.delay == {"y": 2}


CONFORMER = """g (float[N, T, 8] x) => (float[N, T, 8] y) {
    n0 = LayerNormalization (x, s0, b0)
    f0 = MatMul (n0, F0)  f1 = Sigmoid (f0)  f2 = Mul (f0, f1)  f3 = MatMul (f2, F1)
    f4 = Mul (f3, half)  x1 = Add (x, f4)
    n1 = LayerNormalization (x1, s0, b0)
    q = MatMul (n1, Wq)  k = MatMul (n1, Wk)  v = MatMul (n1, Wv)
    a = Attention <is_causal=1, q_num_heads=2, kv_num_heads=2> (q, k, v)
    x2 = Add (x1, a)
    n2 = LayerNormalization (x2, s0, b0)
    p0 = MatMul (n2, P)  p1, p2 = Split <axis=2, num_outputs=2> (p0)
    p3 = Sigmoid (p2)  p4 = Mul (p1, p3)
    c0 = Transpose <perm=[0, 2, 1]> (p4)
    c1 = Conv <group=8, pads=[6, 0]> (c0, C)
    c2 = BatchNormalization (c1, s0, b0, b0, v0)
    c3 = Transpose <perm=[0, 2, 1]> (c2)
    x3 = Add (x2, c3)
    y = LayerNormalization (x3, s0, b0)
}"""


def test_a_causal_conformer() -> None:
    weights = {
        "s0": (8,), "b0": (8,), "v0": np.full(8, 0.7), "half": SCALE,
        "F0": (8, 16), "F1": (16, 8), "P": (8, 16), "C": (8, 1, 7),
    }  # fmt: skip
    conversion = assert_streams(model(CONFORMER, PROJECTIONS | weights, 23), context=336, T=336)
    assert conversion.latency == 0


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no mask": ("masked = Identity (scores)", {}, "attends to all frames"),
    "the other triangle": (
        "m = ConstantOfShape <value = float[1] {-inf}> (tt)  u = Trilu <upper=0> (m, minus)"
        "  masked = Add (scores, u)",
        {"minus": np.array(-1)},
        "not a causal one",
    ),
    "a frame ahead": (
        "m = ConstantOfShape <value = float[1] {-inf}> (tt)  u = Trilu <upper=1> (m, two)"
        "  masked = Add (scores, u)",
        {"two": np.array(2)},
        "not a causal one",
    ),
    "a bias that is no mask": (
        "m = ConstantOfShape <value = float[1] {1.0}> (tt)  u = Trilu <upper=1> (m, one0)"
        "  masked = Add (scores, u)",
        {},
        "attends to all frames",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_causal_is_refused(name: str) -> None:
    nodes, weights, message = REFUSED[name]
    with pytest.raises(ConversionError, match=message):
        convert(model(attention(nodes), PROJECTIONS | SIZES | weights), "T", context=32)


def test_without_a_context_attention_is_refused_with_what_to_do() -> None:
    nodes, weights = MASKS["trilu of ones"]
    with pytest.raises(ConversionError, match="context="):
        convert(model(attention(nodes), PROJECTIONS | SIZES | weights), "T")


def test_a_model_may_not_return_the_weights() -> None:
    proto = model(attention(MASKS["trilu of ones"][0]), PROJECTIONS | SIZES)
    proto.graph.output.append(
        onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, ["N", 2, "T", "T"])
    )
    with pytest.raises(ConversionError, match="'w'"):
        convert(proto, "T", context=32)
