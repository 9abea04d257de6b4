"""Random nodes that read constants of narrow types, dequantised in all ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz.choosing import Chooser
from tools.fuzz.modes import Array

# The numbers that are stored, by type; floats are drawn about zero.
RANGES = {
    "INT8": (-128, 128),
    "UINT8": (0, 256),
    "INT16": (-3000, 3000),
    "UINT16": (0, 6000),
    "INT32": (-100_000, 100_000),
    "INT4": (-8, 8),
    "UINT4": (0, 16),
    "INT2": (-2, 2),
    "UINT2": (0, 4),
}
FLOATS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
# The first operator set whose DequantizeLinear has the type.
SINCE = {"INT8": 13, "UINT8": 13, "INT32": 13, "INT2": 25, "UINT2": 25} | dict.fromkeys(FLOATS, 19)
OPSETS = (13, 19, 21, 23, 25)
TYPES = {"FLOAT": 1e-6, "FLOAT16": 2e-3, "BFLOAT16": 1.6e-2}
SIZES = (1, 3, 4, 8, 16, 31, 32, 48)


@dataclass
class Stored(Chooser):
    """Nodes under construction.

    dequantised: each DequantizeLinear; the value that it makes has the name of its node.
    """

    kind: str = ""
    opset: int = 0
    scales: str = "FLOAT"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    dequantised: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    inputs: dict[str, tuple[list[Any], Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kind = self.choose((*RANGES, *FLOATS))
        since = SINCE.get(self.kind, 21)
        self.opset = self.choose([n for n in OPSETS if n >= since])
        self.scales = self.choose(("FLOAT", *TYPES)) if self.opset >= 19 else "FLOAT"

    def constant(self, name: str, kind: str, values: Array) -> str:
        """An initializer of a type."""
        number = TensorProto.DataType.Value(kind)
        wide = values.astype(np.float32) if kind in (*FLOATS, *TYPES) else values
        array = wide.astype(helper.tensor_dtype_to_np_dtype(number))
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def numbers(self, shape: tuple[int, ...]) -> Array:
        """What is stored, of the type."""
        if self.kind in FLOATS:
            return self.random.standard_normal(shape) * 2
        return self.random.integers(*RANGES[self.kind], size=shape)

    def weights(self, *shape: int) -> str:
        """The name of dequantised constants, float32: scaled as a whole, by axis or by block."""
        name, about = f"w{len(self.dequantised)}", {}
        axis = int(self.random.integers(len(shape)))
        scaled: tuple[int, ...] = ()
        has_blocks = self.opset >= 21 and self.kind != "INT32"
        how = self.choose(("whole", "axis", "block") if has_blocks else ("whole", "axis"))
        if how != "whole":
            about["axis"] = self.choose((axis, axis - len(shape)))
            scaled = (shape[axis],)
        if how == "block":
            about["block_size"] = self.choose([n for n in (1, 2, 3, 8, 32) if n <= shape[axis]])
            blocks = -(-shape[axis] // about["block_size"])
            scaled = (*shape[:axis], blocks, *shape[axis + 1 :])
        widest = max(map(abs, RANGES.get(self.kind, (4,))))
        scales = (np.abs(self.random.standard_normal(scaled)) + 0.1) / widest
        names = [self.constant(f"{name}_q", self.kind, self.numbers(shape))]
        names.append(self.constant(f"{name}_s", self.scales, np.asarray(scales)))
        if self.chance(0.6):
            is_zero = self.kind in (*FLOATS, "INT32")
            points = np.zeros(scaled) if is_zero else self.numbers(scaled)
            names.append(self.constant(f"{name}_z", self.kind, np.asarray(points)))
        kind = self.scales
        if self.opset >= 23 and self.chance(0.4):
            kind = self.choose([*TYPES])
            about["output_dtype"] = TensorProto.DataType.Value(kind)
        node = helper.make_node("DequantizeLinear", names, [name], name=name, **about)
        self.dequantised.append(node)
        if kind == "FLOAT":
            return name
        self.nodes.append(helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT))
        return f"{name}_f"

    def given(self, *dims: int | str, values: Array | None = None) -> str:
        """An input: numbers of any kind, or these."""
        name = f"x{len(self.inputs)}"
        shape = [5 if dim == "N" else dim for dim in dims]
        drawn = self.random.standard_normal(shape) if values is None else values
        array = drawn.astype(np.float32) if values is None else drawn
        self.inputs[name] = list(dims), array
        return name

    def add(self, op: str, *names: str, outputs: int = 1, **about: Any) -> str:
        """A node; the name of its first output."""
        outs = [f"y{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op, list(names), outs, **about))
        return outs[0]

    def rows(self) -> int | str:
        """So many rows read the weights."""
        return self.choose(("N", 1, 3, 40, 130))


def product(s: Stored) -> None:
    """By a matrix on either side, of a transpose too."""
    k, n = s.choose(SIZES), s.choose(SIZES)
    how = s.choose(("right", "left", "batch", "gemm", "turned"))
    if how == "right":
        s.add("MatMul", s.given(s.rows(), k), s.weights(k, n))
    elif how == "left":
        s.add("MatMul", s.weights(n, k), s.given(k, s.rows()))
    elif how == "batch":
        s.add("MatMul", s.given(2, s.rows(), k), s.weights(2, k, n))
    elif how == "gemm":
        s.add("Gemm", s.given(s.rows(), k), s.weights(n, k), s.weights(n), transB=1)
    else:
        turned = s.add("Transpose", s.weights(n, k), perm=[1, 0])
        s.add("MatMul", s.given(s.rows(), k), turned)


def convolution(s: Stored) -> None:
    """Of groups, transposed or not."""
    group, kernel = s.choose((1, 2, 8)), s.choose(((3,), (1, 1), (3, 3), (4,)))
    image = s.given("N", 8, *[9] * len(kernel))
    if s.chance(0.5):
        bias = [s.weights(16)] if s.chance(0.5) else []
        about = {"strides": [s.choose((1, 2))] * len(kernel)}
        s.add("Conv", image, s.weights(16, 8 // group, *kernel), *bias, group=group, **about)
        return
    filters = s.weights(8, 16 // group, *kernel)
    s.add("ConvTranspose", image, filters, group=group, strides=[2] * len(kernel))


def rows_of_a_table(s: Stored) -> None:
    """Gathered along any axis; the table as the weights behind them, too."""
    k, axis = s.choose(SIZES), s.choose((0, 1))
    indices = s.given("N", values=s.random.integers(-20, 20, 5))
    table = s.weights(20, k) if axis == 0 else s.weights(k, 20)
    rows = s.add("Gather", table, indices, axis=axis)
    if axis == 0 and s.chance(0.5):
        s.add("MatMul", rows, s.add("Transpose", table, perm=[1, 0]))


def elements(s: Stored) -> None:
    """Element by element, of a part, and joined."""
    k = s.choose(SIZES)
    s.add(s.choose(("Add", "Mul", "PRelu")), s.given(s.rows(), k), s.weights(k))
    joined = s.add("Concat", s.weights(k, 3), s.weights(k, 3), axis=1)
    s.add("MatMul", s.given(s.rows(), k), joined)


def recurrence(s: Stored) -> None:
    """With whatever inputs a recurrent layer may have."""
    op = s.choose(("GRU", "LSTM", "RNN"))
    gates, units, both = {"GRU": 3, "LSTM": 4, "RNN": 1}[op], s.choose((1, 4, 20)), s.choose((1, 2))
    names = [s.given(4, "N", 8), s.weights(both, gates * units, 8)]
    names.append(s.weights(both, gates * units, units))
    names.append(s.weights(both, 2 * gates * units) if s.chance(0.6) else "")
    lengths = s.random.integers(0, 5, 5).astype(np.int32)
    names.append(s.given("N", values=lengths) if s.chance(0.4) else "")
    names.append(s.weights(both, 5, units) if s.chance(0.3) else "")
    if op == "LSTM":
        names.append(s.given(both, "N", units) if s.chance(0.5) else "")
        names.append(s.weights(both, 3 * units) if s.chance(0.5) else "")
    direction = "bidirectional" if both == 2 else s.choose(("forward", "reverse"))
    s.add(op, *names, outputs=2, hidden_size=units, direction=direction)


def steps(s: Stored) -> None:
    """In the body of a Scan."""
    k = s.choose(SIZES)
    a, b = s.weights(k, k), s.weights(k)
    nodes = [
        helper.make_node("MatMul", ["h", a], ["p"]),
        helper.make_node("Add", ["p", b], ["q"]),
        helper.make_node("Add", ["q", "e"], ["r"]),
        helper.make_node("Tanh", ["r"], ["n"]),
        helper.make_node("Identity", ["n"], ["o"]),
    ]
    ins, outs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        for names in ("he", "no")
    )
    body = helper.make_graph(nodes, "step", ins, outs)
    names = s.given("N", k), s.given(4, "N", k)
    s.add("Scan", *names, outputs=2, body=body, num_scan_inputs=1)


READERS: tuple[Callable[[Stored], None], ...] = (
    *(product, product, convolution, rows_of_a_table, elements, recurrence, steps),
)


def random_stored(seed: int) -> Stored:
    """The nodes of a seed."""
    stored = Stored(np.random.default_rng(seed))
    stored.choose(READERS)(stored)
    return stored
