"""The interface of a streaming rule: a node, its facts, and edits of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.edit import discard, replace_value
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.attributes import describe
from ostinato.model.values import constant_array
from ostinato.streaming.conversion import Note
from ostinato.streaming.converter import Converter
from ostinato.streaming.facts import Element, Fact, Fixed, Refused, Sizes, SoFar, Stream

# Slices up to here reach the end of any axis.
END = np.iinfo(np.int64).max
# No sequence has that many frames: exporters write an end of 2^31 - 1 as well.
UNBOUNDED = (1 << 31) - 1
CUT_AND_PADDED = (
    "the whole model cuts frames off the end, or may do so, and pads there: its last frames differ"
)


class Context:
    """A node that is being converted. Nodes that a rule writes come before it."""

    def __init__(self, converter: Converter, node: ir.Node) -> None:
        self.converter, self.node = converter, node
        self.name = describe(node)
        self.writer = Writer(
            converter.model.graph,
            converter.names,
            converter.opset,
            self._float_type(),
            self.name.strip("/").replace("/", "_"),
        )

    def _float_type(self) -> ir.DataType:
        types = [value.dtype for value in self.node.inputs if value is not None]
        return next((dtype for dtype in types if dtype is not None), ir.DataType.FLOAT)

    # Reading

    @property
    def op_type(self) -> str:
        return self.node.op_type

    @property
    def opset(self) -> int:
        return self.converter.opset

    def refuse(self, reason: str) -> UnsupportedError:
        """The error to raise for this node."""
        return UnsupportedError(self.name, self.node.op_type, reason)

    def has(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def input(self, index: int) -> ir.Value:
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            raise self.refuse(f"input {index} is required")
        return value

    def fact(self, value: ir.Value) -> Fact:
        return self.converter.fact(value)

    def stream(self, index: int) -> Stream | None:
        """The fact of an input that is a stream; None for others and for one that is absent."""
        fact = self.fact(self.input(index)) if self.has(index) else None
        return fact if isinstance(fact, Stream) else None

    def only_stream(self, index: int = 0) -> Stream:
        """The fact of input `index`, refusing streams at all other inputs."""
        for other in range(len(self.node.inputs)):
            if other != index and self.stream(other) is not None:
                raise self.refuse(f"input {other} changes with time")
        return self.required_stream(index)

    def required_stream(self, index: int) -> Stream:
        """The fact of an input that has to be a stream."""
        stream = self.stream(index)
        if stream is not None:
            return stream
        if isinstance(self.fact(self.input(index)), Sizes):
            raise self.refuse("computes with the length of the whole sequence")
        raise self.refuse(f"its input {index} does not change with time, but others do")

    def dims(self, value: ir.Value) -> tuple[int | str | None, ...]:
        """The sizes of `value` in the given model. Refuses values of unknown rank."""
        dims = self.converter.dims(value)
        if dims is None:
            raise self.refuse(f"the rank of {value.name!r} is not known")
        return dims

    def rank(self, value: ir.Value) -> int:
        return len(self.dims(value))

    def constant(self, index: int) -> Array | None:
        """The elements of an input that is a constant, else None."""
        if not self.has(index):
            return None
        fact = self.fact(self.input(index))
        if isinstance(fact, Sizes) and all(isinstance(e, int) for e in fact.elements):
            array = np.array(fact.elements, np.int64)
            return array[0] if fact.scalar else array
        return constant_array(self.input(index))

    def elements(self, index: int) -> tuple[Element, ...]:
        """The elements of an integer input as sizes; None for each that is not known."""
        fact = self.fact(self.input(index))
        if isinstance(fact, Sizes):
            return fact.elements
        if isinstance(fact, Stream):
            raise self.refuse(f"input {index} gives sizes or places, and changes with time")
        array = constant_array(self.input(index))
        if array is not None and array.ndim <= 1 and array.dtype.kind in "iub":
            return tuple(int(element) for element in array.reshape(-1))
        dims = self.dims(self.input(index))
        count = dims[0] if dims else 1
        if not isinstance(count, int):
            raise self.refuse(f"it is not known how many elements {self.input(index).name!r} has")
        return (None,) * count

    def number(self, name: str, default: Any = None) -> Any:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_int()

    def numbers(self, name: str, default: Any = None) -> Any:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else tuple(attribute.as_ints())

    def text(self, name: str, default: str) -> str:
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.as_string()

    def axis(self, default: int | None = None) -> int:
        """The attribute `axis`, counted from the front."""
        axis: int = self.number("axis", default)
        return axis + self.rank(self.input(0)) if axis < 0 else axis

    def axes(self, index: int) -> tuple[int, ...] | None:
        """`axes`, an input or an attribute by version; None where it is absent."""
        found: tuple[int, ...] | None = self.numbers("axes")
        if found is None and self.has(index):
            array = self.constant(index)
            if array is None:
                raise self.refuse("its axes are not constant")
            found = tuple(int(axis) for axis in array.reshape(-1))
        return found

    def known(self, value: ir.Value) -> Array | None:
        """The elements of a fixed value as far as they are known; see `Fixed.contents`."""
        fact = self.fact(value)
        if isinstance(fact, Sizes):
            return None
        return fact.contents if isinstance(fact, Fixed) else None

    # Writing

    def operand(self, index: int, value: ir.Value | None) -> None:
        """Let the node read `value` at `index`, which may be behind its last input."""
        if index >= len(self.node.inputs):
            self.node.resize_inputs(index + 1)
        self.node.replace_input_with(index, value)

    def output(self, index: int, role: str, dtype: ir.DataType) -> ir.Value:
        """The output at `index`, which the node may not have yet."""
        if index >= len(self.node.outputs):
            self.node.resize_outputs(index + 1)
        value = self.node.outputs[index]
        value.name = value.name or self.writer.name(role)
        value.dtype = dtype
        return value

    def set(self, fact: Fact, index: int = 0) -> None:
        """Say what output `index` is; outputs that are absent are passed over."""
        if index < len(self.node.outputs):
            self.converter.facts[self.node.outputs[index]] = fact

    def know(self, value: ir.Value, fact: Fact, dims: tuple[int | str | None, ...] | None) -> None:
        """Say what a value that was written is, for rules that read it."""
        self.converter.facts[value] = fact
        self.converter.sizes[str(value.name)] = dims

    def set_all(self, fact: Fact) -> None:
        for index in range(len(self.node.outputs)):
            self.set(fact, index)

    def note(self, text: str) -> None:
        self.converter.notes.append(Note(self.name, self.node.op_type, text))

    def flush(self) -> None:
        """Put what was written in front of the node."""
        assert self.node.graph is not None
        self.node.graph.insert_before(self.node, self.writer.nodes)
        self.writer.nodes = []

    def replace(self, value: ir.Value, fact: Fact) -> None:
        """Let `value` take the place of the only output of the node, which goes."""
        self.flush()
        old = self.node.outputs[0]
        name, dims = old.name or "", self.converter.dims(old)
        self.converter.facts[old] = fact
        replace_value(old, value)
        discard(self.node)
        self.know(value, fact, dims)
        for output in self.converter.model.graph.outputs:
            if output.name == name:
                self.know(output, fact, dims)

    def slice(
        self, x: ir.Value, axis: int, start: int, end: int, role: str, step: int = 1
    ) -> ir.Value:
        parts = [np.array([number], np.int64) for number in (start, end, axis, step)]
        return self.writer.op("Slice", [x, *parts], role, dtype=x.dtype)

    def concat(
        self, parts: Sequence[Operand], axis: int, dtype: ir.DataType | None, role: str
    ) -> ir.Value:
        return self.writer.op("Concat", parts, role, {"axis": axis}, dtype)

    def write_sizes(
        self, target: int, elements: Sequence[Element], index: int, size: Operand
    ) -> None:
        """Let input `target`, which holds `elements`, hold `size` at `index`."""
        parts: list[Operand] = []
        for i, element in enumerate(elements):
            if i == index:
                parts.append(size)
            elif isinstance(element, int):
                parts.append(np.array([element], np.int64))
            else:
                parts.append(self.writer.take(self.input(target), [i], 0, "size"))
        joined = self.writer.concat(parts, 0, "sizes")
        self.operand(target, self.writer.value(joined, "sizes"))

    # Time

    def need_end(self, stream: Stream) -> None:
        """Refuse what belongs to the last frame of a stream that is not the last one sent."""
        if not stream.ends_with_step:
            raise self.refuse(
                "belongs to the last frame of the whole sequence, which is not the last one of a "
                "step: padding, or what was cut off, lies between"
            )

    def padded_behind(self, stream: Stream) -> Stream:
        """The fact of what is to be padded at its end.

        Frames that the whole model has cut off there are sent all the same, in place of the
        padding: then nothing is known of the last frames any more.
        """
        if stream.extra is not None and stream.extra + stream.delay >= 0:
            return stream
        self.note(CUT_AND_PADDED)
        return replace(stream, extra=None)

    def so_far(self, stream: Stream, last: int | None = None) -> SoFar:
        """Describe the frames of `stream` that a result depends on: those so far, or the `last`.

        The whole model has `rate * frames - delay` frames of it.
        """
        frames = math.ceil(((last or 1) + stream.delay) / stream.rate)
        return SoFar(last is not None, max(frames, 1))

    def delayed(self, value: ir.Value, stream: Stream, frames: int) -> tuple[ir.Value, Stream]:
        """`value`, `frames` frames later."""
        result = replace(stream, delay=stream.delay + frames, fill=None)
        if result.delay < 0:
            result = replace(result, fill=stream.fill)
        if frames == 0 or stream.steady:
            return value, replace(result, delay=0) if stream.steady else result
        joined = self.history(value, stream, frames, "delay", f"{frames} frames that wait")
        late = self.slice(joined, stream.axis, 0, -frames, "delayed")
        self.know(late, result, self.converter.dims(value))
        return late, result

    def settled(self, index: int) -> tuple[ir.Value, Stream]:
        """Input `index` with all its frames sent: its delay is not negative."""
        stream = self.required_stream(index)
        value, stream = self.delayed(self.input(index), stream, max(0, -stream.delay))
        self.operand(index, value)
        return value, stream

    def align(self, indices: Sequence[int]) -> Stream:
        """Delay the streams at the inputs `indices` until their frames meet; returns one of them.

        The axis of the result is that of the first stream.
        """
        found = [stream for i in indices if (stream := self.stream(i)) is not None]
        moving = [stream for stream in found if not stream.steady]
        if not moving:
            return found[0]
        rates = {stream.rate for stream in found}
        if len(rates) > 1:
            rates_text = " and ".join(map(str, sorted(rates, reverse=True)))
            raise self.refuse(f"its inputs have {rates_text} frames for each frame of the input")
        target = max(0, *(stream.delay for stream in moving))
        for i in indices:
            stream = self.stream(i)
            if stream is not None and not stream.steady and stream.delay < target:
                value, _ = self.delayed(self.input(i), stream, target - stream.delay)
                self.operand(i, value)
                if stream.delay >= 0:
                    self.note(
                        f"input {i} waits {target - stream.delay} frames for the other inputs"
                    )
        extra = next((stream.extra for stream in moving if stream.extra is not None), None)
        return replace(found[0], delay=target, fill=None, steady=False, extra=extra)

    def history(
        self,
        value: ir.Value,
        stream: Stream,
        frames: int,
        role: str,
        purpose: str,
        before: float | None = None,
    ) -> ir.Value:
        """The last `frames` frames of earlier steps, and behind them those of this one.

        before: what is in place of the frames before the first, where that matters.
        """
        key = (value, frames, before)
        if key in self.converter.histories:
            return self.converter.histories[key]
        value = self.masked(value, stream, before)
        if frames == 0:
            return value
        dims = list(self.dims_of_stream(value, stream))
        dims[stream.axis] = frames
        if stream.delay < 0 and isinstance(stream.fill, ir.Value):
            first = self._first_frames(stream.fill, stream, frames, before or 0.0)
            old, give = self.seeded(first, role, dims, purpose)
        else:
            representative = [size if isinstance(size, int) else 1 for size in dims]
            assert value.dtype is not None
            initial = np.full(representative, before or 0.0, value.dtype.numpy())
            if stream.delay < 0:
                known = [slice(None)] * len(dims)
                known[stream.axis] = slice(max(0, frames + stream.delay), None)
                initial[tuple(known)] = stream.fill
            old, give = self.converter.add_state(self, role, dims, initial, purpose)
        joined = self.concat([old, value], stream.axis, value.dtype, f"{role}_joined")
        give(self.slice(joined, stream.axis, -frames, END, f"{role}_next"))
        self.converter.histories[key] = joined
        return joined

    def _first_frames(self, fill: ir.Value, stream: Stream, frames: int, before: float) -> ir.Value:
        """Values in place of `frames` frames before the first that is sent."""
        dims, known = self.dims(fill), min(frames, -stream.delay)
        if dims[stream.axis] != known:
            fill = self.slice(fill, stream.axis, -known, END, "first")
        if frames == known:
            return fill
        assert fill.dtype is not None
        widths = np.zeros(2 * len(dims), np.int64)
        widths[stream.axis] = frames - known
        number = np.array(before, fill.dtype.numpy())
        return self.writer.op("Pad", [fill, widths, number], "first", dtype=fill.dtype)

    def dims_of_stream(self, value: ir.Value, stream: Stream) -> tuple[int | str | None, ...]:
        dims = self.converter.dims(value)
        if dims is None:
            raise self.refuse(f"the shape of {value.name!r} is not known")
        return dims

    def seeded(
        self, initial: ir.Value, role: str, dims: Sequence[int | str | None], purpose: str
    ) -> tuple[ir.Value, Callable[[ir.Value], None]]:
        """A state that starts as `initial`: a known value, or one that the first step computes."""
        assert initial.dtype is not None
        shape = [size if isinstance(size, int) else 1 for size in dims]
        contents = self.known(initial)
        if contents is not None:
            # A known value has its own size along an axis of run-time size.
            array = np.broadcast_to(contents, np.broadcast_shapes(contents.shape, shape))
            return self.converter.add_state(self, role, dims, array, purpose)
        zeros = np.zeros(shape, initial.dtype.numpy())
        old, give = self.converter.add_state(self, role, dims, zeros, purpose)
        before, boolean = self.converter.before(self.writer), ir.DataType.BOOL
        first = self.writer.op("Equal", [before, np.zeros(1, np.int64)], "is_first", dtype=boolean)
        self.note(f"the first step takes {initial.name!r} as its {role}")
        start = self.writer.op("Where", [first, initial, old], f"{role}_start", dtype=initial.dtype)
        return start, give

    def copy(self, value: ir.Value) -> ir.Value:
        """A value of its own with the contents of `value`."""
        return self.writer.op("Identity", [value], "copy", dtype=value.dtype)

    def masked(self, value: ir.Value, stream: Stream, before: float | None) -> ir.Value:
        """`value` with the frames that mean nothing replaced by `before`."""
        if before is None or stream.delay <= 0 or stream.steady:
            return value
        assert value.dtype is not None
        valid = self.valid(stream, self.rank(value))
        filler = np.array(before, value.dtype.numpy())
        result = self.writer.op("Where", [valid, value, filler], "valid_frames", dtype=value.dtype)
        self.know(result, stream, self.converter.dims(value))
        return result

    def valid(self, stream: Stream, rank: int) -> ir.Value:
        """Mask of the valid frames of this step: bool, with the time axis of `stream`."""
        positions = self.converter.positions(self.writer, stream.rate)
        late = self.writer.op(
            "Less",
            [positions, np.array(stream.delay, np.int64)],
            "is_early",
            dtype=ir.DataType.BOOL,
        )
        valid = self.writer.op("Not", [late], "is_valid", dtype=ir.DataType.BOOL)
        axes = [axis for axis in range(rank) if axis != stream.axis]
        shaped = self.writer.unsqueeze(valid, axes, "is_valid") if axes else valid
        assert isinstance(shaped, ir.Value)
        return shaped

    def need_multiple(self, rate: Fraction) -> None:
        """Let chunks hold a whole number of frames of this rate."""
        self.converter.multiple = math.lcm(self.converter.multiple, rate.denominator)


def poison(converter: Converter, node: ir.Node) -> None:
    """Mark the outputs of `node` as refused."""
    for output in node.outputs:
        converter.facts[output] = Refused()
