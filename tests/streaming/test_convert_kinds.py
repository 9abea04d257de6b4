"""How values depend on time: what a node may combine, and what it makes of it.

The steps run in onnxruntime, in chunks of several sizes; see tools/fuzz/streams.py.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest

from ostinato.streaming import ConversionError, convert
from ostinato.streaming.facts import Fixed, Kind, Length, OfLength, Sizes, SoFar, Stream, kind_of
from tests.streaming.streams import model
from tools.fuzz.streams import CONTEXT, LONGER, Trial, compare_steps

FAR = np.array([2**40])
HIDDEN = {"W": (1, 15, 4), "R": (1, 15, 5)}

# name: (nodes from x [N, 4, T] to y, constants)
RIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "a slice up to a computed length": (
        "h = Shape <start=2> (x)  e = Sub (h, three)  a = Slice (x, zero, e, two)"
        "  y = Conv <pads=[2, 0]> (a, V)",
        {"three": np.array([3]), "zero": np.array([0]), "two": np.array([2]), "V": (5, 4, 3)},
    ),
    "a slice up to a length that is far away": (
        "h = Shape <start=2> (x)  m = Min (h, far)  a = Slice (x, zero, m, two)"
        "  y = Conv <pads=[2, 0]> (a, V)",
        {"far": FAR, "zero": np.array([0]), "two": np.array([2]), "V": (5, 4, 3)},
    ),
    "a slice from a computed length": (
        "h = Shape <start=2> (x)  s = Sub (h, three)  a = Slice (x, s, far, two)  y = Flatten (a)",
        {"three": np.array([3]), "far": FAR, "two": np.array([2])},
    ),
    "a running sum of a constant": (
        "h = Shape (x)  e = Expand (c, h)  s = CumSum (e, two)  y = Add (s, x)",
        {"c": (1, 4, 1), "two": np.array(2)},
    ),
    "a recurrence over a constant": (
        "h = Shape (x)  e = Expand (c, h)  t = Transpose <perm=[2, 0, 1]> (e)"
        "  a, b = GRU <hidden_size=5> (t, W, R)  y = Transpose <perm=[2, 1, 3, 0]> (a)",
        HIDDEN | {"c": (1, 4, 1)},
    ),
    "a constant, padded": (
        "h = Shape (x)  e = Expand (c, h)  p = Pad (e, w)  y = Conv (p, V)",
        {"c": (1, 4, 1), "w": np.array([0, 0, 2, 0, 0, 0]), "V": (5, 4, 3)},
    ),
    "a constant, cropped": (
        "h = Shape (x)  e = Expand (c, h)  p = Slice (e, one, far, two)"
        "  y = Conv <pads=[3, 0]> (p, V)",
        {"c": (1, 4, 1), "one": np.array([1]), "far": FAR, "two": np.array([2]), "V": (5, 4, 3)},
    ),
    "a constant, cropped and padded behind": (
        "h = Shape (x)  e = Expand (c, h)  p = Pad (e, w)  y = Tanh (p)",
        {"c": (1, 4, 1), "w": np.array([0, 0, -1, 0, 0, 3])},
    ),
    "a constant, taken apart": (
        "h = Shape (x)  e = Expand (c, h)  t = Transpose <perm=[0, 2, 1]> (e)"
        "  r = Reshape (t, s)  y = CumSum (r, one)",
        {"c": (1, 4, 1), "s": np.array([0, -1, 2]), "one": np.array(1)},
    ),
    "places of padding": (
        "p = Pad (x, w, c)  t = Transpose <perm=[0, 2, 1]> (p)  a, i = TopK (t, one)"
        "  y = Cast <to=1> (i)",
        {"w": np.array([0, 0, 2, 0, 0, 0]), "c": np.array(0.7, np.float32), "one": np.array([1])},
    ),
    "padding of another type": (
        "p = Pad (x, w, c)  i = Cast <to=7> (p)  y = Cast <to=1> (i)",
        {"w": np.array([0, 0, 2, 0, 0, 0]), "c": np.array(-0.7, np.float32)},
    ),
    "numbers of frames of 32 bits": (
        "h = Shape <start=2> (x)  l = Squeeze (h)  m = Cast <to=6> (l)  r = Range (zero, m, one)"
        "  i = Add (r, one)  f = Cast <to=1> (i)  y = Mul (x, f)",
        {"zero": np.array(0, np.int32), "one": np.array(1, np.int32)},
    ),
    "a running mean, by the numbers of frames": (
        "h = Shape <start=2> (x)  l = Squeeze (h)  m = Add (l, o0)  f = Cast <to=1> (m)"
        "  r = Range (one, f, one)  s = CumSum (x, two)  y = Div (s, r)",
        {"o0": np.array(1), "one": np.array(1, np.float32), "two": np.array(2)},
    ),
    "numbers of elements so far": (
        "h = Shape <start=2> (x)  l = Squeeze (h)  m = Add (l, one)  f = Mul (m, four)"
        "  r = Range (four, f, four)  c = Cast <to=1> (r)  y = Mul (x, c)",
        {"one": np.array(1), "four": np.array(4)},
    ),
    "numbers of every second frame": (
        "c = Conv <strides=[2], pads=[1, 0]> (x, V)  h = Shape <start=2> (x)  l = Squeeze (h)"
        "  r = Range (three, l, two)  s = Cast <to=1> (r)  y = Mul (c, s)",
        {"V": (5, 4, 5), "three": np.array(3), "two": np.array(2)},
    ),
    "as many as the last frames are": (
        "h = Shape <start=2> (x)  s = Sub (h, seven)  a = Slice (x, s, h, two)"
        "  n = Shape <start=1> (a)  e = Expand (u, n)  y = ReduceSum <keepdims=0> (e, zero)",
        {"seven": np.array([7]), "two": np.array([2]), "u": (1, 1), "zero": np.array([0])},
    ),
    "a state that only the last frame has": (
        "a = Gather <axis=2> (x, last)  b = MatMul (a, M)  y = Softmax (b)",
        {"last": np.array(-1), "M": (4, 3)},
    ),
    "casts of numbers that another type does not have": (
        "n = Shape <end=1> (x)  m = Concat <axis=0> (n, e)"
        "  i = ConstantOfShape <value = int64[1] {-1}> (m)  a = Cast <to=2> (i)"
        "  b = Cast <to=1> (a)  f = ConstantOfShape <value = float[1] {1e9}> (m)"
        "  c = Cast <to=10> (f)  d = Cast <to=1> (c)  j = Concat <axis=2> (b, d, x)"
        "  k = Min (j, one)  y = Conv (k, V)",
        {"e": np.array([4, 1]), "one": np.array(1, np.float32), "V": (4, 4, 3)},
    ),
    "no frames in front of what is late": (
        "c = Conv (x, V)  n = Shape <end=1> (x)  m = Concat <axis=0> (n, e)  f = Expand (u, m)"
        "  y = Concat <axis=2> (f, c)",
        {"V": (4, 4, 3), "e": np.array([4, 0]), "u": (1, 4, 1)},
    ),
    "the state of what is late": (
        "c = Conv (x, V)  t = Transpose <perm=[2, 0, 1]> (c)"
        "  a, b = GRU <hidden_size=5> (t, W, R)  y = Squeeze (b, zero)",
        HIDDEN | {"V": (4, 4, 3), "zero": np.array([0])},
    ),
    "the first frame": (
        "f = Gather <axis=2> (x, z0)  u = Unsqueeze (f, two)  y = Sub (x, u)",
        {"z0": np.array(0), "two": np.array([2])},
    ),
    "the first frame of what is padded": (
        "p = Pad (x, w, c)  f = Slice (p, zero, one, two)  y = Sub (x, f)",
        {
            **{"w": np.array([0, 0, 2, 0, 0, 0]), "c": np.array(0.7, np.float32)},
            **{"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])},
        },
    ),
    "zeros like a frame of what is late": (
        "c = Conv (x, V)  f = Gather <axis=2> (c, five)  h = Shape (f)  z = ConstantOfShape (h)"
        "  u = Unsqueeze (z, two)  y = Add (c, u)",
        {"V": (4, 4, 3), "five": np.array(5), "two": np.array([2])},
    ),
    "a mean that begins with the first frame": (
        "f = Gather <axis=2> (x, z0)  r = Slice (x, one, far, two)"
        "  l, m = Scan <num_scan_inputs=1, scan_input_axes=[2], scan_output_axes=[2], body ="
        "  step (float[N, 4] s, float[N, 4] e) => (float[N, 4] t, float[N, 4] o)"
        "  { a = Add (s, e)  t = Mul (a, half)  o = Identity (t) }> (f, r)"
        "  u = Unsqueeze (f, two)  y = Concat <axis=2> (u, m)",
        {
            **{"z0": np.array(0), "one": np.array([1]), "two": np.array([2]), "far": FAR},
            "half": np.array(0.5, np.float32),
        },
    ),
    **{
        f"{count} frames in front of what is late": (
            "c = Conv (x, V)  h = Shape <end=1> (x)  s = Concat <axis=0> (h, t)"
            "  k = Expand (k0, s)  y = Concat <axis=2> (k, c)",
            {"V": (4, 4, 3), "k0": (1, 4, count), "t": np.array([4, count])},
        )
        for count in (1, 2, 3)
    },
    "a loop over the frames of a sequence of tensors": (
        "t = Transpose <perm=[2, 0, 1]> (x)  rows = SplitToSequence <keepdims=0> (t)"
        "  n = SequenceLength (rows)  d = Shape <end=2> (x)  h = ConstantOfShape (d)"
        "  l, m = Loop <body = b (int64 i, bool go, float[N, 4] s)"
        "  => (bool on, float[N, 4] u, float[N, 4] o)"
        "  { on = Identity (go)  e = SequenceAt (rows, i)"
        "  a = Add (s, e)  u = Mul (a, half)  o = Identity (u) }> (n, yes, h)"
        "  y = Transpose <perm=[1, 2, 0]> (m)",
        {"yes": np.array(True), "half": np.array(0.5, np.float32)},
    ),
    "a loop over a batch of any size whose state is expanded and reshaped": (
        "t = Transpose <perm=[2, 0, 1]> (x)  l0 = Shape <end=1> (t)  l = Squeeze (l0)"
        "  n = Shape <end=1> (x)  d0 = Concat <axis=0> (n, rest)  c = Equal (d0, minus)"
        "  d = Where (c, ones, d0)  h = Expand (first, d)"
        "  f, m = Loop <body = b (int64 i, bool go, float[N, 4] s)"
        "  => (bool on, float[N, 4] u, float[N, 4] o)"
        "  { on = Identity (go)  e = Gather (t, i)  a = Add (s, e)  p = Reshape (a, heads)"
        "  q = Mul (p, half)  k = Concat <axis=0> (n, rest)  u = Reshape (q, k)"
        "  o = Identity (u) }> (l, yes, h)"
        "  y = Transpose <perm=[1, 2, 0]> (m)",
        {
            **{"rest": np.array([-1]), "minus": np.array([-1, -1]), "ones": np.array([1, 1])},
            **{"first": (1, 4), "heads": np.array([-1, 2, 2]), "yes": np.array(True)},
            "half": np.array([[0.5], [0.25]], np.float32),
        },
    ),
    "values that are infinite before the first": (
        "a = Slice (x, three, far, two)  v0 = Reciprocal (a)  v = Transpose <perm=[0, 2, 1]> (v0)"
        "  q = Transpose <perm=[0, 2, 1]> (a)  s = MatMul (q, a)  h = Shape <start=2> (a)"
        "  l = Squeeze (h)  r = Range (z0, l, o0)  c = Unsqueeze (r, zero)  d = Unsqueeze (r, one)"
        "  b = LessOrEqual (c, d)  m = Where (b, s, never)  w = Softmax (m)  y = MatMul (w, v)",
        {
            **{"three": np.array([3]), "far": FAR, "two": np.array([2]), "zero": np.array([0])},
            **{"one": np.array([1]), "z0": np.array(0), "o0": np.array(1)},
            "never": np.array(-np.inf, np.float32),
        },
    ),
}


def graph(nodes: str, weights: dict[str, Any]) -> onnx.ModelProto:
    proto = model(f"g (float[N, 4, T] x) => (float[a, b, c] y) {{ {nodes} }}", weights, 22)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto = onnx.shape_inference.infer_shapes(proto)
    if not proto.graph.output[0].type.tensor_type.HasField("shape"):
        proto.graph.output[0].CopyFrom(
            onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["a", "b", "c"])
        )
    return proto


@pytest.mark.parametrize("name", RIGHT)
def test_the_steps_are_the_whole(name: str) -> None:
    proto = graph(*RIGHT[name])
    x = np.random.default_rng(3).standard_normal((2, 4, LONGER)).astype(np.float32)
    trial = Trial(proto, {"x": x}, None)
    for chunk in (None, 4):
        compare_steps(trial, convert(proto, "T", chunk, context=CONTEXT), compiled=False)
    assert trial.wrong == []


def test_sizes_of_states_follow_from_the_weights() -> None:
    conversion = convert(graph(*RIGHT["a slice up to a computed length"]), "T")
    assert [state.shape for state in conversion.state_list] == [("N", 4, 2)]


def test_a_value_without_time_says_when_it_begins_to_mean_something() -> None:
    conversion = convert(graph(*RIGHT["the state of what is late"]), "T")
    assert (conversion.outputs["y"].axis, conversion.outputs["y"].first) == (None, 3)
    conversion = convert(graph(*RIGHT["a slice from a computed length"]), "T")
    assert (conversion.outputs["y"].axis, conversion.outputs["y"].first) == (None, 3)


ENCODER = (
    "t = Transpose <perm=[2, 0, 1]> (x)  a, h = GRU <hidden_size=5> (t, W, R)"
    "  n = Shape <end=2> (t)  s = Concat <axis=0> (n, five)  "
)
LAST = "a = Gather <axis=2> (x, last)  u = Unsqueeze (a, two)  h = Shape <start=2> (x)  "

# name: (nodes from x [N, 4, T] to y, constants, node that is refused, part of the message)
WRONG: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "an autoencoder": (
        ENCODER + "e = Expand (h, s)  y, k = GRU <hidden_size=5> (e, W2, R)",
        HIDDEN | {"W2": (1, 15, 5), "five": np.array([5])},
        "e",
        "'h' summarises the sequence up to its end, 's' depends on how long the sequence is",
    ),
    "a decoder that begins where an encoder ends": (
        ENCODER + "y, k = GRU <hidden_size=5> (t, W, R, , , h)",
        HIDDEN | {"five": np.array([5])},
        "y",
        "'h' summarises the sequence up to its end",
    ),
    "the last frame, tiled": (
        LAST + "r = Concat <axis=0> (ones, h)  y = Tile (u, r)",
        {"last": np.array(-1), "two": np.array([2]), "ones": np.array([1, 1])},
        "y",
        "'u' belongs to the last frame of the sequence",
    ),
    "the last frame by ones of all": (
        LAST + "o = ConstantOfShape <value = float[1] {1.0}> (h)  y = Mul (u, o)",
        {"last": np.array(-1), "two": np.array([2])},
        "y",
        "'u' belongs to the last frame of the sequence, 'o' has a frame for each",
    ),
    "the last frame behind all": (
        LAST + "y = Concat <axis=2> (x, u)",
        {"last": np.array(-1), "two": np.array([2])},
        "y",
        "'u' belongs to the last frame",
    ),
    "a size that is one of the last frame": (
        "a = Gather <axis=2> (x, last)  m = ReduceMax <keepdims=0> (a)  i = Cast <to=7> (m)"
        "  k = Unsqueeze (i, zero)  h = Shape <start=1, end=2> (x)  s = Concat <axis=0> (k, h)"
        "  f = Cast <to=1> (s)  g = ReduceSum <keepdims=0> (f)  y = Mul (x, g)",
        {"last": np.array(-1), "zero": np.array([0])},
        "y",
        "'g' belongs to the last frame",
    ),
    "seven frames at most": (
        "h = Shape <start=2> (x)  m = Min (h, seven)  y = Slice (x, zero, m, two)",
        {"seven": np.array([7]), "zero": np.array([0]), "two": np.array([2])},
        "y",
        "a part of the sequence only",
    ),
    "as many as seven frames at most": (
        "h = Shape <start=2> (x)  m = Min (h, seven)  a = Slice (x, zero, m, two)"
        "  n = Shape <start=1> (a)  y = Expand (u, n)",
        {"seven": np.array([7]), "zero": np.array([0]), "two": np.array([2]), "u": (4, 1)},
        "a",
        "a part of the sequence only",
    ),
    "the last of seven frames at least": (
        "h = Shape <start=2> (x)  m = Max (h, seven)  n = Concat <axis=0> (one, m)"
        "  e = Expand (u, n)  s = CumSum (e, a)  y = Slice (s, last, far, one)",
        {
            **{"seven": np.array([7]), "one": np.array([1]), "u": (3, 1), "a": np.array(1)},
            **{"last": np.array([-1]), "far": FAR},
        },
        "y",
        "is as large as the whole sequence is long",
    ),
    "a size that long sequences alone have": (
        "h = Shape <start=2> (x)  q = Div (seven, h)  a = Add (q, one)"
        "  n = Concat <axis=0> (one, a)  y = Expand (u, n)",
        {"seven": np.array([7]), "one": np.array([1]), "u": (3, 1)},
        "y",
        "has its frames merged with another axis",
    ),
    "the size of what long sequences alone have": (
        "h = Shape <start=2> (x)  m = Min (h, seven)  n = Concat <axis=0> (one, m)"
        "  e = Expand (u, n)  s = Shape (e)  y = Expand (u, s)",
        {"seven": np.array([7]), "one": np.array([1]), "u": (3, 1)},
        "y",
        "has its frames merged with another axis",
    ),
    "the size of a frame that sequences of one frame do not have": (
        "h = Shape <start=2> (x)  b = Slice (x, zero, h, last)"
        "  a = Slice (b, one, two, last)  s = Shape <start=1> (a)  y = Expand (u, s)",
        {
            **{"zero": np.array([0]), "one": np.array([1])},
            **{"two": np.array([2]), "last": np.array([-1])},
            "u": (1, 1),
        },
        "a",
        "takes frames 1 to 2 of the sequence only",
    ),
    "a place for all frames": (
        "t = Transpose <perm=[0, 2, 1]> (x)  y = GatherElements <axis=2> (t, i)",
        {"i": np.zeros((1, 1, 2), np.int64)},
        "y",
        "'i') has values of its own for each frame",
    ),
    "channels up to the length": (
        "h = Shape <start=2> (x)  y = Slice (x, zero, h, one)",
        {"zero": np.array([0]), "one": np.array([1])},
        "y",
        "computes with the length of the whole sequence",
    ),
    "noise": (
        "n = RandomNormalLike (x)  y = Add (x, n)",
        {},
        "n",
        "draws random numbers",
    ),
    "noise that has no time": (
        "n = RandomNormal <shape=[4, 1]> ()  y = Add (x, n)",
        {},
        "n",
        "draws random numbers",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_mixes_kinds_is_refused(name: str) -> None:
    nodes, weights, node, message = WRONG[name]
    with pytest.raises(ConversionError) as caught:
        convert(graph(nodes, weights), "T")
    assert message in str(caught.value) and caught.value.node == node
    assert len(caught.value.refusals) == 1


def test_a_state_of_an_unknown_size_is_refused() -> None:
    text = """g (float[N, 1, T] x, int64[3] s) => (float[a, b, T] y) {
        e = Expand (x, s)
        y = CumSum (e, two)
    }"""
    with pytest.raises(ConversionError, match="size of axis 1 of these is not known") as caught:
        convert(model(text, {"two": np.array(2)}), {"x": 2})
    assert caught.value.node == "y"


def test_kinds() -> None:
    length = Length(None)
    assert kind_of(Fixed()) is kind_of(Sizes((3, "N"))) is Kind.CONSTANT
    assert kind_of(Sizes((3, length))) is kind_of(OfLength("why")) is Kind.LENGTH
    assert kind_of(Stream(0, Fraction(1))) is Kind.ALONG_TIME
    last, state = SoFar(True, 3), SoFar(False, 1)
    assert (kind_of(last), kind_of(state)) == (Kind.LAST, Kind.SO_FAR)
    assert last.joined(state) == SoFar(False, 3)
