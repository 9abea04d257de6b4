"""Equal nodes whose results are put together become one node on operands put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.facts import facts_of
from ostinato.graph.writer import Writer
from ostinato.model.graphs import graphs, is_standard, maker_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, static_dims
from ostinato.records import dataclass

# Unsqueeze takes its axes as an input since this version.
_OPSET = 13
# Fewer nodes cost little as they are.
_LEAST_PARTS = 8

Dims = tuple[int | None, ...]


def stack_operands(model: ir.Model) -> int:
    """Put a Concat of the results of equal nodes before these nodes; returns how often.

    Matches `Concat` of at least 8 results, each behind an Unsqueeze of the same axis or none, of
    nodes that do the same with two or more operands: `Concat`, along another axis and with fewer
    operands than there are nodes, and functions of elements that broadcast nothing. So two
    directions of a recurrence meet, when each step's outputs are joined and the joined ones are
    stacked. Makes the node once, of a Concat for each of its operands, which `reroll` finds beside
    the steps of each direction. Valid because it moves the same elements to the same places.
    """
    if opset_of(model) < _OPSET:
        return 0
    changed = 0
    for graph in graphs(model):
        for node in list(graph):
            changed += is_standard(node, "Concat") and _exchange(model, node)
    return changed


@dataclass(frozen=True)
class _Match:
    """Nodes that do the same, whose results a Concat joins.

    along: the axis of the results along which they are joined. added: the axis that an Unsqueeze
    adds to each result before. attributes: of the one node in their place.
    """

    makers: list[ir.Node]
    along: int
    added: int | None
    attributes: Sequence[ir.Attr]


def _exchange(model: ir.Model, node: ir.Node) -> bool:
    found = _matched(node)
    if found is None:
        return False
    first = found.makers[0]
    dtype = first.outputs[0].dtype or ir.DataType.FLOAT
    prefix = f"{node.name or node.outputs[0].name}/stacked"
    writer = Writer(model.graph, Names(model), opset_of(model), dtype, prefix)
    operands = []
    for slot in range(len(first.inputs)):
        row = [maker.inputs[slot] for maker in found.makers]
        values = [value for value in row if value is not None]
        if found.added is not None:
            axes = np.array([found.added])
            values = [writer.op("Unsqueeze", [v, axes], "row", dtype=v.dtype) for v in values]
        operands.append(
            writer.op("Concat", values, "operand", {"axis": found.along}, values[0].dtype or dtype)
        )
    result = writer.declare("result", None, first.outputs[0].dtype)
    result.shape = node.outputs[0].shape
    writer.node(first.op_type, operands, [result], found.attributes)
    node.prepend(writer.nodes)
    unsqueezes = [] if found.added is None else [v.producer() for v in node.inputs if v is not None]
    replace_value(node.outputs[0], result)
    for old in (node, *unsqueezes, *found.makers):
        if old is not None:
            discard(old)
    return True


def _matched(node: ir.Node) -> _Match | None:
    """The nodes whose results a Concat joins, if they can become one."""
    parts = [value for value in node.inputs if value is not None and _is_read_once(value)]
    if len(parts) < max(_LEAST_PARTS, len(node.inputs)):
        return None
    added = _added_axis(parts)
    if added is not None:
        inner = [value.producer().inputs[0] for value in parts]  # type: ignore[union-attr]
        parts = [value for value in inner if value is not None and _is_read_once(value)]
    makers = [maker for value in parts if (maker := value.producer()) is not None]
    dims = static_dims(parts[0]) if parts else None
    if len(makers) < len(node.inputs) or dims is None:
        return None
    along = node.attributes["axis"].as_int() % (len(dims) + (added is not None))
    if (added is not None and along != added) or not _are_alike(makers):
        return None
    attributes = _attributes(makers[0], dims, added, along, len(makers))
    return None if attributes is None else _Match(makers, along, added, attributes)


def _is_read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output()


def _added_axis(parts: Sequence[ir.Value]) -> int | None:
    """The axis that an Unsqueeze adds to each of the values."""
    found = set()
    for value in parts:
        node = maker_of(value, "Unsqueeze")
        if node is None:
            return None
        axes, dims = constant_array(node.inputs[1]), static_dims(value)
        if axes is None or axes.size != 1 or dims is None:
            return None
        found.add(int(axes.reshape(-1)[0]) % len(dims))
    return found.pop() if len(found) == 1 else None


def _are_alike(makers: Sequence[ir.Node]) -> bool:
    """Whether the nodes do the same, slot by slot with operands of one type and shape."""

    def key(node: ir.Node) -> object:
        attributes = tuple(sorted((name, str(a)) for name, a in node.attributes.items()))
        operands = [None if v is None else (v.dtype, static_dims(v)) for v in node.inputs]
        return node.domain, node.op_type, attributes, operands

    known = all(static_dims(value) is not None for value in makers[0].inputs)
    return known and not makers[0].domain and all(key(m) == key(makers[0]) for m in makers[1:])


def _attributes(
    node: ir.Node, dims: Dims, added: int | None, along: int, count: int
) -> Sequence[ir.Attr] | None:
    """The attributes of the one node, None where operands may not be put together."""
    if len(node.inputs) < 2 or len(node.outputs) > 1:
        return None
    if node.op_type == "Concat":
        axis = node.attributes["axis"].as_int() % len(dims)
        # The other way round it would be exchanged again.
        if len(node.inputs) >= count or (added is None and axis == along):
            return None
        if any((static_dims(value) or dims)[axis] is None for value in node.inputs):
            return None
        return [ir.AttrInt64("axis", axis + (added is not None and axis >= added))]
    facts = facts_of(node.op_type, node.domain)
    same = all(static_dims(value) == dims for value in node.inputs)
    if None in dims or not same or not facts.elementwise or facts.random:
        return None
    return list(node.attributes.values())
