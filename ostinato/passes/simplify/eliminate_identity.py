"""Nodes that return their input unchanged are removed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import can_return, discard, replace_value
from ostinato.model.graphs import graphs
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, optional_input, static_dims

# Dropout trains only when told so by its third input since this version, and never from version 7
# on; the earlier ones have the attribute is_test.
_DROPOUT_TRAINS_BY_INPUT = 12
_DROPOUT_NEVER_TRAINS = 7
_SLICE_BOUNDS_ARE_INPUTS = 10


def eliminate_identity(model: ir.Model) -> int:
    """Remove nodes that return their first input as it is; returns how many.

    Matches Identity, Dropout in inference whose mask is unused, Cast and CastLike to the type
    the input has, Transpose that keeps the order of axes, Squeeze of a shape without ones,
    Unsqueeze of no axes, Slice of everything (from 0 to the largest integer, as scripted PyTorch
    writes `x[:]`), and Concat of one input. Readers get the input instead. Valid because the
    output equals the input bit for bit. The node stays where a graph would otherwise return a
    value that is not made by a node of its own, or the same value twice.
    """
    opset = opset_of(model)
    removed = 0
    for graph in graphs(model):
        for node in graph:
            rule = _RULES.get(node.op_type)
            if rule is None or node.domain != "" or not rule(node, opset):
                continue
            source, result = node.inputs[0], node.outputs[0]
            assert source is not None
            if result.is_graph_output() and not can_return(graph, source):
                for reader, position in result.uses():
                    reader.replace_input_with(position, source)
                    removed += 1
                continue
            replace_value(result, source)
            discard(node)
            removed += 1
    return removed


def _dropout_in_inference(node: ir.Node, opset: int) -> bool:
    if any(mask.uses() or mask.is_graph_output() for mask in node.outputs[1:]):
        return False
    if opset < _DROPOUT_NEVER_TRAINS:
        return bool(node.attributes.get_int("is_test", 0))
    if opset < _DROPOUT_TRAINS_BY_INPUT or len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    training = constant_array(node.inputs[2])
    return training is not None and training.size == 1 and not training.item()


def _cast_to_same_type(node: ir.Node, opset: int) -> bool:
    source = node.inputs[0]
    if source is None or source.dtype is None:
        return False
    if node.op_type == "Cast":
        to = node.attributes["to"]
        return to.type == ir.AttributeType.INT and to.as_int() == source.dtype
    like = node.inputs[1]
    return like is not None and like.dtype == source.dtype


def _keeps_axes(node: ir.Node, opset: int) -> bool:
    permutation = node.attributes.get_ints("perm")
    if permutation is not None:
        return list(permutation) == list(range(len(permutation)))
    dims = static_dims(node.inputs[0])
    return dims is not None and len(dims) <= 1


def _squeezes_nothing(node: ir.Node, opset: int) -> bool:
    # An empty list of axes is not matched: runtimes read it as "all axes of size 1".
    if "axes" in node.attributes or len(node.inputs) > 1:
        return False
    dims = static_dims(node.inputs[0])
    return dims is not None and all(size is not None and size != 1 for size in dims)


def _unsqueezes_nothing(node: ir.Node, opset: int) -> bool:
    axes = constant_array(optional_input(node, 1))
    return axes is not None and axes.size == 0


def _slices_everything(node: ir.Node, opset: int) -> bool:
    starts, ends, steps = _slice_bounds(node, opset)
    if starts is None or ends is None or steps is None:
        return False
    is_to_the_end = ends == np.iinfo(ends.dtype).max
    return not starts.any() and bool(is_to_the_end.all() and (steps == 1).all())


def _slice_bounds(node: ir.Node, opset: int) -> tuple[np.ndarray | None, ...]:
    """Starts, ends and steps, None for those that are not constant."""
    if opset < _SLICE_BOUNDS_ARE_INPUTS:
        names = ("starts", "ends")
        return (*(np.array(node.attributes.get_ints(name)) for name in names), np.ones(1))
    steps = constant_array(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
    return constant_array(node.inputs[1]), constant_array(node.inputs[2]), steps


_RULES: dict[str, Callable[[ir.Node, int], bool]] = {
    "Identity": lambda node, opset: True,
    "Dropout": _dropout_in_inference,
    "Cast": _cast_to_same_type,
    "CastLike": _cast_to_same_type,
    "Transpose": _keeps_axes,
    "Squeeze": _squeezes_nothing,
    "Unsqueeze": _unsqueezes_nothing,
    "Slice": _slices_everything,
    "Concat": lambda node, opset: len(node.inputs) == 1,
}
