"""The state of a conversion: facts, sizes, states, and how far a stream has come."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.writer import Operand, Writer
from ostinato.model.attributes import describe
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array
from ostinato.streaming.dims import Dims, find_sizes, named_sizes
from ostinato.streaming.facts import Everything, Fact, Fixed, Ring, Stream
from ostinato.streaming.masks import Lengths
from ostinato.streaming.result import Note, State

# Masks of this many frames tell a band from all frames so far.
_LOOKED_AT = 1024


class Converter:
    """A model that is being converted in place.

    axes: the time axis of each input that has one.
    context: frames that attention looks back, or "all" so far. grows: whether that is so; masks are
    then looked at as if it were `_LOOKED_AT` frames.
    """

    def __init__(
        self,
        model: ir.Model,
        axes: Mapping[str, int],
        chunk: int | None,
        context: int | str | None,
    ) -> None:
        self.model, self.chunk, self.grows = model, chunk, context == "all"
        self.context = _LOOKED_AT if isinstance(context, str) else context
        values = {str(value.name): value for value in model.graph.inputs}
        # The input from which the number of frames of a step is read, and its time axis.
        self.source = next((values[name], axis) for name, axis in axes.items())
        self.names, self.opset = Names(model), opset_of(model)
        self.facts: dict[ir.Value, Fact] = {
            values[name]: Stream(axis, Fraction(1)) for name, axis in axes.items()
        }
        self.sizes, self.multiples = find_sizes(model, axes)
        self.size_names = frozenset(named_sizes(model))
        self.states: list[tuple[State, ir.Value, ir.Value]] = []
        self.notes: list[Note] = []
        self.refusals: list[UnsupportedError] = []
        self.multiple = 1
        self.late_recurrences: list[str] = []
        # Whether a Scan hands frames on, as one that layers with shared weights became.
        self.hands_on_frames = False
        # Histories, by the value, the number of frames, and the fill before the first frame.
        self.histories: dict[tuple[object, ...], ir.Value] = {}
        self.rings: dict[Fraction, Ring] = {}
        self.everything: dict[Fraction, Everything] = {}
        self.lengths = Lengths(model.clone(), self.sizes)
        # Writes nodes behind all others: those that give states the form in which they are kept.
        self.behind = Writer(model.graph, self.names, self.opset, ir.DataType.FLOAT, "kept")
        self._before: ir.Value | None = None
        self._past: dict[Fraction, str] = {}
        self._positions: dict[Fraction, ir.Value] = {}

    def fact(self, value: ir.Value) -> Fact:
        """Look up the facts of `value`; constants, and inputs without a time axis, are fixed."""
        return self.facts.get(value) or Fixed(constant_array(value))

    def facts_by_name(self) -> dict[str, Fact]:
        return {str(value.name): fact for value, fact in self.facts.items()}

    def dims(self, value: ir.Value) -> Dims | None:
        array = constant_array(value)
        return self.sizes.get(str(value.name)) if array is None else array.shape

    @property
    def length(self) -> int | None:
        """The number of frames of the given model's input, where that is a number."""
        value, axis = self.source
        size = None if value.shape is None else value.shape[axis]
        return size if isinstance(size, int) else None

    def expand(self, node: ir.Node) -> None:
        """Ask for another try, in which the recurrence `node` is a Scan."""
        self.late_recurrences.append(describe(node))

    def past(self, rate: Fraction) -> str:
        """The name of the number of frames of earlier steps at a rate."""
        if rate not in self._past:
            self._past[rate] = self.names.fresh("past_frames")
        return self._past[rate]

    def frames(self, writer: Writer, rate: Fraction) -> Operand:
        """The number of frames of this step at `rate`: int64, shape `[1]`."""
        if self.chunk is not None:
            return np.array([int(self.chunk * rate)], np.int64)
        return self._at_rate(writer, writer.size(*self.source), rate, "frames")

    def first(self, writer: Writer, rate: Fraction) -> ir.Value:
        """The number of the first frame of this step at `rate`: int64, shape `[1]`."""
        return self._at_rate(writer, self.before(writer), rate, "first_frame")

    def _at_rate(self, writer: Writer, count: ir.Value, rate: Fraction, role: str) -> ir.Value:
        for op_type, factor in (("Mul", rate.numerator), ("Div", rate.denominator)):
            if factor != 1:
                operands: list[Operand] = [count, np.array([factor], np.int64)]
                count = writer.op(op_type, operands, role, dtype=ir.DataType.INT64)
        return count

    def positions(self, writer: Writer, rate: Fraction) -> ir.Value:
        """The numbers of the frames of this step at `rate`, from the first step on: int64."""
        if rate not in self._positions:
            frames = self.frames(writer, rate)
            operands: list[Operand] = [self.first(writer, rate), writer.numbers(frames, "steps")]
            self._positions[rate] = writer.op("Add", operands, "positions", dtype=ir.DataType.INT64)
        return self._positions[rate]

    def before(self, writer: Writer) -> ir.Value:
        """The number of input frames of earlier steps: int64, shape `[1]`. A state."""
        if self._before is None:
            name = self.names.fresh("frames_before_in")
            before = ir.Value(name=name, shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.INT64))
            self._before = before
            operands = [before, self.frames(writer, Fraction(1))]
            after = writer.op("Add", operands, "frames_before", dtype=ir.DataType.INT64)
            state = State(
                name,
                self.names.fresh("frames_before_out"),
                (1,),
                np.dtype(np.int64),
                np.zeros(1, np.int64),
                "",
                "frames of input so far",
            )
            self.states.append((state, before, after))
        return self._before

    def guard_chunks(self, writer: Writer) -> None:
        """Let a step whose number of frames is no multiple of `multiple` be an error.

        The input is reshaped to groups of `multiple` frames and back, which costs nothing.
        """
        value, axis = self.source
        users, shape = list(value.uses()), value.shape
        assert shape is not None
        sizes = [writer.size(value, i) for i in range(len(shape))]
        group = np.array([self.multiple], np.int64)
        groups = writer.op("Div", [sizes[axis], group], "groups", dtype=ir.DataType.INT64)
        apart = writer.concat([*sizes[:axis], groups, group, *sizes[axis + 1 :]], 0, "sizes")
        grouped = writer.op("Reshape", [value, apart], "grouped", dtype=value.dtype)
        self.expect(writer, f"a multiple of {self.multiple}")
        whole = writer.concat(sizes, 0, "sizes")
        checked = writer.op("Reshape", [grouped, whole], "checked", dtype=value.dtype)
        for node, index in users:
            node.replace_input_with(index, checked)

    def expect(self, writer: Writer, number: str) -> None:
        """Name the last node of `writer` after the number of frames that it is an error without.

        Whatever runtime a step fails in, it tells the name of the node.
        """
        value, axis = self.source
        name = f"frames of {value.name!r} in a step (axis {axis}): {number}"
        writer.nodes[-1].name = self.names.fresh(name)
