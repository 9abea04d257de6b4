"""Types and shapes that follow from the inputs are written beside the values."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.inferred_sizes import infer_sizes
from ostinato.graph.linear_index import named_size
from ostinato.graph.ruled_sizes import ruled_sizes
from ostinato.model import inference
from ostinato.model.graphs import graphs
from ostinato.model.order import attribute_graphs
from ostinato.model.schema import opset_of
from ostinato.model.types import holds_map
from ostinato.model.weights import without_contents


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
    found, opset = 0, opset_of(model)
    while True:
        inferred = inference.infer_shapes(without_contents(model))
        for info in _infos(inferred.graph):
            value = bare.get(info.name)
            if value is None or holds_map(info.type):
                continue
            type_, shape = value.type, value.shape
            ir.serde.deserialize_value_info_proto(info, value)
            value.shape = shape if value.shape is None else value.shape
            found += (type_, shape) != (value.type, value.shape)
        open_ = [value for value in bare.values() if value.shape is None]
        followed = sum(_follow(value, opset) for value in open_)
        found += followed
        if not followed:
            return found


def infer_through_loops(model: ir.Model) -> int:
    """As `infer_shapes`, and through Loops that keep the shapes of what they carry.

    It takes longer, so it is for what needs a rank.
    """
    found = infer_shapes(model)
    bare = [
        value
        for graph in graphs(model)
        for node in graph
        for value in node.outputs
        if value.name and value.shape is None
    ]
    sizes = infer_sizes(model) if bare else {}
    for value in bare:
        known = sizes.get(value.name or "")
        if known is not None:
            # A name that another inference gave may be one of something else here.
            value.shape = ir.Shape([size if isinstance(size, int) else None for size in known])
            found += 1
    return found


def _follow(value: ir.Value, opset: int) -> bool:
    """Take what the size rule of an operator says, where the onnx package has no inference."""
    found, node = ruled_sizes(value, opset), value.producer()
    if found is None or node is None:
        return False
    if value.type is None:
        source, tests = node.inputs[0], facts_of(node.op_type, node.domain).tests
        value.type = None if source is None or tests else source.type
    value.shape = ir.Shape(map(named_size, found))
    return True


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output
    for node in graph.node:
        for attribute in node.attribute:
            for body in attribute_graphs(attribute):
                yield from _infos(body)
