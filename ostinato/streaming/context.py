"""The interface of a streaming rule: a node, its facts, and edits of the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.node_reader import NodeReader
from ostinato.model.values import constant_array
from ostinato.streaming.converter import Converter
from ostinato.streaming.facts import Element, Fact, Refused, Sizes, Stream
from ostinato.streaming.result import Note

# Slices up to here reach the end of any axis.
END = np.iinfo(np.int64).max
# No sequence has that many frames: exporters write an end of 2^31 - 1 as well.
UNBOUNDED = (1 << 31) - 1


class Context(NodeReader):
    """A node that is being converted. Nodes that a rule writes come before it."""

    def __init__(self, converter: Converter, node: ir.Node) -> None:
        super().__init__(node)
        self.converter = converter
        types = [value.dtype for value in node.inputs if value is not None]
        self.writer = Writer(
            converter.model.graph,
            converter.names,
            converter.opset,
            next((dtype for dtype in types if dtype is not None), ir.DataType.FLOAT),
            self.name.strip("/").replace("/", "_"),
        )

    # Reading

    def fact(self, value: ir.Value) -> Fact:
        return self.converter.fact(value)

    def stream(self, index: int) -> Stream | None:
        """The fact of an input that is a stream; None for others and for one that is absent."""
        fact = self.fact(self.given(index)) if self.has(index) else None
        return fact if isinstance(fact, Stream) else None

    def only_stream(self) -> Stream:
        """The fact of input 0, refusing streams at all other inputs."""
        for other in range(1, len(self.node.inputs)):
            if self.stream(other) is not None:
                raise self.refuse(f"input {other} changes with time")
        return self.required_stream(0)

    def required_stream(self, index: int) -> Stream:
        """The fact of an input that has to be a stream."""
        stream = self.stream(index)
        if stream is not None:
            return stream
        if isinstance(self.fact(self.given(index)), Sizes):
            raise self.refuse("computes with the length of the whole sequence")
        raise self.refuse(f"its input {index} does not change with time, but others do")

    def known_dims(self, value: ir.Value) -> tuple[int | str | None, ...] | None:
        """The sizes of a value in the given model."""
        return self.converter.dims(value)

    def constant(self, index: int) -> Array | None:
        """The elements of an input that is a constant, else None."""
        if not self.has(index):
            return None
        fact = self.fact(self.given(index))
        known = fact.contents if isinstance(fact, Sizes) else None
        return constant_array(self.given(index)) if known is None else known

    def elements(self, index: int) -> tuple[Element, ...]:
        """The elements of an integer input as sizes; None for each that is not known."""
        fact = self.fact(self.given(index))
        if isinstance(fact, Sizes):
            return fact.elements
        if isinstance(fact, Stream):
            raise self.refuse(f"input {index} gives sizes or places, and changes with time")
        array = constant_array(self.given(index))
        if array is not None and array.ndim <= 1 and array.dtype.kind in "iub":
            return tuple(int(element) for element in array.reshape(-1))
        dims = self.dims(self.given(index))
        count = dims[0] if dims else 1
        if not isinstance(count, int):
            raise self.refuse(f"it is not known how many elements {self.given(index).name!r} has")
        return (None,) * count

    def axis(self, default: int | None = None) -> int:
        """The attribute `axis`, counted from the front."""
        axis: int = self.attributes.int("axis", default)
        return axis + self.rank(self.given(0)) if axis < 0 else axis

    def axes(self, index: int) -> tuple[int, ...] | None:
        """`axes`, an input or an attribute by version; None where it is absent."""
        found: tuple[int, ...] | None = self.attributes.ints("axes", None)
        if found is None and self.has(index):
            array = self.constant(index)
            if array is None:
                raise self.refuse("its axes are not constant")
            found = tuple(int(axis) for axis in array.reshape(-1))
        return found

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
        self.node.prepend(self.writer.nodes)
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
                parts.append(self.writer.take(self.given(target), [i], 0, "size"))
        joined = self.writer.concat(parts, 0, "sizes")
        self.operand(target, self.writer.value(joined, "sizes"))


def poison(converter: Converter, node: ir.Node) -> None:
    """Mark the outputs of `node` as refused."""
    for output in node.outputs:
        converter.facts[output] = Refused()
