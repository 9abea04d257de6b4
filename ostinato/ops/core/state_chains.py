"""Chains of nodes by which a loop's body makes the next state: they join and move rows.

    state' = Gather(Concat(state, piece), indices)
    state' = Concat(Gather(state, indices), piece)

Each part of the state may have a Concat of its own (`graph/grown_parts.py`). Nodes of such a chain
may work in the memory of the state where nothing needs what they overwrite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ostinato.graph.grown_parts import grown, parts_of
from ostinato.records import dataclass
from ostinato.sizes.strides import Shape

if TYPE_CHECKING:
    import onnx_ir as ir

# Operators whose first operand, or last, may be a state beside which the others are stored.
_JOINS = frozenset(("Concat", "SequenceInsert"))


@dataclass(frozen=True)
class Chain:
    """The nodes from a carried value to its next one, and those that join something to it.

    Of the nodes that join parts of it, only the last, which joins the parts, is one of `nodes`.
    """

    nodes: tuple[ir.Node, ...] = ()
    joins: tuple[ir.Node, ...] = ()


def chain_of(body: ir.Graph, position: int, in_front: bool, shape: Shape) -> Chain:
    """The chain of a carried value that is joined to at most once; empty if there is none.

    position, shape: of the state. in_front: whether the state is the last operand of the joins.
    """
    given, value = body.inputs[position + 2], body.outputs[position + 1]
    nodes: list[ir.Node] = []
    joins: tuple[ir.Node, ...] = ()
    while value is not given:
        node = value.producer()
        if node is None or node.graph is not body:
            return Chain()
        is_join = node.op_type in _JOINS
        if node.op_type != "Gather":
            part = None if joins else grown(parts_of(given, shape, body), given, value)
            if part is not None and part.in_front == in_front:
                before = () if part.moved is None else (part.moved,)
                return Chain((*before, node, *nodes[::-1]), part.joins)
            if joins or not is_join:
                return Chain()
            joins = (node,)
        operand = node.inputs[-1 if is_join and in_front else 0]
        if operand is None:
            return Chain()
        nodes.append(node)
        value = operand
    return Chain(tuple(nodes[::-1]), joins)


def moved_axis(body: ir.Graph, position: int, shape: Shape) -> int | None:
    """The axis along which the rows of a state are moved before the next step, if there is one.

    shape: of the state.
    """
    for in_front in (False, True):
        chain = chain_of(body, position, in_front, shape)
        gathers = [node for node, _ in places_to_move(body, position, chain.nodes)]
        axes = {node.attributes.get_int("axis", 0) % max(len(shape), 1) for node in gathers}
        if len(axes) == 1:
            return axes.pop()
    return None


def places_to_move(
    body: ir.Graph, position: int, chain: Sequence[ir.Node]
) -> list[tuple[ir.Node, bool]]:
    """The nodes of a chain that may move rows in place, and whether they may at once.

    At once where nothing else reads the rows as they were. Otherwise behind the last reader, if
    their result is only the next state.
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
    """Count the uses that read a value's elements, not only its extents."""
    return sum(reader.op_type != "Shape" for reader, _ in value.uses())
