"""Forward and backward as two models give the gradients of one."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import ostinato
from ostinato.autodiff import gradient
from ostinato.autodiff.partition import partition
from ostinato.errors import InputError

TEXT = """<ir_version: 9, opset_import: ["": 20]>
g (float[T, 2, 3] x, float[1, 9, 3] w, float[1, 9, 3] r, float[3, 3] u, float[1] unused)
  => (float[T, 2, 3] y, int64[3] shape) {
  all, last = GRU<hidden_size=3, linear_before_reset=1>(x, w, r)
  axes = Constant <value: tensor = int64[1] {1}> ()
  steps = Squeeze(all, axes)
  z = MatMul(steps, u)
  y = Tanh(z)
  shape = Shape(y)
}"""
LOSS = "\n  product = Mul(y, seed)\n  loss = ReduceSum<keepdims=0>(product)\n}"


def test_gradients_are_those_of_the_whole() -> None:
    random = np.random.default_rng(0)
    shapes = {"x": (5, 2, 3), "w": (1, 9, 3), "r": (1, 9, 3), "u": (3, 3), "unused": (1,)}
    feed = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    seed = random.standard_normal((5, 2, 3)).astype(np.float32)
    parts = partition(onnx.parser.parse_model(TEXT), list(shapes), ["y"])
    forward = ostinato.InferenceSession(parts.forward, cache_dir=None)
    names = [argument.name for argument in forward.get_outputs()]
    assert names[:2] == ["y", "shape"]
    known = {**feed, **dict(zip(names, forward.run(None, feed), strict=True))}
    taken = {name: known[name] for name in parts.reads} | {parts.cotangents["y"]: seed}
    backward = ostinato.InferenceSession(parts.backward, cache_dir=None)
    got = backward.run(None, taken)

    text = TEXT.replace("float[1] unused)", "float[1] unused, float[T, 2, 3] seed)")
    text = text.replace("=> (float[T, 2, 3] y, int64[3] shape)", "=> (float loss)")
    whole = gradient(onnx.parser.parse_model(text[: text.rindex("}")] + LOSS), "loss", list(shapes))
    expected = ostinato.InferenceSession(whole, cache_dir=None).run(None, {**feed, "seed": seed})
    for a, b in zip(got, expected[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    # What the recurrence computes is kept, not computed again.
    assert not any(
        node.op_type == "Scan" and "grad" not in node.name for node in parts.backward.graph.node
    )


def test_an_output_without_gradients_is_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        partition(onnx.parser.parse_model(TEXT), ["x"], ["shape"])


def test_a_loop_that_is_asked_for_a_shape_and_for_what_it_kept() -> None:
    text = """<ir_version: 9, opset_import: ["": 20]>
    g (float[T, 2, 3] x, float[1, 9, 3] w, float[1, 9, 3] r) => (float y) {
      all, last = GRU<hidden_size=3, linear_before_reset=1>(x, w, r)
      from = Constant <value: tensor = int64[1] {1}> ()
      to = Constant <value: tensor = int64[1] {3}> ()
      axes = Constant <value: tensor = int64[1] {0}> ()
      rows = Slice(all, from, to, axes)
      y = ReduceSum<keepdims=0>(rows)
    }"""
    parts = partition(onnx.parser.parse_model(text), ["x", "w", "r"], ["y"])
    for part in (parts.forward, parts.backward):
        onnx.checker.check_model(part)


def test_what_a_slice_leaves_most_of_is_kept_whole() -> None:
    text = """<ir_version: 9, opset_import: ["": 20]>
    g (float[4, 3] x, float[1, 3] first) => (float[4, 3] y) {
      e = Exp(x)
      joined = Concat<axis=0>(first, e)
      from = Constant <value: tensor = int64[1] {0}> ()
      to = Constant <value: tensor = int64[1] {END}> ()
      rows = Slice(joined, from, to, from)
      z = Tanh(e)
      part = Slice(z, from, to, from)
      y = MUL
    }"""
    pairs = {4: "Mul(rows, z)", 1: "Mul(rows, z)"}
    kept = {}
    for end, value in pairs.items():
        model = onnx.parser.parse_model(text.replace("END", str(end)).replace("MUL", value))
        reads = partition(model, ["x"], ["y"]).reads
        kept[end] = {name for name in reads if name in ("joined", "rows")}
    assert kept == {4: {"joined"}, 1: {"rows"}}


def test_branches_that_go_forward_and_back_stay_apart() -> None:
    text = """<ir_version: 9, opset_import: ["": 20]>
    g (float[3] x, float[3] w) => (float[3] y) {
      total = ReduceSum<keepdims=0>(x)
      zero = Constant <value: tensor = float {0}> ()
      positive = Greater(total, zero)
      y = If (positive) <
        then_branch = a () => (float[3] p) { q = Mul(x, w)  p = Tanh(q) },
        else_branch = b () => (float[3] r) { r = Relu(x) }
      >
    }"""
    parts = partition(onnx.parser.parse_model(text), ["x", "w"], ["y"])
    forward = ostinato.InferenceSession(parts.forward, cache_dir=None)
    backward = ostinato.InferenceSession(parts.backward, cache_dir=None)
    x, w = np.array([[1, 2, -1], [0.5, 2, 3]], np.float32)
    for sign, expected in ((1, w * (1 - np.tanh(x * w) ** 2)), (-1, (-x > 0).astype(np.float32))):
        feed = {"x": sign * x, "w": w}
        names = [argument.name for argument in forward.get_outputs()]
        known = {**feed, **dict(zip(names, forward.run(None, feed), strict=True))}
        taken = {name: known[name] for name in parts.reads}
        got = backward.run(None, {**taken, parts.cotangents["y"]: np.ones(3, np.float32)})
        np.testing.assert_allclose(got[0], expected, rtol=1e-5)
