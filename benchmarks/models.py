"""Synthetic models of the size of real streaming networks, and the work each of them must do.

Weights are uniform in +-a with a = 0.5 sqrt(3 / fan_in) and inputs normal, so that gates see values
of deviation 0.5 to 0.7: nothing saturates and nothing comes near the subnormal numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.roofline import Roofline

OPSET, IR_VERSION = 17, 8
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


@dataclass(frozen=True)
class Work:
    """What a model has to do: `flops` in all, bytes of recurrent and of projection weights.

    steps: length of the recurrence, 0 for a model without one. layers: recurrences one after the
    other, which share `recurrent` between them.
    """

    flops: float
    recurrent: float = 0.0
    projection: float = 0.0
    steps: int = 0
    layers: int = 1

    def bound(self, limits: Roofline) -> float:
        """The least time, in seconds, that this core can do it in."""
        if self.steps:
            return limits.recurrence(
                self.steps, self.flops, self.recurrent, self.projection, self.layers
            )
        return limits.weights(self.flops, self.projection)


@dataclass(frozen=True)
class Model:
    """A model and its work."""

    proto: onnx.ModelProto
    work: Work

    def save(self, folder: Path) -> Path:
        """Write NAME.onnx into `folder`."""
        path = folder / f"{self.proto.graph.name}.onnx"
        onnx.save(self.proto, str(path))
        return path


def feeds(proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs with a fixed seed: `x` normal, everything else (states) a tenth of that.

    f32, uint8: all bytes, int64: tokens below 100, or int32: the number that the documentation of
    the input says.
    """
    rng = np.random.default_rng(seed)
    given = {tensor.name for tensor in proto.graph.initializer}
    result = {}
    for value in proto.graph.input:
        if value.name in given:
            continue
        shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == TensorProto.INT64:
            result[value.name] = rng.integers(0, 100, shape)
            continue
        if value.type.tensor_type.elem_type == TensorProto.UINT8:
            result[value.name] = rng.integers(0, 256, shape, np.uint8)
            continue
        if value.type.tensor_type.elem_type == TensorProto.INT32:
            result[value.name] = np.full(shape, int(value.doc_string), np.int32)
            continue
        scale = 1.0 if value.name == "x" else 0.1
        result[value.name] = (scale * rng.standard_normal(shape)).astype(np.float32)
    return result


def _uniform(rng: np.random.Generator, *shape: int, fan_in: int) -> np.ndarray:
    limit = 0.5 * np.sqrt(3.0 / fan_in)
    return rng.uniform(-limit, limit, shape).astype(np.float32)


def _value(
    name: str, *shape: int, dtype: int = TensorProto.FLOAT, doc_string: str = ""
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(shape), doc_string)


def _model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, np.ndarray],
    work: Work,
) -> Model:
    tensors = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), tensors)
    opset = helper.make_opsetid("", OPSET)
    proto = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    onnx.checker.check_model(proto, full_check=True)
    return Model(proto, work)


def _recurrent_weights(
    op: str, hidden: int, directions: int, layer: int = 0, suffix: str = ""
) -> dict[str, np.ndarray]:
    rng, rows = np.random.default_rng([1234 + hidden, layer]), GATES[op] * hidden
    return {
        f"W{suffix}": _uniform(rng, directions, rows, hidden, fan_in=hidden),
        f"R{suffix}": _uniform(rng, directions, rows, hidden, fan_in=hidden),
        f"B{suffix}": _uniform(rng, directions, 2 * rows, fan_in=hidden),
    }


def recurrent_op(
    name: str,
    op: str,
    hidden: int,
    steps: int,
    directions: int = 1,
    batch: int = 1,
    length: int | None = None,
    **attributes: object,
) -> Model:
    """One GRU, LSTM or RNN: x [steps, batch, hidden] and states in, hidden and last states out.

    length: `sequence_lens` of all rows, an input; None for a model without.
    """
    states = ["h", "c"] if op == "LSTM" else ["h"]
    node = helper.make_node(
        op,
        ["x", "W", "R", "B", "lengths" if length else "", *(f"{state}0" for state in states)],
        ["y", *(f"{state}n" for state in states)],
        hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward",
        **attributes,
    )
    state = (directions, batch, hidden)
    weights = 4 * directions * GATES[op] * hidden * hidden
    inputs = [_value("x", steps, batch, hidden), *(_value(f"{s}0", *state) for s in states)]
    if length:
        inputs.append(_value("lengths", batch, dtype=TensorProto.INT32, doc_string=str(length)))
    run = length or steps
    return _model(
        name,
        [node],
        inputs,
        [_value("y", steps, *state), *(_value(f"{s}n", *state) for s in states)],
        _recurrent_weights(op, hidden, directions),
        Work(weights * run * batch, weights, weights, run, directions),
    )


def two_layer_gru(name: str, hidden: int, steps: int) -> Model:
    """The core of DeepFilterNet's df_dec: two stacked GRUs, laid out as torch exports them."""
    nodes = [helper.make_node("Split", ["h0"], ["h0_0", "h0_1"], axis=0)]
    constants = {"axis": np.array([1], np.int64)}
    source = "x"
    for layer in range(2):
        tag = f"_{layer}"
        constants |= _recurrent_weights("GRU", hidden, 1, layer, tag)
        nodes += [
            helper.make_node(
                "GRU",
                [source, f"W{tag}", f"R{tag}", f"B{tag}", "", f"h0{tag}"],
                [f"all{tag}", f"hn{tag}"],
                hidden_size=hidden,
                linear_before_reset=1,
            ),
            helper.make_node("Squeeze", [f"all{tag}", "axis"], ["y" if layer else "between"]),
        ]
        source = "between"
    nodes.append(helper.make_node("Concat", ["hn_0", "hn_1"], ["hn"], axis=0))
    weights = 4 * 3 * hidden * hidden * 2
    return _model(
        name,
        nodes,
        [_value("x", steps, 1, hidden), _value("h0", 2, 1, hidden)],
        [_value("y", steps, 1, hidden), _value("hn", 2, 1, hidden)],
        constants,
        Work(weights * steps, weights, weights, steps, layers=2),
    )


def _coupled_gate_cell(x: str, h: str, c: str, h_next: str, c_next: str) -> list[onnx.NodeProto]:
    """An LSTM cell with f = 1 - i, which no runtime has a fused op for.

    i, o, g = split(x W + h R + b); c' = i g + (1 - i) c; h' = o tanh(c').
    """
    node = helper.make_node
    return [
        node("MatMul", [x, "W"], ["xw"]),
        node("MatMul", [h, "R"], ["hr"]),
        node("Add", ["xw", "hr"], ["sum"]),
        node("Add", ["sum", "b"], ["gates"]),
        node("Split", ["gates"], ["i_in", "o_in", "g_in"], axis=1),
        node("Sigmoid", ["i_in"], ["i"]),
        node("Sigmoid", ["o_in"], ["o"]),
        node("Tanh", ["g_in"], ["g"]),
        node("Mul", ["i", "g"], ["new"]),
        node("Sub", ["one", "i"], ["f"]),
        node("Mul", ["f", c], ["old"]),
        node("Add", ["new", "old"], [c_next]),
        node("Tanh", [c_next], ["c_out"]),
        node("Mul", ["o", "c_out"], [h_next]),
    ]


def coupled_gate_lstm(name: str, kind: str, hidden: int, steps: int) -> Model:
    """A coupled-gate LSTM written as `kind`: "scan" or "loop"."""
    rng, state = np.random.default_rng(99 + hidden), (1, hidden)
    constants = {
        "W": _uniform(rng, hidden, 3 * hidden, fan_in=hidden),
        "R": _uniform(rng, hidden, 3 * hidden, fan_in=hidden),
        "b": _uniform(rng, 1, 3 * hidden, fan_in=hidden),
        "one": np.array(1.0, np.float32),
    }
    cell = _coupled_gate_cell("xt", "h", "c", "h_next", "c_next")
    body_outputs = [_value(name, *state) for name in ("h_next", "c_next", "yt")]
    emit = helper.make_node("Identity", ["h_next"], ["yt"])
    if kind == "scan":
        body = helper.make_graph(
            [*cell, emit], "body", [_value(n, *state) for n in ("h", "c", "xt")], body_outputs
        )
        node = helper.make_node(
            "Scan", ["h0", "c0", "x"], ["hn", "cn", "y"], body=body, num_scan_inputs=1
        )
    else:
        constants |= {"trips": np.array(steps, np.int64), "go": np.array(True)}
        body = helper.make_graph(
            [
                helper.make_node("Gather", ["x", "t"], ["xt"], axis=0),
                *cell,
                emit,
                helper.make_node("Identity", ["go_in"], ["go_out"]),
            ],
            "body",
            [
                _value("t", dtype=TensorProto.INT64),
                _value("go_in", dtype=TensorProto.BOOL),
                *(_value(n, *state) for n in ("h", "c")),
            ],
            [_value("go_out", dtype=TensorProto.BOOL), *body_outputs],
        )
        node = helper.make_node("Loop", ["trips", "go", "h0", "c0"], ["hn", "cn", "y"], body=body)
    weights = 4 * 3 * hidden * hidden
    return _model(
        name,
        [node],
        [_value("x", steps, 1, hidden), _value("h0", *state), _value("c0", *state)],
        [_value("y", steps, 1, hidden), _value("hn", *state), _value("cn", *state)],
        constants,
        Work(weights * steps, weights, weights, steps),
    )


def trivial_scan(name: str, width: int, steps: int) -> Model:
    """s = tanh(0.5 s + x): almost nothing in a step but the step itself."""
    nodes = [
        helper.make_node("Mul", ["half", "s"], ["halved"]),
        helper.make_node("Add", ["halved", "xt"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["s_next"]),
        helper.make_node("Identity", ["s_next"], ["yt"]),
    ]
    inputs, outputs = [
        [_value(n, width) for n in names] for names in (("s", "xt"), ("s_next", "yt"))
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    return _model(
        name,
        [helper.make_node("Scan", ["s0", "x"], ["sn", "y"], body=body, num_scan_inputs=1)],
        [_value("s0", width), _value("x", steps, width)],
        [_value("sn", width), _value("y", steps, width)],
        {"half": np.array(0.5, np.float32)},
        Work(0.0),
    )


def matmul(name: str, rows: int, inner: int, columns: int) -> Model:
    """A product of x [rows, inner] with a constant matrix."""
    weight = _uniform(np.random.default_rng(7), inner, columns, fan_in=inner)
    return _model(
        name,
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        [_value("x", rows, inner)],
        [_value("y", rows, columns)],
        {"W": weight},
        Work(2 * rows * inner * columns, projection=weight.nbytes),
    )


def conv(name: str, channels: tuple[int, int], size: Sequence[int], kernel: Sequence[int]) -> Model:
    """A convolution with stride 1 and padding that keeps the size (odd kernels)."""
    inputs, outputs = channels
    fan_in = inputs * int(np.prod(kernel))
    weight = _uniform(np.random.default_rng(8), outputs, inputs, *kernel, fan_in=fan_in)
    node = helper.make_node("Conv", ["x", "W"], ["y"], pads=[k // 2 for k in kernel] * 2)
    return _model(
        name,
        [node],
        [_value("x", 1, inputs, *size)],
        [_value("y", 1, outputs, *size)],
        {"W": weight},
        Work(2.0 * fan_in * outputs * int(np.prod(size)), projection=weight.nbytes),
    )


def identity() -> Model:
    """One number in, the same number out: what is left is the cost of a call."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return _model("identity", [node], [_value("x", 1, 1)], [_value("y", 1, 1)], {}, Work(0.0))


def _recurrent_cases() -> dict[str, Callable[[], Model]]:
    cases: dict[str, Callable[[], Model]] = {}

    def add(name: str, make: Callable[..., Model], *arguments: object, **options: object) -> None:
        cases[name] = lambda: make(name, *arguments, **options)

    for op in GATES:
        options = {"linear_before_reset": 1} if op == "GRU" else {}
        for hidden in (64, 128, 256, 512):
            for steps in (1, 50, 100):
                name = f"{op.lower()}_h{hidden}_t{steps}"
                add(name, recurrent_op, op, hidden, steps, **options)
    add("gru_lbr0_h128_t50", recurrent_op, "GRU", 128, 50)
    add("gru_lbr0_h256_t100", recurrent_op, "GRU", 256, 100)
    add("lstm_bi_h128_t100", recurrent_op, "LSTM", 128, 100, directions=2)
    for batch in (8, 32):
        name = f"gru_h128_t100_b{batch}"
        add(name, recurrent_op, "GRU", 128, 100, batch=batch, linear_before_reset=1)
    for op, batch in itertools.product(("GRU", "LSTM"), (4, 16)):
        options = {"linear_before_reset": 1} if op == "GRU" else {}
        name = f"{op.lower()}_h256_t1_b{batch}"
        add(name, recurrent_op, op, 256, 1, batch=batch, **options)
    for length in (20, 50, 100):
        name, options = f"gru_h128_t100_b8_l{length}", {"linear_before_reset": 1}
        add(name, recurrent_op, "GRU", 128, 100, batch=8, length=length, **options)
        name = f"lstm_bi_h128_t100_l{length}"
        add(name, recurrent_op, "LSTM", 128, 100, directions=2, length=length)
    add("scan_trivial_w4_t1000", trivial_scan, 4, 1000)
    add("df_dec_h256_t100", two_layer_gru, 256, 100)
    for kind in ("scan", "loop"):
        add(f"{kind}_cglstm_h128_t50", coupled_gate_lstm, kind, 128, 50)
        add(f"{kind}_cglstm_h256_t100", coupled_gate_lstm, kind, 256, 100)
    return cases


RECURRENT = _recurrent_cases()
MICRO: dict[str, Callable[[], Model]] = {
    f"matmul_{m}x{k}x{n}": lambda m=m, k=k, n=n: matmul(f"matmul_{m}x{k}x{n}", m, k, n)
    for m, k, n in (
        (1, 256, 256),
        (1, 1024, 1024),
        (16, 256, 768),
        (100, 256, 768),
        (512, 512, 512),
    )
} | {
    "conv1d_257to256_k1_t1": lambda: conv("conv1d_257to256_k1_t1", (257, 256), [1], [1]),
    "conv1d_64to64_k3_t100": lambda: conv("conv1d_64to64_k3_t100", (64, 64), [100], [3]),
    "conv2d_16to32_k3x3_32x32": lambda: conv(
        "conv2d_16to32_k3x3_32x32", (16, 32), [32, 32], [3, 3]
    ),
    "conv2d_64to64_k1x1_32x32": lambda: conv(
        "conv2d_64to64_k1x1_32x32", (64, 64), [32, 32], [1, 1]
    ),
}
