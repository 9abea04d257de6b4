"""Nodes that compute along a dimension of the inputs: its rows are then not each alone.

The scale of DynamicQuantizeLinear (x[N, 8]) is that of all N rows; MatMul (x[N, 8], w[8, 4])
computes each of them from a row of x.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ostinato.graph.axis_maps import Form
from ostinato.graph.facts import facts_of
from ostinato.model.attributes import describe
from ostinato.model.graphs import nodes_of
from ostinato.model.values import constant_array, dims_of, optional_input


def mixed_rows(model: ir.Model) -> dict[str, str]:
    """Map named dimensions of the inputs to what the first node that mixes rows along them does.

    Nodes that move elements by computed places are left out, and so are nodes whose axes only a run
    tells.
    """
    named = {size for value in model.graph.inputs for size in dims_of(value) or ()}
    found: dict[str, str] = {}
    opset = model.opset_imports.get("")
    if opset is None or not any(isinstance(size, str) for size in named):
        return found
    for node in nodes_of(model):
        for size in _mixed(node, opset):
            if isinstance(size, str) and size in named:
                verb = facts_of(node.op_type).verb
                found.setdefault(size, f"node {describe(node)!r} ({node.op_type}) {verb}")
    return found


def _mixed(node: ir.Node, opset: int) -> Iterator[int | str | None]:
    """The sizes of axes along which a node computes."""
    facts = facts_of(node.op_type, node.domain)
    if facts.axes is None or facts.elementwise or not facts.computes:
        return
    given = [None if value is None else dims_of(value) for value in node.inputs]
    if any(v is not None and dims is None for v, dims in zip(node.inputs, given, strict=True)):
        return

    def constant(index: int) -> np.ndarray | None:
        value = optional_input(node, index)
        return None if value is None else constant_array(value)

    axes = facts.axes(Form(node, given, constant, opset))
    for row, sizes in zip(axes or (), given, strict=False):
        if row is not None and sizes is not None:
            places = zip(row, sizes, strict=False)
            yield from (size for place, size in places if not isinstance(place, int))
