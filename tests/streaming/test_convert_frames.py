"""Frames that overlap, copies of the first one, parts and rows of known length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato
from ostinato.errors import RunError
from ostinato.streaming import convert
from ostinato.streaming.timing import CUT_AND_PADDED
from tests.streaming.streams import assert_streams, model

# From x [N, T, 6] to y [N, T, C].
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "a row of a table for each frame": (
        "t = Shape <start=1, end=2> (x)  p = Slice (P, zero, t, one)  y = Add (x, p)",
        {"P": (1, 400, 6), "zero": np.array([0]), "one": np.array([1])},
        1,
    ),
    "rows from the third on": (
        "t = Shape <start=1, end=2> (x)  e = Add (t, two)  p = Slice (P, two, e, zero)"
        "  y = Add (x, p)",
        {"P": (400, 6), "two": np.array([2]), "zero": np.array([0])},
        1,
    ),
    "sizes behind rows of a table": (
        "t = Shape <start=1, end=2> (x)  p = Slice (P, zero, t, one)  a = Add (x, p)"
        "  h = Shape <start=1> (a)  s = Concat <axis=0> (m, h)  b = Reshape (a, s)"
        "  c = Transpose <perm=[0, 2, 1]> (b)  n = Shape <end=1> (x)"
        "  r = Concat <axis=0> (n, two, m, t)  d = Reshape (c, r)"
        "  e = ReduceSum <keepdims=0> (d, one)"
        "  y = Transpose <perm=[0, 2, 1]> (e)",
        {
            "P": (1, 400, 6),
            "zero": np.array([0]),
            "one": np.array([1]),
            "two": np.array([2]),
            "m": np.array([-1]),
        },
        1,
    ),
    "the last frames, as many as windows": (
        "t = Transpose <perm=[0, 2, 1]> (x)  c = Conv (t, W)  n = Shape <start=2> (c)  m = Neg (n)"
        "  s = Slice (t, m, far, two)  d = Add (s, c)  k = Sub (zero, n)"
        "  u = Slice (t, k, far, two)  e = Mul (u, d)  y = Transpose <perm=[0, 2, 1]> (e)",
        {
            "W": (6, 6, 3),
            "far": np.array([2**62]),
            "two": np.array([2]),
            "zero": np.array([0]),
        },
        1,
    ),
    "copies of the first frame": (
        'p = Pad <mode="edge"> (x, w)  t = Transpose <perm=[0, 2, 1]> (p)  c = Conv (t, W)'
        "  y = Transpose <perm=[0, 2, 1]> (c)",
        {"w": np.array([0, 3, 0, 0, 0, 0]), "W": (5, 6, 4)},
        1,
    ),
    "copies of the first and the last frame": (
        'p = Pad <mode="edge"> (x, w)  y = Tanh (p)',
        {"w": np.array([0, 2, 0, 0, 1, 0])},
        1,
    ),
    "frames that overlap": (
        "p = Pad (x, w)  t = Shape <start=1, end=2> (p)  t0 = Squeeze (t)  e = Sub (t0, three)"
        "  r = Range (zero, e, one)  u = Unsqueeze (r, last)  i = Add (u, taps)"
        "  f = Gather <axis=1> (p, i)  y = ReduceMax <keepdims=0> (f, axis2)",
        {
            "w": np.array([0, 3, 0, 0, 0, 0]),
            "three": np.array(3),
            "zero": np.array(0),
            "one": np.array(1),
            "last": np.array([-1]),
            "taps": np.array([[0, 3, 1]]),
            "axis2": np.array([2]),
        },
        1,
    ),
    "frames half a frame apart": (
        "t = Shape <start=1, end=2> (x)  t0 = Squeeze (t)  e = Sub (t0, seven)"
        "  r = Range (one, e, four)  u = Unsqueeze (r, first)  i = Add (u, taps)"
        "  f = Gather <axis=1> (x, i)  y = ReduceSum <keepdims=0> (f, axis1)",
        {
            "seven": np.array(7),
            "one": np.array(1),
            "four": np.array(4),
            "first": np.array([0]),
            "taps": np.arange(8).reshape(8, 1),
            "axis1": np.array([1]),
        },
        4,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_chunks_have_the_bits_of_the_whole(name: str) -> None:
    nodes, weights, multiple = CASES[name]
    proto = model(f"g (float[N, T, 6] x) => (float[N, S, C] y) {{ {nodes} }}", weights)
    assert assert_streams(proto, T=336, chunks=(1, 3, 7)).multiple == multiple


def test_frames_that_overlap_may_begin_with_given_ones() -> None:
    """A cache that the caller passes in front of the frames, as a step returns it."""
    text = """g (float[N, T, 6] x, float[N, 2, 6] past) => (
        float[N, T, 6] y, float[N, 2, 6] rest, float[N, 2, 6] best
    ) {
        p = Concat <axis=1> (past, x)  rest = Slice (p, minus_two, far, one)
        t = Shape <start=1, end=2> (p)  t0 = Squeeze (t)  e = Sub (t0, two)
        r = Range (zero, e, step)  u = Unsqueeze (r, one)  i = Add (u, taps)
        f = Gather <axis=1> (p, i)  y = ReduceMax <keepdims=0> (f, last)
        best = Slice (y, minus_two, far, one)
    }"""
    constants = {
        **{"minus_two": np.array([-2]), "far": np.array([2**40]), "two": np.array(2)},
        **{"zero": np.array(0), "one": np.array([1]), "step": np.array(1)},
        **{"taps": np.array([[0, 1, 2]]), "last": np.array([2])},
    }
    conversion = assert_streams(model(text, constants), chunks=(1, 3, 7))
    assert conversion.delay["y"] == 0


def test_a_frame_behind_the_last_row_is_an_error() -> None:
    nodes, weights, _ = CASES["a row of a table for each frame"]
    proto = model(
        f"g (float[N, T, 6] x) => (float[N, S, C] y) {{ {nodes} }}", weights | {"P": (1, 3, 6)}
    )
    conversion = convert(proto, "T")
    session = ostinato.InferenceSession(conversion.model, cache_dir=None)
    stream = session.stream(conversion.states, conversion.initial)
    frame = {"x": np.zeros((1, 1, 6), np.float32)}
    for _ in range(3):
        stream.step(frame)
    with pytest.raises(RunError, match=r"a row of .* for each frame so far.*out of range"):
        stream.step(frame)


def test_frames_that_are_cut_off_need_no_row() -> None:
    proto = model(
        """g (float[N, 8, 6] x) => (float[N, 6, 6] y) {
            c = Slice (x, zero, end, one)  y = Add (c, P)
        }""",
        {"P": (1, 6, 6), "zero": np.array([0]), "one": np.array([1]), "end": np.array([-2])},
    )
    assert_streams(proto, {"x": 1}, chunks=(1, 2, 8))


def test_frames_that_are_cut_off_need_no_place() -> None:
    # Places that went on growing would be none of the axis.
    proto = model(
        """g (float[1, 4, 6] x) => (float[1, 2, 6] y) {
            c = Slice (x, zero, end, one)  y = GatherElements <axis=0> (c, places)
        }""",
        {
            "places": np.array([-1, 0]).reshape(1, 2, 1).repeat(6, 2),
            **{"zero": np.array([0]), "one": np.array([1]), "end": np.array([-2])},
        },
    )
    assert_streams(proto, {"x": 1}, chunks=(1, 2, 4))


@pytest.mark.parametrize(
    "last",
    [
        "y = Conv <pads=[0, 2]> (c, W)",
        'y = Pad <mode="edge"> (c, pads)',
        'y = Resize <mode="linear"> (c, , scales)',
        "y = MaxPool <kernel_shape=[3], strides=[3], ceil_mode=1> (c)",
    ],
)
def test_what_pads_behind_a_cut_is_noted(last: str) -> None:
    values = {"zero": np.array([0]), "two": np.array([2]), "end": np.array([-2]), "W": (4, 4, 3)}
    pads, scales = np.array([0, 0, 0, 0, 0, 1]), np.array([1, 1, 2], np.float32)
    proto = model(
        f"g (float[N, 4, T] x) => (float[N, 4, S] y) {{ c = Slice (x, zero, end, two)  {last} }}",
        values | {"pads": pads, "scales": scales},
    )
    assert CUT_AND_PADDED in [note.text for note in convert(proto, "T", None).notes]


SPLIT = "g (float[2, 9, 6] x) => (float[2, S, C] y) { %s }"


def test_parts_up_to_the_end() -> None:
    nodes = "a, b = Split <axis=1> (x, sizes)  c = Tanh (b)  y = Identity (c)"
    proto = model(SPLIT % nodes, {"sizes": np.array([2, 7])})
    assert convert(proto, {"x": 1}).delay == {"y": 2}


def test_parts_in_the_middle_end_where_they_do_in_a_longer_sequence() -> None:
    nodes = "a, b, y = Split <axis=1, num_outputs=3> (x)  z = Tanh (b)"
    proto = model(SPLIT.replace("y)", "y, float[2, R, C] z)") % nodes)
    assert convert(proto, {"x": 1}).delay == {"y": 6, "z": 3}


def test_elements_that_shapes_give() -> None:
    """A table of sizes, as exporters write pads; sizes that Expand gets by a Where."""
    nodes = """
        h = Shape <start=2, end=3> (x)  d = Sub (seven, h)  p0 = Concat <axis=0> (zero, d)
        p1 = Concat <axis=0> (zeros, p0)  p2 = Reshape (p1, pairs)  p3 = Transpose (p2)
        p4 = Reshape (p3, flat)  q = Pad (x, p4)
        t = Shape <start=1, end=2> (x)  n = Shape <start=0, end=1> (x)
        s = Concat <axis=0> (n, t, four, minus)  e = Equal (s, minus)  o = Where (e, ones, s)
        u = Unsqueeze (q, two)  v = Expand (u, o)
        t4 = Mul (t, four)  w = Concat <axis=0> (n, t4, seven)  y = Reshape (v, w)"""
    weights = {
        "seven": np.array([7]),
        "zero": np.array([0]),
        "zeros": np.zeros(4, np.int64),
        "pairs": np.array([3, 2]),
        "flat": np.array([-1]),
        "four": np.array([4]),
        "minus": np.array([-1]),
        "ones": np.ones(4, np.int64),
        "two": np.array([2]),
    }
    proto = model(f"g (float[N, T, 6] x) => (float[N, S, 7] y) {{ {nodes} }}", weights)
    assert_streams(proto, chunks=(1, 7))


def test_a_size_of_another_branch() -> None:
    """Half of the frames, each repeated until there are as many as before."""
    nodes = """
        c = Conv <strides=[2], pads=[1, 0]> (x, W)
        b = Shape <end=2> (c)  t = Shape <start=2> (x)  sizes = Concat <axis=0> (b, t)
        r = Resize <mode="nearest", coordinate_transformation_mode="asymmetric",
            nearest_mode="floor"> (c, , , sizes)
        y = Add (x, r)"""
    proto = model(f"g (float[N, 4, T] x) => (float[N, 4, T] y) {{ {nodes} }}", {"W": (4, 4, 3)})
    assert assert_streams(proto, T=336).multiple == 2


def test_branches_that_sizes_decide() -> None:
    text = """g (float[N, T, 6] x) => (float[N, S, C] y) {
        t = Shape <start=1, end=2> (x)  c = Greater (t, one)  d = Squeeze (c)
        y = If (d) <then_branch = a () => (float[N, T, 6] u) { u = Tanh (x) },
            else_branch = b () => (float[N, T, 6] v) { v = Neg (x) }>
    }"""
    conversion = assert_streams(model(text, {"one": np.array([1])}))
    assert conversion.states == {}
    assert [note.text for note in conversion.notes] == [
        "takes the way of long sequences, which their sizes decide"
    ]
