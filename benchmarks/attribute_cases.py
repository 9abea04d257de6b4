"""Cases: one small model for each attribute and feature of a recurrence; here RNN, GRU and LSTM.

What a model must compute comes from the operator documents: `tests.oracle.recurrent` for the
cells, a few lines of NumPy beside each model for Scan, Loop and If; float64 throughout. Shapes are
declared and weights are constants, as runtimes like it best, unless the case is about just that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.oracle import recurrent as oracle

Arrays = dict[str, np.ndarray]
CELLS = ("RNN", "GRU", "LSTM")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
OUTPUTS = {"RNN": ("Y", "Y_h"), "GRU": ("Y", "Y_h"), "LSTM": ("Y", "Y_h", "Y_c")}
DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
ORACLES: Mapping[str, Callable[..., Any]] = {
    "RNN": oracle.rnn,
    "GRU": oracle.gru,
    "LSTM": oracle.lstm,
}
FUNCTIONS: dict[str, tuple[Sequence[float], Sequence[float]]] = {
    "Relu": ((), ()),
    "Tanh": ((), ()),
    "Sigmoid": ((), ()),
    "Affine": ((0.7,), (0.2,)),
    "LeakyRelu": ((0.3,), ()),
    "ThresholdedRelu": ((0.2,), ()),
    "ScaledTanh": ((0.8,), (1.3,)),
    "HardSigmoid": ((0.3,), (0.4,)),
    "Elu": ((0.6,), ()),
    "Softsign": ((), ()),
    "Softplus": ((), ()),
}
# Largest error that counts as right, relative to the largest element: float32 as in the other
# benchmarks, the short types 10 roundings, float64 so that a computation in float32 shows.
TOLERANCES = {"float32": 1e-4, "float64": 1e-10, "float16": 5e-3, "bfloat16": 4e-2}


@dataclass(frozen=True)
class Case:
    """A model and the results that count as right.

    group: the operator. feature: the row of the table. expected: outputs by the documents.
    other: outputs by another reading, where the documents leave room; `reading` says which.
    ignored: outputs of the same node without the feature.
    """

    group: str
    feature: str
    model: onnx.ModelProto = field(repr=False)
    feeds: Arrays = field(repr=False)
    expected: list[np.ndarray] = field(repr=False)
    tolerance: float = TOLERANCES["float32"]
    other: list[np.ndarray] | None = field(default=None, repr=False)
    reading: str = ""
    ignored: list[np.ndarray] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Unique over all cases."""
        return f"{self.group}: {self.feature}"


def _model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 22 else 10
    )


def text_case(
    feature: str,
    source: str,
    feeds: dict[str, Any],
    results: Callable[..., list[Any]],
    *,
    opset: int = 17,
    constants: Arrays | None = None,
    other: Callable[..., list[Any]] | None = None,
    reading: str = "",
) -> Case:
    """A case from text `(inputs) => (outputs) <constants> { nodes }`; feeds become float32.

    results: of the feeds in float64, by name. other, reading: as in `Case`.
    """
    header = f'<ir_version: 8, opset_import: ["": {opset}]>\ncase '
    model = onnx.parser.parse_model(header + source)
    for name, array in (constants or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    fed: Arrays = {}
    for value in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        fed[value.name] = np.asarray(feeds[value.name], dtype)
    exact = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array
        for name, array in fed.items()
    }
    group = next(n.op_type for n in model.graph.node if n.op_type in ("Scan", "Loop", "If"))
    expected, second = (
        None if make is None else [np.asarray(result) for result in make(**exact)]
        for make in (results, other)
    )
    assert expected is not None
    return Case(group, feature, model, fed, expected, other=second, reading=reading)


@dataclass(frozen=True)
class Cell:
    """One RNN, GRU or LSTM node: S steps, N rows, I inputs, H hidden units.

    given: its optional inputs. lengths: `sequence_lens`; `padding` is what X holds beyond them.
    runtime: inputs that are fed, besides X and the states; the others are constants. For types
    that NumPy lacks, and float16, the model takes and gives float32 and casts at its borders.
    """

    op: str
    S: int = 4
    N: int = 2
    I: int = 3  # noqa: E741
    H: int = 4
    given: tuple[str, ...] = ("B",)
    lengths: tuple[int, ...] | None = None
    padding: float | None = None
    outputs: tuple[str, ...] | None = None
    dtype: str = "float32"
    opset: int = 17
    symbolic: bool = False
    runtime: tuple[str, ...] = ("sequence_lens",)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def results(self) -> tuple[str, ...]:
        """The outputs the model has."""
        return self.outputs or OUTPUTS[self.op]

    @cached_property
    def arrays(self) -> Arrays:
        """The given inputs by documented name, of the type the node computes in."""
        random = np.random.default_rng(5)
        directions = 2 if self.attributes.get("direction") == "bidirectional" else 1
        batch_first = bool(self.attributes.get("layout"))
        rows, state = GATES[self.op] * self.H, (directions, self.N, self.H)
        shapes = {
            "X": (self.S, self.N, self.I),
            "W": (directions, rows, self.I),
            "R": (directions, rows, self.H),
            "B": (directions, 2 * rows),
            "initial_h": state,
            "initial_c": state,
            "P": (directions, 3 * self.H),
        }
        dtype = np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        arrays = {
            name: (0.7 * random.standard_normal(shape)).astype(dtype)
            for name, shape in shapes.items()
            if name in ("X", "W", "R", *self.given)
        }
        if self.lengths is not None:
            arrays["sequence_lens"] = np.array(self.lengths, np.int32)
            for row, length in enumerate(self.lengths if self.padding is not None else ()):
                arrays["X"][length:, row] = self.padding
        for name in ("X", "initial_h", "initial_c") if batch_first else ():
            if name in arrays:
                arrays[name] = np.ascontiguousarray(np.swapaxes(arrays[name], 0, 1))
        return arrays

    def expected(self) -> list[np.ndarray]:
        """The outputs by the oracle."""
        results = ORACLES[self.op](**self.arrays, **self.attributes)
        by_name = dict(zip(OUTPUTS[self.op], results, strict=True))
        return [by_name[name] for name in self.results]

    @property
    def _outer(self) -> np.dtype[Any]:
        return np.dtype(np.float64 if self.dtype == "float64" else np.float32)

    @property
    def feeds(self) -> Arrays:
        """What the model is fed."""
        fed = {"X", "initial_h", "initial_c", *self.runtime} & set(self.arrays)
        return {
            name: array if name == "sequence_lens" else array.astype(self._outer)
            for name, array in self.arrays.items()
            if name in fed
        }

    def model(self) -> onnx.ModelProto:
        """The node alone, or between casts."""
        casts = self._outer.name != self.dtype
        inner = TensorProto.DataType.Value("BFLOAT16" if self.dtype == "bfloat16" else "FLOAT16")
        before, after, names = [], [], {}
        for name in INPUTS:
            names[name] = name if name in self.arrays else ""
            if casts and name in self.feeds and name != "sequence_lens":
                names[name] = f"{name}_cast"
                before.append(helper.make_node("Cast", [name], [names[name]], to=inner))
        made = {name: name if name in self.results else "" for name in OUTPUTS[self.op]}
        if casts:
            for name in self.results:
                made[name] = f"{name}_cast"
                after.append(helper.make_node("Cast", [made[name]], [name], to=TensorProto.FLOAT))
        last = max(INPUTS.index(name) for name in self.arrays)
        node = helper.make_node(
            self.op,
            [names[name] for name in INPUTS[: last + 1]],
            [made[name] for name in OUTPUTS[self.op]],
            name="cell",
            hidden_size=self.H,
            **self.attributes,
        )
        outer = helper.np_dtype_to_tensor_dtype(self._outer)
        constants = {name: a for name, a in self.arrays.items() if name not in self.feeds}
        graph = helper.make_graph(
            [*before, node, *after],
            "case",
            [self._declared(name, array) for name, array in self.feeds.items()],
            [
                helper.make_tensor_value_info(name, outer, self._shape(name, array))
                for name, array in zip(self.results, self.expected(), strict=True)
            ],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        return _model(graph, self.opset)

    def _declared(self, name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, dtype, self._shape(name, array))

    def _shape(self, name: str, array: np.ndarray) -> list[int | str]:
        shape: list[int | str] = list(array.shape)
        places = {"X": {0: "S", 1: "N"}, "Y": {0: "S", 2: "N"}, "Y_h": {1: "N"}, "Y_c": {1: "N"}}
        for axis, symbol in places.get(name, {}).items() if self.symbolic else ():
            shape[axis] = symbol
        return shape

    def plain(self) -> Cell:
        """The same without lengths, peepholes, and attributes that leave the shapes alone."""
        kept = {key: self.attributes[key] for key in KEPT & self.attributes.keys()}
        if self.attributes.get("direction") == "bidirectional":
            kept["direction"] = "bidirectional"
        given = tuple(name for name in self.given if name != "P")
        return replace(self, attributes=kept, lengths=None, given=given)


# What stays in `Cell.plain`. No runtime here ignores linear_before_reset.
KEPT = {"layout", "linear_before_reset"}


def _states_are_zero(cell: Cell, rows: Sequence[int]) -> list[np.ndarray]:
    """The outputs where rows without steps end in zero instead of their initial state."""
    results = [array.copy() for array in cell.expected()]
    for name, array in zip(cell.results, results, strict=True):
        if name != "Y":
            array[:, list(rows)] = 0
    return results


def _clip_spares_the_cell_state(cell: Cell) -> list[np.ndarray]:
    """LSTM outputs where `clip` bounds the inputs of gates but not the C that goes into h."""
    arrays = {name: array.astype(np.float64) for name, array in cell.arrays.items()}
    bound = np.float64(np.float32(cell.attributes["clip"]))
    h, c, steps = arrays["initial_h"][0], arrays["initial_c"][0], []
    for x in arrays["X"]:
        sums = x @ arrays["W"][0].T + h @ arrays["R"][0].T
        sums += arrays["B"][0].reshape(2, -1).sum(0)
        i, o, f, g = np.split(np.clip(sums, -bound, bound), 4, axis=1)
        sigmoid = [1 / (1 + np.exp(-gate)) for gate in (i, o, f)]
        c = sigmoid[2] * c + sigmoid[0] * np.tanh(g)
        h = sigmoid[1] * np.tanh(c)
        steps.append(h)
    return [np.stack(steps)[:, None], h[None], c[None]]


def _activations(op: str, names: Sequence[str]) -> dict[str, Any]:
    """The attributes that name `names`, with values for those that take some."""
    alphas = [v for name in names for v in FUNCTIONS[name][0]]
    betas = [v for name in names for v in FUNCTIONS[name][1]]
    found: dict[str, Any] = {"activations": list(names)}
    found |= {"activation_alpha": alphas} if alphas else {}
    return found | ({"activation_beta": betas} if betas else {})


def _cells(op: str) -> list[Case]:
    states = ("B", "initial_h", "initial_c") if op == "LSTM" else ("B", "initial_h")
    plain = len(DEFAULTS[op])
    cases: list[Case] = []

    def add(feature: str, *, reading: str = "", other: Any = None, **options: Any) -> None:
        fields = {key: options.pop(key) for key in list(options) if key in Cell.__annotations__}
        # One feature at a time: without states or with lbr 0 some runtimes fail on everything.
        common = {"linear_before_reset": 1} if op == "GRU" else {}
        cell = Cell(op, attributes={**common, **options}, **{"given": states, **fields})
        cases.append(
            Case(
                op,
                feature,
                cell.model(),
                cell.feeds,
                cell.expected(),
                TOLERANCES[cell.dtype],
                other(cell) if other else None,
                reading,
                cell.plain().expected(),
            )
        )

    add("direction forward")
    add("direction reverse", direction="reverse")
    add("direction bidirectional", direction="bidirectional")
    add("layout 1", layout=1)
    add("layout 1, no initial states", layout=1, given=("B",))
    add("layout 1, bidirectional", layout=1, direction="bidirectional")
    add("no initial states", given=("B",))
    add("no bias", given=states[1:])
    add("no optional input", given=())
    add("weights given at run time", runtime=("W", "R", "B"))
    add("time and batch size known at run time", symbolic=True)
    ragged: dict[str, Any] = {"lengths": (2, 4)}
    add("sequence_lens ragged", **ragged)
    add("sequence_lens ragged, constant", **ragged, runtime=())
    add("sequence_lens ragged, reverse", **ragged, direction="reverse")
    add("sequence_lens ragged, bidirectional", **ragged, direction="bidirectional")
    add("sequence_lens ragged, NaN in the padding", **ragged, padding=np.nan)
    add(
        "sequence_lens with a row of 0",
        lengths=(0, 4),
        reading="the row ends in zeros, not in its initial state",
        other=lambda cell: _states_are_zero(cell, [0]),
    )
    if op == "LSTM":
        reading = "clip does not bound the cell state that goes into h"
        add("clip", clip=0.3, reading=reading, other=_clip_spares_the_cell_state)
        add("input_forget 0", input_forget=0)
        add("input_forget 1", input_forget=1)
        add("peepholes", given=(*states, "P"))
        add("peepholes, no initial states", given=("B", "P"))
        add("output Y_c alone", outputs=("Y_c",))
    else:
        add("clip", clip=0.3)
    if op == "GRU":
        add("linear_before_reset 0", linear_before_reset=0)
        add("linear_before_reset 1", linear_before_reset=1)
        add("linear_before_reset 0, reverse", linear_before_reset=0, direction="reverse")
    for name in FUNCTIONS:
        # The last function; gates keep theirs, so that results stay of a moderate size.
        add(f"activation {name}", **_activations(op, [*DEFAULTS[op][:-1], name]))
    if op != "RNN":
        add(
            "activation HardSigmoid for the gates",
            **_activations(op, ["HardSigmoid", *DEFAULTS[op][1:]]),
        )
    add("activation LeakyRelu without alpha", activations=[*DEFAULTS[op][:-1], "LeakyRelu"])
    add("activation ThresholdedRelu without alpha", activations=["ThresholdedRelu"] * plain)
    second = ["Softsign"] if op == "RNN" else ["HardSigmoid", *["Softsign"] * (plain - 1)]
    add(
        "different activations per direction",
        direction="bidirectional",
        **_activations(op, [*DEFAULTS[op], *second]),
    )
    add("output Y alone", outputs=("Y",))
    add("output Y_h alone", outputs=("Y_h",))
    add("float64", dtype="float64")
    add("float16", dtype="float16")
    add("bfloat16", dtype="bfloat16", opset=22)
    add(
        "no steps",
        S=0,
        reading="states end in zeros, not in the initial ones",
        other=lambda cell: _states_are_zero(cell, [0, 1]),
    )
    add("empty batch", N=0)
    return cases


def cells() -> list[Case]:
    """RNN, GRU and LSTM."""
    return list(itertools.chain.from_iterable(map(_cells, CELLS)))
