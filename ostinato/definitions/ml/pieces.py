"""Trees in pieces of few leaves, whose nodes are all looked at: for trees that are deep and narrow.

Leaves are numbered from the first way to the second one. A node whose rule does not hold rules out
the leaves behind its first way; of those that no node rules out, a row ends in the first one:

    bits = AND over all nodes of (~0 where the rule holds, else ~leaves behind the first way)
    leaf = the lowest bit that is left                  (QuickScorer, Lucchese et al., SIGIR 2015)

No node waits for another, and rows beside each other read the same, where a descent looks up a
place for each row. A tree of more leaves is a sum of pieces: one has a subtree and the way to it,
with 0 wherever rows leave that way, and the other the rest, with 0 in place of the subtree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ostinato.graph.writer import Array
from ostinato.model.trees import COMPARISONS, LEAF, Forest
from ostinato.records import dataclass

# Leaves of a piece: bits of a word.
MOST_LEAVES = 64
# A level of a descent takes as long as this many nodes of pieces where there is one row, and as
# three times as many in a batch: 300 trees of 8 leaves, 100 of 31 (`TreeEnsembleRegressor`, 30
# features).
_NODES_OF_A_LEVEL = 2.5
_ORDERED = tuple(COMPARISONS.index(f"BRANCH_{rule}") for rule in ("LEQ", "LT", "GTE", "GT"))
_STRICT = COMPARISONS.index("BRANCH_LT"), COMPARISONS.index("BRANCH_GTE")
_TURNED = COMPARISONS.index("BRANCH_GTE"), COMPARISONS.index("BRANCH_GT")


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Rules of one kind, by node: x < split where `is_strict`, else x <= split.

    ways: where to go if it holds, and if not. missing: whether it holds for NaN.
    """

    is_strict: bool
    splits: Array
    ways: tuple[Array, Array]
    missing: Array


def thresholds(forest: Forest, dtype: type[np.floating]) -> Thresholds | None:
    """The rules of a forest as those of one kind, for rows of `dtype`; None where none do."""
    inner = forest.rules != LEAF
    rules, splits = forest.rules, np.where(inner, forest.splits, 0.0)
    if not np.isin(rules[inner], _ORDERED).all() or not np.isfinite(splits).all():
        return None
    strict, turned = np.isin(rules, _STRICT), np.isin(rules, _TURNED)
    is_strict = bool(strict[inner].all())
    limits = _rounded(splits, dtype, up=is_strict)
    if not is_strict:
        below = np.nextafter(limits, dtype(-np.inf))
        limits = np.where(strict & (limits == splits), below, limits)
    size = np.abs(limits)
    # Subnormal numbers may count as 0.
    if not np.isfinite(limits).all() or ((size > 0) & (size < np.finfo(dtype).tiny)).any():
        return None
    first, second = forest.ways
    ways = np.where(turned, second, first), np.where(turned, first, second)
    return Thresholds(is_strict, limits, ways, forest.tracks ^ turned)


def _rounded(values: Array, dtype: type[np.floating], up: bool) -> Array:
    """The least numbers of `dtype` that are not smaller, or the largest that are not larger."""
    near = values.astype(dtype)
    if up:
        return np.where(near < values, np.nextafter(near, dtype(np.inf)), near)
    return np.where(near > values, np.nextafter(near, dtype(-np.inf)), near)


@dataclass(frozen=True, eq=False)
class Piece:
    """Some nodes of a tree.

    leaves: nodes, -1 where nothing is added. behind: by node which of them are behind its first
    way, as bits.
    """

    nodes: list[int]
    behind: list[int]
    leaves: list[int]


class _Tree:
    """One tree, of which subtrees are cut off. parents: of each node of the forest."""

    def __init__(self, root: int, ways: tuple[Array, Array], is_leaf: Array) -> None:
        self._root, self._ways, self._is_leaf = root, ways, is_leaf
        self._cut: set[int] = set()

    def pieces(self) -> Iterator[Piece] | None:
        """The tree in pieces; None where ways are too long for that."""
        found: list[Piece] = []
        while True:
            order, counts, parents = self._measured()
            if counts[self._root] <= MOST_LEAVES:
                found.append(self._piece(self._root, {}))
                return iter(found)
            best, most = -1, 1
            depths = {self._root: 0}
            for node in order:
                if node != self._root:
                    depths[node] = depths[parents[node]] + 1
                if most < counts[node] <= MOST_LEAVES - depths[node]:
                    best, most = node, counts[node]
            if best < 0:
                return None
            way, node = {}, best
            while node != self._root:
                way[parents[node]] = node
                node = parents[node]
            found.append(self._piece(self._root, way))
            self._cut.add(best)

    def _measured(self) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Nodes from the root down, how many leaves are behind each, and the node before it."""
        order, parents, left = [], {}, [self._root]
        while left:
            node = left.pop()
            order.append(node)
            if not self._ends(node):
                for way in self._ways:
                    parents[int(way[node])] = node
                    left.append(int(way[node]))
        counts = dict.fromkeys(order, 0)
        for node in reversed(order):
            counts[node] += self._ends(node)
            if node != self._root:
                counts[parents[node]] += counts[node]
        return order, counts, parents

    def _ends(self, node: int) -> bool:
        return bool(self._is_leaf[node]) or node in self._cut

    def _piece(self, root: int, way: dict[int, int]) -> Piece:
        """The nodes below `root`; along `way`, which leads to a subtree, no others.

        way: of each node of it the one that follows.
        """
        piece = Piece([], [], [])
        # Nodes to visit; those whose first way has been visited come with the first leaf there.
        left: list[tuple[int, int | None, bool]] = [(root, None, True)]
        while left:
            node, first, is_own = left.pop()
            if first is not None:
                piece.nodes.append(node)
                piece.behind.append((1 << len(piece.leaves)) - (1 << first))
                continue
            if not is_own or self._ends(node):
                adds = is_own and node not in self._cut
                piece.leaves.append(node if adds else -1)
                continue
            one, other = (int(each[node]) for each in self._ways)
            only = way.get(node)
            left.append((other, None, only is None or only == other))
            left.append((node, len(piece.leaves), True))
            left.append((one, None, only is None or only == one))
        return piece


def most_nodes(forest: Forest, levels: int) -> float:
    """Nodes of pieces that take as long as a descent of this many levels."""
    return _NODES_OF_A_LEVEL * levels * len(forest.roots)


def pieces_of(forest: Forest, ways: tuple[Array, Array], most: float) -> list[Piece] | None:
    """The trees of a forest in pieces; None where they have more than `most` nodes."""
    is_leaf = forest.rules == LEAF
    # Pieces have no fewer nodes than the trees.
    if np.count_nonzero(~is_leaf) > most:
        return None
    found: list[Piece] = []
    for root in forest.roots.tolist():
        pieces = _Tree(root, ways, is_leaf).pieces()
        if pieces is None:
            return None
        found += pieces
    return found if len(found) * padded(found) <= most else None


def padded(pieces: list[Piece]) -> int:
    """Nodes of each piece, a power of two: they are combined by halves."""
    return 1 << (max(1, *(len(piece.nodes) for piece in pieces)) - 1).bit_length()
