"""How the body of a loop makes a state of the one that a step is given: by joining and by moving.

    state' = Gather(Concat(state, piece), indices)
    state' = Concat(Gather(state, indices), piece)

Nodes of such a chain may work in the memory of the state where nobody needs what they overwrite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

# Operators whose first operand, or last, may be a state that the others are stored beside.
JOINS = frozenset(("Concat", "SequenceInsert"))


def chain_of(body: ir.Graph, position: int, in_front: bool) -> list[ir.Node]:
    """The nodes from a carried value to its next one, one that joins at most; none if others do.

    position: of the state. in_front: whether the state is the last operand of what joins.
    """
    given, value = body.inputs[position + 2], body.outputs[position + 1]
    chain: list[ir.Node] = []
    while value is not given:
        node = value.producer()
        if node is None or node.graph is not body:
            return []
        joins = node.op_type in JOINS
        if not joins and node.op_type != "Gather":
            return []
        if joins and any(each.op_type in JOINS for each in chain):
            return []
        operand = node.inputs[-1 if joins and in_front else 0]
        if operand is None:
            return []
        chain.append(node)
        value = operand
    return chain[::-1]


def moved_axis(body: ir.Graph, position: int, rank: int) -> int | None:
    """The axis along which the rows of a state change places before the next step, if there is one.

    rank: of the state.
    """
    chains = (chain_of(body, position, in_front) for in_front in (False, True))
    for chain in chains:
        gathers = [node for node, _ in places_to_move(body, position, chain)]
        axes = {node.attributes.get_int("axis", 0) % max(rank, 1) for node in gathers}
        if len(axes) == 1:
            return axes.pop()
    return None


def places_to_move(
    body: ir.Graph, position: int, chain: Sequence[ir.Node]
) -> list[tuple[ir.Node, bool]]:
    """The nodes of a chain that may move rows in place, and whether they may at once.

    At once where nobody else needs what they move. Otherwise behind the last reader, if what they
    make is only the next state.
    """
    found: list[tuple[ir.Node, bool]] = []
    value, is_alone = body.inputs[position + 2], True
    for node in chain:
        is_alone = is_alone and _reads(value) == 1 and not value.is_graph_output()
        made = node.outputs[0]
        is_last = _reads(made) == 0 and sum(made is output for output in body.outputs) == 1
        if node.op_type == "Gather" and (is_alone or is_last):
            found.append((node, is_alone))
        value = made
    return found


def _reads(value: ir.Value) -> int:
    """How often the elements of a value are read, not only its extents."""
    return sum(reader.op_type != "Shape" for reader, _ in value.uses())
