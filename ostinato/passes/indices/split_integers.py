"""Operators that take a few integers apart, such as a shape, become slices."""

from __future__ import annotations

from itertools import accumulate

import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.pieces import piece_lengths
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import is_standard, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of

# Slice takes its bounds as inputs since this version.
_OPSET = 10
_INT64 = ir.DataType.INT64
_INTEGERS = frozenset((ir.DataType.INT32, _INT64))
# Vectors of more elements are data, not shapes.
_LIMIT = 64


def split_integers(model: ir.Model) -> int:
    """Replace a Split of a short vector of integers by a Slice for each piece; returns how many.

    Matches `Split(v)` of at most 64 integers, into pieces of known lengths that fill `v`:
    TensorFlow's `unstack(shape(x))`. Makes `Slice(v)`, through which all that reads sizes looks.
    Valid because that is what the pieces are.
    """
    opset = opset_of(model)
    if opset < _OPSET:
        return 0
    nodes = [(node, source) for node in nodes_of(model) if (source := _split(node))]
    if not nodes:
        return 0
    sizes, names, replaced = infer_sizes(model), Names(model), 0
    for node, before in nodes:
        lengths = _lengths(node, sizes.get(str(before.name)))
        # The source may be an earlier Split, which is a slice by now.
        source = node.inputs[0]
        if lengths is None or source is None:
            continue
        writer = Writer(model.graph, names, opset, source.dtype or _INT64, describe(node))
        for output, begin, length in zip(
            node.outputs, accumulate(lengths, initial=0), lengths, strict=False
        ):
            if output.uses() or output.is_graph_output():
                piece = writer.slice(source, 0, begin, begin + length, "piece")
                node.prepend(writer.nodes)
                writer.nodes.clear()
                replace_value(output, piece)
        discard(node)
        replaced += 1
    return replaced


def _split(node: ir.Node) -> ir.Value | None:
    """The integers that a node splits, if it does."""
    if not is_standard(node, "Split"):
        return None
    source = node.inputs[0]
    if source is None or source.dtype not in _INTEGERS:
        return None
    # Sizes of a whole model take a while to infer, and most of what is split is data.
    return source if source.shape is None or len(source.shape) == 1 else None


def _lengths(node: ir.Node, shape: Sizes | None) -> list[int] | None:
    """The lengths of the pieces of a short vector; None for others, and where they are unknown."""
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > _LIMIT:
        return None
    lengths = piece_lengths(node, shape[0])
    if lengths is None or len(lengths) != len(node.outputs):
        return None
    return lengths if min(lengths) >= 0 and sum(lengths) == shape[0] else None
