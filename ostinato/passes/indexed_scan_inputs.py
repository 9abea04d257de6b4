"""What a step picks out of a sequence by its number becomes a scan input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ostinato.model.attributes import describe
from ostinato.model.graphs import graphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array
from ostinato.passes.inferred_sizes import Sizes, infer_sizes
from ostinato.passes.linear_index import STEP, Indices, Linear, linear_size
from ostinato.passes.loop_form import LoopForm, Scanned, State, read_loop, scopes_within
from ostinato.passes.recurrent_writer import Writer

# Slice takes its ranges as inputs since this version.
_SLICE_BY_INPUTS = 10
_TO_THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Pick:
    """Element `position` of `source` along `axis`, where `position` depends on the step."""

    node: ir.Node
    source: ir.Value
    axis: int
    position: Linear
    drops_axis: bool


def indexed_scan_inputs(model: ir.Model) -> int:
    """Turn slices picked by the number of the step into scan inputs; returns how many.

    Matches in the body of a Scan `Gather(x, k, axis)` and `Slice(x, [k], [k + 1], [axis])` of a
    value `x` from outside. The position `k` is `c + t` or `c - t`, where `t` is the number of the
    step: an element of a scanned Range, or a state that grows by a constant. `c` is made of
    constants and sizes; `k` may count from the end. The positions of all steps must provably lie
    in `x`. Makes a scan input of `x`, or of `Slice(x)` when the steps do not cover all of it,
    forward or backward. Valid because step `t` of a Scan sees slice `t` of its scan input.
    """
    opset = opset_of(model)
    if opset < _SLICE_BY_INPUTS:
        return 0
    scans = [node for graph in graphs(model) for node in graph if _picking(node)]
    if not scans:
        return 0
    sizes, names, found = infer_sizes(model), Names(model), 0
    for scan in scans:
        form = read_loop(scan, opset)
        assert form is not None
        found += _Sequences(model, form, sizes, names, opset).replace(_picking(scan))
    return found


def _picking(scan: ir.Node) -> list[ir.Node]:
    """The nodes in the body of a Scan that pick from a value of outside at a computed position."""
    if scan.op_type != "Scan" or scan.domain != "":
        return []
    body = scan.attributes["body"].as_graph()
    inner = scopes_within(body)
    return [
        node
        for node in body
        if node.op_type in ("Gather", "Slice")
        and node.domain == ""
        and node.inputs[0] is not None
        and node.inputs[0].graph not in inner
        and len(node.inputs) > 1
        and constant_array(node.inputs[1]) is None
    ]


class _Sequences:
    """The scan inputs of one Scan, to which more are added."""

    def __init__(
        self, model: ir.Model, form: LoopForm, sizes: Mapping[str, Sizes], names: Names, opset: int
    ) -> None:
        self._form, self._sizes, self._names = form, sizes, names
        self._writer = Writer(model.graph, names, opset, ir.DataType.INT64, describe(form.node))
        self._indices = Indices(sizes)
        self._lengths = [n for s in form.scanned if (n := self._length(s)) is not None]
        for scanned in form.scanned:
            number = self._number(scanned)
            if number is not None:
                self._indices.declare(scanned.element, number)
        for state in form.states:
            number = self._counter(state)
            if number is not None:
                self._indices.declare(state.before, number)

    def replace(self, picking: list[ir.Node]) -> int:
        """Replace each of the nodes `picking` that a scan input can serve; returns their number."""
        found = 0
        for node in picking:
            pick = self._pick(node)
            range_ = self._range(pick) if pick is not None else None
            if pick is not None and range_ is not None:
                self._serve(pick, self._element(pick, *range_))
                found += 1
        if found:
            for node in self._writer.nodes:
                self._form.node.prepend(node)
            self._form.write(self._names)
        return found

    def _length(self, scanned: Scanned) -> Linear | None:
        """The number of steps that one scan input says, at least if it is not negative."""
        steps = self._range_of(scanned.source)
        if steps is not None:
            return steps[1]
        sizes = self._sizes.get(scanned.source.name or "")
        return linear_size(sizes[scanned.axis]) if sizes is not None else None

    def _range_of(self, source: ir.Value) -> tuple[Linear, Linear] | None:
        """The first element and the length of a sequence of integers that grows by 1."""
        array = constant_array(source)
        if array is not None:
            if array.dtype != np.int64 or array.ndim != 1 or not array.size:
                return None
            first = int(array[0])
            rises = np.array_equal(array, first + np.arange(array.size))
            return (Linear(first), Linear(array.size)) if rises else None
        node = source.producer()
        if node is None or node.op_type != "Range" or node.domain != "":
            return None
        start, limit, delta = (self._indices.single(value) for value in node.inputs)
        if start is None or limit is None or delta != Linear(1):
            return None
        return start, limit - start

    def _number(self, scanned: Scanned) -> Linear | None:
        """The element of a scanned range at a step."""
        steps = self._range_of(scanned.source)
        if steps is None:
            return None
        first, length = steps
        step = Linear(0, ((STEP, 1),))
        return first + length - Linear(1) - step if scanned.backward else first + step

    def _counter(self, state: State) -> Linear | None:
        """A state that every step changes by the same constant."""
        first = self._indices.single(state.initial)
        if first is None or state.before.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
            return None
        trial, unknown = Indices(self._sizes), Linear(0, ((STEP, 1),))
        trial.declare(state.before, unknown)
        after = trial.single(state.after)
        growth = (after - unknown).fixed if after is not None else None
        return None if growth is None else first + Linear(0, ((STEP, growth),) if growth else ())

    def _pick(self, node: ir.Node) -> _Pick | None:
        source = node.inputs[0]
        assert source is not None
        sizes = self._sizes.get(source.name or "")
        index = node.inputs[1]
        position = self._indices.single(index)
        if sizes is None or index is None or position is None:
            return None
        if node.op_type == "Gather":
            rank = len(self._sizes.get(index.name or "", (None, None)))
            axis: int | None = node.attributes.get_int("axis", 0)
        else:
            rank, axis = 1, self._sliced_axis(node, position)
        if rank > 1 or axis is None or not -len(sizes) <= axis < len(sizes):
            return None
        return _Pick(node, source, axis % len(sizes), position, rank == 0)

    def _sliced_axis(self, node: ir.Node, start: Linear) -> int | None:
        """The axis of a Slice of a single element, which begins at `start`."""
        end, axes, steps = (*node.inputs[2:], None, None)[:3]
        stop = self._indices.single(end)
        axis = self._indices.single(axes) if axes is not None else Linear(0)
        step = self._indices.single(steps) if steps is not None else Linear(1)
        if stop is None or stop - start != Linear(1) or axis is None or step != Linear(1):
            return None
        return axis.fixed

    def _range(self, pick: _Pick) -> tuple[int, int, bool] | None:
        """What the steps read: how much they leave out in front and behind, and whether backward.

        A length that a Range claims may be negative, which means no steps. Then the slice between
        the two margins is empty as well.
        """
        direction = pick.position.coefficient(STEP)
        size = linear_size(self._sizes[pick.source.name or ""][pick.axis])
        if size is None or direction not in (1, -1):
            return None
        first = pick.position - Linear(0, ((STEP, direction),))
        for length in self._lengths:
            start = first if direction == 1 else first - length + Linear(1)
            stop = (start + length).fixed
            if pick.node.op_type == "Gather" and stop is not None and stop <= 0:
                start = start + size
            front, behind = start.fixed, (size - start - length).fixed
            if front is not None and behind is not None and min(front, behind) >= 0:
                return front, behind, direction == -1
        return None

    def _element(self, pick: _Pick, front: int, behind: int, backward: bool) -> ir.Value:
        """The element of a new scan input."""
        source = pick.source
        if front or behind:
            bounds = ([front], [-behind if behind else _TO_THE_END], [pick.axis])
            operands = [np.array(bound, np.int64) for bound in bounds]
            role = f"{source.name}_part"
            source = self._writer.op("Slice", [source, *operands], role, dtype=source.dtype)
        name = self._names.fresh(f"{pick.source.name}_step")
        element = ir.Value(name=name, type=source.type)
        if pick.source.shape is not None:
            kept = [size for i, size in enumerate(pick.source.shape) if i != pick.axis]
            element.shape = ir.Shape(kept)
        self._form.scanned.append(Scanned(source, element, pick.axis, backward))
        return element

    def _serve(self, pick: _Pick, element: ir.Value) -> None:
        """Let the readers of what was picked read the scan element."""
        result = pick.node.outputs[0]
        if pick.drops_axis:
            self._form.substitute(result, element)
            return
        readers = [reader for reader, _ in result.uses()]
        for reader in readers:
            if _squeezes(reader, pick.axis):
                self._form.substitute(reader.outputs[0], element)
        if result.is_graph_output() or not all(_squeezes(r, pick.axis) for r in readers):
            inner = self._writer.within("body")
            whole = inner.unsqueeze(element, [pick.axis], "picked")
            assert isinstance(whole, ir.Value)
            for node in inner.nodes:
                pick.node.prepend(node)
            self._form.substitute(result, whole)


def _squeezes(node: ir.Node, axis: int) -> bool:
    """Whether the node removes just `axis`, which is not negative."""
    if node.op_type != "Squeeze" or node.domain != "":
        return False
    axes = constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    given = node.attributes.get_ints("axes", ()) if axes is None else axes.reshape(-1).tolist()
    return list(given or ()) == [axis]
