"""Shape operands: the small integer values whose elements a node needs as sizes.

A rule that needs to know an operand refuses the node by `UnknownOperandError`. This walks back from
the operand, through arithmetic on shapes, to the values that it is computed from.
"""

from __future__ import annotations

from collections.abc import Set

import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.facts import facts_of
from ostinato.model.graphs import operands, upstream
from ostinato.model.values import constant_array
from ostinato.ops.core.known_sizes import LIMIT
from ostinato.ops.core.registry import UnknownOperandError
from ostinato.ops.core.tensor import Joined, Tensor
from ostinato.ops.lowering import Scope
from ostinato.program.expr import INTEGERS
from ostinato.sizes.dims import product
from ostinato.stages.handover import Handover

# Elements of these types can be sizes, or conditions that sizes depend on.
_SIZE_DTYPES = frozenset((*INTEGERS, "bool")) - {"uint64"}
# Shapes are computed by fewer operators than this.
_MOST_VALUES = 200


class ShapeOperands:
    """Finds the values that have to be shape operands for a node not to be refused.

    given: those that are by now. graph: the main graph. scope: the values of the current segment,
    handover: those of the segments before it.
    """

    def __init__(
        self, given: Set[ir.Value], graph: ir.Graph, scope: Scope, handover: Handover
    ) -> None:
        self._given, self._graph = given, graph
        self._scope, self._handover = scope, handover

    def requested(self, refusal: UnsupportedError) -> set[ir.Value]:
        """The values that would have to be shape operands as well; none if that would not do."""
        if not isinstance(refusal, UnknownOperandError) or refusal.needs_constants:
            return set()
        new: set[ir.Value] = set()
        for operand in refusal.operands:
            found = self._sources_of(operand)
            if found is not None and found <= self._given and self._can_be_sizes(operand):
                # What is computed from them is no size: the operand itself has to be one.
                found = {operand}
            if found is None or found <= self._given:
                return set()
            new |= found - self._given
        return new

    def _sources_of(self, value: ir.Value) -> set[ir.Value] | None:
        """The small integer values from which this is computed as shapes are, or None."""
        found: dict[ir.Value, set[ir.Value] | None] = {}
        opened: set[ir.Value] = set()

        def below(made: ir.Value) -> list[ir.Value]:
            node = made.producer()
            if (
                node is None
                or not _makes_sizes(node)
                or self._is_known(made)
                or len(opened) >= _MOST_VALUES
            ):
                return []
            opened.add(made)
            return operands(made)

        for made in upstream([value], below):
            found[made] = {made} if self._can_be_sizes(made) else None
            if self._is_known(made):
                found[made] = set()
            elif made in opened:
                parts = [found[operand] for operand in operands(made)]
                if all(part is not None for part in parts):
                    found[made] = {source for part in parts for source in part or ()}
        return found[value]

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
        count = product(shape)
        is_small = isinstance(count, int) and count <= LIMIT
        return is_small and dtype in _SIZE_DTYPES and value.graph is self._graph


def _makes_sizes(node: ir.Node) -> bool:
    """Whether a node computes with sizes, or makes another view of them."""
    facts = facts_of(node.op_type, node.domain)
    return facts.arithmetic is not None or (facts.moves and (facts.cheap or facts.in_order))
