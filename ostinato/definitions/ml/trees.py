"""Ensembles of decision trees: what the leaves of a row add up to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from ostinato.definitions.contributed.call import FLOAT, Call
from ostinato.definitions.ml.forest import BOOL, DOUBLE, descend, placed, width_of
from ostinato.definitions.ml.leaf_sums import leaf_sums
from ostinato.definitions.ml.scores import labels, largest, named, transformed
from ostinato.definitions.ml.table import ml
from ostinato.graph.writer import Array
from ostinato.model.trees import COMPARISONS, LEAF, Forest

_TRACKS = "nodes_missing_value_tracks_true"
_HOW = "AVERAGE", "SUM", "MIN", "MAX"


@ml.register("TreeEnsembleRegressor")
def tree_ensemble_regressor(call: Call) -> Sequence[ir.Value]:
    """The sum, mean, minimum or maximum of what leaves add to each target, as float32."""
    call.refuse_unless("post_transform", "NONE")
    trees = _Trees(call)
    how, count = call.attribute("aggregate_function"), call.attribute("n_targets")
    sums = _combined(call, trees.forest, trees.weights("target", count, how), how)
    base = _numbers(call, "base_values")
    total = sums if base is None else call.op("Add", sums, base.astype(float))
    return [call.cast(total, FLOAT)]


@ml.register("TreeEnsembleClassifier")
def tree_ensemble_classifier(call: Call) -> Sequence[ir.Value]:
    """The class with the largest sum of what leaves add to it, and the scores.

    Of two classes, weights for the first alone are those of one score s. It decides by 0.5 where no
    weight is negative, and the scores are 1 - s and s; else by 0, and they are -s and s.
    """
    names = labels(call, "classlabels_int64s", "classlabels_strings")
    transform = call.attribute("post_transform")
    trees, base = _Trees(call), _numbers(call, "base_values")
    classes = set(call.attribute("class_ids"))
    weights = trees.weights("class", len(names))
    if len(names) == 2 and len(classes) == 1:
        if classes != {0} or (base is not None and len(base) != 1):
            raise call.refuse("weights or base values of the second of two classes alone")
        score = _combined(call, trees.forest, weights[:, :1], "SUM")
        score = score if base is None else call.op("Add", score, base.astype(float))
        return _of_two(call, score, names, bool((weights >= 0).all()), transform)
    if len(names) == 2 and base is not None:
        raise call.refuse("base values of two classes with weights have no native form")
    scores = _combined(call, trees.forest, weights, "SUM")
    scores = scores if base is None else call.op("Add", scores, base.astype(float))
    return [largest(call, scores, names), call.cast(transformed(call, scores, transform), FLOAT)]


def _of_two(
    call: Call, score: ir.Value, names: Array, is_share: bool, transform: str
) -> Sequence[ir.Value]:
    """Label and scores of two classes. is_share: whether the score is that of the second in 1."""
    limit = call.number(0.5 if is_share else 0, score)
    is_second = call.op("Greater", call.reshape(score, -1), limit, dtype=BOOL)
    label = named(call, call.cast(is_second, ir.DataType.INT64), names)
    other = call.op("Sub", 1, score) if is_share else call.op("Neg", score)
    scores = call.op("Concat", other, score, axis=1)
    has_transform = transform == "LOGISTIC" and not is_share
    shares = transformed(call, scores, "LOGISTIC" if has_transform else "NONE")
    return [label, call.cast(shares, FLOAT)]


@ml.register("TreeEnsemble")
def tree_ensemble(call: Call) -> Sequence[ir.Value]:
    """Trees of version 5, whose nodes and leaves have numbers of their own."""
    transforms = {0: "NONE", 3: "SOFTMAX_ZERO"}
    call.refuse_unless("post_transform", *transforms)
    modes, targets = call.tensor("nodes_modes"), np.array(call.attribute("leaf_targetids"))
    if (modes >= len(COMPARISONS)).any() or call.node.attributes.get("membership_values"):
        raise call.refuse("rules that ask for one of a set have no native form")
    count, leaves = len(modes), np.zeros(len(targets))
    own = count + np.arange(len(targets))

    def way(side: str) -> Array:
        to_leaf, places = (
            np.array(call.attribute(f"nodes_{side}{what}")) for what in ("leafs", "nodeids")
        )
        return np.concatenate([places + count * to_leaf, own])

    forest = Forest(
        rules=np.concatenate([modes.astype(int), np.full(len(targets), LEAF)]),
        features=np.concatenate([call.attribute("nodes_featureids"), leaves]).astype(int),
        splits=np.concatenate([call.tensor("nodes_splits"), leaves]).astype(float),
        tracks=np.concatenate([_tracks(call, count), leaves]).astype(bool),
        ways=(way("true"), way("false")),
        roots=np.array(call.attribute("tree_roots")),
    )
    how = _HOW[call.attribute("aggregate_function")]
    nodes = count + np.arange(len(targets))
    x = call["X"]
    values = call.tensor("leaf_weights")
    weights = _table(forest, nodes, targets, values, call.attribute("n_targets"), how)
    sums = _combined(call, forest, weights, how)
    result = transformed(call, sums, transforms[call.attribute("post_transform")])
    return [call.cast(result, x.dtype or FLOAT)]


class _Trees:
    """Trees whose nodes are rows of the attributes `nodes_..`, and where the rows of X end."""

    def __init__(self, call: Call) -> None:
        self._call = call
        trees, numbers = call.attribute("nodes_treeids"), call.attribute("nodes_nodeids")
        pairs = np.stack([np.array(trees, np.int64), np.array(numbers, np.int64)])
        self._known = np.unique(pairs[0]), np.unique(pairs[1])
        keys = self._keys(pairs)
        order = np.argsort(keys, kind="stable")
        # What is not found is at the place -1.
        self._sorted, self._order = keys[order], np.append(order, -1)
        modes, own = call.attribute("nodes_modes"), np.arange(len(trees))
        if not set(modes) <= {*COMPARISONS, "LEAF"}:
            raise call.refuse(f"rules {sorted(set(modes))} have no native form")
        numbered = {"LEAF": LEAF, **{mode: i for i, mode in enumerate(COMPARISONS)}}
        rules = np.array([numbered[mode] for mode in modes])
        is_leaf = rules == LEAF
        ways = [
            np.where(is_leaf, own, self._found(trees, call.attribute(f"nodes_{side}nodeids")))
            for side in ("true", "false")
        ]
        led = np.zeros(len(trees), bool)
        for way in ways:
            led[way[~is_leaf]] = True
        if (np.stack(ways)[:, ~is_leaf] < 0).any():
            raise call.refuse("a node leads to one that is missing")
        splits = _numbers(call, "nodes_values")
        self.forest = Forest(
            rules=rules,
            features=np.array(call.attribute("nodes_featureids")),
            splits=np.zeros(len(trees)) if splits is None else splits.astype(float),
            tracks=np.array(_tracks(call, len(trees)), bool),
            ways=(ways[0], ways[1]),
            # A tree begins with the node that no other one leads to.
            roots=own[~led],
        )
        call.attribute("nodes_hitrates")
        if "nodes_hitrates_as_tensor" in call.node.attributes:
            call.tensor("nodes_hitrates_as_tensor")
        if len(self.forest.roots) != len(self._known[0]):
            raise call.refuse("a tree has no first node, or several")

    def _keys(self, pairs: Array) -> Array:
        """A number for each pair of a tree and a node; -1 where one of the two is unknown."""
        places = [*map(_places, self._known, pairs)]
        keys: Array = places[0] * len(self._known[1]) + places[1]
        return np.where(np.minimum(*places) < 0, -1, keys)

    def _found(self, trees: ArrayLike, numbers: ArrayLike) -> Array:
        """The places of nodes in the attributes; -1 where there is none."""
        keys = self._keys(np.stack([np.array(trees, np.int64), np.array(numbers, np.int64)]))
        found: Array = self._order[_places(self._sorted, keys)]
        return found

    def weights(self, kind: str, count: int, how: str = "SUM") -> Array:
        """The weights that leaves add to `count` targets or classes, by place."""
        call = self._call
        values = _numbers(call, f"{kind}_weights")
        nodes = self._found(call.attribute(f"{kind}_treeids"), call.attribute(f"{kind}_nodeids"))
        targets = np.array(call.attribute(f"{kind}_ids"))
        if values is None or (nodes < 0).any():
            raise call.refuse("weights of nodes that are missing have no native form")
        return _table(self.forest, nodes, targets, values, count, how)


def _places(known: Array, values: Array) -> Array:
    """The place of each value among the sorted `known`, the last one of several; -1 for none."""
    if not len(known):
        return np.full(len(values), -1)
    place = np.searchsorted(known, values, "right") - 1
    return np.where(known[place] == values, place, -1)


def _table(
    forest: Forest, nodes: Array, targets: Array, values: Array, count: int, how: str
) -> Array:
    """The weight that each node adds to each target: float64 `[nodes, count]`."""
    combine = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
    nothing = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
    table = np.full((len(forest.rules), count), nothing)
    combine.at(table, (nodes, targets), values)
    return table


def _combined(call: Call, forest: Forest, weights: Array, how: str) -> ir.Value:
    """The sums of the rows' leaves by target: float64 `[rows, targets]`, 0 where none adds."""
    x, trees = call["X"], len(forest.roots)
    width, places = width_of(call, x, forest), placed(call, forest)
    reduction = {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(how, "ReduceSum")
    result = None
    if reduction == "ReduceSum":
        result = leaf_sums(call, x, forest, weights, places.levels)
    if result is None:
        leaves = descend(call, x, forest, places, width)
        own = _of_own_targets(forest, weights, places.levels) if how == "SUM" else None
        if own is not None:
            return call.op("Gather", own[places.nodes], leaves, dtype=DOUBLE)
        is_single = weights.shape[1] == 1
        table = weights[places.nodes, 0] if is_single else weights[places.nodes]
        terms = call.op("Gather", table, leaves, dtype=DOUBLE)
        result = call.reduce(reduction, terms, [1], keepdims=is_single)
    if reduction != "ReduceSum":
        is_empty = call.op("IsInf", result, dtype=BOOL)
        return call.op("Where", is_empty, call.number(0, result), result, dtype=DOUBLE)
    return call.op("Div", result, trees) if how == "AVERAGE" else result


def _of_own_targets(forest: Forest, weights: Array, levels: int) -> Array | None:
    """What each node adds, where tree `i` adds to target `i` alone; else None."""
    if len(forest.roots) != weights.shape[1]:
        return None
    inner, trees = forest.rules != LEAF, np.zeros(len(forest.rules), int)
    trees[forest.roots] = np.arange(len(forest.roots))
    for _ in range(levels):
        for way in forest.ways:
            trees[way[inner]] = trees[inner]
    nodes, targets = np.nonzero(weights)
    is_own = (trees[nodes] == targets).all()
    return weights[np.arange(len(trees)), trees] if is_own else None


def _numbers(call: Call, name: str) -> Array | None:
    """A list of numbers that may be given as a tensor; None where it is left out."""
    if f"{name}_as_tensor" in call.node.attributes:
        return call.tensor(f"{name}_as_tensor")
    values = call.attribute(name)
    return None if values is None else np.array(values)


def _tracks(call: Call, count: int) -> Array:
    return np.array(call.attribute(_TRACKS) or [0] * count)
