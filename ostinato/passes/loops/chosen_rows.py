"""A choice among rows of one value becomes rows at chosen positions.

    Where(c, Gather(x, k), x)        Gather(x, Where(c, k, positions of x))
    If(c): Gather(x, k) else: x      Gather(x, If(c): k else: positions of x)

A Gather of a state moves rows within its memory, where a choice would copy all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import append_copy, can_return, discard, replace_value
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.loop_form import origin
from ostinato.graph.writer import Writer
from ostinato.model.graphs import branches, is_standard, maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.records import dataclass

# Range exists since this opset; the operator Where broadcasts since its first one.
_OPSET = 11


@dataclass(frozen=True)
class _Rows:
    """Rows of `data` along `axis`, which is not negative: at `positions`, or all in order.

    name: of the node that takes them.
    """

    data: ir.Value
    axis: int
    positions: ir.Value | None
    name: str


def chosen_rows(model: ir.Model) -> int:
    """Choose positions instead of rows in bodies of Loops; returns the number of choices.

    Matches a Where whose condition differs along one axis at most, and outputs of an If, if both
    sides are rows of one value along that axis, or the value itself. Makes a Gather at positions
    that are chosen by a Where or If of the same condition. Valid because both give the same rows;
    positions that a Where does not choose are still checked against the extent, as before.
    """
    opset, names, found = opset_of(model), Names(model), 0
    choices = [
        node
        for loop in nodes_of(model, "Loop")
        for node in loop.attributes["body"].as_graph()
        if is_standard(node, "Where", "If") and _takes_rows(node)
    ]
    if opset < _OPSET or not choices:
        return 0
    sizes = infer_sizes(model)
    for node in choices:
        writer = Writer(model.graph, names, opset, ir.DataType.INT64, node.name or node.op_type)
        choice = _Choice(node, writer, sizes)
        places = range(len(node.outputs))
        found += choice.where() if node.op_type == "Where" else sum(map(choice.of_if, places))
    return found


class _Choice:
    """A node that chooses. sizes: what is known of shapes, by name."""

    def __init__(self, node: ir.Node, writer: Writer, sizes: Mapping[str, Sizes]) -> None:
        self._node, self._writer, self._sizes = node, writer, sizes

    def where(self) -> bool:
        """Replace a Where, if it chooses among rows."""
        node, writer = self._node, self._writer
        condition, *values = node.inputs
        sides, shape = self._sides(values), self._shape(condition)
        if condition is None or sides is None or shape is None:
            return False
        rank = len(self._shape(sides[0].data) or ())
        # Sizes of 1 in front change nothing.
        varies = {axis - len(shape) for axis, size in enumerate(shape) if size != 1}
        if len(shape) > rank or varies - {sides[0].axis - rank}:
            return False
        own = writer.positions(sides[0].data, sides[0].axis)
        # A Gather of the positions fails for those that are out of range, chosen or not.
        found = [
            own if side.positions is None else writer.op("Gather", [own, side.positions], "rows")
            for side in sides
        ]
        flat = writer.op("Reshape", [condition, np.array([-1])], "chosen", dtype=ir.DataType.BOOL)
        chosen = writer.op("Where", [flat, *found], "rows")
        node.prepend(writer.nodes)
        self._gather(node.outputs[0], sides[0], chosen)
        discard(node)
        return True

    def of_if(self, place: int) -> bool:
        """Let an output of an If be positions, if its branches choose among rows."""
        node, writer = self._node, self._writer
        ways = branches(node)
        outputs = [way.outputs[place] for way in ways]
        sides = self._sides([origin(output) for output in outputs])
        inner = {value for way in ways for each in way for value in each.outputs}
        if sides is None or sides[0].data in inner:
            return False
        old, before = node.outputs[place], len(writer.nodes)
        own = writer.value(writer.positions(sides[0].data, sides[0].axis), "rows")
        node.prepend(writer.nodes[before:])
        for branch, side in zip(ways, sides, strict=True):
            rows = own if side.positions is None else side.positions
            if rows.dtype != ir.DataType.INT64:
                rows = writer.op("Cast", [rows], "rows", {"to": ir.DataType.INT64})
                branch.append(writer.nodes[-1])
            elif not can_return(branch, rows):
                rows = append_copy(branch, rows, writer.name("rows"))
            branch.outputs[place] = rows
        self._gather(old, sides[0], old)
        old.name, old.shape = writer.name("rows"), ir.Shape([None])
        old.type = ir.TensorType(ir.DataType.INT64)
        return True

    def _gather(self, old: ir.Value, rows: _Rows, positions: ir.Value) -> None:
        """Take the rows behind the node, for all that read `old`, which may be the positions."""
        new = ir.Value(name=old.name, type=old.type, shape=old.shape)
        attributes = [ir.AttrInt64("axis", rows.axis)]
        operands = [rows.data, positions]
        gather = ir.Node("", "Gather", operands, attributes, outputs=[new], name=rows.name)
        self._node.append(gather)
        replace_value(old, new)
        gather.replace_input_with(1, positions)

    def _sides(self, values: Sequence[ir.Value | None]) -> list[_Rows] | None:
        """Two values as rows of one, if they are and one at least is a Gather."""
        gathered = [self._gathered(value) for value in values]
        first = next((rows for rows in gathered if rows is not None), None)
        if first is None:
            return None
        whole = replace(first, positions=None)
        sides = [
            whole if value is first.data else rows
            for value, rows in zip(values, gathered, strict=True)
        ]
        of_one = [s for s in sides if s and (s.data, s.axis) == (first.data, first.axis)]
        return of_one if len(of_one) == len(sides) else None

    def _gathered(self, value: ir.Value | None) -> _Rows | None:
        node = maker_of(value, "Gather")
        if node is None:
            return None
        data, positions = node.inputs
        shape, which = self._shape(data), self._shape(positions)
        if data is None or positions is None or shape is None or which is None:
            return None
        axis = node.attributes.get_int("axis", 0)
        # Rows of a single element, such as positions themselves, gain nothing.
        if len(which) != 1 or len(shape) < 2 or not -len(shape) <= axis < len(shape):
            return None
        return _Rows(data, axis % len(shape), positions, node.name or node.outputs[0].name or "")

    def _shape(self, value: ir.Value | None) -> Sizes | None:
        return None if value is None else self._sizes.get(value.name or "")


def _takes_rows(node: ir.Node) -> bool:
    """Whether a node seems to choose among rows of one value, whatever the shapes are."""
    if node.op_type == "Where":
        return _are_of_one(node.inputs[1:])
    outputs = zip(*(map(origin, way.outputs) for way in branches(node)), strict=False)
    return any(map(_are_of_one, outputs))


def _are_of_one(values: Sequence[ir.Value | None]) -> bool:
    """Whether values are what a Gather takes rows of, or such rows, and not all of it."""
    takers = [maker_of(value, "Gather") for value in values]
    gathered = [None if node is None else node.inputs[0] for node in takers]
    sources = {source for source in gathered if source is not None}
    return any(
        all(source in (value, taken) for value, taken in zip(values, gathered, strict=True))
        for source in sources
    )
