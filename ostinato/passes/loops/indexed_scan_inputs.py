"""Turn elements that a step picks by its number into scan inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.loop_form import LoopForm, Scanned, read_loop
from ostinato.graph.named_axes import named_axes
from ostinato.graph.step_positions import StepPositions, Window, picking
from ostinato.graph.writer import Writer
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import is_standard, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.records import dataclass

# Slice takes its ranges as inputs since this version.
_SLICE_BY_INPUTS = 10
_TO_THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Pick:
    """A Gather that gives each step its element of `source` along `axis`."""

    node: ir.Node
    source: ir.Value
    axis: int
    window: Window
    drops_axis: bool


def indexed_scan_inputs(model: ir.Model) -> int:
    """Turn elements picked by the number of the step into scan inputs; returns how many.

    Matches, in the body of a Scan, `Gather(x, k, axis)` of a value `x` from outside. The position
    `k` is `c + t` or `c - t`, where `t` is the number of the step: an element of a scanned Range,
    or a state to which every step adds 1. `c` is made of constants and sizes; `k` may count from
    the end. The positions of all steps must provably lie in `x`. Makes a scan input of `x`, or of
    `Slice(x)` when the steps do not cover all of it, forward or backward. Valid because step `t`
    of a Scan sees slice `t` of its scan input.
    """
    opset = opset_of(model)
    if opset < _SLICE_BY_INPUTS:
        return 0
    scans = [
        node
        for node in nodes_of(model)
        if node.op_type == "Scan"
        and node.domain == ""
        and picking(node.attributes["body"].as_graph(), "Gather")
    ]
    sizes = infer_sizes(model) if scans else {}
    names, found = Names(model), 0
    for scan in scans:
        form = read_loop(scan, opset)
        assert form is not None
        found += _ScanInputs(model, form, sizes, names, opset).extend()
    return found


class _ScanInputs:
    """The scan inputs of one Scan, to which more are added."""

    def __init__(
        self, model: ir.Model, form: LoopForm, sizes: Mapping[str, Sizes], names: Names, opset: int
    ) -> None:
        self._form, self._names = form, names
        self._positions = StepPositions(form, sizes)
        self._writer = Writer(model.graph, names, opset, ir.DataType.INT64, describe(form.node))

    def extend(self) -> int:
        """Replace each Gather that a scan input can serve; returns their number."""
        picks = [pick for n in picking(self._form.body, "Gather") if (pick := self._pick(n))]
        for pick in picks:
            self._serve(pick, self._element(pick))
        if picks:
            self._form.node.prepend(self._writer.nodes)
            self._form.write(self._names)
        return len(picks)

    def _pick(self, node: ir.Node) -> _Pick | None:
        attributes = Attributes(node)
        axis = attributes.int("axis", 0)
        attributes.finish()
        source, index = node.inputs
        assert source is not None and index is not None
        rank, index_rank = self._positions.rank(source), self._positions.rank(index)
        position = self._positions.single(index)
        if rank is None or position is None or index_rank not in (0, 1):
            return None
        if not -rank <= axis < rank:
            return None
        window = self._positions.window(source, axis % rank, position, wraps=True)
        if window is None:
            return None
        return _Pick(node, source, axis % rank, window, index_rank == 0)

    def _element(self, pick: _Pick) -> ir.Value:
        """The element of a new scan input."""
        source, window = pick.source, pick.window
        if window.front or window.behind:
            end = -window.behind if window.behind else _TO_THE_END
            bounds = [np.array([bound], np.int64) for bound in (window.front, end, pick.axis)]
            role = f"{source.name}_part"
            source = self._writer.op("Slice", [source, *bounds], role, dtype=source.dtype)
        name = self._names.fresh(f"{pick.source.name}_step")
        element = ir.Value(name=name, type=source.type)
        if pick.source.shape is not None:
            kept = [size for i, size in enumerate(pick.source.shape) if i != pick.axis]
            element.shape = ir.Shape(kept)
        self._form.scanned.append(Scanned(source, element, pick.axis, window.backward))
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
            pick.node.prepend(inner.nodes)
            self._form.substitute(result, whole)


def _squeezes(node: ir.Node, axis: int) -> bool:
    """Whether the node removes just `axis`, which is not negative."""
    return is_standard(node, "Squeeze") and named_axes(node) == [axis]
