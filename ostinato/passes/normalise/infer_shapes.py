"""Types and shapes that follow from the inputs are written beside the values."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from ostinato.model import inference
from ostinato.model.graphs import graphs
from ostinato.model.order import attribute_graphs
from ostinato.model.types import holds_map
from ostinato.model.write import to_model_proto

# Operators with results like their first input, which the onnx package does not infer for all.
_LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})


def infer_shapes(model: ir.Model) -> int:
    """Give a type and a shape to values that have none; returns the number of values that got one.

    Matches values that earlier passes made, or whose inputs have become known since. Uses the
    inference of the onnx package, and runs it only when something is missing. Valid because a
    shape is a consequence of the graph and changes nothing in it.
    """
    bare = {
        value.name: value
        for graph in graphs(model)
        for node in graph
        for value in node.outputs
        if value.name and (value.shape is None or value.type is None)
    }
    if not bare:
        return 0
    found = sum(_take_shape_of_input(value) or _count_axes(value) for value in bare.values())
    inferred = inference.infer_shapes(to_model_proto(model))
    for info in _infos(inferred.graph):
        value = bare.get(info.name)
        if value is None or holds_map(info.type):
            continue
        type_, shape = value.type, value.shape
        ir.serde.deserialize_value_info_proto(info, value)
        found += (type_, shape) != (value.type, value.shape)
    return found


def _take_shape_of_input(value: ir.Value) -> bool:
    node = value.producer()
    if node is None or node.op_type not in _LIKE_INPUT or node.domain:
        return False
    source = node.inputs[0]
    if source is None or source.shape is None or value.shape is not None:
        return False
    value.shape, value.type = source.shape, value.type or source.type
    return True


def _count_axes(value: ir.Value) -> bool:
    """Frames, bins and parts: of signals of a run-time size the onnx package tells no shape."""
    node = value.producer()
    if node is None or node.op_type != "STFT" or node.domain or value.shape is not None:
        return False
    source = node.inputs[0]
    if source is None or source.shape is None:
        return False
    value.shape, value.type = ir.Shape([source.shape[0], None, None, 2]), source.type
    return True


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output
    for node in graph.node:
        for attribute in node.attribute:
            for body in attribute_graphs(attribute):
                yield from _infos(body)
