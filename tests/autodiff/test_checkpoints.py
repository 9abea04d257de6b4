"""Gradients of loops of which the steps are computed again, segment by segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.autodiff import gradient
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
