"""The table of lowering rules, each declared by a decorator; a missing rule refuses the op by name.

What a rule leaves unread is refused as well: every attribute, every input and every output of a
node is honoured, or the node is not lowered (`Lowerer.node` sees to it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

import onnx.helper
import onnx_ir as ir

from ostinato.errors import ModelError, UnsupportedError
from ostinato.graph.rules import Rules
from ostinato.model.attributes import Attributes, describe
from ostinato.model.schema import default_of
from ostinato.ops.core.tensor import Absent, AnyValue, Pieces, Stack, TensorSequence, Value
from ostinato.program.expr import BYTE_FLOATS, DTYPES
from ostinato.records import dataclass

if TYPE_CHECKING:
    import onnx

    from ostinato.ops.core.builder import Builder

# The newest version of ai.onnx whose operator documents the rules were held against.
NEWEST_OPSET = 28


class UnknownOperandError(UnsupportedError):
    """Sizes, or which axes are meant, depend on operands that are only known at run time.

    operands: the values of the model in question.
    needs_constants: whether the elements have to be numbers: sizes would not do either.
    lowered: tells what values have been lowered to, as the node that is refused sees them.
    """

    def __init__(
        self, node: ir.Node, reason: str, operands: Sequence[ir.Value], needs_constants: bool
    ) -> None:
        names = tuple(value.name or "" for value in operands)
        super().__init__(describe(node), node.op_type, reason, names)
        self.operands, self.needs_constants = tuple(operands), needs_constants
        self.lowered: Callable[[ir.Value], AnyValue | None] | None = None


class UnknownStructureError(UnsupportedError):
    """Only a run tells the rank of a value, the length of a sequence, or whether it is there."""


class UnknownExtentsError(UnsupportedError):
    """Raised where only a run tells which axes have the extent 1, and these are meant.

    values: the operands whose axes these are, by name.
    """

    def __init__(self, node: ir.Node, reason: str, values: tuple[str, ...]) -> None:
        super().__init__(describe(node), node.op_type, reason)
        self.values = values


@dataclass
class Context:
    """The interface of a lowering rule: one node, its operands and the program being built.

    schema: the operator's signature in the version that the model means.
    inputs: the operands in order, None for those left out.
    is_constant: whether the input at a position depends on nothing but constants of the model.
    lower_body: lowers a body graph: (graph, values of its inputs) -> values of its outputs.
    """

    node: ir.Node
    schema: onnx.defs.OpSchema
    inputs: Sequence[AnyValue | None]
    is_constant: Callable[[int], bool]
    attributes: Attributes
    builder: Builder
    lower_body: Callable[[ir.Graph, Sequence[AnyValue]], list[AnyValue]]
    _read: set[int] = field(default_factory=set)

    @property
    def since(self) -> int:
        """The version of the operator, as in `(op_type, since)` of the ONNX documents."""
        return int(self.schema.since_version)

    def refuse(self, reason: str) -> UnsupportedError:
        """The error to raise when this node is valid but cannot be lowered."""
        return UnsupportedError(describe(self.node), self.node.op_type, reason)

    def unknown(
        self, reason: str, *positions: int, needs_constants: bool = False
    ) -> UnknownOperandError:
        """The error to raise when these operands must be known as sizes, or even as numbers."""
        values = [self.node.inputs[position] for position in positions]
        operands = [value for value in values if value is not None]
        return UnknownOperandError(self.node, reason, operands, needs_constants)

    def unknown_extents(self, reason: str, position: int) -> UnknownExtentsError:
        """The error to raise when it must be known which axes of an operand have the extent 1."""
        value = self.node.inputs[position]
        assert value is not None
        return UnknownExtentsError(self.node, reason, (value.name or "",))

    def invalid(self, reason: str) -> ModelError:
        """The error to raise when this node contradicts the operator's documents."""
        return ModelError(f"node {describe(self.node)!r} ({self.node.op_type}): {reason}")

    def input(self, position: int) -> Value:
        """A required operand."""
        value = self.optional(position)
        if value is None:
            raise self.invalid(f"input {position} is missing")
        return value

    def optional(self, position: int) -> Value | None:
        """An operand, or None where it is left out."""
        value = self.any_input(position)
        return None if value is None else self._tensor(value, f"input {position}")

    def any_input(self, position: int) -> AnyValue | None:
        """An operand that may be a sequence or an optional, or None where it is left out."""
        self._read.add(position)
        return self.inputs[position] if position < len(self.inputs) else None

    def _tensor(self, value: AnyValue, what: str) -> Value:
        if isinstance(value, (TensorSequence, Stack, Pieces, Absent)):
            raise self.invalid(f"{what} is a sequence or an empty optional, not a tensor")
        return value

    def lower_graph(self, graph: ir.Graph, values: Sequence[AnyValue]) -> list[Value]:
        """As `lower_body`, for a graph whose outputs are tensors."""
        results = self.lower_body(graph, values)
        return [self._tensor(value, f"output {i} of a body") for i, value in enumerate(results)]

    def all_inputs(self) -> list[Value]:
        """Every operand of an op that takes any number of them."""
        return [self.input(position) for position in range(len(self.inputs))]

    def float(self, name: str) -> float:
        """A float attribute, by default what the operator's schema says."""
        return float(self.attributes.float(name, default_of(self.schema, name)))

    def native_dtype(self, code: int, with_bytes: bool = False) -> str:
        """The dtype that a number of TensorProto.DataType stands for; refused where not native.

        with_bytes: whether floats of 8 bits are.
        """
        if code not in [kind.value for kind in ir.DataType]:
            raise self.invalid(f"no element type has the number {code}")
        try:
            name = ir.DataType(code).numpy().name
        except TypeError:
            raise self.refuse(f"type number {code} has no native form") from None
        if name not in DTYPES or (name in BYTE_FLOATS and not with_bytes):
            raise self.refuse(f"type {name} has no native form")
        return name

    def unread_inputs(self) -> list[str]:
        """Names of the operands that are given and that the rule did not ask for."""
        return [
            self.schema.inputs[min(position, len(self.schema.inputs) - 1)].name
            for position, value in enumerate(self.inputs)
            if value is not None and position not in self._read
        ]


Rule: TypeAlias = Callable[[Context], "AnyValue | Sequence[AnyValue]"]

LOWERINGS: Rules[Rule] = Rules("lowering")
lowers = LOWERINGS.register
