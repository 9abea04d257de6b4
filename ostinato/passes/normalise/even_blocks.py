"""Scales of blocks that do not divide what they scale become those of smaller blocks that do."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant
from ostinato.graph.quantised import Blocks, blocks_of, even_block
from ostinato.model.graphs import nodes_of
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
    for node in nodes_of(model):
        blocks = blocks_of(node)
        even = None if blocks is None or blocks.are_even else _even(node, blocks)
        if blocks is None or even is None:
            continue
        for place, value in enumerate(node.inputs):
            array = constant_array(value) if place else None
            if value is None or array is None:
                continue
            repeated = np.repeat(array, blocks.length // even, blocks.axis)
            kept = repeated.take(range(blocks.size // even), blocks.axis)
            name = names.fresh(f"{value.name}_even")
            node.replace_input_with(place, add_constant(model, name, kept))
        node.attributes.add(ir.AttrInt64("block_size", even))
        changed += 1
    return changed


def _even(node: ir.Node, blocks: Blocks) -> int | None:
    """The length of even blocks; None where none pays, or scales and zero points do not fit."""
    dims, axis = static_dims(node.inputs[0]) or (), blocks.axis
    shape = (*dims[:axis], -(-blocks.size // blocks.length), *dims[axis + 1 :])
    for value in node.inputs[1:]:
        array = constant_array(value)
        if value is not None and (array is None or array.shape != shape):
            return None
    return even_block(blocks.size, blocks.length)
