"""GatherND and GatherElements that take whole rows become a Gather."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.writer import Writer
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array

# Squeeze and Unsqueeze take their axes as an input since this version.
_OPSET = 13
# The operator that spreads positions of whole rows for each of them.
_SPREAD_BY = {"GatherND": "Unsqueeze", "GatherElements": "Expand"}


def rows_to_gather(model: ir.Model) -> int:
    """Replace GatherND and GatherElements of whole rows by Gather; returns how many.

    Matches `GatherND(x, Unsqueeze(k, [-1]))` and `GatherElements(x, Expand(k, Shape(x)))` along an
    axis of `x` that has as many elements as `k`, whose other extents are 1. Makes `Gather(x, k)`
    along that axis, which knows that rows stay together. Valid because both read the same elements
    and fail for the same indices. Of a state that changes its shape inference knows no extents;
    there an Expand that would have failed, for an `x` with another number of rows, goes unnoticed.
    """
    opset = opset_of(model)
    nodes = [
        node
        for node in nodes_of(model)
        if node.op_type in _SPREAD_BY and not node.domain and _may_take_rows(node)
    ]
    if opset < _OPSET or not nodes:
        return 0
    sizes, names, replaced = infer_sizes(model), Names(model), 0
    for node in nodes:
        writer = Writer(model.graph, names, opset, ir.DataType.INT64, node.name or node.op_type)
        rows, axis = _of_nd(node), 0
        if node.op_type == "GatherElements":
            rows, axis = _of_elements(node, sizes, writer), node.attributes.get_int("axis", 0)
        if rows is None:
            continue
        old = node.outputs[0]
        new = ir.Value(name=old.name, type=old.type, shape=old.shape)
        node.prepend(writer.nodes)
        attributes = [ir.AttrInt64("axis", axis)]
        operands = [node.inputs[0], rows]
        node.prepend(ir.Node("", "Gather", operands, attributes, outputs=[new], name=node.name))
        replace_value(old, new)
        discard(node)
        replaced += 1
    return replaced


def _may_take_rows(node: ir.Node) -> bool:
    """Whether it is worth knowing sizes: to infer those of a large model takes a while."""
    return maker_of(node.inputs[1], _SPREAD_BY[node.op_type]) is not None


def _of_nd(node: ir.Node) -> ir.Value | None:
    """The positions along the first axis that a GatherND takes rows at, if it does."""
    made = maker_of(node.inputs[1], "Unsqueeze")
    if node.op_type != "GatherND" or node.attributes.get_int("batch_dims", 0) != 0:
        return None
    if made is None:
        return None
    rows, axes = made.inputs[0], constant_array(made.inputs[1])
    if rows is None or axes is None or axes.size != 1:
        return None
    rank = -1 if rows.shape is None else len(rows.shape)
    return rows if axes.item() in (-1, rank) else None


def _of_elements(node: ir.Node, sizes: Mapping[str, Sizes], writer: Writer) -> ir.Value | None:
    """As `_of_nd`, for a GatherElements: the positions without the other axes."""
    data, indices = node.inputs
    made = maker_of(indices, "Expand")
    if data is None or made is None:
        return None
    spread, shape = made.inputs
    whole = maker_of(shape, "Shape")
    if spread is None or whole is None or whole.attributes:
        return None
    own, rank = sizes.get(str(spread.name)), -1 if data.shape is None else len(data.shape)
    if whole.inputs[0] is not data or not own or len(own) != rank:
        return None
    axis = node.attributes.get_int("axis", 0) % rank
    others, count = [i for i in range(rank) if i != axis], own[axis]
    of_data = sizes.get(str(data.name), (None,) * rank)[axis]
    # One position would be repeated for each element of `x`; several are as many as there are.
    is_one_each = count is not None and count == of_data
    is_one_each |= of_data is None and isinstance(count, int) and count > 1
    if not is_one_each or any(own[i] != 1 for i in others):
        return None
    return writer.op("Squeeze", [spread, np.array(others)], "rows") if others else spread
