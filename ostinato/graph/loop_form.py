"""Scan and Loop taken apart into their parts, and put together again.

    LoopForm = states: [State], scanned: [Scanned], stacked: [Stacked], head: LoopHead | None

A part ties a value outside of the body to the value inside that it becomes or comes from. A pass
edits the lists and writes the node anew, which makes a new node with new outputs: the parts of
other loops that were read before may then name values that are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import TypeVar

import onnx_ir as ir

from ostinato.graph.edit import append_copy, discard, is_needed, replace_value
from ostinato.model.attributes import Attributes
from ostinato.model.graphs import maker_of, subgraphs
from ostinato.model.names import Names
from ostinato.model.values import constant_array
from ostinato.records import dataclass

# Scan has no batch axis and no sequence_lens input since this version.
SCAN_WITHOUT_BATCH = 9


@dataclass
class State:
    """A value carried from step to step."""

    initial: ir.Value
    before: ir.Value
    after: ir.Value
    final: ir.Value


@dataclass
class Scanned:
    """A value of which each step sees `element`, its next slice along `axis`."""

    source: ir.Value
    element: ir.Value
    axis: int = 0
    backward: bool = False


@dataclass
class Stacked:
    """A value that collects the `element` of each step along its axis `axis`."""

    element: ir.Value
    result: ir.Value
    axis: int = 0
    backward: bool = False


@dataclass
class LoopHead:
    """Parts of Loop alone: trip count and condition outside; number and condition of a step."""

    trips: ir.Value | None
    condition: ir.Value | None
    number: ir.Value
    going: ir.Value
    proceed: ir.Value

    @property
    def may_end_early(self) -> bool:
        """Whether a condition that data decide may end the loop before its trip count."""
        proceed = origin(self.proceed)
        begins = self.condition is None or is_true(self.condition)
        return not (begins and (proceed is self.going or is_true(proceed)))


@dataclass
class LoopForm:
    """A Scan (version 9 and later, `head` is None) or a Loop."""

    node: ir.Node
    body: ir.Graph
    states: list[State]
    scanned: list[Scanned]
    stacked: list[Stacked]
    head: LoopHead | None

    def substitute(self, old: ir.Value, new: ir.Value) -> None:
        """Let everything in the body, and its results, use `new` in place of `old`."""
        for reader, position in old.uses():
            reader.replace_input_with(position, new)
        for state in self.states:
            state.after = new if state.after is old else state.after
        for stacked in self.stacked:
            stacked.element = new if stacked.element is old else stacked.element
        if self.head is not None and self.head.proceed is old:
            self.head.proceed = new

    def count_axes_from_the_front(self) -> bool:
        """Let no axis be negative; returns whether all ranks that this takes are known."""
        for scanned in self.scanned:
            if scanned.source.shape is None:
                return False
            scanned.axis %= len(scanned.source.shape)
        for stacked in self.stacked:
            if stacked.result.shape is None:
                return False
            stacked.axis %= len(stacked.result.shape)
        return True

    def write(self, names: Names) -> ir.Node:
        """Put a node with these parts in the place of the old one and return it.

        Nodes of the body that nothing needs any more leave it: none of them may be needed to
        compute a result, and no value that was dropped may be read by another node.
        """
        old_results = [*(s.final for s in self.states), *(s.result for s in self.stacked)]
        results = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in old_results]
        for part, result in zip((*self.states, *self.stacked), results, strict=True):
            setattr(part, "final" if isinstance(part, State) else "result", result)
        old, node = self.node, self.make(names, self.node.name or "")
        old.prepend(node)
        for value, result in zip(old_results, results, strict=True):
            replace_value(value, result)
        detach(old)
        return node

    def make(self, names: Names, name: str) -> ir.Node:
        """A node with these parts, whose results have no maker yet; it is `self.node` from now on.

        The body is written as `write` does.
        """
        self._write_body(names)
        inputs: list[ir.Value | None] = [state.initial for state in self.states]
        inputs += [scanned.source for scanned in self.scanned]
        if self.head is not None:
            inputs = [self.head.trips, self.head.condition, *inputs]
        self.node = ir.Node(
            "",
            "Scan" if self.head is None else "Loop",
            inputs,
            self.attributes(),
            outputs=[*(s.final for s in self.states), *(s.result for s in self.stacked)],
            name=name,
        )
        return self.node

    def stack(self, element: ir.Value, names: Names, axis: int = 0, backward: bool = False) -> None:
        """Add a scan output to the node as it stands, which keeps its other results.

        The new result is that of the last part in `stacked`.
        """
        element = self._returnable(element, set(self.body.outputs), names)
        self.body.outputs.append(element)
        self.node.resize_outputs(len(self.node.outputs) + 1)
        result = self.node.outputs[-1]
        result.name, result.type = names.fresh(f"{element.name}_steps"), element.type
        if element.shape is not None:
            length = self.scanned[0].source.shape if self.scanned else None
            steps = None if length is None else length[self.scanned[0].axis]
            result.shape = ir.Shape([*element.shape[:axis], steps, *element.shape[axis:]])
        self.stacked.append(Stacked(element, result, axis, backward))
        # Attributes that only repeat the default are not written again; their number is the same.
        self.node.attributes.clear()
        for attribute in self.attributes():
            self.node.attributes[attribute.name] = attribute

    def attributes(self) -> list[ir.Attr]:
        """The attributes of a node with these parts."""
        attributes = [ir.AttrGraph("body", self.body)]
        if self.head is not None:
            return attributes
        attributes.append(ir.AttrInt64("num_scan_inputs", len(self.scanned)))
        parts: tuple[tuple[str, list[Scanned] | list[Stacked]], ...] = (
            ("scan_input", self.scanned),
            ("scan_output", self.stacked),
        )
        for name, items in parts:
            axes = [item.axis for item in items]
            directions = [int(item.backward) for item in items]
            if any(axes):
                attributes.append(ir.AttrInt64s(f"{name}_axes", axes))
            if any(directions):
                attributes.append(ir.AttrInt64s(f"{name}_directions", directions))
        return attributes

    def _write_body(self, names: Names) -> None:
        body = self.body
        inputs = [*(s.before for s in self.states), *(s.element for s in self.scanned)]
        results: list[tuple[LoopHead | State | Stacked, str]] = []
        results += [(state, "after") for state in self.states]
        results += [(stacked, "element") for stacked in self.stacked]
        if self.head is not None:
            inputs = [self.head.number, self.head.going, *inputs]
            results.insert(0, (self.head, "proceed"))
            # Runtimes ask for the rank of these two, which the operator's document gives.
            for scalar in inputs[:2]:
                scalar.shape = ir.Shape([])
        body.outputs.clear()
        seen = set[ir.Value]()
        for part, field in results:
            value: ir.Value = getattr(part, field)
            setattr(part, field, self._returnable(value, seen, names))
            seen.add(value)
        body.outputs.extend(getattr(part, field) for part, field in results)
        sweep(body)
        body.inputs.clear()
        body.inputs.extend(inputs)

    def _returnable(self, value: ir.Value, returned: Set[ir.Value], names: Names) -> ir.Value:
        """The value, or a copy where the body cannot return it beside what is `returned`."""
        maker = value.producer()
        # An input could be returned as it is, but not all runtimes keep it alive for that.
        if maker is not None and maker.graph is self.body and value not in returned:
            return value
        return append_copy(self.body, value, names.fresh(f"{value.name}_output"))


def read_loop(node: ir.Node, opset: int, attributes: Attributes | None = None) -> LoopForm | None:
    """The parts of a Loop, or of a Scan without a batch axis; None for any other node.

    A node that left its graph is none either: a rewrite of the loop around it may discard it.
    attributes: a reader of those of the node, which is left with none unread.
    Raises `UnsupportedError` for an attribute that is not known.
    """
    is_loop = (node.op_type, opset >= SCAN_WITHOUT_BATCH) in _READABLE
    if not is_loop or node.domain != "" or node.graph is None:
        return None
    attributes = attributes or Attributes(node)
    return (_read_scan if node.op_type == "Scan" else _read_loop)(node, attributes)


_READABLE = {("Loop", False), ("Loop", True), ("Scan", True)}


def _read_scan(node: ir.Node, attributes: Attributes) -> LoopForm:
    body: ir.Graph = attributes.graph("body")
    scans = attributes.int("num_scan_inputs")
    count = len(node.inputs) - scans
    stacks = len(node.outputs) - count
    axes = attributes.ints("scan_input_axes", (0,) * scans)
    directions = attributes.ints("scan_input_directions", (0,) * scans)
    output_axes = attributes.ints("scan_output_axes", (0,) * stacks)
    output_directions = attributes.ints("scan_output_directions", (0,) * stacks)
    attributes.finish()
    given = _present(node.inputs)
    scanned = [
        Scanned(source, element, axis, bool(direction))
        for source, element, axis, direction in zip(
            given[count:], body.inputs[count:], axes, directions, strict=True
        )
    ]
    stacked = [
        Stacked(element, result, axis, bool(direction))
        for element, result, axis, direction in zip(
            body.outputs[count:], node.outputs[count:], output_axes, output_directions, strict=True
        )
    ]
    states = _states(given[:count], body.inputs[:count], body.outputs[:count], node)
    return LoopForm(node, body, states, scanned, stacked, None)


def _read_loop(node: ir.Node, attributes: Attributes) -> LoopForm:
    body: ir.Graph = attributes.graph("body")
    attributes.finish()
    trips, condition = (*node.inputs[:2], None, None)[:2]
    initial = _present(node.inputs[2:])
    count = len(initial)
    head = LoopHead(trips, condition, body.inputs[0], body.inputs[1], body.outputs[0])
    stacked = [
        Stacked(element, result)
        for element, result in zip(body.outputs[count + 1 :], node.outputs[count:], strict=True)
    ]
    states = _states(initial, body.inputs[2:], body.outputs[1 : count + 1], node)
    return LoopForm(node, body, states, [], stacked, head)


def _present(values: Sequence[ir.Value | None]) -> list[ir.Value]:
    return [value for value in values if value is not None]


def _states(
    initial: Sequence[ir.Value],
    before: Sequence[ir.Value],
    after: Sequence[ir.Value],
    node: ir.Node,
) -> list[State]:
    finals = node.outputs[: len(initial)]
    return [State(*parts) for parts in zip(initial, before, after, finals, strict=True)]


def is_true(value: ir.Value) -> bool:
    """Whether a value is the constant true."""
    array = constant_array(value)
    return array is not None and array.size == 1 and bool(array.item())


_V = TypeVar("_V", ir.Value, "ir.Value | None")


def origin(value: _V) -> _V:
    """The value that `value` is a copy of, through any number of Identity nodes."""
    while (copy := maker_of(value, "Identity")) is not None and copy.inputs[0] is not None:
        value = copy.inputs[0]
    return value


def scopes_within(graph: ir.Graph) -> set[ir.Graph]:
    """`graph` and all graphs nested in it."""
    found = [graph]
    for current in found:
        for node in current:
            found.extend(subgraphs(node))
    return set(found)


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """The values that `node` and the graphs nested in it read or return."""
    yield from _present(node.inputs)
    for body in subgraphs(node):
        yield from body.outputs
        for inner in body:
            yield from reads(inner)


def sweep(body: ir.Graph) -> None:
    """Remove the nodes of `body` that neither a node nor an output of it needs."""
    for node in reversed(body):
        if not any(map(is_needed, node.outputs)):
            discard(node)


def detach(node: ir.Node) -> None:
    """Remove `node` without what is nested in it, which has a new owner."""
    for position in range(len(node.inputs)):
        node.replace_input_with(position, None)
    assert node.graph is not None
    node.graph.remove(node)
