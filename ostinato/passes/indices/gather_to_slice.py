"""Elements at evenly spaced indices, picked one by one, become a Slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.evenly_spaced import EvenlySpaced, Span, is_evenly_spaced
from ostinato.graph.facts import facts_of
from ostinato.graph.inferred_sizes import InferredSizes, Sizes
from ostinato.graph.linear_index import linear_size
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, static_dims
from ostinato.sizes.dims import Size, is_nonnegative

# Slice takes its ranges, steps among them, as inputs since this version.
_SLICE_BY_INPUTS = 10
# Pad takes every type, and what the scatters make is defined for negative indices.
_PAD_OF_ALL_TYPES = 13
# The types for which runtimes have Pad, beside rare ones.
_PADDED_TYPES = frozenset(
    {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64}
)
_TO_THE_END, _TO_THE_FRONT = np.iinfo(np.int64).max, np.iinfo(np.int64).min
# Exporters compute indices from a range by fewer operators one behind the other.
_DEEPEST = 40


def gather_to_slice(model: ir.Model) -> int:
    """Replace gathers at evenly spaced indices by slices; returns how many places changed.

    Matches, in every graph, Gather, GatherElements along one axis and GatherND with one column,
    whose indices are `start + i * step`: a constant, or a Range of numbers and sizes, scaled and
    moved (see `EvenlySpaced`). Makes Slice, or Identity where all elements are picked in order.
    ScatterElements and ScatterND into zeros, without a reduction, at indices that
    rise by 1, become Pad.

    Valid because the pass fires only where every index provably exists, whatever the sizes: an
    index out of range is an error for Gather, while Slice clamps its bounds. So a range up to a
    number that only a run tells stays, as do indices of both signs, which wrap around.
    """
    opset = opset_of(model)
    if opset < _SLICE_BY_INPUTS:
        return 0
    candidates = [
        node
        for node in nodes_of(model)
        if node.op_type in _RULES and node.domain == "" and _may_be_spaced(node.inputs[1])
    ]
    if not candidates:
        return 0
    sizes, names = InferredSizes(model), Names(model)
    changed = 0
    for node in candidates:
        writer = Writer(model.graph, names, opset, ir.DataType.INT64, describe(node))
        new, old = _RULES[node.op_type](_Match(node, sizes, writer)), node.outputs[0]
        if new is None:
            continue
        new.name = old.name
        supersede(node, [new], writer.nodes)
        changed += 1
    return changed


def _may_be_spaced(value: ir.Value | None) -> bool:
    """Whether indices come from a Range or a constant, by a look that costs nothing."""
    pending = [(value, 0)]
    seen: set[ir.Value | None] = set()
    for current, depth in pending:
        if current in seen:
            continue
        seen.add(current)
        array = constant_array(current)
        if array is not None and is_evenly_spaced(array):
            return True
        node = current.producer() if current is not None else None
        if node is None or node.domain != "" or depth > _DEEPEST:
            continue
        if node.op_type == "Range":
            return True
        facts = facts_of(node.op_type)
        if facts.elementwise or facts.in_order or node.op_type == "Expand":
            pending += [(operand, depth + 1) for operand in node.inputs]
    return False


class _Match:
    """A node that picks or places elements, and what is known of its operands."""

    def __init__(self, node: ir.Node, sizes: Mapping[str, Sizes], writer: Writer) -> None:
        self.node, self.writer = node, writer
        self.spaced = EvenlySpaced(sizes)
        self._sizes = sizes

    def sizes(self, position: int) -> Sizes | None:
        """The sizes of an operand, None for an unknown rank."""
        value = self.node.inputs[position]
        return self._sizes.get(value.name or "") if value is not None else None

    def _first(self) -> Sequence[int | str | None] | None:
        """The sizes of the first operand as far as they stand beside it: others take a while."""
        return static_dims(self.node.inputs[0]) or self.sizes(0)

    def axis(self) -> int | None:
        """The attribute `axis`, counted from the front; None when it cannot be."""
        data, axis = self._first(), self.node.attributes.get_int("axis", 0)
        assert axis is not None
        return axis % len(data) if data and -len(data) <= axis < len(data) else None

    def within(self, span: Span | None, axis: int | None) -> tuple[Span, Size] | None:
        """Positions on an axis of the first operand, and its size; None unless they exist."""
        data = self._first()
        if data is not None and axis is not None and data[axis] is None:
            data = self.sizes(0)
        size = linear_size(data[axis]) if data is not None and axis is not None else None
        found = span.within(size) if span is not None and size is not None else None
        return None if found is None or size is None else (found, size)

    def spread(self, indices: ir.Value, axis: int) -> Span | None:
        """Indices with the axes of the first operand that differ along one of them alone."""
        line = self.spaced.line(indices)
        return line.span(axis) if line is not None and line.rank > axis else None

    def agree_beside(self, axis: int) -> bool:
        """Whether data and indices have the same sizes, but perhaps along `axis`."""
        data, indices = (list(self.sizes(position) or ()) for position in (0, 1))
        if not data or len(data) != len(indices):
            return False
        del data[axis], indices[axis]
        return None not in data and data == indices


def _gather(match: _Match) -> ir.Value | None:
    line = match.spaced.line(match.node.inputs[1])
    axis = match.axis()
    found = match.within(line.span(line.axis) if line is not None else None, axis)
    if line is None or axis is None or found is None:
        return None
    part = _picked(match, axis, *found)
    if part is None or line.rank == 1:
        return part
    beside = [axis + i for i in range(line.rank) if i != line.axis]
    return match.writer.unsqueeze(part, beside, "picked")


def _gather_elements(match: _Match) -> ir.Value | None:
    axis, indices = match.axis(), match.node.inputs[1]
    if axis is None or indices is None or not match.agree_beside(axis):
        return None
    found = match.within(match.spread(indices, axis), axis)
    return None if found is None else _picked(match, axis, *found)


def _gather_nd(match: _Match) -> ir.Value | None:
    line = match.spaced.line(match.node.inputs[1])
    if match.node.attributes.get_int("batch_dims", 0) or line is None:
        return None
    found = match.within(line.span(0), 0) if (line.rank, line.axis) == (2, 0) else None
    return None if found is None else _picked(match, 0, *found)


def _picked(match: _Match, axis: int, span: Span, size: Size) -> ir.Value | None:
    """The first operand at the positions `span` of an axis of `size` elements.

    None where a bound cannot be written so that Slice means it for all sizes.
    """
    data, writer = match.node.inputs[0], match.writer
    assert data is not None
    if (span.start, span.stop, span.step) == (0, size, 1):
        return writer.op("Identity", [data], "all", dtype=data.dtype)
    start, stop = _start(span, size, writer), _stop(span, size)
    if start is None or stop is None:
        return None
    numbers = [_one(stop), _one(axis), *([_one(span.step)] if span.step != 1 else [])]
    first = _one(start) if isinstance(start, int) else start
    return writer.op("Slice", [data, first, *numbers], "picked", dtype=data.dtype)


def _start(span: Span, size: Size, writer: Writer) -> int | ir.Value | None:
    """The bound of a Slice that is `span.start` for all sizes.

    A negative bound counts from the end; where it points before the front, a falling Slice begins
    at the front all the same. So it is used only where the position exists, or for the last one.
    """
    start, from_end = span.start, span.start - size
    if not is_nonnegative(start):
        return -1 if span.step < 0 and from_end == -1 else None
    if isinstance(start, int):
        return start
    if isinstance(from_end, int) and from_end < 0:
        return from_end
    if span.operand is None:
        return None
    operand = span.operand
    if operand.dtype != ir.DataType.INT64:
        to = {"to": ir.DataType.INT64}
        operand = writer.op("Cast", [operand], "start", to, ir.DataType.INT64)
    return writer.unsqueeze(operand, [0], "start")


def _stop(span: Span, size: Size) -> int | None:
    """The bound of a Slice that is `span.stop` for all sizes, None where there is none."""
    stop, from_end = span.stop, span.stop - size
    if span.step < 0 and stop == -1:
        return _TO_THE_FRONT
    if isinstance(stop, int):
        return stop if stop >= 0 else None
    return _TO_THE_END if from_end == 0 else from_end if isinstance(from_end, int) else None


def _scatter_elements(match: _Match) -> ir.Value | None:
    if not _are_zeros(match.node.inputs[0]):
        return None
    axis, indices = match.axis(), match.node.inputs[1]
    if axis is None or indices is None or not match.agree_beside(axis):
        return None
    if match.sizes(1) != match.sizes(2):
        return None
    return _placed(match, axis, match.spread(indices, axis))


def _scatter_nd(match: _Match) -> ir.Value | None:
    if not _are_zeros(match.node.inputs[0]):
        return None
    line = match.spaced.line(match.node.inputs[1])
    data, updates = match.sizes(0), match.sizes(2)
    if line is None or (line.rank, line.axis) != (2, 0) or not data or not updates:
        return None
    span = line.span(0)
    if span is None or updates != (span.count, *data[1:]):
        return None
    return _placed(match, 0, span)


def _placed(match: _Match, axis: int, span: Span | None) -> ir.Value | None:
    """The third operand at the positions `span` of an axis of zeros."""
    node, opset = match.node, match.writer.opset
    reduction = node.attributes.get_string("reduction", "none")
    found = match.within(span, axis)
    if reduction != "none" or found is None or opset < _PAD_OF_ALL_TYPES:
        return None
    (places, size), updates = found, node.inputs[2]
    before, stop = places.start, places.stop
    assert updates is not None
    if not (isinstance(before, int) and isinstance(stop, int) and isinstance(size, int)):
        return None
    if places.step != 1:
        return None
    if updates.dtype not in _PADDED_TYPES:
        return None
    pads = np.zeros((2, len(match.sizes(0) or ())), np.int64)
    pads[:, axis] = before, size - stop
    if not pads.any():
        return match.writer.op("Identity", [updates], "placed", dtype=updates.dtype)
    return match.writer.op("Pad", [updates, pads.reshape(-1)], "placed", dtype=updates.dtype)


def _are_zeros(value: ir.Value | None) -> bool:
    """Whether a tensor holds nothing but bits that are 0."""
    array = constant_array(value)
    maker = maker_of(value, "ConstantOfShape")
    if array is None and maker is not None:
        fill = maker.attributes.get("value")
        array = np.zeros(1) if fill is None else fill.as_tensor().numpy()
    if array is None or array.dtype.kind not in "fi":
        return False
    return not array.any() and not (array.dtype.kind == "f" and np.signbit(array).any())


def _one(number: int) -> np.ndarray:
    return np.array([number], np.int64)


_RULES: dict[str, Callable[[_Match], ir.Value | None]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
