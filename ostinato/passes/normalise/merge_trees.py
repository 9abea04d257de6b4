"""Trees that read the same rows, each a node of its own, become one node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.random import is_random
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.passes.simplify.merge_common_subexpressions import attributes_key

_OP_TYPE, _DOMAIN = "TreeEnsembleRegressor", "ai.onnx.ml"
# The first operator set whose Split gives the sizes of its parts as an operand.
_OLDEST = 13
# Attributes that have an entry for each node or leaf; those that say which tree and target.
_LISTS = frozenset(
    [
        "nodes_falsenodeids",
        "nodes_featureids",
        "nodes_hitrates",
        "nodes_missing_value_tracks_true",
        "nodes_modes",
        "nodes_nodeids",
        "nodes_truenodeids",
        "nodes_values",
        "target_nodeids",
        "target_weights",
    ]
)
_TREES, _TARGETS = ("nodes_treeids", "target_treeids"), "target_ids"
# Attributes of a node whose results are the sums themselves.
_PLAIN = {"aggregate_function": "SUM", "post_transform": "NONE"}
# The most trees of a node: what leaves add is a table by leaf and target while compiling.
_MOST = 128


def merge_trees(model: ir.Model) -> int:
    """Merge ensembles of a single tree in place; returns the number of nodes that go.

    Matches nodes TreeEnsembleRegressor that have one tree and one target, and nothing to add or
    transform, on the same rows or on rows that equal nodes take from the same values, as
    IsolationForest has them. Makes one node with a target for each of them, and a Split. Valid
    because an output is what the leaf of one tree adds, whichever node it belongs to.
    """
    if opset_of(model) < _OLDEST:
        return 0
    groups: dict[Hashable, list[ir.Node]] = {}
    for node in nodes_of(model):
        if node.domain == _DOMAIN and node.op_type == _OP_TYPE and _is_single(node):
            key = node.graph, _rows(node.inputs[0]), frozenset(node.attributes)
            groups.setdefault(key, []).append(node)
    names, merged = Names(model), 0
    for group in groups.values():
        for start in range(0, len(group), _MOST):
            some = group[start : start + _MOST]
            if len(some) > 1:
                _merge(model, names, some)
                merged += len(some) - 1
    return merged


def _is_single(node: ir.Node) -> bool:
    """Whether a node has one tree and one target, and nothing is added or transformed."""
    given = node.attributes
    if not given.keys() <= {*_LISTS, *_TREES, _TARGETS, "n_targets", *_PLAIN}:
        return False
    trees = {number for name in _TREES for number in given.get_ints(name, ())}
    is_plain = all(given.get_string(name, plain) == plain for name, plain in _PLAIN.items())
    return is_plain and len(trees) == 1 and given.get_int("n_targets", 0) == 1


def _rows(value: ir.Value | None) -> Hashable:
    """A key that is equal for values that are the same."""
    maker = None if value is None else value.producer()
    if maker is None or is_random(maker) or len(maker.outputs) > 1:
        return value
    about = attributes_key(maker)
    if about is None:
        return value
    return maker.domain, maker.op_type, tuple(maker.inputs), about


def _merge(model: ir.Model, names: Names, nodes: Sequence[ir.Node]) -> None:
    first, x = nodes[0], nodes[0].inputs[0]
    assert x is not None
    writer = Writer(model.graph, names, opset_of(model), ir.DataType.FLOAT, describe(first))
    attributes: dict[str, object] = {"n_targets": len(nodes)}
    for name in first.attributes.keys() & {*_LISTS, *_TREES, _TARGETS}:
        lists = [list(node.attributes[name].value) for node in nodes]
        if name not in _LISTS:
            lists = [[number] * len(one) for number, one in enumerate(lists)]
        attributes[name] = [entry for one in lists for entry in one]
    sums = writer.declare("sums", None, ir.DataType.FLOAT)
    writer.node(_OP_TYPE, [x], [sums], attributes, domain=_DOMAIN)
    parts = [writer.declare("sum", None, ir.DataType.FLOAT) for _ in nodes]
    writer.node("Split", [sums, np.ones(len(nodes), np.int64)], parts, {"axis": 1})
    first.prepend(writer.nodes)
    for node, part in zip(nodes, parts, strict=True):
        replace_value(node.outputs[0], part)
        discard(node)
