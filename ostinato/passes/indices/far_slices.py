"""A Slice that takes one element, as its steps lead beyond any axis, becomes a Gather."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.linear_index import Indices
from ostinato.graph.loop_form import LoopForm, read_loop
from ostinato.graph.lower_bounds import Lows, lower_bounds
from ostinato.graph.named_axes import named_axes, positions_of
from ostinato.graph.step_positions import StepPositions
from ostinato.graph.writer import Operand, Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import is_standard, maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, static_dims
from ostinato.records import dataclass
from ostinato.sizes.dims import is_nonnegative

# Max takes integers since this version.
_OPSET = 12
# tf2onnx writes this number for the end of any axis, and for a step beyond any axis.
_FAR = 10**9


@dataclass(frozen=True)
class _Cut:
    """A Slice along `axes` by constant `steps`. ends: what each end is at least, or None."""

    node: ir.Node
    axes: list[int]
    steps: list[int]
    ends: Lows

    def picked(self) -> list[int]:
        """The axes that lose all but one element."""
        return [i for i, step in enumerate(self.steps) if step >= _FAR]

    def is_open(self, i: int) -> bool:
        """Whether nothing behind the start is cut off."""
        return (self.ends[i] or 0) >= _FAR


def far_slices(model: ir.Model) -> int:
    """Replace the part of a Slice that takes single elements by Gather; returns how many changed.

    Matches `Slice(x, starts, ends, axes, steps)` with steps and ends of at least 10**9 along axes
    that all readers squeeze: `x[:, i]`, as tf2onnx writes it for an `i` that a run computes. Makes
    `Gather(x, [i], axis)`, whose shape does not depend on `i`, and leaves a Slice of the other axes
    where these are not whole. Valid because such a Slice has one element or none, which a Squeeze
    refuses as Gather refuses the index; one from before the front begins there, so an `i` that
    may be negative is bounded. Axes are taken to be no longer than 10**9.
    """
    opset = opset_of(model)
    if opset < _OPSET:
        return 0
    found = [node for node in nodes_of(model) if _steps_far(node)]
    sizes = infer_sizes(model) if found else {}
    cuts = [cut for node in found if (cut := _read(node, sizes))]
    names, forms = Names(model), _bodies(model, opset) if cuts else {}
    for cut in cuts:
        node = cut.node
        form = forms.get(node.graph)
        indices = Indices(sizes) if form is None else StepPositions(form, sizes).indices
        writer = Writer(model.graph, names, opset, ir.DataType.INT64, describe(node))
        value = _Cutter(cut, writer, indices).result()
        supersede(node, [value], writer.nodes)
    return len(cuts)


def _bodies(model: ir.Model, opset: int) -> dict[Any, LoopForm]:
    """The loops by their bodies."""
    nodes = (node for node in nodes_of(model))
    return {form.body: form for node in nodes if (form := read_loop(node, opset)) is not None}


def _steps_far(node: ir.Node) -> bool:
    if not is_standard(node, "Slice") or len(node.inputs) < 5:
        return False
    steps = constant_array(node.inputs[4])
    return steps is not None and bool((steps >= _FAR).any())


def _read(node: ir.Node, sizes: Mapping[str, Sizes]) -> _Cut | None:
    """The Slice, if the readers squeeze axes of which it takes single elements."""
    shape = sizes.get(node.inputs[0].name or "") if node.inputs[0] is not None else None
    axes, steps = (constant_array(value) for value in node.inputs[3:5])
    result = node.outputs[0]
    if shape is None or axes is None or steps is None or result.is_graph_output():
        return None
    along = positions_of(axes.reshape(-1).tolist(), len(shape))
    if along is None or len(along) != steps.size:
        return None
    ends = lower_bounds(node.inputs[2], Indices(sizes))
    cut = _Cut(node, list(along), steps.reshape(-1).tolist(), ends)
    if len(ends) != len(along) or not all(cut.is_open(i) for i in cut.picked()):
        return None
    squeezed = {along[i] for i in cut.picked()}
    readers = [reader for reader, _ in result.uses()]
    return cut if all(squeezed <= _squeezed(each, len(shape)) for each in readers) else None


def _squeezed(node: ir.Node, rank: int) -> set[int]:
    """The axes of its operand that a node removes."""
    if not is_standard(node, "Squeeze"):
        return set()
    axes = named_axes(node)
    return set((positions_of(axes, rank) if axes else None) or ())


class _Cutter:
    """Writes what a Slice of single elements becomes.

    indices: what tells the positions that the graph of the node computes.
    """

    def __init__(self, cut: _Cut, writer: Writer, indices: Indices) -> None:
        self._cut, self._writer, self._indices = cut, writer, indices
        starts = indices.elements(cut.node.inputs[1])
        known = starts is not None and len(starts) == len(cut.axes)
        self._starts = starts if starts is not None and known else (None,) * len(cut.axes)

    def result(self) -> ir.Value:
        """The elements of all picked axes, and what is taken of the others."""
        cut, writer = self._cut, self._writer
        source, starts, ends = cut.node.inputs[:3]
        assert source is not None and starts is not None and ends is not None
        value, dtype = source, source.dtype
        for i in cut.picked():
            index = self._element(starts, i)
            position = self._starts[i]
            if position is None or not is_nonnegative(position):
                bounds = [index, self._front(source, cut.axes[i], starts)]
                index = writer.op("Max", bounds, "start", dtype=starts.dtype)
            value = writer.op("Gather", [value, index], "element", {"axis": cut.axes[i]}, dtype)
        rest = [i for i in range(len(cut.axes)) if i not in cut.picked() and not self._is_whole(i)]
        if not rest:
            return value
        parts = [writer.take(bound, rest, 0, "bounds") for bound in (starts, ends)]
        others = [np.array([each[i] for i in rest], np.int64) for each in (cut.axes, cut.steps)]
        if starts.dtype == ir.DataType.INT32:
            others = [each.astype(np.int32) for each in others]
        return writer.op("Slice", [value, *parts, *others], "rest", dtype=dtype)

    def _element(self, vector: ir.Value, i: int) -> ir.Value:
        """The vector of one element that is element `i`."""
        if len(self._cut.axes) == 1:
            return vector
        if (choice := maker_of(vector, "Where")) is not None:
            truths = self._indices.elements(choice.inputs[0]) or (None,)
            truth = truths[min(i, len(truths) - 1)]
            chosen = choice.inputs[1 if truth else 2]
            if truth is not None and self._count(chosen) == len(self._cut.axes):
                assert chosen is not None
                return self._element(chosen, i)
        if (join := maker_of(vector, "Concat")) is not None:
            counts = [self._count(part) for part in join.inputs]
            if all(count == 1 for count in counts) and (part := join.inputs[i]) is not None:
                return part
        taken = self._writer.take(vector, [i], 0, "start")
        assert isinstance(taken, ir.Value)
        return taken

    def _count(self, value: ir.Value | None) -> int | None:
        elements = self._indices.elements(value)
        return None if elements is None else len(elements)

    def _front(self, source: ir.Value, axis: int, like: ir.Value) -> Operand:
        """The lowest index of an axis, minus its size."""
        dims = static_dims(source)
        size = None if dims is None else dims[axis]
        dtype = like.dtype or ir.DataType.INT64
        if size is not None:
            return np.array([-size], dtype.numpy())
        lowest = self._writer.op("Neg", [self._writer.size(source, axis)], "front")
        if dtype == ir.DataType.INT64:
            return lowest
        return self._writer.op("Cast", [lowest], "front", {"to": dtype}, dtype)

    def _is_whole(self, i: int) -> bool:
        """Whether everything along the axis is taken."""
        return self._cut.steps[i] == 1 and self._starts[i] == 0 and self._cut.is_open(i)
