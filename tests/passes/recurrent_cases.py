"""Models of one recurrent node, with feeds and with what the oracle expects of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from tests.oracle import recurrent as oracle

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS = {"RNN": ("Y", "Y_h"), "GRU": ("Y", "Y_h"), "LSTM": ("Y", "Y_h", "Y_c")}
ACTIVATIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
ORACLES = {"RNN": oracle.rnn, "GRU": oracle.gru, "LSTM": oracle.lstm}


@dataclass(frozen=True)
class Case:
    """One node. Sizes: S time steps, N rows of the batch, I inputs, H hidden units.

    optional: the optional inputs that are given. constant: the inputs that are initializers.
    static: whether X declares its time and batch size. lengths: `sequence_lens`, None for absent;
    what is beyond them in X is NaN. outputs: those that are outputs of the model.
    """

    op: str
    opset: int = 17
    S: int = 4
    N: int = 2
    I: int = 3  # noqa: E741
    H: int = 4
    direction: str = "forward"
    layout: int = 0
    lengths: tuple[int, ...] | None = None
    optional: frozenset[str] = frozenset({"B"})
    constant: frozenset[str] = frozenset({"W", "R", "B", "P"})
    static: bool = False
    outputs: tuple[str, ...] = ("Y", "Y_h")
    dtype: Any = np.float64
    activations: tuple[str, ...] | None = None
    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    clip: float | None = None
    linear_before_reset: int | None = None
    input_forget: int | None = None
    output_sequence: int | None = None

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The given inputs, by documented name."""
        rng = np.random.default_rng(self.S + 10 * self.N + 100 * self.H)
        d, g, h = self.directions, GATES[self.op], self.H
        sequence = (self.N, self.S, self.I) if self.layout else (self.S, self.N, self.I)
        state = (self.N, d, h) if self.layout else (d, self.N, h)
        shapes = {
            "X": sequence,
            "W": (d, g * h, self.I),
            "R": (d, g * h, h),
            "B": (d, 2 * g * h),
            "initial_h": state,
            "initial_c": state,
            "P": (d, 3 * h),
        }
        given = {"X", "W", "R", *self.optional}
        if self.op != "LSTM":
            given -= {"initial_c", "P"}
        arrays = {
            name: (0.7 * rng.standard_normal(shape)).astype(self.dtype)
            for name, shape in shapes.items()
            if name in given
        }
        if self.lengths is not None:
            arrays["sequence_lens"] = np.array(self.lengths, np.int32)
            steps = np.swapaxes(arrays["X"], 0, 1) if self.layout else arrays["X"]
            for row, length in enumerate(self.lengths):
                steps[length:, row] = np.nan
        return arrays

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the node as the oracle takes them."""
        found: dict[str, Any] = {"direction": self.direction}
        if self.layout:
            found["layout"] = self.layout
        for name in (
            "activations",
            "activation_alpha",
            "activation_beta",
            "clip",
            "linear_before_reset",
            "input_forget",
        ):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model with the node itself."""
        last = max(INPUTS.index(name) for name in self.arrays)
        inputs = [name if name in self.arrays else "" for name in INPUTS[: last + 1]]
        outputs = [name if name in self.outputs else "" for name in OUTPUTS[self.op]]
        attributes = {**self.attributes, "hidden_size": self.H}
        if self.output_sequence is not None:
            attributes["output_sequence"] = self.output_sequence
        node = helper.make_node(self.op, inputs, outputs, name="cell", **attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [self._declare(name) for name in self.arrays if name not in self.constant],
            [
                helper.make_tensor_value_info(name, self._element_type, None)
                for name in self.outputs
            ],
            [
                numpy_helper.from_array(array, name)
                for name, array in self.arrays.items()
                if name in self.constant
            ],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8
        )

    @property
    def _element_type(self) -> int:
        return helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))

    def _declare(self, name: str) -> onnx.ValueInfoProto:
        if name == "sequence_lens":
            return helper.make_tensor_value_info(name, TensorProto.INT32, ["N"])
        shape: list[int | str] = list(self.arrays[name].shape)
        if name in ("X", "initial_h", "initial_c") and not self.static:
            time = self.layout if name == "X" else None
            batch = 1 - self.layout
            shape = [
                "S" if axis == time else "N" if axis == batch else size
                for axis, size in enumerate(shape)
            ]
        return helper.make_tensor_value_info(name, self._element_type, shape)

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in self.arrays.items() if name not in self.constant}

    @cached_property
    def expanded(self) -> onnx.ModelProto:
        """The model without recurrent nodes, checked to be valid ONNX."""
        model = ir.from_proto(self.model)
        assert recurrent_to_scan(model) == 1
        proto = ir.to_proto(model)
        onnx.checker.check_model(proto, full_check=True)
        return proto

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """The outputs by the oracle, in float64."""
        results = ORACLES[self.op](**self.arrays, **self.attributes)
        by_name = dict(zip(OUTPUTS[self.op], results, strict=True))
        return [by_name[name] for name in self.outputs]


def op_types(model: onnx.ModelProto) -> list[str]:
    """The operators of all nodes, those of nested graphs included."""
    nodes = ir.traversal.RecursiveGraphIterator(ir.from_proto(model).graph)
    return [node.op_type for node in nodes]


# name -> how many of (alpha, beta) it takes
PARAMETERS = {
    "Relu": (0, 0),
    "Tanh": (0, 0),
    "Sigmoid": (0, 0),
    "Affine": (1, 1),
    "LeakyRelu": (1, 0),
    "ThresholdedRelu": (1, 0),
    "ScaledTanh": (1, 1),
    "HardSigmoid": (1, 1),
    "Elu": (1, 0),
    "Softsign": (0, 0),
    "Softplus": (0, 0),
}


@st.composite
def cases(draw: st.DrawFn, dtype: Any = np.float64, first_opset: int = 1) -> Case:
    """Any combination of attributes, inputs and sizes that the operator documents allow."""
    op = draw(st.sampled_from(sorted(GATES)))
    opset = draw(
        st.sampled_from([v for v in (1, 3, 7, 8, 9, 11, 13, 14, 18, 22) if v >= first_opset])
    )
    steps, rows = draw(st.integers(0, 4)), draw(st.integers(0, 3))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    lengths = None
    if draw(st.booleans()):
        lengths = tuple(draw(st.integers(0, steps)) for _ in range(rows))
    names, alphas, betas = None, None, None
    if draw(st.booleans()):
        count = len(ACTIVATIONS[op]) * (2 if direction == "bidirectional" else 1)
        names = tuple(draw(st.sampled_from(sorted(PARAMETERS))) for _ in range(count))
        alphas = _values(draw, names, 0)
        betas = _values(draw, names, 1)
    gru, lstm = op == "GRU" and opset >= 3, op == "LSTM"
    given = draw(st.sets(st.sampled_from(["B", "initial_h", "initial_c", "P"])))
    return Case(
        op,
        opset,
        steps,
        rows,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        direction,
        draw(st.integers(0, 1)) if opset >= 14 else 0,
        lengths,
        frozenset(given),
        frozenset(draw(st.sets(st.sampled_from(INPUTS[1:])))),
        draw(st.booleans()),
        tuple(name for name in OUTPUTS[op] if draw(st.booleans())) or ("Y",),
        dtype,
        names,
        alphas,
        betas,
        draw(st.sampled_from([None, 0.25, 1.5])),
        draw(st.integers(0, 1)) if gru else None,
        draw(st.integers(0, 1)) if lstm else None,
        draw(st.integers(0, 1)) if opset < 7 else None,
    )


def _values(draw: st.DrawFn, names: tuple[str, ...], which: int) -> tuple[float, ...] | None:
    """One value for every function that takes one, or fewer where the rest have defaults."""
    takers = [name for name in names if PARAMETERS[name][which]]
    needed = max((i + 1 for i, name in enumerate(takers) if name == "ScaledTanh"), default=0)
    count = draw(st.integers(needed, len(takers)))
    if count == 0:
        return None
    return tuple(draw(st.sampled_from([0.1, 0.4, 0.9])) for _ in range(count))
