"""What cannot work chunk by chunk is refused by name, and everything at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import pytest

import ostinato
from ostinato import InputError, OptionError, ShapeError, UnsupportedError
from ostinato.streaming import ConversionError, convert
from tests.streaming.streams import model

# name: (nodes from x [N, T, 6] to y, constants, part of the message)
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "mean over time": ("y = ReduceMean (x, o)", {"o": np.array([1])}, "reduces along time"),
    "mean over everything": ("y = ReduceMean (x)", {}, "reduces along time"),
    "softmax over time": ("y = Softmax <axis=1> (x)", {}, "normalises along time"),
    "layer norm over time": ("y = LayerNormalization <axis=1> (x, s)", {"s": (6,)}, "along time"),
    "largest frame": ("y = ArgMax <axis=1> (x)", {}, "searches along time"),
    "sorted frames": ("y, i = TopK <axis=1> (x, k)", {"k": np.array([1])}, "sorts along time"),
    "turned around": (
        "y = Slice (x, s, e, o, m)",
        {"s": np.array([-1]), "e": np.array([-(2**40)]), "o": np.array([1]), "m": np.array([-1])},
        "turns the sequence around",
    ),
    "first frames": (
        "y = Slice (x, z, e, o)",
        {"z": np.array([0]), "e": np.array([9]), "o": np.array([1])},
        "frames 0 to 9",
    ),
    "what is behind the end": (
        "h = Shape <start=1, end=2> (x)  a = Slice (x, h, e, o)  p = Pad (a, w)  y = Add (x, p)",
        {"e": np.array([2**40]), "o": np.array([1]), "w": np.array([0, 1, 0, 0, 0, 0])},
        "no frames",
    ),
    "parts of mirrored frames": (
        'p = Pad <mode="reflect"> (x, w)  r = Reshape (p, s)'
        "  t = Transpose <perm=[0, 2, 1]> (r)  y = Conv (t, W)",
        {"w": np.array([0, 2, 0, 0, 0, 0]), "s": np.array([0, -1, 2]), "W": (4, 2, 4)},
        "only windows",
    ),
    "a frame by number": (
        "y = Gather <axis=1> (x, i)",
        {"i": np.array(5)},
        "picks frame 5",
    ),
    "frames by number": ("y = Gather <axis=1> (x, i)", {"i": np.array([0, 5])}, "by number"),
    "a table of frames": ("y = Add (x, W)", {"W": (1, 9, 6)}, "each frame of the whole sequence"),
    "everything with everything": (
        "t = Transpose <perm=[0, 2, 1]> (x)  a = MatMul (x, t)  y = Softmax (a)",
        {},
        "attends to all frames",
    ),
    "sum over time": (
        "t = Transpose <perm=[0, 2, 1]> (x)  y = MatMul (t, W)",
        {"W": (9, 3)},
        "sums along time",
    ),
    "numbers of parts of frames": (
        "h = Shape <start=1, end=2> (x)  l = Squeeze (h)  f = Cast <to=1> (l)"
        "  r = Range (z, f, s)  u = Unsqueeze (r, o)  y = Mul (x, u)",
        {
            **{"z": np.array(0, np.float32), "s": np.array(0.5, np.float32)},
            "o": np.array([1]),
        },
        "whole steps",
    ),
    "divided by the length": (
        "h = Shape <start=1, end=2> (x)  f = Cast <to=1> (h)  y = Div (x, f)",
        {},
        "length of the whole sequence",
    ),
    "mirrored frames that nothing waits for": (
        'p = Pad <mode="reflect"> (x, w)  y = Relu (p)',
        {"w": np.array([0, 2, 0, 0, 0, 0])},
        "only windows",
    ),
    "mirrored frames that are late": (
        't = Transpose <perm=[0, 2, 1]> (x)  a = Conv (t, W)  y = Pad <mode="reflect"> (a, w)',
        {"w": np.array([0, 0, 2, 0, 0, 0]), "W": (6, 6, 3)},
        "mirrors frames in front of the first one, which is late",
    ),
    "mirrored frames that are padded": (
        't = Transpose <perm=[0, 2, 1]> (x)  p = Pad <mode="reflect"> (t, w)'
        "  y = Conv <pads=[1, 0]> (p, W)",
        {"w": np.array([0, 0, 2, 0, 0, 0]), "W": (6, 6, 3)},
        "let one node pad",
    ),
    "the end for all frames": (
        "a = Slice (x, m, e, o)  y = Mul (x, a)",
        {"m": np.array([-1]), "e": np.array([2**40]), "o": np.array([1])},
        "'a' belongs to the last frame",
    ),
    "a loop that a frame ends": (
        "h = Shape <start=1, end=2> (x)  l = Squeeze (h)"
        "  n, y = Loop <body = b (int64 i, bool go, float[N, 6] s)"
        " => (bool on, float[N, 6] t, float[N, 6] u) {"
        " e = Gather <axis=1> (x, i)  t = Add (s, e)  u = Identity (t)"
        " m = ReduceMax <keepdims=0> (t)  on = Less (m, far) }> (l, yes, a)",
        {"yes": np.array(True), "far": np.array(9, np.float32), "a": (1, 6)},
        "a condition that is computed while it runs ends it",
    ),
    "the first half": (
        "h = Shape <start=1, end=2> (x)  l = Div (h, two)  y = Slice (x, z, l, o)",
        {"z": np.array([0]), "o": np.array([1]), "two": np.array([2])},
        "a part of the sequence only",
    ),
    "the last frame of what was cut": (
        "a = Slice (x, z, m, o)  y = Gather <axis=1> (a, last)",
        {"z": np.array([0]), "m": np.array([-3]), "o": np.array([1]), "last": np.array(-1)},
        "not the last one of a step",
    ),
    "the last frame of padding": (
        "a = Pad (x, w)  y = Gather <axis=1> (a, last)",
        {"w": np.array([0, 1, 0, 0, 1, 0]), "last": np.array(-1)},
        "not the last one of a step",
    ),
    "weights from the last frame": (
        "a = Gather <axis=1> (x, last)  w = Gather (a, last)  s = Sigmoid (w)"
        "  y = LayerNormalization (x, s)",
        {"last": np.array(-1)},
        "'s' belongs to the last frame",
    ),
    "as many as the sequence is long": (
        "h = Shape <start=1, end=2> (x)  k = Min (h, two)  y, i = TopK <axis=2> (x, k)",
        {"two": np.array([2])},
        "length of the whole sequence",
    ),
    "dropout that may be training": (
        "y = Dropout (x, r, c)",
        {"r": np.array(0.5, np.float32)},
        "draws random numbers, or may do so",
    ),
    "transform over complex parts": (
        "t = Transpose <perm=[0, 2, 1]> (x)  u = Unsqueeze (t, o)  y = DFT <axis=2> (u)",
        {"o": np.array([1])},
        "transforms along time",
    ),
    "running sum from the end": ("y = CumSum <reverse=1> (x, o)", {"o": np.array(1)}, "last frame"),
    "an operator without a rule": ("y = NonZero (x)", {}, "has no rule"),
    "pooled": (
        "t = Transpose <perm=[0, 2, 1]> (x)  y = GlobalAveragePool (t)",
        {},
        "pools along time",
    ),
    "scale of everything": (
        "y, s, z = DynamicQuantizeLinear (x)",
        {},
        "its scale along time",
    ),
    "means at the edge": (
        "t = Transpose <perm=[0, 2, 1]> (x)  y = AveragePool <kernel_shape=[3], pads=[1, 1]> (t)",
        {},
        "count_include_pad",
    ),
    "time as channels": ("y = Conv (x, W)", {"W": (2, 4, 3)}, "time is its axis of channels"),
    "instance norm": (
        "t = Transpose <perm=[0, 2, 1]> (x)  y = InstanceNormalization (t, s, s)",
        {"s": (6,)},
        "normalises along time",
    ),
    "a branch that reads it": (
        "y = If (c) <then_branch = a () => (float[N, T, 6] u) { u = Neg (x) }, "
        "else_branch = b () => (float[N, T, 6] v) { v = Abs (x) }>",
        {},
        "has no rule",
    ),
    "rates that differ": (
        "t = Transpose <perm=[0, 2, 1]> (x)  a = Conv <strides=[2]> (t, W)  y = Add (a, t)",
        {"W": (6, 6, 1)},
        "1 and 1/2 frames",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_reason(name: str) -> None:
    nodes, weights, message = REFUSED[name]
    opset = 17 if "DFT" in nodes else 18
    proto = model(f"g (float[N, T, 6] x, bool c) => (float[A] y) {{ {nodes} }}", weights, opset)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto = onnx.shape_inference.infer_shapes(proto)
    if not proto.graph.output[0].type.tensor_type.HasField("shape"):
        proto.graph.output[0].type.tensor_type.shape.dim.add(dim_param="A")
    with pytest.raises(ConversionError) as caught:
        convert(proto, "T")
    assert message in str(caught.value)
    assert len(caught.value.refusals) == 1
    assert caught.value.node in str(caught.value) and caught.value.op in str(caught.value)


RECURRENT = {"W": (1, 15, 6), "R": (1, 15, 5), "n": np.array([3, 4], np.int32)}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ('GRU <hidden_size=5, direction="reverse"> (x, W, R)', "'reverse' starts at the last"),
        ("GRU <hidden_size=5> (x, W, R, , n)", "sequence_lens"),
    ],
)
def test_recurrences_that_need_the_end_are_refused(node: str, message: str) -> None:
    proto = model(f"g (float[T, 2, 6] x) => (float[T, 1, 2, 5] y) {{ y = {node} }}", RECURRENT)
    with pytest.raises(UnsupportedError, match=message):
        convert(proto, "T")


def test_all_refusals_come_together_and_what_follows_is_not_blamed() -> None:
    text = """g (float[N, T, 6] x) => (float[N, 1, 6] y, float[N, T, 6] z) {
        a = ReduceMax (x, o)
        y = Relu (a)
        b = Softmax <axis=1> (x)
        z = Tanh (b)
    }"""
    with pytest.raises(ConversionError) as caught:
        convert(model(text, {"o": np.array([1])}), "T")
    assert [refusal.op for refusal in caught.value.refusals] == ["ReduceMax", "Softmax"]
    assert "2 nodes cannot be converted" in str(caught.value)


def test_a_size_that_changes_with_time_is_refused() -> None:
    proto = model("g (int64[T] x) => (float[A, B] y) { y = ConstantOfShape (x) }")
    with pytest.raises(ConversionError, match="gives sizes or places"):
        convert(proto, "T")


def test_a_final_state_of_padding_is_refused() -> None:
    text = """g (float[T, 2, 6] x) => (float[1, 2, 5] y) {
        t = Transpose <perm=[1, 2, 0]> (x)
        c = Conv <pads=[0, 2]> (t, V)
        s = Transpose <perm=[2, 0, 1]> (c)
        a, y = GRU <hidden_size=5> (s, W, R)
    }"""
    with pytest.raises(ConversionError, match="not the last one of a step"):
        convert(model(text, RECURRENT | {"V": (6, 6, 3)}), "T")


FINE = "g (float[N, T, 6] x, float[N, 6] v) => (float[N, T, 6] y) { y = Relu (x) }"


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("S", r"no input has a size named 'S'; there are \['N', 'T'\]"),
        ({"z": 1}, "the model has no input 'z'"),
        ({"x": 3}, "input 'x' has rank 3, so no axis 3"),
        ({"x": 1.0}, "input 'x': its time axis is 1.0, expected a number"),
        ({"x": -4}, "no axis -4"),
        ({}, "time is empty"),
        (1, "time=1: expected .input: axis. or the name of a size"),
    ],
)
def test_axes_that_are_not_there_are_refused(time: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert(model(FINE), time)


def test_two_axes_of_one_name_are_refused() -> None:
    proto = model("g (float[T, T] x) => (float[T, T] y) { y = Relu (x) }")
    with pytest.raises(InputError, match=r"'T' at axes \[0, 1\]"):
        convert(proto, "T")


@pytest.mark.parametrize("chunk", [1, 2, 6])
def test_a_chunk_is_a_multiple_of_the_strides(chunk: int) -> None:
    text = """g (float[N, 4, T] x) => (float[N, 4, S] y) {
        a = Conv <strides=[2]> (x, W)
        y = Conv <strides=[2]> (a, W)
    }"""
    proto = model(text, {"W": (4, 4, 2)})
    with pytest.raises(OptionError, match="expected a multiple of 4"):
        convert(proto, "T", chunk)
    assert convert(proto, "T", 8).multiple == 4


def test_an_open_chunk_that_is_no_multiple_is_an_error_while_running() -> None:
    proto = model(
        "g (float[N, 4, T] x) => (float[N, 4, S] y) { y = Conv <strides=[2]> (x, W) }",
        {"W": (4, 4, 3)},
    )
    conversion = convert(proto, "T", None)
    session = ostinato.InferenceSession(conversion.model, cache_dir=None)
    state = conversion.initial_values({"N": 1})
    session.run(None, {"x": np.zeros((1, 4, 6), np.float32), **state})
    with pytest.raises(ShapeError, match=r"frames of 'x' in a step .*: a multiple of 2.*T = 7"):
        session.run(None, {"x": np.zeros((1, 4, 7), np.float32), **state})


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (0, "1 frame or more"),
        (-1, "1 frame or more"),
        (1.5, "a number of frames"),
        (10**20, "1099511627776 frames at most"),
    ],
)
def test_a_chunk_has_a_frame(chunk: Any, message: str) -> None:
    with pytest.raises(OptionError, match=f"chunk is {chunk}, expected {message}"):
        convert(model(FINE), "T", chunk)
