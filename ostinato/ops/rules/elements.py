"""Values of one element of which nobody sees how many axes they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.graph.facts import facts_of
from ostinato.ops.core.builder import Builder

if TYPE_CHECKING:
    import onnx_ir as ir

# Operators that take a condition, with its place among their operands.
_CONDITIONS = {"If": 0, "Loop": 1}


def is_element(builder: Builder, value: ir.Value, rank: int | None = None) -> bool:
    """Whether a value is read for its only element: results are the same if it is a scalar.

    rank: the most axes it has, if that is known.
    """
    if value.is_graph_output() and value.name not in builder.conditions:
        return False
    return all(
        position == _CONDITIONS.get(reader.op_type)
        or (_is_of_elements(reader) and _hides_rank(builder, reader, position, rank))
        for reader, position in value.uses()
    )


def returns_condition(builder: Builder, graph: ir.Graph, position: int) -> None:
    """Note that a result of a graph is read for its only element."""
    value = graph.outputs[position]
    if value.name and list(graph.outputs).count(value) == 1:
        builder.conditions.add(value.name)


def _is_of_elements(reader: ir.Node) -> bool:
    facts = facts_of(reader.op_type, reader.domain)
    return facts.elementwise and (facts.broadcasts or len(reader.inputs) == 1)


def _hides_rank(builder: Builder, reader: ir.Node, position: int, rank: int | None) -> bool:
    """Whether another operand has as many axes, or the result is read for its only element."""
    others = [v.shape for i, v in enumerate(reader.inputs) if i != position and v is not None]
    known = [len(shape) for shape in others if shape is not None]
    if rank is not None and known and max(known) >= rank:
        return True
    return is_element(builder, reader.outputs[0], rank)
