"""Cases of RNN, GRU and LSTM nodes, expected to equal `tests.oracle.recurrent`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from tests.cases.case import Array, Case, In, Sizes, text
from tests.passes import recurrent_cases
from tests.passes.recurrent_cases import ORACLES, OUTPUTS

SIZES: tuple[Sizes, ...] = (
    {"S": 4, "N": 2}, {"S": 1, "N": 1}, {"S": 0, "N": 2}, {"S": 3, "N": 0}, {"S": 6, "N": 5},
)  # fmt: skip
RAGGED: tuple[Sizes, ...] = ({"S": 4, "N": 2}, {"S": 9, "N": 5})
PADDED: tuple[Sizes, ...] = ({"S": 13, "N": 3}, {"S": 4, "N": 4}, {"S": 5, "N": 1})
# Long enough for several chunks of each size.
LONG: Sizes = {"S": 23, "N": 3}


def recurrent(name: str, op: str, sizes: tuple[Sizes, ...] = SIZES, **options: Any) -> Case:
    """A case of one node; the dimensions that are not baked in are S, time, and N, batch."""
    options = {"dtype": np.float32, "outputs": OUTPUTS[op], **options}
    carried, every_mode = options.pop("carried", False), options.pop("every_mode", True)
    source = recurrent_cases.Case(op, **options)
    inputs = {}
    for value in source.model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = tuple(d.dim_param or d.dim_value for d in dims)
        dtype = source.arrays[value.name].dtype.name
        inputs[value.name] = In(shape, dtype, scale=0.7)
        if value.name == "sequence_lens":
            inputs[value.name] = In(("N",), "int32", values=source.lengths)

    def expected(feeds: Mapping[str, Array]) -> list[Array]:
        arrays = {**source.arrays, **feeds}
        results = ORACLES[op](**arrays, **source.attributes)
        by_name = dict(zip(OUTPUTS[op], results, strict=True))
        return [by_name[output] for output in source.outputs]

    states = {"initial_h": "Y_h", "initial_c": "Y_c"} if op == "LSTM" else {"initial_h": "Y_h"}
    return Case(
        f"{op}-{name}",
        lambda: onnx.shape_inference.infer_shapes(source.model),
        inputs,
        ({},) if source.static else (*sizes, *[LONG] * carried),
        ulps=16,
        # Errors of every step grow through the steps that follow.
        length=256 if carried else 64,
        witness=False,
        batch=not source.static,
        states=states if carried else None,
        expected=expected,
        operator=op,
        every_mode=every_mode,
    )


# Initial states that are run-time inputs.
STATES = {
    "optional": frozenset({"B", "initial_h", "initial_c"}),
    "constant": frozenset({"W", "R", "B", "P"}),
}


def keras() -> Case:
    """A layer of Keras as tf2onnx writes it for any batch and length, and a dense one behind it.

    Shapes are int32, the condition compares floats and asks for the number of the step as well,
    and slices end at INT_MAX.
    """
    body = """
        h2 = MatMul(h, R)  k2 = Add(k, one)  e = Gather(xt, k)  xw = MatMul(e, W)
        p = Slice(h2, left, middle, both)  q = Slice(h2, right, ends, both)
        u = Add(xw, p)  z = Sigmoid(u)  r = Add(xw, q)  v = Tanh(r)
        a = Mul(z, v)  b = Mul(h, z)  hn = Add(a, b)  y1 = Identity(hn)
        i1 = Cast<to = 1>(i)  t1 = Cast<to = 1>(t)  c1 = Less(i1, t1)
        k1 = Cast<to = 1>(k2)  l1 = Cast<to = 1>(l)  c2 = Less(k1, l1)  co = And(c1, c2)
        lo = Identity(l)"""
    random = np.random.default_rng(4)
    return text(
        "loop-of-keras",
        f"""agraph (float[N, T, 4] x) => (float[N, L, 3] y) {{
            xt = Transpose<perm = [1, 0, 2]>(x)
            s0 = Shape(xt)  s = Cast<to = 6>(s0)  n0 = Shape(x)  n1 = Cast<to = 6>(n0)
            zero = Constant<value_ints = [0]>()  unit = Constant<value_ints = [1]>()
            s1 = Slice(s, zero, unit, zero)  t = Squeeze(s1, zero)  tf = Cast<to = 1>(t)
            ff = Less(none, tf)  first = And(ff, ff)  trips = Cast<to = 7>(t)
            n2 = Slice(n1, zero, unit, zero)  n3 = Concat<axis = 0>(n2, five)
            n = Cast<to = 7>(n3)  h0 = Expand(none, n)
            last, hl, ll, ys = Loop<body = step (int64 i, bool ci, int32 k, float[A, 5] h, int32 l)
                => (bool co, int32 k2, float[B, 5] hn, int32 lo, float[C, 5] y1) {{ {body} }}>
                (trips, first, time, h0, t)
            yt = Transpose<perm = [1, 0, 2]>(ys)
            d0 = Shape(yt)  d1 = Cast<to = 6>(d0)  d2 = Gather(d1, free)
            d3 = Concat<axis = 0>(d2, three)  d = Cast<to = 7>(d3)
            r = Reshape(yt, rows)  m = MatMul(r, D)  y = Reshape(m, d)
        }}""",
        ({"N": 2, "T": 3}, {"N": 1, "T": 7}, {"N": 3, "T": 1}),
        constants={
            "R": random.standard_normal((5, 10)).astype(np.float32),
            "W": random.standard_normal((4, 5)).astype(np.float32),
            "D": random.standard_normal((5, 3)).astype(np.float32),
            "left": np.array([0, 0]),
            "middle": np.array([2**31 - 1, 5]),
            "right": np.array([0, 5]),
            "ends": np.array([2**31 - 1, 2**31 - 1]),
            "both": np.array([0, 1]),
            "none": np.array(0, np.float32),
            "time": np.array(0, np.int32),
            "one": np.array(1, np.int32),
            "five": np.array([5], np.int32),
            "three": np.array([3], np.int32),
            "free": np.array([0, 1], np.int32),
            "rows": np.array([-1, 5]),
        },
        opset=17,
        at_once=True,
        length=16,
    )


def padded_in_front() -> Case:
    """A cell that keeps its state where rows are padding, and gives it as the result as well."""
    random = np.random.default_rng(5)
    body = """
        idle = Less(m, zero)  xw = MatMul(e, W)  hr = MatMul(h, R)  s = Add(xw, hr)
        n = Tanh(s)  hn = Where(idle, h, n)  row = Identity(hn)"""
    marks = (-1, -1, -1, -1, 1, -1, -1, -1, 1, 1, -1, -1, -1, -1)
    return text(
        "scan-padded-in-front",
        f"""agraph (float[T, N, 4] x, float[T, N, 1] marks, float[N, 20] h0) => (float[N, 20] last,
            float[T, N, 20] y) {{
            last, y = Scan<num_scan_inputs = 2, body = step (float[N, 20] h, float[N, 4] e,
                float[N, 1] m) => (float[N, 20] hn, float[N, 20] row) {{ {body} }}>(h0, x, marks)
        }}""",
        ({"T": 7, "N": 2}, {"T": 14, "N": 1}, {"T": 2, "N": 2}, {"T": 3, "N": 5}),
        constants={
            "W": random.standard_normal((4, 20)).astype(np.float32),
            "R": random.standard_normal((20, 20)).astype(np.float32) / 4,
            "zero": np.array(0, np.float32),
        },
        inputs={"marks": In(("T", "N", 1), values=marks)},
        length=64,
        batch=True,
    )


def cases() -> list[Case]:
    found = []
    # What the graph alone tells runs in every mode with one of the operators.
    for op in ("RNN", "GRU", "LSTM"):
        found += [
            recurrent("plain", op, I=5, H=20),
            recurrent("static", op, static=True, S=3, N=2),
            recurrent("one-step", op, static=True, S=1, N=1, H=33),
            recurrent("states", op, **STATES, carried=True, I=4, H=17),
            recurrent("no-bias", op, every_mode=op == "RNN", optional=frozenset(), H=5),
            recurrent("reverse", op, every_mode=op == "GRU", direction="reverse", H=7),
            recurrent("bidirectional", op, every_mode=op == "LSTM", direction="bidirectional",
                      **STATES, H=7),
            recurrent("layout", op, every_mode=op == "RNN", layout=1, **STATES),
            recurrent("lengths", op, lengths=(4, 2), sizes=RAGGED, direction="bidirectional"),
            recurrent("padded", op, lengths=(3, 0, 1, 4), sizes=PADDED, **STATES,
                      direction="reverse", N=4, H=17),
            recurrent("constant-lengths", op, lengths=(4, 2, 3), static=True, S=9, N=3,
                      constant=frozenset({"W", "R", "B", "sequence_lens"}), H=17),
            recurrent("clip", op, every_mode=op == "LSTM", clip=0.3),
            recurrent("runtime-weights", op, constant=frozenset(), H=9),
            recurrent("last-only", op, every_mode=op == "LSTM", outputs=("Y_h",), H=16),
            recurrent("sequence-only", op, every_mode=op == "GRU", outputs=("Y",), H=16),
            recurrent("f64", op, dtype=np.float64, H=9),
        ]  # fmt: skip
    found += [
        recurrent("after-reset", "GRU", linear_before_reset=1, I=5, H=20),
        recurrent("after-reset-states", "GRU", linear_before_reset=1, **STATES, carried=True, H=33),
        recurrent("coupled", "LSTM", input_forget=1, H=9),
        recurrent("peepholes", "LSTM", optional=frozenset({"B", "P", "initial_c"}), H=9),
        recurrent("activations", "GRU", activations=("HardSigmoid", "Softsign"),
                  activation_alpha=(0.3,)),
        recurrent("activations", "LSTM", activations=("Sigmoid", "Affine", "ScaledTanh"),
                  activation_alpha=(0.5, 0.9), activation_beta=(0.1, 1.1)),
        recurrent("activations", "RNN", activations=("LeakyRelu",), activation_alpha=(0.2,)),
        keras(),
        padded_in_front(),
    ]  # fmt: skip
    return found


CASES = cases()
