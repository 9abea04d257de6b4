"""A backward loop whose values change their shape: a Loop, which picks what a Scan is given."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.growing import Prefix
from ostinato.autodiff.scope import Scope
from ostinato.graph.loop_form import LoopForm, LoopHead
from ostinato.graph.writer import Operand, Writer
from ostinato.model.values import constant_array

_ZERO, _ONE, _FAR = (np.array([n], np.int64) for n in (0, 1, np.iinfo(np.int64).max))


class Countdown:
    """The numbers of the forward steps, the last one first.

    trips: their count, int64 `[1]`, of the graph around. writer: writes the beginning of the body.
    """

    def __init__(self, trips: Operand, around: Writer, writer: Writer) -> None:
        self._around, self._writer = around, writer
        self._trips = trips
        self._done = writer.declare("step", [], ir.DataType.INT64)
        last = around.squeeze(around.op("Sub", [trips, _ONE], "last"), 0, "last")
        self.number = writer.op("Sub", [last, self._done], "number")
        self.number.shape = ir.Shape([])

    def prefix(
        self, whole: ir.Value, prefix: Prefix, extent: ir.Value | None, grown: ir.Value | None
    ) -> ir.Value:
        """A part of what a state became, in each step.

        extent: its size of each step, where that does not follow from the number of the step.
        grown: what has the size of the state behind the step, if anything has.
        """
        write, axis = self._writer, np.array([prefix.axis], np.int64)
        size = self._around.size(whole, prefix.axis)
        if prefix.rows is None:
            assert extent is not None
            taken = write.unsqueeze(self._picked(extent, True), [0], "extent")
        elif grown is not None:
            known = write.size(grown, prefix.axis)
            less = write.op("Sub", [known, np.array([prefix.rows[1]])], "extent")
            # Bounds below 0 would count from the end.
            taken = write.op("Max", [less, _ZERO], "extent") if prefix.rows[1] else known
        else:
            total, behind = (np.array([rows], np.int64) for rows in prefix.rows)
            cut = write.op("Add", [write.op("Mul", [self._done, total], "cut"), behind], "cut")
            taken = write.op("Sub", [size, cut], "extent")
        ends: list[Operand] = [_ZERO, taken]
        if prefix.in_front:
            ends = [write.op("Sub", [size, taken], "start"), _FAR]
        return write.op("Slice", [whole, *ends, axis], "prefix", dtype=whole.dtype)

    def write(self, form: LoopForm) -> None:
        """Make a Loop of a Scan that has not been written yet."""
        for scanned in form.scanned:
            picked = self._picked(scanned.source, scanned.backward, scanned.axis)
            picked.shape = scanned.element.shape
            form.substitute(scanned.element, picked)
        going = self._writer.declare("going", [], ir.DataType.BOOL)
        trips = self._around.value(self._around.squeeze(self._trips, 0, "trips"), "trips")
        form.scanned, form.head = [], LoopHead(trips, None, self._done, going, going)

    def _picked(self, source: ir.Value, backward: bool, axis: int = 0) -> ir.Value:
        at = self.number if backward else self._done
        return self._writer.op("Gather", [source, at], "element", {"axis": axis}, source.dtype)


def count_steps(form: LoopForm, scope: Scope, writer: Writer) -> Operand:
    """Count the steps that a Loop of the graph of `scope` has run: int64 `[1]`."""
    head = form.head
    assert head is not None
    trips = None if head.trips is None or head.may_end_early else constant_array(head.trips)
    if trips is not None:
        return np.array([max(int(trips.reshape(-1)[0]), 0)], np.int64)
    if not form.stacked:
        form.stack(head.number, scope.names)
    return writer.size(scope.forward(form.stacked[0].result), 0)
