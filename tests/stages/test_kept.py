"""Inputs that follow the rows of states that grow, without being as long by what the model says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ostinato import InferenceSession
from ostinato.errors import RunError

# Which rows are seen is gathered from a mask, up to as many as there are after the step.
GATHERED = """
g (float[B, T, 4] x, int64[B, S] mask, float[B, P, 4] past)
    => (float[B, T, 4] y, float[B, Q, 4] present)
    <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}, int64[1] first = {1},
     int64[2] apart = {1, -1}, float low = {-inf}, float none = {0}> {
        present = Concat<axis = 1>(past, x)
        b = Shape<start = 0, end = 1>(x)  rows = Squeeze(b)
        p = Shape<start = 1, end = 2>(past)  t = Shape<start = 1, end = 2>(x)
        n = Add(p, t)  count = Squeeze(n)
        i = Range(zero, rows, one)  j = Range(zero, count, one)
        across = Unsqueeze(i, last)  along = Reshape(j, apart)  both = Max(across, along)
        shape = Shape(both)  i2 = Expand(across, shape)  j2 = Expand(along, shape)
        i3 = Unsqueeze(i2, last)  j3 = Unsqueeze(j2, last)
        at = Concat<axis = -1>(i3, j3)  is = Cast<to = 9>(mask)  seen = GatherND(is, at)
        bias = Where(seen, none, low)  biases = Unsqueeze(bias, first)
        turned = Transpose<perm = [0, 2, 1]>(present)  scores = MatMul(x, turned)
        all = Add(scores, biases)  p2 = Softmax(all)  y = MatMul(p2, present)
    }"""


def test_a_mask_of_which_elements_are_gathered_has_room_for_more() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> {GATHERED}')
    session, states = InferenceSession(model), {"past": "present"}
    growing = session._growing(states)
    assert growing is not None
    assert [each.input for each in growing._compiled.grown] == ["mask"]
    stream, padded = session.stream(states), session.stream(states)
    random, past = np.random.default_rng(0), np.zeros((2, 0, 4), np.float32)
    mask = np.ones((2, 200), np.int64)
    mask[0, ::3], mask[:, 0] = 0, 1
    for step in range(70):
        x = random.standard_normal((2, 1, 4)).astype(np.float32)
        feeds = {"x": x, "mask": mask[:, : step + 1]}
        y, past = session.run(None, {**feeds, "past": past})
        np.testing.assert_array_equal(stream.step(feeds)[0], y)
        # A mask may be longer than there are rows.
        np.testing.assert_array_equal(padded.step({"x": x, "mask": mask})[0], y)
    np.testing.assert_array_equal(stream.state["past"], past)
    with pytest.raises(RunError, match="GatherND"):
        stream.step(feeds)
    np.testing.assert_array_equal(stream.state["past"], past)
