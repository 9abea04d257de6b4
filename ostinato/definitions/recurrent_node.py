"""Attributes and operands of an RNN, GRU or LSTM node, read completely and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.definitions.recurrent_activations import Activation, read_activations
from ostinato.errors import ShapeError
from ostinato.graph.writer import Operand
from ostinato.limits import MOST_BYTES
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import is_standard
from ostinato.model.origins import Observed
from ostinato.model.schema import since_version
from ostinato.model.values import constant_array, constant_tensor, optional_input, static_dims
from ostinato.records import dataclass

_COMMON_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h")


@dataclass(frozen=True)
class Kind:
    """One of the three operators: its gates, in the order of the rows of `W`."""

    gates: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    activations: tuple[str, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """The letters of the states: `h`, and `c` for LSTM."""
        return tuple(name.removeprefix("Y_") for name in self.outputs[1:])


KINDS = {
    "RNN": Kind("i", _COMMON_INPUTS, ("Y", "Y_h"), ("Tanh",)),
    "GRU": Kind("zrh", _COMMON_INPUTS, ("Y", "Y_h"), ("Sigmoid", "Tanh")),
    "LSTM": Kind(
        "iofc",
        (*_COMMON_INPUTS, "initial_c", "P"),
        ("Y", "Y_h", "Y_c"),
        ("Sigmoid", "Tanh", "Tanh"),
    ),
}

_DIRECTIONS = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
    "foward": ("forward",),  # spelt so in the schema of GRU-1, as the default
}

_FLOATS = (ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


def is_recurrent(node: ir.Node) -> bool:
    """Whether `node` is an RNN, GRU or LSTM of the ONNX operator set."""
    return is_standard(node, *KINDS)


@dataclass(frozen=True)
class Recurrent:
    """A checked RNN, GRU or LSTM node; each attribute is what the operator documents.

    directions: "forward", "reverse", or both. activations: of every direction.
    sequence_lens: None also where the lengths are known to be the whole sequence.
    """

    node: ir.Node
    kind: Kind
    dtype: ir.DataType
    hidden_size: int
    directions: tuple[str, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None
    layout: int
    linear_before_reset: bool
    input_forget: bool
    sequence_lens: Operand | None

    @property
    def time_axis(self) -> int:
        """The axis of X and Y that counts time steps."""
        return self.layout

    @property
    def batch_axis(self) -> int:
        """The axis of X that counts sequences."""
        return 1 - self.layout

    @property
    def direction_axis(self) -> int:
        """The axis of the states, inside and outside, that counts directions."""
        return self.layout

    def input(self, name: str) -> ir.Value | None:
        """The input that the operator documents as `name`; None when it is absent."""
        return _input(self.node, self.kind, name)

    def operand(self, name: str) -> Operand | None:
        """Like `input`, with constants as arrays, but for weights that nobody looks at."""
        value = self.input(name)
        is_observed = isinstance(constant_tensor(value), Observed)
        array = None if is_observed else constant_array(value)
        return value if array is None else array

    @property
    def x(self) -> ir.Value:
        """The input sequences: `[S, B, I]`, or `[B, S, I]` in layout 1."""
        value = self.input("X")
        assert value is not None
        return value

    def used_outputs(self) -> dict[str, ir.Value]:
        """The outputs that something reads, by documented name."""
        return {
            name: value
            for name, value in zip(self.kind.outputs, self.node.outputs, strict=False)
            if value.uses() or value.is_graph_output()
        }

    def x_size(self, axis: int) -> int | None:
        """The size of X along `axis`; None when it is only known at run time."""
        dims = static_dims(self.x)
        return None if dims is None else dims[axis]


def read_recurrent(node: ir.Node, opset: int) -> Recurrent:
    """Read `node`, an operator of version `opset`, and check that all of it can be honoured.

    Raises `UnsupportedError` for an attribute or a combination that has no documented meaning and
    `ShapeError` for shapes that contradict each other.
    """
    kind = KINDS[node.op_type]
    attributes = Attributes(node)
    for attribute in node.attributes.values():
        if attribute.is_ref():
            raise attributes.refuse(
                f"attribute {attribute.name!r} refers to a parameter of a function; inline it"
            )
    if len(node.inputs) > len(kind.inputs):
        raise attributes.refuse(f"{len(node.inputs)} inputs, expected at most {len(kind.inputs)}")
    for name in ("X", "W", "R"):
        if _input(node, kind, name) is None:
            raise attributes.refuse(f"input {name!r} is required")
    since = since_version(node.op_type, node.domain, opset)
    direction = attributes.string("direction", "forward")
    if direction not in _DIRECTIONS:
        raise attributes.refuse(
            f"attribute 'direction' is {direction!r}, expected forward, reverse or bidirectional"
        )
    directions = _DIRECTIONS[direction]
    layout = _choice(attributes, "layout") if since >= 14 else 0
    lbr = attributes.int("linear_before_reset", 0) if node.op_type == "GRU" and since >= 3 else 0
    input_forget = _choice(attributes, "input_forget") if node.op_type == "LSTM" else 0
    if since < 7:
        # Only says whether Y may be left out; which outputs are made is seen from their use.
        _choice(attributes, "output_sequence")
    activations = read_activations(attributes, kind.activations, len(directions))
    clip = attributes.float("clip", None)
    if clip is not None and not clip > 0:
        raise attributes.refuse(f"attribute 'clip' is {clip}, expected a number above 0")
    hidden_size = _hidden_size(attributes, node, kind)
    attributes.finish()
    _check_shapes(node, kind, hidden_size, len(directions), layout)
    return Recurrent(
        node,
        kind,
        _element_type(attributes, node, kind),
        hidden_size,
        directions,
        activations,
        clip,
        layout,
        lbr != 0,
        input_forget == 1,
        _sequence_lens(attributes, node, kind, layout),
    )


def _input(node: ir.Node, kind: Kind, name: str) -> ir.Value | None:
    if name not in kind.inputs:
        return None
    index = kind.inputs.index(name)
    return optional_input(node, index)


def _dims(node: ir.Node, kind: Kind, name: str) -> tuple[int | None, ...] | None:
    return static_dims(_input(node, kind, name))


def _choice(attributes: Attributes, name: str) -> Any:
    value = attributes.int(name, 0)
    if value not in (0, 1):
        raise attributes.refuse(f"attribute {name!r} is {value}, expected 0 or 1")
    return value


def _hidden_size(attributes: Attributes, node: ir.Node, kind: Kind) -> int:
    declared = attributes.int("hidden_size", None)
    dims = _dims(node, kind, "R")
    found = dims[2] if dims is not None and len(dims) == 3 else None
    if declared is None and found is None:
        raise attributes.refuse(
            "neither attribute 'hidden_size' nor the shape of input 'R' gives the hidden size"
        )
    if declared is not None and found is not None and declared != found:
        raise attributes.refuse(
            f"attribute 'hidden_size' is {declared}, but input 'R' has shape {list(dims or ())}"
        )
    size: int = declared if found is None else found
    if size < 1:
        raise attributes.refuse(f"the hidden size is {size}, expected 1 or more")
    if size * size > MOST_BYTES:
        raise attributes.refuse(f"the hidden size is {size}: no machine holds such weights")
    return size


def _element_type(attributes: Attributes, node: ir.Node, kind: Kind) -> ir.DataType:
    for name in kind.inputs:
        value = _input(node, kind, name)
        if name != "sequence_lens" and value is not None and value.dtype is not None:
            if value.dtype not in _FLOATS:
                raise attributes.refuse(
                    f"input {name!r} is {value.dtype.name}, expected a floating-point type of "
                    f"{', '.join(dtype.name for dtype in _FLOATS)}"
                )
            return value.dtype
    raise attributes.refuse("the element type of no input is known; run shape inference first")


def _check_shapes(
    node: ir.Node, kind: Kind, hidden_size: int, directions: int, layout: int
) -> None:
    """Raise `ShapeError` where a declared size contradicts the attributes or another input."""
    rows = len(kind.gates) * hidden_size
    sequence: list[int | str] = ["B", "S", "I"] if layout else ["S", "B", "I"]
    state: list[int | str] = [directions, "B", hidden_size]
    if layout:
        state = ["B", directions, hidden_size]
    documented: dict[str, Sequence[int | str]] = {
        "X": sequence,
        "W": [directions, rows, "I"],
        "R": [directions, rows, hidden_size],
        "B": [directions, 2 * rows],
        "sequence_lens": ["B"],
        "initial_h": state,
        "initial_c": state,
        "P": [directions, 3 * hidden_size],
    }
    sizes: dict[str, int] = {}
    for name in kind.inputs:
        dims = _dims(node, kind, name)
        if dims is None:
            continue
        expected = [
            sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in documented[name]
        ]
        agree = len(expected) == len(dims) and all(
            isinstance(want, str) or got is None or want == got
            for want, got in zip(expected, dims, strict=True)
        )
        if not agree:
            shown = ", ".join(map(str, expected))
            found = ", ".join("?" if dim is None else str(dim) for dim in dims)
            raise ShapeError(
                f"node {describe(node)!r} ({node.op_type}): input {name!r} has shape [{found}], "
                f"expected [{shown}]"
            )
        for dim, got in zip(documented[name], dims, strict=True):
            if isinstance(dim, str) and got is not None:
                sizes[dim] = got


def _sequence_lens(
    attributes: Attributes, node: ir.Node, kind: Kind, layout: int
) -> Operand | None:
    value = _input(node, kind, "sequence_lens")
    if value is None:
        return None
    lengths = constant_array(value)
    if lengths is None:
        return value
    dims = _dims(node, kind, "X")
    longest = None if dims is None else dims[layout]
    if np.any(lengths < 0) or (longest is not None and np.any(lengths > longest)):
        raise attributes.refuse(
            f"input 'sequence_lens' is {lengths.tolist()}, expected lengths from 0 to "
            f"{'that of X' if longest is None else longest}"
        )
    return None if longest is not None and np.all(lengths == longest) else lengths
