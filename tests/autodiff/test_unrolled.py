"""Gradients through states that grow: a decoder's cache, in a Loop of a few steps."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.autodiff import gradient
from ostinato.errors import UnsupportedError

RANDOM = np.random.default_rng(0)
STEPS, WIDTH = 5, 3


def attention(trips: str, condition: str = "going") -> onnx.ModelProto:
    """Each step attends to its own past in reverse: keys grow by a row, outputs are stacked."""
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18]>
        g (double[5, 3] x, double[3, 3] w, bool start, int64 count)
            => (double loss, double[5, 3] last)
          <int64 five = {{5}}, int64 many = {{65}}, double[0, 3] none = {{}}, bool yes = {{1}},
           int64[1] zero = {{0}}, int64[1] back = {{-1}}, int64[1] end = {{-99}},
           double most = {{1e9}}> {{
          last, rows = Loop({trips}, yes, none) <
              body = step (int64 i, bool going, double[P, 3] past) =>
              (bool proceed, double[Q, 3] present, double[3] y) {{
              at = Unsqueeze(i, zero)  row = Gather(x, at)  k = MatMul(row, w)
              turned = Slice(past, back, end, zero, back)
              present = Concat<axis = 0>(turned, k)
              t = Transpose<perm = [1, 0]>(present)  s = MatMul(row, t)
              p = Softmax<axis = -1>(s)  v = MatMul(p, present)  y = Squeeze(v, zero)
              size = ReduceSum<keepdims = 0>(v)  small = Less(size, most)
              proceed = Identity({condition})
          }}>
          square = Mul(rows, rows)  both = Add(square, last)  loss = ReduceSum<keepdims = 0>(both)
        }}""")


def test_gradients_of_rows_that_change_places_are_those_of_steps() -> None:
    model = attention("five")
    made = gradient(model, "loss", ["x", "w"])
    assert not any(node.op_type == "Loop" for node in made.graph.node)
    feeds = {
        "x": RANDOM.standard_normal((STEPS, WIDTH)),
        "w": RANDOM.standard_normal((WIDTH, WIDTH)),
        "start": np.array(True),
        "count": np.array(STEPS),
    }
    session = ostinato.InferenceSession(made, fallback=False)
    names = [node.name for node in session.get_outputs()]
    results = dict(zip(names, session.run(None, feeds), strict=True))
    plain = ostinato.InferenceSession(model, fallback=False)
    assert results["loss"] == plain.run(["loss"], feeds)[0]
    for name in ("x", "w"):
        for place in np.ndindex(feeds[name].shape):
            losses = []
            for step in (1e-5, -1e-5):
                moved = feeds[name].copy()
                moved[place] += step
                losses.append(plain.run(["loss"], {**feeds, name: moved})[0])
            difference = (losses[0] - losses[1]) / 2e-5
            np.testing.assert_allclose(results[f"{name}_grad"][place], difference, rtol=1e-6)


@pytest.mark.parametrize(
    ("trips", "condition"), [("count", "going"), ("many", "going"), ("five", "small")]
)
def test_rows_that_change_places_in_many_steps_are_refused_by_name(
    trips: str, condition: str
) -> None:
    with pytest.raises(UnsupportedError, match=r"Loop.*state 'past.*' changes its shape"):
        gradient(attention(trips, condition), "loss", ["w"])
