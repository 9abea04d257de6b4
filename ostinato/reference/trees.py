"""Ensembles of decision trees: all rows go down all trees at once, one level after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.model import trees
from ostinato.model.trees import LEAF, Array
from ostinato.records import dataclass

_COMPARISONS = (
    np.less_equal,
    np.less,
    np.greater_equal,
    np.greater,
    np.equal,
    np.not_equal,
)
# Rows are looked at in blocks, of which the sums have no more terms than this.
_MOST_TERMS = 1 << 22


class Weights:
    """The weights that nodes of a forest add to targets.

    nodes, targets, values: of each weight. shape: nodes and targets there are. how: SUM, AVERAGE,
    MIN or MAX.
    """

    def __init__(
        self,
        nodes: Sequence[int],
        targets: Sequence[int],
        values: Array,
        shape: tuple[int, int],
        how: str,
    ) -> None:
        self.how = how
        self.combine: np.ufunc = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
        self.nothing = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
        self.table = np.full(shape, self.nothing)
        self.combine.at(self.table, (nodes, targets), values)


@dataclass(frozen=True, eq=False)
class Forest(trees.Forest):
    """Nodes of trees, and by node the values of BRANCH_MEMBER."""

    sets: dict[int, Array]

    def leaves(self, x: Array) -> Array:
        """The leaves that rows reach: int64 `[rows, trees]`. Raises `ValueError` for a circle."""
        at = np.tile(self.roots, (len(x), 1))
        rows = np.arange(len(x))[:, None]
        for _ in range(len(self.rules) + 1):
            if (self.rules[at] == LEAF).all():
                return at
            elements = x[rows, self.features[at]]
            goes = self._holds(elements, at) | (self.tracks[at] & np.isnan(elements))
            at = np.where(goes, self.ways[0][at], self.ways[1][at])
        raise ValueError("a tree has a circle")

    def _holds(self, elements: Array, at: Array) -> Array:
        holds = np.zeros(at.shape, bool)
        rules, splits = self.rules[at], self.splits[at]
        for number, comparison in enumerate(_COMPARISONS):
            comparison(elements, splits, out=holds, where=rules == number)
        for node, members in self.sets.items():
            where = at == node
            holds[where] = np.isin(elements[where], members)
        return holds

    def sums(self, x: Array, weights: Weights) -> Array:
        """The sums of leaves' weights: float64, shape `[rows, targets]`; 0 where none adds."""
        table, combine = weights.table, weights.combine
        block = max(1, _MOST_TERMS // max(1, len(self.roots) * table.shape[1]))
        parts = [
            combine.reduce(table[self.leaves(x[start : start + block])], 1, initial=weights.nothing)
            for start in range(0, len(x), block)
        ]
        y = np.concatenate([np.zeros((0, table.shape[1])), *parts])
        y[y == np.inf] = y[y == -np.inf] = 0
        return y / len(self.roots) if weights.how == "AVERAGE" else y
