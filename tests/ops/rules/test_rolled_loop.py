"""Loops whose states grow: what is appended is stored once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from ostinato import InferenceSession, ShapeError
from ostinato.model.load import load_model
from ostinato.passes.pipeline import run_passes
from ostinato.program.nodes import Loop, statements
from ostinato.stages.partition import Segment, partition
from tests import witness

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'

# A list that a branch of an If extends, in a loop within a loop, as a greedy search of an RNN-T.
SEARCH = """g (int64 n, float[1] x) => (float[K] y) {
    go = Constant<value = bool {1}>()  three = Constant<value = int64 {3}>()
    y = Loop<body = frame (int64 i, bool c, float[M] s) => (bool co, float[N] so) {
        co = Identity(c)
        so = Loop<body = token (int64 j, bool c2, float[M2] s2) => (bool co2, float[N2] so2) {
            co2 = Identity(c2)  k = Add(i, j)  two = Constant<value = int64 {2}>()
            rest = Mod(k, two)  zero = Constant<value = int64 {0}>()  even = Equal(rest, zero)
            so2 = If(even)<
                then_branch = yes () => (float[P] a) { kf = Cast<to = 1>(k)  e = Add(x, kf)
                    a = Concat<axis = 0>(s2, APPENDED) },
                else_branch = no () => (float[Q] d) { d = Identity(s2) }>
        }>(three, c, s)
    }>(n, go, x)
}"""


def model(appended: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + SEARCH.replace("APPENDED", appended))


def carried(proto: onnx.ModelProto) -> int:
    """How many values the loops copy from step to step."""
    loaded = load_model(proto)
    run_passes(loaded)
    (part,) = partition(loaded, fallback=False).parts
    assert isinstance(part, Segment)
    loops = [s for s in statements(part.program.body) if isinstance(s, Loop)]
    assert len(loops) == 2
    return sum(len(loop.carries) for loop in loops)


def test_branches_and_inner_loops_append_to_the_memory_of_the_loop_around():
    proto = model("e")
    assert carried(proto) == 0
    (y,) = InferenceSession(proto, cache_dir=None).run(
        None, {"n": np.array(4), "x": np.array([0.5], "f")}
    )
    steps = [i + j for i in range(4) for j in range(3) if (i + j) % 2 == 0]
    assert y.tolist() == [0.5, *(0.5 + k for k in steps)]


def test_what_an_inner_loop_moves_has_memory_of_its_own():
    proto = parser.parse_model(
        HEAD + SEARCH.replace("s2, APPENDED", "e, s2").replace("Identity(s2)", "Neg(s2)")
    )
    assert carried(proto) > 0
    (y,) = InferenceSession(proto, cache_dir=None).run(
        None, {"n": np.array(2), "x": np.array([0.5], "f")}
    )
    rows = [0.5]
    for k in [i + j for i in range(2) for j in range(3)]:
        rows = [0.5 + k, *rows] if k % 2 == 0 else [-row for row in rows]
    assert y.tolist() == rows


def test_a_trip_count_without_end_is_an_error_of_the_state_that_grows():
    endless = """g (float[4] x) => (float[K] y) {
        go = Constant<value = bool {1}>()  n = Constant<value = int64 {4611686018427387904}>()
        y = Loop<body = b (int64 i, bool c, float[M] s) => (bool co, float[N] so) {
            co = Identity(c)  so = Concat<axis = 0>(s, x) }>(n, go, x)
    }"""
    words = r"\(Loop\): .*carried value 0 \('s'\), which grows by 16 bytes a step"
    with pytest.raises(ShapeError, match=words):
        InferenceSession(parser.parse_model(HEAD + endless), cache_dir=None)


@pytest.mark.parametrize("far", [99, 10**9, 2**31, 2**32, 2**40])
def test_the_last_rows_up_to_any_number(far: int) -> None:
    """A slice may end at any number beyond what there is, which is no size to keep memory for."""
    text = """g (int64 n, float[3] x, float[P, 3] s) => (float[Q, 3] y, float[3] z) {
        last = Constant<value_ints = [-5]>()  far = Constant<value_ints = [FAR]>()
        axis = Constant<value_ints = [0]>()  go = Constant<value = bool {1}>()
        z, y = Loop<body = b (int64 i, bool c, float[3] a, float[M, 3] t)
                 => (bool co, float[3] b, float[K, 3] u) {
            co = Identity(c)  row = Unsqueeze(a, axis)  joined = Concat<axis = 0>(t, row)
            u = Slice(joined, last, far, axis)  sum = ReduceMean<keepdims = 0>(u, axis)
            b = Sin(sum)
        }>(n, go, x, s)
    }"""
    session = InferenceSession(parser.parse_model(HEAD + text.replace("FAR", str(far))))
    assert not session.report()["fallback"]
    for rows, steps in ((0, 9), (8, 2), (7, 40)):
        x, t = np.array([1, 2, 3], "f"), np.ones((rows, 3), "f")
        y, z = session.run(None, {"n": np.array(steps), "x": x, "s": t})
        for _ in range(steps):
            t = np.concatenate([t, x[None]])[-5:]
            x = np.sin(t.mean(0))
        np.testing.assert_allclose(y, t, rtol=1e-5)
        np.testing.assert_allclose(z, x, rtol=1e-5)


CUT = """
    g (int64 n, float[2, 2, 9] x, float limit) => (float[2, A, 9] y) {
      go = Constant<value = bool {1}>()
      y = Loop<body = outer (int64 i, bool c, float[2, M, 9] s) => (bool co, float[2, N, 9] so) {
        axis = Constant<value_ints = [1]>()  back = Constant<value_ints = [-5]>()
        far = Constant<value_ints = [99]>()  f = Cast<to = 1>(i)  co = Less(f, limit)
        TRIPS
        so = Loop<body = inner (int64 j, bool d, float[2, P, 9] t) => (bool e, float[2, Q, 9] u) {
          e = Identity(d)  w = Sin(t)  p = ReduceSum(w, axis)
          a = Concat<axis = 1>(t, p)  u = Slice(a, back, far, axis)
        }>(trips, go, s)
      }>(n, go, x)
    }"""


@pytest.mark.parametrize(
    "trips",
    [
        "trips = Constant<value = int64 {3}>()",
        "most = ReduceMax<keepdims = 0>(s)  trips = Cast<to = 7>(most)",
    ],
)
def test_a_state_that_inner_loops_cut_has_memory_for_what_is_left(trips: str) -> None:
    proto = parser.parse_model(HEAD + CUT.replace("TRIPS", trips))
    session = InferenceSession(proto, fallback=False)
    feeds = {
        "n": np.array(4),
        "x": np.full((2, 2, 9), 2, np.float32),
        "limit": np.array(2, np.float32),
    }
    expected = witness.run(proto.SerializeToString(), feeds)
    for ours, theirs in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert session.report()["arena_bytes"] < 2**20


# A loop that begins with rows of which the loop around has more in every step.
BEGINS_WITH_MORE = """
    g (int64 n, float[8] x, float[N, 8] rows) => (float[M, 8] y) {
      go = Constant<value = bool {1}>()  one = Constant<value = int64 {1}>()
      is_one = Equal(n, one)
      y = Loop<body = outer (int64 i, bool c, float[P, 8] s) => (bool co, float[Q, 8] so) {
        co = Identity(c)  two = Constant<value = int64 {2}>()  axis = Constant<value_ints = [0]>()
        back = Constant<value_ints = [-2]>()  far = Constant<value_ints = [99]>()
        w = Loop<body = inner (int64 j, bool d, float[R, 8] t) => (bool e, float[S, 8] u) {
          e = Identity(d)  row = Unsqueeze(x, axis)
          a = Concat<axis = 0>(t, row)  u = Slice(a, back, far, axis)
        }>(two, go, s)
        top = ReduceMax<keepdims = 1>(w, axis)
        so = If(is_one)<
          then_branch = keep () => (float[U, 8] k) { k = Identity(s) },
          else_branch = more () => (float[V, 8] m) { m = Concat<axis = 0>(s, top) }>
      }>(n, go, rows)
    }"""


@pytest.mark.parametrize("n", [1, 9, 300])
def test_a_loop_in_a_loop_has_memory_for_all_rows_that_it_may_begin_with(n: int) -> None:
    proto = parser.parse_model(HEAD + BEGINS_WITH_MORE)
    rng = np.random.default_rng(0)
    feeds = {
        "n": np.array(n),
        "x": rng.standard_normal(8).astype("f"),
        "rows": rng.standard_normal((1, 8)).astype("f"),
    }
    (y,) = InferenceSession(proto, fallback=False, cache_dir=None).run(None, feeds)
    (expected,) = witness.run(proto.SerializeToString(), feeds)
    assert np.array_equal(y, expected)


# A cell behind a convolution that halves its input, with a state of half the size rounded down, as
# `torch.zeros(N, 2, L // 2)` makes it. The list tells what a step makes it of.
HALVED = """g (float[N, 3, L] x) => (float[S, N, 2, K] y, float[N, 2, H] last) {
      go = Constant<value = bool {1}>()  n = Constant<value = int64 {3}>()
      none = SequenceEmpty<dtype = 1>()
      two = Constant<value_ints = [2]>()  taken = Constant<value_ints = [0, 1, 2]>()
      sizes = Shape(x)  rows, _, length = Split<axis = 0, num_outputs = 3>(sizes)
      half = Div(length, two)  shape = Concat<axis = 0>(rows, two, half)
      zeros = ConstantOfShape(shape)
      last, list = Loop<body = b (int64 i, bool c, float[P, 2, Q] h, seq(float[P, 2, Q]) l)
          => (bool co, float[P2, 2, Q2] ho, seq(float[P3, 2, Q3]) lo) {
        co = Identity(c)  a = MaxPool<kernel_shape = [1], strides = [2]>(x)
        GATES
        zi, zf = Split<axis = 1, num_outputs = 2>(g)
        i2 = Sigmoid(zi)  f2 = Tanh(zf)  k = Mul(f2, h)  ho = Add(k, i2)
        lo = SequenceInsert(l, ho)
      }>(n, go, zeros, none)
      y = ConcatFromSequence<axis = 0, new_axis = 1>(list)
    }"""


@pytest.mark.parametrize(
    ("wide", "gates"),
    [
        (5, "m = Concat<axis = 1>(a, h)  g = Conv<pads = [1, 1]>(m, w)"),
        (3, "s = Concat<axis = 1>(h, h)  v = Conv<pads = [1, 1]>(a, w)  g = Add(s, v)"),
    ],
    ids=["checked", "guarded"],
)
def test_a_state_that_has_to_keep_its_size_does_not_change_it(wide: int, gates: str) -> None:
    proto = parser.parse_model(HEAD + HALVED.replace("GATES", gates))
    random = np.random.default_rng(5)
    weights = random.standard_normal((4, wide, 3), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    session = InferenceSession(proto, cache_dir=None)
    assert all(entry["unless"] for entry in session.report().fallback)
    for rows, length in ((2, 8), (1, 12)):
        feeds = {"x": random.standard_normal((rows, 3, length), np.float32)}
        expected = witness.run(proto.SerializeToString(), feeds)
        for ours, theirs in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert not session.report().interpreted
