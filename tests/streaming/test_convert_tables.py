"""Tables of frames by frames: biases and masks made of frame numbers, sums without Softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ostinato.streaming import ConversionError, convert
from tests.streaming.streams import assert_streams, model

HEAD = 4
WEIGHTS: dict[str, Any] = {name: (8, 8) for name in ("Wq", "Wk", "Wv")} | {
    "zero": np.array([0]),
    "one": np.array([1]),
    "zero0": np.array(0),
    "one0": np.array(1),
    "two0": np.array(2),
    "three0": np.array(3),
    "four0": np.array(4),
    "five0": np.array(5),
    "low": np.array(-9),
    "last": np.array([-1]),
    "front": np.array([0, 1]),
    "never": np.array(-np.inf, np.float32),
    "zerof": np.array(0, np.float32),
    "onef": np.array(1, np.float32),
    "lots": np.array(1e9, np.float32),
    "heads": np.array([0, 0, 2, HEAD]),
    "flat": np.array([0, 0, 8]),
    "scale": np.array(0.5, np.float32),
    "slope": np.array([0.1, 0.03], np.float32).reshape(2, 1, 1),
    "gamma": np.array([0.9, 0.97], np.float32).reshape(2, 1, 1),
    "buckets": (10, 2),
    "column": np.array([1, -1]),
    "gate": (8, 2),
}
NUMBERS = (
    "r = Range (zero0, t0, one0)  j = Unsqueeze (r, zero)  i = Unsqueeze (r, one)"
    "  d = Sub (i, j)  ahead = Less (d, zero0)"
)
SOFTMAX = "w = Softmax (masked)  z = MatMul (w, v)"
HIDE = "masked = Where (ahead, never, shifted)  " + SOFTMAX
CHUNKS = (
    "r4 = Div (r, four0)  cj = Unsqueeze (r4, zero)  ci = Unsqueeze (r4, one)  c = Sub (ci, cj)"
)


def attention(nodes: str) -> str:
    """Nodes that make `z` from `scores [N, 2, T, T]` and `v [N, 2, T, 4]`."""
    return f"""g (float[N, T, 8] x) => (float[N, T, 8] y) {{
        q0 = MatMul (x, Wq)  q1 = Reshape (q0, heads)  q = Transpose <perm=[0, 2, 1, 3]> (q1)
        k0 = MatMul (x, Wk)  k1 = Reshape (k0, heads)  k = Transpose <perm=[0, 2, 3, 1]> (k1)
        v0 = MatMul (x, Wv)  v1 = Reshape (v0, heads)  v = Transpose <perm=[0, 2, 1, 3]> (v1)
        s = MatMul (q, k)
        scores = Mul (s, scale)
        h = Shape <start=1, end=2> (x)
        tt = Concat <axis=0> (h, h)
        t0 = Squeeze (h)
        {NUMBERS}
        {nodes}
        z1 = Transpose <perm=[0, 2, 1, 3]> (z)
        y = Reshape (z1, flat)
    }}"""


CASES = {
    "a bias by distance": (
        "df = Cast <to=1> (d)  b = Mul (df, slope)  shifted = Sub (scores, b)  " + HIDE
    ),
    "a bias and minus infinity in one table": (
        "df = Cast <to=1> (d)  b0 = Mul (df, slope)  b = Neg (b0)  m = Where (ahead, never, b)"
        "  masked = Add (scores, m)  " + SOFTMAX
    ),
    "a bias by column": (
        "jf = Cast <to=1> (j)  b = Mul (jf, slope)  shifted = Add (scores, b)  " + HIDE
    ),
    "buckets of distances": (
        "d0 = Clip (d, zero0, five0)  b0 = Gather <axis=0> (buckets, d0)"
        "  b1 = Transpose <perm=[2, 0, 1]> (b0)  b = Unsqueeze (b1, zero)"
        "  shifted = Add (scores, b)  " + HIDE
    ),
    "numbers by Reshape and Expand": (
        "rf = Cast <to=1> (r)  rows = Reshape (rf, column)  all = Expand (rows, tt)"
        "  jf = Cast <to=1> (j)  e = Sub (all, jf)  b = Mul (e, slope)"
        "  shifted = Sub (scores, b)  " + HIDE
    ),
    "a triangle of values": (
        "df = Cast <to=1> (d)  b0 = Mul (df, slope)  b = Trilu <upper=0> (b0)"
        "  shifted = Sub (scores, b)  " + HIDE
    ),
    "a mask that is subtracted": (
        "m = Cast <to=1> (ahead)  b = Mul (m, lots)  masked = Sub (scores, b)  " + SOFTMAX
    ),
    "every third frame": (
        "e = Mod (d, three0)  f = Equal (e, zero0)  g0 = Not (ahead)  seen = And (f, g0)"
        "  masked = Where (seen, scores, never)  " + SOFTMAX
    ),
    "the first frames and a window": (
        "e = Less (d, five0)  f = Less (j, two0)  g0 = Or (e, f)  n = Not (ahead)"
        "  seen = And (g0, n)  masked = Where (seen, scores, never)  " + SOFTMAX
    ),
    "chunks": (
        CHUNKS + "  a = Less (c, zero0)  masked = Where (a, never, scores)  " + SOFTMAX
    ),
    "a decay": (
        "d0 = Max (d, zero0)  df = Cast <to=1> (d0)  p = Pow (gamma, df)"
        "  m = Where (ahead, zerof, p)  w = Mul (scores, m)  z = MatMul (w, v)"
    ),
    "a triangle of scores": (
        "w = Trilu <upper=0> (scores, zero0)  n0 = ReduceSum <keepdims=1> (w, last)"
        "  z0 = MatMul (w, v)  n1 = Abs (n0)  n = Add (n1, onef)  z = Div (z0, n)"
    ),
    "weights divided by their sum": (
        "p = Exp (scores)  w0 = Trilu <upper=0> (p)  n = ReduceSum <keepdims=1> (w0, last)"
        "  w = Div (w0, n)  z = MatMul (w, v)"
    ),
    "zeros where a mask is false": (
        "p = Relu (scores)  w = Where (ahead, zerof, p)  n = ReduceSum <keepdims=0> (w, last)"
        "  n1 = Unsqueeze (n, last)  n2 = Add (n1, onef)  z0 = MatMul (w, v)  z = Div (z0, n2)"
    ),
    "Softmax by hand": (
        "masked = Where (ahead, never, scores)  most = ReduceMax <keepdims=1> (masked, last)"
        "  e = Sub (masked, most)  p = Exp (e)  n = ReduceSum <keepdims=1> (p, last)"
        "  w = Div (p, n)  z = MatMul (w, v)"
    ),
    "a mask of zeros, and one that is subtracted": (
        "n = Not (ahead)  m = Cast <to=1> (n)  a = Mul (scores, m)  m1 = Sub (onef, m)"
        "  b = Mul (m1, lots)  masked = Sub (a, b)  " + SOFTMAX
    ),
    "numbers in a tensor like the scores": (
        "h2 = Shape (scores)  low4 = ConstantOfShape <value = float[1] {-1e9}> (h2)"
        "  masked = Where (ahead, low4, scores)  " + SOFTMAX
    ),
    "weights of a decay alone": (
        "d0 = Max (d, zero0)  df = Cast <to=1> (d0)  p = Pow (gamma, df)"
        "  w = Where (ahead, zerof, p)  z = MatMul (w, v)"
    ),
    "weights of the frame before": (
        "e = Equal (d, one0)  w0 = Cast <to=1> (e)  w = Unsqueeze (w0, zero)  z = MatMul (w, v)"
    ),
    "sigmoids": "masked = Where (ahead, never, scores)  w = Sigmoid (masked)  z = MatMul (w, v)",
    "the difference of two": (
        "masked = Where (ahead, never, scores)  a = Softmax (masked)  s2 = Mul (scores, onef)"
        "  s3 = Tanh (s2)  m2 = Where (ahead, never, s3)  b = Softmax (m2)  b2 = Mul (b, scale)"
        "  w = Sub (a, b2)  z = MatMul (w, v)"
    ),
    "a factor for each row": (
        "g0 = MatMul (x, gate)  g1 = Transpose <perm=[0, 2, 1]> (g0)  g2 = Unsqueeze (g1, last)"
        "  shifted = Mul (scores, g2)  " + HIDE
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_all_frames_so_far_have_the_bits_of_the_whole(name: str) -> None:
    conversion = assert_streams(
        model(attention(CASES[name]), WEIGHTS), context="all", T=72, chunks=(1, 3)
    )
    assert conversion.multiple == (4 if name == "chunks" else 1)


@pytest.mark.parametrize(
    "name",
    ["a bias by distance", "buckets of distances", "a decay", "every third frame", "chunks"],
)
def test_a_ring_has_the_same_values(name: str) -> None:
    """As long as the ring is not full; the bits are those of the whole."""
    assert_streams(model(attention(CASES[name]), WEIGHTS), context=96, T=96, chunks=(7,))


@pytest.mark.parametrize(("left", "context"), [(0, 4), (1, 40), (3, 40)])
def test_frames_see_their_chunk_and_some_before(left: int, context: int) -> None:
    """A ring that turns adds up in another order."""
    nodes = (
        CHUNKS + "  a = Less (c, zero0)  b = Greater (c, left)  h0 = Or (a, b)"
        "  masked = Where (h0, never, scores)  " + SOFTMAX
    )
    proto = model(attention(nodes), WEIGHTS | {"left": np.array(left)})
    conversion = assert_streams(proto, context=context, T=160, chunks=(1, 3), tolerance=1e-6)
    assert (conversion.multiple, conversion.latency) == (4, 0)


def test_a_bias_of_frames_that_come_late() -> None:
    nodes = CASES["a bias and minus infinity in one table"]
    late = attention(nodes).replace(
        "q0 = MatMul (x, Wq)",
        """
        xt = Transpose <perm=[0, 2, 1]> (x)  ct = Conv <pads=[1, 1]> (xt, C)
        xc = Transpose <perm=[0, 2, 1]> (ct)  q0 = MatMul (xc, Wq)""",
    )
    conversion = assert_streams(
        model(late, WEIGHTS | {"C": (8, 8, 3)}), context=96, T=90, chunks=(1, 7)
    )
    assert conversion.latency == 1


REFUSED = {
    "the weights of a later frame": (
        "w = Trilu <upper=0> (scores, two0)  z = MatMul (w, v)",
        "'w' .Trilu.*lower triangle with its diagonal",
    ),
    "weights that are no zeros": (
        "masked = Where (ahead, never, scores)  w0 = Softmax (masked)  w = Exp (w0)"
        "  z = MatMul (w, v)",
        "computes with scores that are masked, or with weights",
    ),
    "weights of later frames": (
        "e = Abs (d)  w0 = Cast <to=1> (e)  w = Unsqueeze (w0, zero)  z = MatMul (w, v)",
        "'z' .MatMul.*mask is not a causal one",
    ),
    "scores that nothing hides": ("z = MatMul (scores, v)", "attends to all frames"),
    "the mean over all frames": (
        "w = Trilu <upper=0> (scores)  n = ReduceMean <keepdims=1> (w, last)  z0 = MatMul (w, v)"
        "  z = Add (z0, n)",
        "'n' .ReduceMean.*table of frames by frames",
    ),
    "a factor for each column": (
        "g0 = MatMul (x, gate)  g1 = Transpose <perm=[0, 2, 1]> (g0)  g2 = Unsqueeze (g1, two)"
        "  shifted = Mul (scores, g2)  " + HIDE,
        "input 1 has values of its own for columns",
    ),
    "numbers from the end": (
        "e = Sub (t0, j)  ef = Cast <to=1> (e)  b = Mul (ef, slope)  shifted = Sub (scores, b)"
        "  " + HIDE,
        "cannot be computed frame by frame.*arange",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_node_and_say_why(name: str) -> None:
    nodes, message = REFUSED[name]
    proto = model(attention(nodes), WEIGHTS | {"two": np.array([2])})
    with pytest.raises(ConversionError, match=message):
        convert(proto, "T", context=32)


def test_chunks_that_come_late_are_refused() -> None:
    nodes = CHUNKS + "  a = Less (c, zero0)  masked = Where (a, never, scores)  " + SOFTMAX
    late = attention(nodes).replace(
        "q0 = MatMul (x, Wq)",
        """
        xt = Transpose <perm=[0, 2, 1]> (x)  ct = Conv <pads=[1, 1]> (xt, C)
        xc = Transpose <perm=[0, 2, 1]> (ct)  q0 = MatMul (xc, Wq)""",
    )
    with pytest.raises(ConversionError, match=r"chunks of 4 frames .* 1 frames late"):
        convert(model(late, WEIGHTS | {"C": (8, 8, 3)}), "T", context=32)
