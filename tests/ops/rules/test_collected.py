"""What the steps of a loop give has one shape."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import ostinato.native.function
from ostinato import InferenceSession
from ostinato.errors import RunError
from tests import witness

MODEL = parser.parse_model(
    """<ir_version: 9, opset_import: ["" : 18]>
    g (int64 n, int64 k, int64 more, float[9] x) => (float[T, U] rows) {
        go = Constant<value = bool {1}>()  axis = Constant<value_ints = [0]>()
        zero = Constant<value_ints = [0]>()
        last, rows = Loop<body = b (int64 i, bool c, int64 s) => (bool co, int64 so, float[V] r) {
            co = Identity(c)  k1 = Unsqueeze(s, axis)  r = Slice(x, zero, k1, axis)
            so = Add(s, more)
        }>(n, go, k)
    }"""
)


def test_a_shape_that_steps_compute_is_that_of_the_first():
    session = InferenceSession(MODEL, fallback=False, cache_dir=None)
    feeds = {"k": np.array(4), "more": np.array(0), "x": np.arange(9, dtype="f")}
    (rows,) = session.run(None, {**feeds, "n": np.array(2)})
    assert rows.tolist() == [[0, 1, 2, 3]] * 2
    assert session.run(None, {**feeds, "n": np.array(0)})[0].shape == (0, 0)
    with pytest.raises(RunError, match="axis 0 of what each step gives"):
        session.run(None, {**feeds, "n": np.array(2), "more": np.array(1)})


# Loops without a trip count, the sizes of whose rows a run computes before them, in them, or both.
ENDED = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[2, 1, 1] x, float[N] z, int64 k) => (OUTPUTS) {
        go = Constant<value = bool {1}>()  one = Constant<value = int64 {1}>()
        twenty = Constant<value = int64 {20}>()  axis = Constant<value_ints = [1]>()
        BODY
    }"""
ROWS = """d, y = Loop<body = b (int64 i, bool c, float[A, B, C] s) => (bool co, float[D, E, F] so,
        float[G, H, J] r) { co = Less(i, k)  so = Add(s, BESIDE)  r = Tanh(so) }>(, go, START)"""
LOOPS = {
    "the sizes of a loop before": """d0, first = Loop<body = a (int64 i0, bool c0, float[A] s0) =>
            (bool c1, float[B] s1, float[C] r0) {
            c1 = Less(i0, one)
            s1 = Identity(s0)  r0 = Tanh(s0) }>(twenty, go, z)
        again = Unsqueeze(first, axis)\n"""
    + ROWS.replace("BESIDE", "again").replace("START", "again"),
    "the sizes of its first step": ROWS.replace("BESIDE", "z").replace("START", "x"),
    "in a Scan": """y = Scan<num_scan_inputs = 1, body = o (float[P, Q] u) =>
        (float[R, S, T, U] y0) { three = Unsqueeze(u, axis) """
    + ROWS.replace("d, y", "d, y0").replace("BESIDE", "z").replace("START", "three")
    + "}>(x)",
}


def ended(loop: str) -> onnx.ModelProto:
    rank = 5 if loop == "in a Scan" else 4
    outputs = f"float[{', '.join(f'y{i}' for i in range(rank))}] y"
    return parser.parse_model(ENDED.replace("BODY", LOOPS[loop]).replace("OUTPUTS", outputs))


@pytest.mark.parametrize("loop", LOOPS)
def test_each_step_finds_out_whether_there_is_room_for_rows_of_computed_sizes(loop: str):
    proto = ended(loop)
    feeds = {"x": np.ones((2, 1, 1), "f"), "z": np.arange(3, dtype="f"), "k": np.array(2)}
    (expected,) = witness.run(proto.SerializeToString(), feeds)
    (got,) = InferenceSession(proto, fallback=False, cache_dir=None).run(None, feeds)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("loop", LOOPS)
def test_no_step_writes_where_there_is_no_room(loop: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ostinato.native.function, "spare_memory", lambda: 1 << 20)
    session = InferenceSession(ended(loop), fallback=False, cache_dir=None)
    feeds = {"x": np.ones((2, 1, 1), "f"), "z": np.arange(3, dtype="f")}
    (y,) = session.run(None, {**feeds, "k": np.array(5000)})
    assert 5001 in y.shape and np.isfinite(y).all()
    with pytest.raises(RunError, match="not enough memory for a value of shape"):
        session.run(None, {**feeds, "k": np.array(10**6)})
