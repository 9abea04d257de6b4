"""Types and shapes that follow from the inputs are written beside the values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import onnx
import onnx_ir as ir

from ostinato.graph.axis_maps import Form
from ostinato.graph.facts import Facts, facts_of
from ostinato.model import inference
from ostinato.model.graphs import graphs
from ostinato.model.order import attribute_graphs
from ostinato.model.schema import opset_of
from ostinato.model.types import holds_map
from ostinato.model.values import constant_array
from ostinato.model.write import to_model_proto
from ostinato.sizes.dims import Size, is_symbol

# What is the same for operands of all these ranks does not depend on the rank: a sum of everything.
_RANKS = (0, 1, 2, 9)


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
        inferred = inference.infer_shapes(to_model_proto(model))
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


def _follow(value: ir.Value, opset: int) -> bool:
    """Take what the size rule of an operator says, where the onnx package has no inference."""
    node = value.producer()
    facts = Facts() if node is None else facts_of(node.op_type, node.domain)
    if node is None or facts.sizes is None:
        return False
    # To a rule an operand without sizes is one that is left out.
    has_rank = all(operand is None or operand.shape is not None for operand in node.inputs)
    results = [_sizes(node, facts, opset, rank) for rank in ((0,) if has_rank else _RANKS)]
    sizes = results[0]
    if any(other != sizes for other in results):
        return False
    source, index = node.inputs[0], node.outputs.index(value)
    if sizes is None or index >= len(sizes) or (found := sizes[index]) is None:
        return False
    if value.type is None:
        value.type = None if source is None or facts.tests else source.type
    value.shape = ir.Shape([n if isinstance(n, int) else _name(n) for n in found])
    return True


def _sizes(
    node: ir.Node, facts: Facts, opset: int, rank: int
) -> Sequence[Sequence[Size | None] | None] | None:
    """What the size rule says if operands of unknown rank have this one."""
    unknown = (None,) * rank
    dims = [
        unknown if value is not None and value.shape is None else _dims(value)
        for value in node.inputs
    ]
    assert facts.sizes is not None
    try:
        return facts.sizes(Form(node, dims, partial(_constant, node), opset))
    except (ArithmeticError, LookupError, TypeError, ValueError):  # attributes that do not fit
        return None


def _dims(value: ir.Value | None) -> tuple[int | str | None, ...] | None:
    if value is None or value.shape is None:
        return None
    return tuple(n if isinstance(n, int) else n.value for n in value.shape)


def _constant(node: ir.Node, index: int) -> np.ndarray | None:
    return constant_array(node.inputs[index]) if index < len(node.inputs) else None


def _name(size: Size | None) -> str | None:
    """The name of a size that is one symbol."""
    return str(size) if size is not None and is_symbol(size) else None


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output
    for node in graph.node:
        for attribute in node.attribute:
            for body in attribute_graphs(attribute):
                yield from _infos(body)
