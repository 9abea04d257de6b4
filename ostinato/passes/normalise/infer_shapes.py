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
from ostinato.model.graphs import nodes_of, operands, subgraphs, upstream
from ostinato.model.order import scopes
from ostinato.model.schema import opset_of
from ostinato.model.types import holds_map
from ostinato.model.weights import without_contents

# Constants that say something about shapes are small.
_SHAPE_ELEMENTS = 64


def infer_shapes(model: ir.Model) -> int:
    """Give a type and a shape to values that have none; returns the number of values that got one.

    Matches values that earlier passes made, or whose inputs have become known since. Uses the
    inference of the onnx package, and runs it only when something is missing. Valid because a
    shape is a consequence of the graph and changes nothing in it.
    """
    bare = {
        value.name: value
        for node in nodes_of(model)
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
        for node in nodes_of(model)
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


def infer_of(value: ir.Value, model: ir.Model) -> None:
    """Give one value a type and a shape, wherever its rank can be inferred.

    Infers node by node from the last values before it that have both: definitions of operators ask
    for one value after the other, and inference of the whole model for each would take time in
    the square of its size. Where a node leaves a size open, that inference is what knows more.
    """
    before = upstream([value], lambda item: () if _is_told(item) else operands(item))
    if not all(_is_told(item) or _infer_maker(item, model) for item in before):
        infer_through_loops(model)


def _is_told(value: ir.Value) -> bool:
    return value.type is not None and value.shape is not None


def _infer_maker(value: ir.Value, model: ir.Model) -> bool:
    """Whether the node that makes a value alone tells its type and all sizes, which it gets."""
    node = value.producer()
    if (
        node is None
        or any(subgraphs(node))
        or not all(x is None or _is_told(x) for x in node.inputs)
    ):
        return False
    given = [item for item in node.inputs if item is not None]
    data = [item.const_value for item in given if item.const_value is not None]
    found = inference.infer_node(
        ir.serde.serialize_node(node),
        [ir.serde.serialize_value(item) for item in given],
        [ir.serde.serialize_tensor(array) for array in data if array.size <= _SHAPE_ELEMENTS],
        model.opset_imports,
    )
    info = found.get(value.name or "")
    if info is None or not _is_whole(info):
        return False
    shape = value.shape
    ir.serde.deserialize_value_info_proto(info, value)
    value.shape = value.shape if shape is None else shape
    return True


def _is_whole(info: onnx.ValueInfoProto) -> bool:
    """Whether it is that of a tensor, all of whose sizes are numbers or have names."""
    kind = info.type.tensor_type
    dims = kind.shape.dim
    return kind.HasField("shape") and all(d.HasField("dim_value") or d.dim_param for d in dims)


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
    for scope in scopes(graph):
        yield from (*scope.value_info, *scope.output)
