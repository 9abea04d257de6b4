"""Gradients of loops of which the steps are computed again, segment by segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests import witness
from tests.autodiff.check import check, in_doubles, with_loss
from tests.autodiff.models import feeds_of, loops


def cell(
    attributes: str = "", x: str = "T,N,3", y: str = "T,N,4", rows: str = "N"
) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[{x}] x, float[{rows},4] h0, float[3,4] w, float[4,4] r, float[4] b)
            => (float[{y}] y, float[{rows},4] hn) {{
          hn, y = Scan <num_scan_inputs = 1 {attributes}, body = step
            (float[{rows},4] h, float[{rows},3] e) => (float[{rows},4] next, float[{rows},4] out) {{
              xw = MatMul(e, w)
              hr = MatMul(h, r)
              s = Add(xw, hr)
              z = Add(s, b)
              next = Tanh(z)
              g = Sigmoid(next)
              out = Mul(g, h)
            }}> (h0, x)
        }}""")


FORMS = {
    "divisible": ("", "6,2,3", "6,2,4"),
    "remainder": ("", "8,2,3", "8,2,4"),
    "run time": ("", "T,N,3", "T,N,4"),
    "backward": (", scan_input_directions = [1]", "8,2,3", "8,2,4"),
    "backward, run time": (", scan_input_directions = [1]", "T,N,3", "T,N,4"),
    "results backward": (", scan_output_directions = [1]", "8,2,3", "8,2,4"),
    "axes": (", scan_input_axes = [1], scan_output_axes = [-1]", "2,8,3", "2,4,8"),
    "axes, run time": (", scan_input_axes = [-1], scan_output_axes = [1]", "N,3,T", "N,T,4"),
}


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_central_differences(form: str) -> None:
    model = cell(*FORMS[form])
    differentiated = check(model, feeds_of(model, 0.7, N=2, T=8), checkpoint=3)
    kept = [output for node in loops(differentiated) for output in node.output]
    assert len(loops(differentiated)) == (2 if form == "divisible" else 4)
    assert len(kept) < 20


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 6, 7])
def test_any_number_of_steps(steps: int) -> None:
    """Numbers that are known at run time only, fewer than a segment has among them."""
    model = cell()
    feeds = feeds_of(model, 0.7, T=steps, N=2)
    compare(model, feeds, 3)


@pytest.mark.parametrize("sizes", [("8,0,3", "8,0,4"), ("T,N,3", "T,N,4")])
def test_a_batch_of_none(sizes: tuple[str, str]) -> None:
    model = cell("", *sizes)
    compare(model, feeds_of(model, 0.7, T=8, N=0), 3)


@pytest.mark.parametrize("checkpoint", [1, 2, 3, 4])
@pytest.mark.parametrize("form", ["run time", "axes, run time"])
def test_onnxruntime_runs_any_number_of_steps(form: str, checkpoint: int) -> None:
    """Fewer than a segment has among them, of which there is none then: a Scan it cannot run."""
    model = with_loss(cell(*FORMS[form]))
    wrt = ["x", "h0", "w", "r", "b"]
    plain, again = (gradient(model, "loss", wrt, k) for k in (None, checkpoint))
    runs = [feeds_of(model, 0.7, T=steps, N=2) for steps in range(1, 10)]
    expected = witness.run_steps(plain.SerializeToString(), runs, {})
    found = witness.run_steps(again.SerializeToString(), runs, {})
    for a, b in zip(found, expected, strict=True):
        for part, other in zip(a, b, strict=True):
            np.testing.assert_allclose(part, other, rtol=1e-4, atol=1e-5)


COUNTING = """
    <ir_version: 9, opset_import: ["": 18]>
    g (float[TRIPS, 3] x, float[3] h) => (float loss) <int64 trips = {TRIPS}> {
      last, y = Loop <body = b (int64 i, bool c, float[3] before) =>
        (bool on, float[3] after, float[3] out) {
          e = Gather(x, i)
          a = Mul(before, e)
          after = Tanh(a)
          out = Identity(after)
          on = Identity(c)
        }> (trips, , h)
      s = ReduceSum<keepdims = 0>(y)
      t = ReduceSum<keepdims = 0>(last)
      loss = Sum(s, t)
    }"""


@pytest.mark.parametrize("trips", range(1, 10))
def test_a_fixed_number_of_steps_runs_elsewhere(trips: int) -> None:
    """Segments of one step are unrolled, and copies of a body have nodes of the same names."""
    model = onnx.parser.parse_model(COUNTING.replace("TRIPS", str(trips)))
    feeds = feeds_of(model, 0.7)
    expected = witness.run(gradient(model, "loss", ["x", "h"]).SerializeToString(), feeds)
    for checkpoint in (1, 2, 3, 4):
        again = gradient(model, "loss", ["x", "h"], checkpoint)
        named = [node.name for node in again.graph.node if node.name]
        assert len(named) == len(set(named))
        found = witness.run(again.SerializeToString(), feeds)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def compare(model: onnx.ModelProto, feeds: dict[str, np.ndarray], checkpoint: int) -> None:
    """Steps that run again have the same bits; sums over all steps have another order."""
    wide, doubles = in_doubles(with_loss(model)), {n: a.astype(float) for n, a in feeds.items()}
    ones = {"y_factors": "y", "hn_factors": "hn"}
    session = ostinato.InferenceSession(in_doubles(model))
    results = dict(zip(("y", "hn"), session.run(["y", "hn"], doubles), strict=True))
    doubles |= {name: np.cos(results[of]) for name, of in ones.items()}
    runs = []
    for k in (None, checkpoint):
        differentiated = gradient(wide, "loss", list(feeds), k)
        runs.append(ostinato.InferenceSession(differentiated, fallback=False).run(None, doubles))
    for name, plain, again in zip(["loss", *feeds], *runs, strict=True):
        if name in ("w", "r", "b"):
            np.testing.assert_allclose(again, plain, rtol=1e-12, atol=1e-12, err_msg=name)
        else:
            np.testing.assert_array_equal(again, plain, err_msg=name)


def test_memory_is_bounded() -> None:
    """Of 1024 steps, 32 states are kept and 32 steps are alive; x W of all steps is as large as x.

    What all steps read and return, x, y and the factors of the loss, is not counted.
    """
    model = cell("", "1024,8,3", "1024,8,4", "8")
    needed = []
    for checkpoint in (None, 32):
        differentiated = gradient(with_loss(model), "loss", ["w", "r", "b"], checkpoint)
        needed.append(ostinato.InferenceSession(differentiated).report()["arena_bytes"])
    assert needed[1] < 0.6 * needed[0]


def test_short_loops_are_left_alone() -> None:
    model = cell("", "3,2,3", "3,2,4")
    differentiated = check(model, feeds_of(model, 0.7, N=2), checkpoint=3)
    assert len(loops(differentiated)) == 2


def test_loops_inside_loops() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        g (float[T,S,2] x, float[2] h0, float[2,2] w) => (float[2] hn, float[T,S,2] y) {
          hn, y = Scan <num_scan_inputs = 1, body = outer
            (float[2] h, float[S,2] row) => (float[2] next, float[S,2] out) {
              start = Sigmoid(h)
              last, out = Scan <num_scan_inputs = 1, body = inner
                (float[2] k, float[2] e) => (float[2] k1, float[2] o) {
                  m = MatMul(k, w)
                  n = Add(m, e)
                  q = Mul(n, h)
                  k1 = Tanh(q)
                  o = Mul(k1, start)
                }> (start, row)
              next = Mul(last, h)
            }> (h0, x)
        }""")
    check(model, feeds_of(model, 0.7, T=5, S=3), checkpoint=2)


@pytest.mark.parametrize("checkpoint", [0, -1, 2.5, "3", True, 10**30])
def test_numbers_that_are_none(checkpoint: Any) -> None:
    with pytest.raises(ostinato.InputError, match="expected a number of steps, 1 to"):
        gradient(with_loss(cell()), "loss", ["w"], checkpoint)
