"""A piece of a tensor that was split into a sequence becomes a Slice."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.writer import Writer
from ostinato.model.graphs import graphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, constant_scalar

# Squeeze takes its axes as an input since this version.
_OPSET = 13


def split_to_slice(model: ir.Model) -> int:
    """Replace SequenceAt of a SplitToSequence by Slice; returns how many.

    Matches `SequenceAt(SplitToSequence(x, split, axis, keepdims), i)` with constant `split`, which
    may be absent, and `i`, of an axis whose size is known. Makes `Slice(x)`, and a Squeeze where
    pieces of one row lose the axis. Valid because that is what the piece is; what is out of range
    stays.
    """
    opset = opset_of(model)
    nodes = [
        (node, maker)
        for graph in graphs(model)
        for node in graph
        if node.op_type == "SequenceAt" and (maker := _split(node)) is not None
    ]
    if opset < _OPSET or not nodes:
        return 0
    sizes, names, replaced = infer_sizes(model), Names(model), 0
    for node, maker in nodes:
        source, position = maker.inputs[0], constant_scalar(node.inputs[1])
        size = None if source is None else sizes.get(str(source.name))
        piece = _piece(maker, position, size)
        if source is None or size is None or piece is None:
            continue
        axis = _axis(maker, size)
        prefix = node.name or str(node.outputs[0].name)
        writer = Writer(model.graph, names, opset, source.dtype or ir.DataType.FLOAT, prefix)
        begin, end = (np.array([place]) for place in piece)
        result = writer.op("Slice", [source, begin, end, np.array([axis])], "piece")
        if len(maker.inputs) < 2 and not maker.attributes.get_int("keepdims", 1):
            result = writer.op("Squeeze", [result, np.array([axis])], "row")
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, writer.nodes)
        replace_value(node.outputs[0], result)
        discard(node)
        replaced += 1
    return replaced


def _split(node: ir.Node) -> ir.Node | None:
    """The node that makes the sequence of a SequenceAt, if both take constants."""
    sequence = node.inputs[0]
    maker = None if sequence is None else sequence.producer()
    if maker is None or maker.op_type != "SplitToSequence" or maker.domain or node.domain:
        return None
    split = maker.inputs[1] if len(maker.inputs) > 1 else None
    known = split is None or constant_array(split) is not None
    return maker if known and constant_array(node.inputs[1]) is not None else None


def _axis(maker: ir.Node, size: Sizes) -> int:
    return maker.attributes.get_int("axis", 0) % len(size)


def _piece(maker: ir.Node, position: int, size: Sizes | None) -> tuple[int, int] | None:
    """Where the piece begins and ends, None for what is not known or not there."""
    axis = maker.attributes.get_int("axis", 0)
    if not size or not -len(size) <= axis < len(size):
        return None
    whole = size[axis]
    split = constant_array(maker.inputs[1]) if len(maker.inputs) > 1 else np.array(1)
    if not isinstance(whole, int) or split is None or np.any(split <= 0):
        return None
    if split.ndim:
        ends = np.cumsum(split)
    else:
        ends = np.minimum(np.arange(int(split), whole + int(split), int(split)), whole)
    if not len(ends) or ends[-1] != whole or not -len(ends) <= position < len(ends):
        return None
    place = position % len(ends)
    return int(ends[place - 1]) if place else 0, int(ends[place])
