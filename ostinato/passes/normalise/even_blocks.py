"""Scales of blocks that do not divide what they scale become those of smaller blocks that do."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant
from ostinato.graph.quantised import even_block
from ostinato.model.contributed import MICROSOFT
from ostinato.model.graphs import graphs
from ostinato.model.names import Names
from ostinato.model.values import constant_array, static_dims


def even_blocks(model: ir.Model) -> int:
    """Repeat scales and zero points whose last block is not full; returns the number of nodes.

    Matches DequantizeLinear in blocks that do not divide its axis, with constant scales and zero
    points, unless blocks of a few numbers would be left. Valid because each number keeps its scale.
    A sum is cut into blocks of one length, with a scale each, and so has no shorter one at its end.
    """
    names = Names(model)
    changed = 0
    for graph in graphs(model):
        for node in graph:
            form = _uneven(node)
            if form is None:
                continue
            axis, size, block, even = form
            for place, value in enumerate(node.inputs):
                array = constant_array(value) if place else None
                if value is None or array is None:
                    continue
                repeated = np.repeat(array, block // even, axis).take(range(size // even), axis)
                name = names.fresh(f"{value.name}_even")
                node.replace_input_with(place, add_constant(model, name, repeated))
            node.attributes.add(ir.AttrInt64("block_size", even))
            changed += 1
    return changed


def _uneven(node: ir.Node) -> tuple[int, int, int, int] | None:
    """The axis of blocks, its size, their length and that of even ones; None for other nodes."""
    if node.op_type != "DequantizeLinear" or node.domain not in ("", MICROSOFT):
        return None
    block, dims = node.attributes.get_int("block_size", 0), static_dims(node.inputs[0])
    axis = node.attributes.get_int("axis", 1)
    if block < 1 or dims is None or not -len(dims) <= axis < len(dims):
        return None
    axis %= len(dims)
    size = dims[axis]
    even = None if not size else even_block(size, block)
    if size is None or even is None or even == block:
        return None
    shape = (*dims[:axis], -(-size // block), *dims[axis + 1 :])
    for value in node.inputs[1:]:
        array = constant_array(value)
        if value is not None and (array is None or array.shape != shape):
            return None
    return axis, size, block, even
