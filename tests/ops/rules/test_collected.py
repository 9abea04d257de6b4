"""What the steps of a loop give has one shape."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from ostinato import InferenceSession
from ostinato.errors import RunError

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
