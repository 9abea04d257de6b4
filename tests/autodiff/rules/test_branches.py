"""Gradients of If."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato
from ostinato.autodiff import gradient
from tests.autodiff.check import check


def parse(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> {text}')


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


BOTH = """
    g (bool c, float[N,3] x, float[3,3] w, float[3] b) => (float[N,3] y) {
      s = Sigmoid(x)
      y = If (c) <
        then_branch = yes () => (float[N,3] p) {
          a = MatMul(s, w)
          t = Tanh(a)
          p = Mul(t, s)
        },
        else_branch = no () => (float[N,3] q) {
          f = Add(s, b)
          e = Exp(f)
          q = Mul(e, x)
        }>
    }"""


@pytest.mark.parametrize("chosen", [True, False])
def test_each_branch(chosen: bool) -> None:
    model = parse(BOTH)
    feeds = {"c": np.array(chosen), "x": array(2, 3), "w": array(3, 3), "b": array(3)}
    check(model, feeds)


@pytest.mark.parametrize("chosen", [True, False])
def test_branches_that_compute_nothing(chosen: bool) -> None:
    """One returns a value from outside, the other one does not depend on any."""
    model = parse("""
        g (bool c, float[N] x) => (float[N] y, float[N] z) {
          t = Tanh(x)
          y, z = If (c) <
            then_branch = yes () => (float[N] p, float[N] r) {
              p = Identity(t)
              r = Identity(t)
            },
            else_branch = no () => (float[N] q, float[N] u) {
              f = Floor(t)
              q = Identity(f)
              u = Neg(x)
            }>
        }""")
    check(model, {"c": np.array(chosen), "x": array(3)})


@pytest.mark.parametrize("chosen", [(True, True), (True, False), (False, True)])
def test_branches_inside_branches(chosen: tuple[bool, bool]) -> None:
    model = parse("""
        g (bool c, bool d, float[N] x) => (float[N] y) {
          y = If (c) <
            then_branch = yes () => (float[N] p) {
              e = Exp(x)
              p = If (d) <
                then_branch = inner () => (float[N] r) { r = Mul(e, e) },
                else_branch = other () => (float[N] u) { u = Mul(e, x) }>
            },
            else_branch = no () => (float[N] q) { q = Sin(x) }>
        }""")
    check(model, {"c": np.array(chosen[0]), "d": np.array(chosen[1]), "x": array(3)})


def test_branches_inside_loops() -> None:
    """Steps choose by what they read; what the branches read is kept for the way back."""
    model = parse("""
        g (float[T,2] x, float[2] h0, float[2,2] w) => (float[2] hn) {
          hn = Scan <num_scan_inputs = 1, body = step
            (float[2] h, float[2] e) => (float[2] next) {
              zero = Constant <value = float {0.0}> ()
              total = ReduceSum <keepdims = 0> (e)
              above = Greater(total, zero)
              s = Sigmoid(h)
              next = If (above) <
                then_branch = yes () => (float[2] p) { m = MatMul(s, w) p = Tanh(m) },
                else_branch = no () => (float[2] q) { q = Mul(s, e) }>
            }> (h0, x)
        }""")
    x = np.array([[1, 0.2], [-1, 0.3], [-0.5, -0.2], [0.1, 0.3]], np.float32)
    check(model, {"x": x, "h0": array(2), "w": array(2, 2)})


@pytest.mark.parametrize("chosen", [True, False])
def test_loops_inside_branches(chosen: bool) -> None:
    model = parse("""
        g (bool c, float[T,2] x, float[2] h0) => (float[2] y) {
          y = If (c) <
            then_branch = yes () => (float[2] p) {
              s = Sigmoid(x)
              p = Scan <num_scan_inputs = 1, body = step
                (float[2] h, float[2] e) => (float[2] next) {
                  m = Mul(h, e)
                  next = Tanh(m)
                }> (h0, s)
            },
            else_branch = no () => (float[2] q) { q = Neg(h0) }>
        }""")
    check(model, {"c": np.array(chosen), "x": array(4, 2), "h0": array(2)})


def test_random_branches_are_refused() -> None:
    model = parse("""
        g (bool c, float[3] x) => (float l) {
          y = If (c) <
            then_branch = yes () => (float[3] p) {
              r = RandomUniform <shape = [3]> ()
              p = Mul(r, x)
            },
            else_branch = no () => (float[3] q) { q = Neg(x) }>
          l = ReduceSum <keepdims = 0> (y)
        }""")
    with pytest.raises(ostinato.UnsupportedError, match=r"\(If\).*other results each time"):
        gradient(model, "l", ["x"])
