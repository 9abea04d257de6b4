"""Find shape operands: the small integer values whose elements a node needs as sizes.

A rule that needs to know an operand refuses the node by `UnknownOperandError`. The search walks
back from the operand, through arithmetic on shapes, to the values that it is computed from.
"""

from __future__ import annotations

from collections.abc import Set

import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.facts import facts_of
from ostinato.model.values import constant_array
from ostinato.ops.core.registry import UnknownOperandError
from ostinato.ops.core.size_sources import can_be_sizes, size_sources
from ostinato.ops.core.tensor import Joined, Tensor
from ostinato.ops.lowering import Scope
from ostinato.stages.handover import Handover


class ShapeOperands:
    """Finds the values that have to be shape operands so that a node is not refused.

    given: the present ones. graph: the main graph. scope: the values of the current segment,
    handover: those of the segments before it.
    """

    def __init__(
        self, given: Set[ir.Value], graph: ir.Graph, scope: Scope, handover: Handover
    ) -> None:
        self._given, self._graph = given, graph
        self._scope, self._handover = scope, handover

    def requested(self, refusal: UnsupportedError) -> set[ir.Value]:
        """Return further values that have to be shape operands; none if these would not suffice."""
        if not isinstance(refusal, UnknownOperandError) or refusal.needs_constants:
            return set()
        new: set[ir.Value] = set()
        for operand in refusal.operands:
            found = self._sources_of(operand)
            if found is not None and found <= self._given and self._can_be_sizes(operand):
                # Values computed from them are no sizes: the operand itself has to be one.
                found = {operand}
            if found is None or found <= self._given:
                return set()
            new |= found - self._given
        return new

    def _sources_of(self, value: ir.Value) -> set[ir.Value] | None:
        return size_sources(value, self._is_known, self._can_be_sizes)

    def _is_known(self, value: ir.Value) -> bool:
        """Whether the elements are numbers, or sizes of shapes."""
        node, lowered = value.producer(), self._scope.get(value) or self._handover.known.get(value)
        has_known = isinstance(lowered, Tensor) and lowered.known is not None
        is_shape = node is not None and facts_of(node.op_type).reads_shape
        return constant_array(value) is not None or has_known or is_shape

    def _can_be_sizes(self, value: ir.Value) -> bool:
        """Whether the runtime can read the elements before it plans a call of the next segment."""
        lowered = self._scope.get(value)
        if isinstance(lowered, (Tensor, Joined)):
            dtype, shape = lowered.dtype, lowered.shape
        elif value in self._handover.available:
            dtype, shape = self._handover.available[value]
        else:
            return False
        return can_be_sizes(dtype, shape) and value.graph is self._graph
