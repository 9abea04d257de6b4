"""Loops in segments, of which the way back computes the steps again.

    Scan over T steps   ->   Scan over q segments { Scan over k steps }, Scan over the r that remain

The gradient of the outer loop keeps its states and nothing else, T / k of them, and its backward
step runs the k steps of a segment once more, with what they have to keep. Of T steps that cost S
each to keep, T / k states and k S are alive at a time. (Chen et al., "Training Deep Nets with
Sublinear Memory Cost", arXiv:1604.06174.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.copies import copy_graph, like
from ostinato.graph.edit import replace_value
from ostinato.graph.loop_form import LoopForm, Scanned, Stacked, detach, read_loop
from ostinato.graph.random import has_random
from ostinato.graph.writer import Operand, Writer
from ostinato.model.attributes import describe
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import dims_of

_MARK = "ostinato.segments"


def is_in_segments(node: ir.Node) -> bool:
    """Whether the steps of the node are segments, to be computed again."""
    return bool(node.meta.get(_MARK))


def in_segments(model: ir.Model, steps: int) -> int:
    """Cut the loops of the main graph into segments of `steps` steps; returns their number.

    Matches each Scan with a state, without random numbers, and with more than `steps` steps, or a
    number of them that is known at run time only. New values have no shape. Valid because the steps
    are the same, in the same order.
    """
    names, found = Names(model), 0
    for node in list(model.graph):
        form = read_loop(node, opset_of(model)) if node.op_type == "Scan" else None
        if form is None or not form.states or not form.count_axes_from_the_front():
            continue
        if has_random(form.body):
            # A step would not draw the same numbers when it runs again.
            continue
        first = form.scanned[0]
        length = (dims_of(first.source) or ())[first.axis]
        if not isinstance(length, int) or length > steps:
            writer = Writer(model.graph, names, opset_of(model), ir.DataType.INT64, describe(node))
            lengths = _Lengths.of(length, steps, first, writer)
            _Segments(form, steps, lengths, writer, names).write()
            found += 1
    return found


@dataclass(frozen=True)
class _Lengths:
    """Numbers of steps, each int64 of shape [1]; rest: None where no steps remain."""

    segments: Operand
    main: Operand
    rest: Operand | None

    @staticmethod
    def of(length: int | str | None, steps: int, scanned: Scanned, writer: Writer) -> _Lengths:
        """At least one step remains where the number is only known at run time."""
        if isinstance(length, int):
            rest = length % steps
            numbers = [np.array([n], np.int64) for n in (length // steps, length - rest, rest)]
            return _Lengths(numbers[0], numbers[1], numbers[2] if rest else None)
        size = writer.size(scanned.source, scanned.axis)
        one, k = np.array([1], np.int64), np.array([steps], np.int64)
        before_last = writer.op("Max", [writer.op("Sub", [size, one], "last"), one - 1], "last")
        segments = writer.op("Div", [before_last, k], "segments")
        main = writer.op("Mul", [segments, k], "steps")
        return _Lengths(segments, main, writer.op("Sub", [size, main], "rest"))


class _Segments:
    """One loop that is being cut."""

    def __init__(
        self, form: LoopForm, steps: int, lengths: _Lengths, writer: Writer, names: Names
    ) -> None:
        self.form, self.steps, self.lengths = form, steps, lengths
        self.writer, self.names = writer, names

    def write(self) -> None:
        form, rest = self.form, self.lengths.rest
        body = None if rest is None else copy_graph(form.body, self.names)
        mains, rests = self._sources()
        states, results = self._segments(mains)
        results = [self._flat(v, s) for v, s in zip(results, form.stacked, strict=True)]
        if body is not None:
            states, last = self._scan(body, states, rests, "rest")
            pairs = zip(results, last, form.stacked, strict=True)
            results = [self._joined(main, rest, stacked) for main, rest, stacked in pairs]
        form.node.prepend(self.writer.nodes)
        for old, new in zip(form.node.outputs, [*states, *results], strict=True):
            replace_value(old, new)
        detach(form.node)

    def _sources(self) -> tuple[list[ir.Value], list[ir.Value]]:
        """Cut into segments, `[.., segments, steps, ..]`, and remaining steps."""
        mains, rests = [], []
        for scanned in self.form.scanned:
            main = scanned.source
            if self.lengths.rest is not None:
                main, rest = self._parted(scanned, self.lengths.rest)
                rests.append(rest)
            sizes = self._sizes(scanned.source)
            sizes[scanned.axis : scanned.axis + 1] = [
                self.lengths.segments,
                np.array([self.steps], np.int64),
            ]
            mains.append(self._reshape(main, sizes))
        return mains, rests

    def _parted(self, scanned: Scanned, rest: Operand) -> tuple[ir.Value, ir.Value]:
        order = -1 if scanned.backward else 1
        sizes = self.writer.concat([self.lengths.main, rest][::order], 0, "sizes")
        operands, axis = [scanned.source, sizes], {"axis": scanned.axis}
        roles = ("part_0", "part_1")
        main, last = self.writer.ops("Split", operands, roles, axis, scanned.source.dtype)[::order]
        return main, last

    def _segments(self, sources: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Write the loop over segments, whose step is a loop over the steps of a segment."""
        outside, self.writer = self.writer, self.writer.within("segment")
        befores = [like(state.before, self.names, "before") for state in self.form.states]
        elements = [self.writer.declare("x", None, source.dtype) for source in sources]
        afters, results = self._scan(self.form.body, befores, elements, "steps")
        inner, self.writer = self.writer, outside
        body = ir.Graph(
            [*befores, *elements], [*afters, *results], nodes=inner.nodes, name=inner.name("body")
        )
        found = self._scan(body, [state.initial for state in self.form.states], sources, "segments")
        self.writer.nodes[-1].meta[_MARK] = True
        return found

    def _scan(
        self, body: ir.Graph, states: list[ir.Value], sources: list[ir.Value], role: str
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Write a Scan with the axes and directions of the loop: last states, results."""
        form = self.form
        elements = [*(s.after for s in form.states), *(s.element for s in form.stacked)]
        outputs = [self.writer.declare(role, None, value.dtype) for value in elements]
        attributes = replace(form, body=body).attributes()
        self.writer.node("Scan", [*states, *sources], outputs, attributes, role=role)
        return outputs[: len(states)], outputs[len(states) :]

    def _flat(self, value: ir.Value, stacked: Stacked) -> ir.Value:
        """A result of the segments with one axis for their steps."""
        axis = stacked.axis
        dims = list(dims_of(stacked.result) or ())
        sizes = [
            self.lengths.main
            if i == axis
            else np.array([size], np.int64)
            if isinstance(size, int)
            else self.writer.size(value, i + (i > axis))
            for i, size in enumerate(dims)
        ]
        return self._reshape(value, sizes)

    def _joined(self, main: ir.Value, rest: ir.Value, stacked: Stacked) -> ir.Value:
        parts = [rest, main] if stacked.backward else [main, rest]
        return self.writer.op("Concat", parts, "joined", {"axis": stacked.axis}, main.dtype)

    def _reshape(self, value: ir.Value, sizes: list[Operand]) -> ir.Value:
        shape, literal = self.writer.concat(sizes, 0, "shape"), {"allowzero": 1}
        return self.writer.op("Reshape", [value, shape], "segments", literal, value.dtype)

    def _sizes(self, value: ir.Value) -> list[Operand]:
        dims = dims_of(value) or ()
        return [
            np.array([size], np.int64) if isinstance(size, int) else self.writer.size(value, i)
            for i, size in enumerate(dims)
        ]
