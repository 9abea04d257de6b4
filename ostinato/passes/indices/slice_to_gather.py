"""A Slice of the one element that belongs to a step becomes a Gather."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.graph.loop_form import read_loop
from ostinato.graph.step_positions import StepPositions, picking
from ostinato.model.graphs import nodes_of
from ostinato.model.schema import opset_of


def slice_to_gather(model: ir.Model) -> int:
    """Replace one-element slices at positions that depend on the step; returns their number.

    Matches, in the body of a Scan or Loop, `Slice(x, [k], [k + 1], [axis])` of a value `x` from
    outside, where `k` grows or falls by 1 with each step and provably lies in `x`. Makes
    `Gather(x, [k], axis)`, whose shape does not depend on `k`, so that inference knows it. Valid
    because both then return the same slice; a Slice out of range would have been empty.
    """
    opset, replaced = opset_of(model), 0
    loops = [
        form
        for node in nodes_of(model)
        if (form := read_loop(node, opset)) is not None and picking(form.body, "Slice")
    ]
    sizes = infer_sizes(model) if loops else {}
    for form in loops:
        positions = StepPositions(form, sizes)
        for node in picking(form.body, "Slice"):
            axis = _axis(node, positions)
            if axis is not None:
                _replace(node, axis)
                replaced += 1
    return replaced


def _axis(node: ir.Node, positions: StepPositions) -> int | None:
    """The axis along which a Slice takes one element of a step, None when it does otherwise."""
    source, start, end, axes, steps = (*node.inputs, None, None)[:5]
    first, last = positions.single(start), positions.single(end)
    along = positions.single(axes) if axes is not None else 0
    step = positions.single(steps) if steps is not None else 1
    if first is None or last is None or last - first != 1 or step != 1:
        return None
    rank = positions.rank(source) if source is not None else None
    if source is None or rank is None or not isinstance(along, int) or not -rank <= along < rank:
        return None
    return along if positions.window(source, along, first, wraps=False) is not None else None


def _replace(node: ir.Node, axis: int) -> None:
    old = node.outputs[0]
    new = ir.Value(name=old.name, type=old.type)
    attributes = [ir.AttrInt64("axis", axis)]
    node.prepend(ir.Node("", "Gather", node.inputs[:2], attributes, outputs=[new], name=node.name))
    replace_value(old, new)
    discard(node)
