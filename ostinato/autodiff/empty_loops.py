"""Loops of no steps at all: runtimes run a Loop of them, but not all of them a Scan.

A loop in segments has no segment where there are fewer steps than a segment has. onnxruntime 1.31
refuses a Scan over an axis of size 0. Of a Loop without steps it returns results of the right rank,
in which each size that is only known at run time is 0.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import replace_value
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.loop_form import LoopForm, LoopHead, Scanned, Stacked, read_loop
from ostinato.graph.writer import Operand, Writer
from ostinato.model.attributes import describe
from ostinato.model.names import Names
from ostinato.model.schema import opset_of


def allow_no_steps(model: ir.Model) -> int:
    """Let Scans of the main graph over parts of an axis be Loops; returns how many.

    Matches a Scan whose number of steps is neither a number nor named by an input, and whose
    results have no other such size. Makes a Loop that picks the elements by the number of the step.
    Valid because the steps and their order are the same; compiled here, it is that Scan again.
    """
    sizes, names, count = infer_sizes(model), Names(model), 0
    given = _given_sizes(model)
    for node in list(model.graph):
        form = read_loop(node, opset_of(model)) if node.op_type == "Scan" else None
        if form is None or not form.scanned:
            continue
        length = _dim(sizes, form.scanned[0])
        if length is None or isinstance(length, int) or length in given:
            continue
        writer = Writer(model.graph, names, opset_of(model), ir.DataType.INT64, describe(node))
        loop = _Loop(form, sizes, given, writer, names)
        if loop.can_be_written():
            loop.write()
            count += 1
    return count


def _given_sizes(model: ir.Model) -> dict[str, tuple[ir.Value, int]]:
    """An input and its axis by the name of its size."""
    return {
        str(size.value): (value, axis)
        for value in reversed(model.graph.inputs)
        for axis, size in enumerate(value.shape or ())
        if isinstance(size, ir.SymbolicDim) and size.value
    }


def _dim(sizes: dict[str, Sizes], scanned: Scanned) -> int | str | None:
    """The number of steps; None where the rank is not known."""
    dims = sizes.get(str(scanned.source.name))
    return None if dims is None else dims[scanned.axis] or "unknown"


class _Loop:
    """One Scan that is to be a Loop."""

    def __init__(
        self,
        form: LoopForm,
        sizes: dict[str, Sizes],
        given: dict[str, tuple[ir.Value, int]],
        writer: Writer,
        names: Names,
    ) -> None:
        self.form, self.given, self.writer, self.names = form, given, writer, names
        self.dims = [sizes.get(str(stacked.result.name)) for stacked in form.stacked]

    def can_be_written(self) -> bool:
        """Whether the sizes of all results can be told without steps, but for their number."""
        return all(
            dims is not None
            and all(
                isinstance(size, int) or size in self.given or i == stacked.axis % len(dims)
                for i, size in enumerate(dims)
            )
            for dims, stacked in zip(self.dims, self.form.stacked, strict=True)
        )

    def write(self) -> None:
        form, writer = self.form, self.writer
        first = form.scanned[0]
        trips = writer.size(first.source, first.axis)
        last = writer.squeeze(writer.op("Sub", [trips, np.array([1], np.int64)], "last"), 0, "last")
        head = LoopHead(
            writer.value(writer.squeeze(trips, 0, "trips"), "trips"),
            None,
            writer.declare("step", []),
            going := writer.declare("going", [], ir.DataType.BOOL),
            going,
        )
        form.node.graph.insert_before(form.node, writer.nodes)  # type: ignore[union-attr]
        writer.nodes = []
        for scanned in form.scanned:
            form.substitute(scanned.element, self._picked(scanned, head.number, last))
        for node in reversed(writer.nodes):
            form.body.insert_before(form.body[0], [node])
        writer.nodes = []
        form.head, form.scanned = head, []
        directions = [(stacked.axis, stacked.backward) for stacked in form.stacked]
        made = form.write(self.names)
        for stacked, dims, (axis, backward) in zip(
            form.stacked, self.dims, directions, strict=True
        ):
            assert dims is not None
            self._lay_out(made, stacked, dims, axis % len(dims), backward, trips)

    def _picked(self, scanned: Scanned, number: ir.Value, last: Operand) -> ir.Value:
        index: Operand = number
        if scanned.backward:
            index = self.writer.op("Sub", [last, number], "step")
        axis = {"axis": scanned.axis}
        return self.writer.op(
            "Gather", [scanned.source, index], "element", axis, scanned.element.dtype
        )

    def _lay_out(
        self,
        made: ir.Node,
        stacked: Stacked,
        dims: Sizes,
        axis: int,
        backward: bool,
        trips: ir.Value,
    ) -> None:
        """Give readers of a result the axis and order of the Scan, and its sizes without steps."""
        result, writer = stacked.result, self.writer
        value = result
        if backward:
            bounds = [np.array([n], np.int64) for n in (-1, np.iinfo(np.int64).min, 0, -1)]
            value = writer.op("Slice", [value, *bounds], "backward", dtype=result.dtype)
        if axis:
            order = [i + 1 if i < axis else 0 if i == axis else i for i in range(len(dims))]
            value = writer.op("Transpose", [value], "moved", {"perm": order}, result.dtype)
        if not all(isinstance(size, int) for i, size in enumerate(dims) if i != axis):
            shape = writer.concat(
                [self._size(i, axis, n, trips) for i, n in enumerate(dims)], 0, "shape"
            )
            value = writer.op("Reshape", [value, shape], "steps", dtype=result.dtype)
        if value is result:
            return
        nodes, writer.nodes = writer.nodes, []
        readers = [(node, i) for node in nodes for i, v in enumerate(node.inputs) if v is result]
        replace_value(result, value)
        for node, position in readers:
            node.replace_input_with(position, result)
        assert made.graph is not None
        made.graph.insert_after(made, nodes)

    def _size(self, index: int, axis: int, size: int | str | None, trips: ir.Value) -> Operand:
        if index == axis:
            return trips
        if isinstance(size, int):
            return np.array([size], np.int64)
        return self.writer.size(*self.given[str(size)])
