"""Sums of what the leaves of narrow trees add, without going down the trees (`pieces`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, INT32, INT64, Call
from ostinato.definitions.ml.forest import BOOL, DOUBLE
from ostinato.definitions.ml.pieces import (
    Piece,
    Thresholds,
    most_nodes,
    padded,
    pieces_of,
    thresholds,
)
from ostinato.graph.writer import Array
from ostinato.model.trees import Forest
from ostinato.records import dataclass

_WORDS = np.uint32, np.uint64
# The operator set that has BitwiseAnd.
_SINCE = 18


def leaf_sums(
    call: Call, x: ir.Value, forest: Forest, weights: Array, levels: int
) -> ir.Value | None:
    """The sums by target: float64 `[rows, targets]`; None where a descent takes less time.

    weights: what each node adds to each target, `[nodes, targets]`. levels: those of a descent.
    """
    if call.writer.opset < _SINCE:
        return None
    dtype = FLOAT if x.dtype == FLOAT else DOUBLE
    tests = thresholds(forest, np.float32 if dtype == FLOAT else np.float64)
    most = most_nodes(forest, levels)
    pieces = None if tests is None else pieces_of(forest, tests.ways, most)
    if tests is None or pieces is None:
        return None
    groups = [
        [piece for piece in pieces if weights[_own(piece), target].any()]
        for target in range(weights.shape[1])
    ]
    shape = (padded(pieces), len(groups), max(1, *map(len, groups)))
    if math.prod(shape) > most:
        return None
    tables = _tables(groups, shape, forest, tests, weights)
    width, rows = call.size(x, 1), call.size(x, 0)
    assert width is not None
    dims = call.dims(x)[0], weights.shape[1]
    sums, x = _Sums(call, width, tables, tests.is_strict), call.cast(x, dtype)
    if rows is not None:
        return call.op("Transpose", sums.write(call, x), perm=[1, 0])
    count = call.slice(call.op("Shape", x, dtype=INT64), 0, 1, 0)
    is_one = call.op("Equal", call.op("Squeeze", count), np.array(1), dtype=BOOL)
    result = call.either(
        is_one, lambda call: sums.write_one(call, x, count), lambda call: sums.write(call, x)
    )
    return call.shaped(call.op("Transpose", result, perm=[1, 0]), *dims)


def _own(piece: Piece) -> list[int]:
    return [leaf for leaf in piece.leaves if leaf >= 0]


@dataclass(frozen=True, eq=False)
class _Tables:
    """Nodes and leaves of pieces, some for each target: `[nodes, targets, pieces]`.

    features: the element of a row, or -1 for a zero. has_missing: whether the rule holds for NaN.
    kept: the leaves that are left where it does not hold, as bits. values: what leaves add, as many
    for each piece as a word has bits.
    """

    features: Array
    splits: Array
    has_missing: Array
    kept: Array
    values: Array


def _tables(
    groups: Sequence[Sequence[Piece]],
    shape: tuple[int, int, int],
    forest: Forest,
    tests: Thresholds,
    weights: Array,
) -> _Tables:
    features, has_missing = np.full(shape, -1), np.zeros(shape, bool)
    # Nodes that fill up pieces compare 0 with 1, which holds by either rule.
    splits = np.ones(shape, tests.splits.dtype)
    leaves = max(len(piece.leaves) for group in groups for piece in group)
    kept = np.full(shape, -1, np.int32 if leaves <= 32 else np.int64).view(_WORDS[leaves > 32])
    bits = 8 * kept.itemsize
    values = np.zeros((*shape[1:], bits))
    for target, group in enumerate(groups):
        for number, piece in enumerate(group):
            place = (slice(len(piece.nodes)), target, number)
            features[place] = forest.features[piece.nodes]
            splits[place] = tests.splits[piece.nodes]
            has_missing[place] = tests.missing[piece.nodes]
            kept[place] = ~np.array(piece.behind, kept.dtype)
            for leaf, node in enumerate(piece.leaves):
                values[target, number, leaf] = weights[node, target] if node >= 0 else 0.0
    return _Tables(features, splits, has_missing, kept, values.reshape(-1))


class _Sums:
    """Writes the sums for rows of `width` elements of some type."""

    def __init__(self, call: Call, width: int, tables: _Tables, is_strict: bool) -> None:
        self._width, self._tables, self._is_strict = width, tables, is_strict
        features = tables.features
        self._has_both = len(np.unique(tables.has_missing[features >= 0])) == 2
        if self._has_both:
            features = np.where(tables.has_missing, features + width, features)
        end = width * (1 + self._has_both)
        features = np.where(features < 0, end, features).astype(np.int32)
        values, single = tables.values, tables.values.astype(np.float32)
        values = single if (single == values).all() else values
        kept, splits = tables.kept[..., None], tables.splits[..., None]
        self._features, self._values, self._kept, self._splits = (
            call.writer.value(table, "table") for table in (features, values, kept, splits)
        )

    def write(self, call: Call, x: ir.Value) -> ir.Value:
        """The sums: float64 `[targets, rows]`."""
        elements = call.op("Gather", self._rows(call, x), self._features, axis=0)
        rule = "Less" if self._is_strict else "LessOrEqual"
        holds = call.op(rule, elements, self._splits, dtype=BOOL)
        every = np.array(~self._tables.kept.dtype.type(0))
        bits = call.op("Where", holds, every, self._kept, dtype=self._kept.dtype)
        count = len(self._tables.kept)
        while count > 1:
            count //= 2
            halves = [call.slice(bits, start, start + count, 0) for start in (0, count)]
            bits = call.op("BitwiseAnd", *halves)
        terms = call.op("Gather", self._values, self._places(call, bits), dtype=self._values.dtype)
        return call.reduce("ReduceSum", call.cast(terms, DOUBLE), [1], keepdims=False)

    def write_one(self, call: Call, x: ir.Value, rows: ir.Value) -> ir.Value:
        """The same for one row, which takes lanes along pieces. rows: 1, int64 `[1]`."""
        one = self.write(call, call.shaped(call.reshape(x, 1, self._width), 1, self._width))
        targets = np.array([self._tables.kept.shape[1]])
        return call.op("Expand", one, call.op("Concat", targets, rows, axis=0))

    def _rows(self, call: Call, x: ir.Value) -> ir.Value:
        """Elements of rows side by side, twice where some rules hold for NaN, and behind them 0.

        Where rules hold for NaN, this is less than any number.
        """
        own = call.op("Transpose", x, perm=[1, 0])
        parts = [own]
        if self._tables.has_missing.any():
            least = np.array(-np.inf, self._tables.splits.dtype)
            is_missing = call.op("IsNaN", own, dtype=BOOL)
            other = call.op("Where", is_missing, least, own, dtype=own.dtype)
            parts = [own, other] if self._has_both else [other]
        rows = call.op("Concat", *parts, axis=0) if self._has_both else parts[0]
        return call.op("Pad", rows, np.array([0, 0, 1, 0]))

    def _places(self, call: Call, bits: ir.Value) -> ir.Value:
        """The places of what the leaf of the lowest bit adds: int32 `[targets, pieces, rows]`."""
        kept = self._tables.kept
        bits = call.op("Squeeze", bits, np.array([0]))
        below = call.op("Add", call.op("BitwiseNot", bits), np.array(1, kept.dtype))
        lowest = call.cast(call.op("BitwiseAnd", bits, below), FLOAT)
        # A logarithm is off by much less than 1/2; remainders are known to lie within a piece.
        scaled = call.op("Mul", call.op("Log", lowest), np.array(1 / math.log(2), np.float32))
        own = call.cast(call.op("Round", scaled), INT32)
        size = 8 * kept.itemsize
        own = call.op("Mod", own, np.array(size, np.int32))
        starts = np.arange(kept[0].size, dtype=np.int32).reshape(kept.shape[1:])
        return call.op("Add", own, size * starts[..., None])
