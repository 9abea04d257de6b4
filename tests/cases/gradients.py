"""Cases of models with their gradients, forward and backward: the same bits in every mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from ostinato.autodiff import gradient
from tests.cases.case import Case, In, Sizes, text, weights

SEQUENCES: tuple[Sizes, ...] = ({"T": 5, "N": 3}, {"T": 1, "N": 1}, {"T": 19, "N": 2})


def case(name: str, source: str, wrt: Sequence[str], **about: object) -> Case:
    """The model `source`, whose output `l` is the loss, with its gradients."""
    given = text(f"gradient-{name}", source, length=400, ulps=64, **about)  # type: ignore[arg-type]

    def build() -> onnx.ModelProto:
        return gradient(given.build(), "l", wrt)

    return Case(given.name, build, given.inputs, given.sizes, ulps=given.ulps, length=given.length)


def _recurrent(op: str, gates: int, hidden: int = 12, **extra: str) -> Case:
    attributes = f"<hidden_size = {hidden}{extra.get('attributes', '')}>"
    directions = int(extra.get("directions", "1"))
    source = f"""g (float[T,N,6] x, float[T,{directions},N,{hidden}] t) => (float l) {{
      y, h = {op} {attributes} (x, W, R, B)
      d = Sub (y, t)
      s = Mul (d, d)
      l = ReduceMean <keepdims=0> (s)
    }}"""
    rows = gates * hidden
    constants = {
        "W": 0.4 * weights(directions, rows, 6),
        "R": 0.4 * weights(directions, rows, hidden, seed=1),
        "B": 0.4 * weights(directions, 2 * rows, seed=2),
    }
    name = f"{op.lower()}{extra.get('label', '')}"
    return case(name, source, ["x", "W", "R", "B"], constants=constants, sizes=SEQUENCES)


DENSE = """g (float[N,10] x, float[N,4] t) => (float l) {
  a = MatMul (x, W1)
  b = Add (a, b1)
  c = Tanh (b)
  n = LayerNormalization (c, scale, shift)
  p = MatMul (n, W2)
  q = LogSoftmax (p)
  m = Mul (q, t)
  l = ReduceSum <keepdims=0> (m)
}"""

CONVOLUTION = """g (float[N,3,20] x) => (float l) {
  a = Conv <strides=[2], pads=[1,2], dilations=[2]> (x, W, B)
  b = Relu (a)
  c = AveragePool <kernel_shape=[3]> (b)
  d = Mul (c, c)
  l = ReduceSum <keepdims=0> (d)
}"""

SLICES = """g (float[N,12] x) => (float l) {
  a, b, c = Split <axis=1> (x, parts)
  d = Sigmoid (a)
  e = Mul (d, c)
  f = Gather <axis=1> (x, places)
  i = Exp (f)
  j = Concat <axis=1> (e, b, i)
  l = ReduceSum <keepdims=0> (j)
}"""

COUNTED = """g (float[5,4] x, float[4] h0) => (float l) {
  n = Constant <value = int64 {5}> ()
  go = Constant <value = bool {1}> ()
  h, ys = Loop (n, go, h0) <body = b (int64 i, bool c, float[4] h) =>
                                     (bool c2, float[4] k, float[4] y) {
    c2 = Identity (c)
    xi = Gather (x, i)
    m = Mul (h, xi)
    k = Tanh (m)
    y = Mul (k, w)
  }>
  s = ReduceSum <keepdims=0> (ys)
  z = ReduceSum <keepdims=0> (h)
  l = Add (s, z)
}"""

# The scores of relative positions in XLNet: each row starts one place earlier than the one before.
SHIFT = """g (float[N,T,P] x, float[N,T,T] t) => (float l) {
  shape = Shape (x)
  n, p, size = Split <axis=0, num_outputs=3> (shape)
  turned = Concat <axis=0> (n, size, p)
  a = Reshape (x, turned)
  b = Slice (a, one, most, one)
  less = Sub (size, one)
  s = Concat <axis=0> (n, p, less)
  c = Reshape (b, s)
  last = Shape <start=2> (t)
  end = Squeeze (last)
  i = Range (zero, end, step)
  d = Gather <axis=2> (c, i)
  e = Exp (d)
  f = Mul (e, t)
  l = ReduceSum <keepdims=0> (f)
}"""

RANGE = """g (float[N,4,12] x) => (float l) {
  i = Range (zero, end, step)
  d = Gather <axis=2> (x, i)
  j = Range (last, before, back)
  e = Gather <axis=2> (x, j)
  f = Mul (d, e)
  l = ReduceSum <keepdims=0> (f)
}"""

RANGE_OF_INPUTS = """g (float[N,12] x, int64 end) => (float l) {
  i = Range (zero, end, step)
  d = Gather <axis=1> (x, i)
  e = Tanh (d)
  l = ReduceSum <keepdims=0> (e)
}"""

# A cell that no operator has, read backwards, with weights that the loop reads from outside.
SCANNED = """g (float[T,N,6] x, float[N,6] h0, float[N,6] c0) => (float l) {
  h, c, ys, zs = Scan <num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1,0],
      body = b (float[N,6] h, float[N,6] c, float[N,6] xt) =>
               (float[N,6] k, float[N,6] m, float[N,6] y, float[N,6] z) {
    p = MatMul (h, R)
    q = Add (p, xt)
    i = Sigmoid (q)
    u = Mul (i, c)
    o = Tanh (q)
    v = Mul (o, w)
    m = Add (u, v)
    k = Mul (i, m)
    y = Sin (m)
    z = Mul (k, xt)
  }> (h0, c0, x)
  a = Mul (ys, zs)
  s = ReduceSum <keepdims=0> (a)
  e = ReduceSum <keepdims=0> (h)
  f = ReduceSumSquare <keepdims=0> (c)
  l = Sum (s, e, f)
}"""

INTEGERS = {name: np.array(n) for name, n in {"zero": 0, "step": 1}.items()}
ROWS = ({"N": 3}, {"N": 1}, {"N": 37})
CASES = [
    case(
        "dense",
        DENSE,
        ["x", "W1", "b1", "scale", "shift", "W2"],
        constants={
            "W1": weights(10, 8),
            "b1": weights(8, seed=1),
            "scale": weights(8, seed=2),
            "shift": weights(8, seed=3),
            "W2": weights(8, 4, seed=4),
        },
        sizes=ROWS,
    ),
    case(
        "convolution",
        CONVOLUTION,
        ["x", "W", "B"],
        constants={"W": weights(5, 3, 3), "B": weights(5, seed=1)},
        sizes=ROWS,
    ),
    case(
        "slices",
        SLICES,
        ["x"],
        constants={"parts": [5, 2, 5], "places": [1, 11, 1, -2]},
        sizes=ROWS,
    ),
    case("counted-loop", COUNTED, ["x", "h0", "w"], constants={"w": weights(4)}),
    case(
        "relative-shift",
        SHIFT,
        ["x"],
        constants={**INTEGERS, "one": np.array([1]), "most": np.array([2**62])},
        sizes=({"N": 2, "T": 5, "P": 10}, {"N": 1, "T": 1, "P": 2}, {"N": 3, "T": 18, "P": 36}),
    ),
    case(
        "ranges",
        RANGE,
        ["x"],
        constants={
            **INTEGERS,
            **{n: np.array(i) for n, i in {"end": 7, "last": -1, "before": -8, "back": -1}.items()},
        },
        sizes=ROWS,
    ),
    case(
        "range-of-inputs",
        RANGE_OF_INPUTS,
        ["x"],
        constants=INTEGERS,
        inputs={"end": In((), "int64", values=["E"])},
        sizes=({"N": 3, "E": 7}, {"N": 1, "E": 12}, {"N": 2, "E": 0}),
    ),
    case(
        "scan",
        SCANNED,
        ["x", "h0", "c0", "R", "w"],
        constants={"R": 0.4 * weights(6, 6), "w": weights(6, seed=1)},
        sizes=SEQUENCES,
    ),
    _recurrent("GRU", 3),
    _recurrent("GRU", 3, attributes=", linear_before_reset = 1", label="-reset-last"),
    _recurrent("LSTM", 4),
    _recurrent("RNN", 1, hidden=20),
    _recurrent(
        "LSTM", 4, attributes=', direction = "bidirectional"', directions="2", label="-both"
    ),
]
