"""A Scan that runs exactly once becomes its body."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant, discard, replace_value, splice
from ostinato.graph.random import has_random
from ostinato.model.attributes import Attributes
from ostinato.model.graphs import graphs, is_standard
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import static_dims

# Scan has no batch axis and no sequence_lens input since this version.
_SCAN_WITHOUT_BATCH = 9
# Squeeze and Unsqueeze take their axes as an input since this version.
_AXES_AS_INPUT = 13


def single_step_scan(model: ir.Model) -> int:
    """Replace each Scan over a single step by its body; returns the number of Scans replaced.

    Matches Scan (version 9 and later) one of whose scan inputs has the static size 1 on its scan
    axis, and whose body draws no random numbers: these depend on the loops around them. Makes
    `Squeeze(x, axis)` for each scan input, the body's nodes, and `Unsqueeze(y, axis)` for each scan
    output. Valid for either direction, since one step has only one order; all scan inputs must have
    the same length, and Squeeze refuses one that has not.
    """
    opset = opset_of(model)
    if opset < _SCAN_WITHOUT_BATCH:
        return 0
    unrolled, names = 0, Names(model)
    for graph in reversed(graphs(model)):
        for node in graph:
            if not is_standard(node, "Scan") or not _runs_once(node):
                continue
            if not has_random(node.attributes["body"].as_graph()):
                _Unrolling(model, node, opset, names).apply()
                unrolled += 1
    return unrolled


def _scan_inputs(node: ir.Node) -> list[tuple[ir.Value, int]]:
    """The scan inputs of a Scan with their axes."""
    count = node.attributes["num_scan_inputs"].as_int()
    axes = node.attributes.get_ints("scan_input_axes", (0,) * count)
    values = [value for value in node.inputs[len(node.inputs) - count :] if value is not None]
    return list(zip(values, axes, strict=True))


def _runs_once(node: ir.Node) -> bool:
    for value, axis in _scan_inputs(node):
        dims = static_dims(value)
        if dims is not None and -len(dims) <= axis < len(dims) and dims[axis] == 1:
            return True
    return False


class _Unrolling:
    """Replaces one Scan node by its body."""

    def __init__(self, model: ir.Model, scan: ir.Node, opset: int, names: Names) -> None:
        self._model, self._scan, self._opset, self._names = model, scan, opset, names
        self._axes_values: dict[int, ir.Value] = {}

    def apply(self) -> None:
        attributes = Attributes(self._scan)
        body: ir.Graph = attributes.graph("body")
        scan_count = attributes.int("num_scan_inputs")
        state_count = len(self._scan.inputs) - scan_count
        output_count = len(self._scan.outputs) - state_count
        output_axes = attributes.ints("scan_output_axes", (0,) * output_count)
        for ignored in ("scan_input_axes", "scan_input_directions", "scan_output_directions"):
            attributes.ints(ignored, ())
        attributes.finish()

        given = [value for value in self._scan.inputs[:state_count] if value is not None]
        for value, axis in _scan_inputs(self._scan):
            given.append(self._step(value, axis, body.inputs[len(given)]))
        known = dict(zip(body.inputs, given, strict=True))
        results = splice(self._model, body, self._scan, known)
        for old, result in zip(self._scan.outputs[:state_count], results, strict=False):
            replace_value(old, result)
        for old, result, axis in zip(
            self._scan.outputs[state_count:], results[state_count:], output_axes, strict=True
        ):
            replace_value(old, self._reshape("Unsqueeze", result, axis, f"{old.name}_stacked"))
        discard(self._scan)

    def _step(self, value: ir.Value, axis: int, element: ir.Value) -> ir.Value:
        """The only element of a scan input."""
        step = self._reshape("Squeeze", value, axis, f"{value.name}_step")
        step.type, step.shape = element.type or value.type, element.shape
        if value.shape is not None:
            sizes = list(value.shape)
            del sizes[axis]
            step.shape = ir.Shape(sizes)
        return step

    def _reshape(self, op: str, value: ir.Value, axis: int, name: str) -> ir.Value:
        result = ir.Value(name=self._names.fresh(name), type=value.type)
        if self._opset >= _AXES_AS_INPUT:
            node = ir.Node("", op, [value, self._axes(axis)], outputs=[result], name="")
        else:
            axes = ir.AttrInt64s("axes", (axis,))
            node = ir.Node("", op, [value], [axes], outputs=[result], name="")
        self._scan.prepend(node)
        return result

    def _axes(self, axis: int) -> ir.Value:
        if axis not in self._axes_values:
            name = self._names.fresh(f"{self._scan.name or 'scan'}_axes")
            self._axes_values[axis] = add_constant(self._model, name, np.array([axis], np.int64))
        return self._axes_values[axis]
