"""Ensembles of decision trees as tables, down which all rows go through all trees at once.

Nodes are places of tables, level by level; the two places that a node leads to are neighbours, and
a leaf leads to itself, by a comparison with an element behind the row that always holds:

    at = first[at] + (the rule does not hold for x[feature[at]] and split[at])

Where both numbers fit, `first` and `feature` are one entry of a table: looking up takes most time.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, INT32, Call
from ostinato.graph.writer import Array, Operand
from ostinato.model.trees import COMPARISONS, LEAF, Forest
from ostinato.records import dataclass

BOOL, DOUBLE, UINT32 = ir.DataType.BOOL, ir.DataType.DOUBLE, ir.DataType.UINT32
# Each level is some nodes of ONNX.
_MOST_LEVELS = 128

_COMPARISONS = "LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal", "Equal"
# By rule, a number for which a comparison with 0 holds.
_HOLDING = np.inf, np.inf, -np.inf, -np.inf, 0.0, 1.0


@dataclass(frozen=True, eq=False)
class Places:
    """Nodes level by level.

    nodes: at each place, the last one twice, so that also what lies behind it exists. first: by
    place that of the first way. levels: how many steps lead from the roots to the last leaf.
    """

    nodes: Array
    first: Array
    levels: int


def width_of(call: Call, x: ir.Value, forest: Forest) -> int:
    """The length of rows. Refuses lengths only a run tells, and rows too short for the nodes."""
    width = call.size(x, 1) if call.rank(x) == 2 else None
    if width is None:
        raise call.refuse("rows of a length that only a run tells have no native form")
    inner = forest.rules != LEAF
    used = forest.features[inner]
    if not inner[forest.roots].any() or ((used < 0) | (used >= width)).any():
        raise call.refuse(f"rows of {width} elements do not have those that nodes look at")
    return width


def descend(call: Call, x: ir.Value, forest: Forest, places: Places, width: int) -> ir.Value:
    """Let the rows of x go down all trees: the places of leaves, int32 `[rows, trees]`."""
    inner = forest.rules != LEAF
    first, order = places.first, places.nodes
    rules = sorted(set(forest.rules[inner].tolist()))
    splits = np.where(inner, forest.splits, _HOLDING[rules[0]])
    is_single = x.dtype == FLOAT and (splits.astype(np.float32) == splits)[inner].all()
    dtype = FLOAT if is_single else DOUBLE
    # Rows are as long as a power of two, by which numbers are split.
    radix = 1 << width.bit_length()
    tables = {
        "first": first,
        "features": np.where(inner, forest.features, width)[order].astype(np.int32),
        "splits": splits[order].astype(dtype.numpy()),
        "rules": np.where(inner, forest.rules, rules[0])[order].astype(np.int32),
        "tracks": (forest.tracks & inner)[order],
    }
    if len(first) * radix <= 1 << 32:
        tables["ways"] = (first.astype(np.int64) * radix + tables["features"]).astype(np.uint32)
    rows = call.op("Pad", call.cast(x, dtype), np.array([0, 0, 0, radix - width]))
    steps = _Steps(call, rows, tables, rules, radix)
    at: Operand = np.arange(len(forest.roots), dtype=np.int32)[None]
    for _ in range(places.levels):
        at = steps.next(at)
    assert isinstance(at, ir.Value)
    return at


def placed(call: Call, forest: Forest) -> Places:
    """The nodes level by level. Refuses nodes that two others lead to, and deep trees."""
    is_placed, order = np.zeros(len(forest.rules), bool), []
    first = np.zeros(len(forest.rules), np.int32)
    nodes, at = forest.roots, np.arange(len(forest.roots))
    end, levels = len(at), 0
    while True:
        if len(np.unique(nodes)) < len(nodes) or is_placed[nodes].any():
            raise call.refuse("a node that two others lead to has no native form")
        is_placed[nodes], first[at] = True, at
        order.append(nodes)
        goes = forest.rules[nodes] != LEAF
        nodes, at = nodes[goes], at[goes]
        if not len(nodes):
            found = np.concatenate(order)
            return Places(np.append(found, found[-1]), np.append(first[:end], np.int32(0)), levels)
        if levels == _MOST_LEVELS:
            raise call.refuse(f"trees of more than {_MOST_LEVELS} levels have no native form")
        first[at] = end + 2 * np.arange(len(nodes))
        nodes = np.stack([way[nodes] for way in forest.ways], 1).reshape(-1)
        at = end + np.arange(len(nodes))
        end, levels = end + len(nodes), levels + 1


class _Steps:
    """Writes steps from one level to the next.

    rows: `[rows, radix]`, with zeros behind each row. tables: by what they hold; in `ways`, if they
    are there, `first * radix + features`. rules: those that nodes have.
    """

    def __init__(
        self, call: Call, rows: ir.Value, tables: dict[str, Array], rules: list[int], radix: int
    ) -> None:
        self._call, self._rows, self._rules, self._radix = call, rows, rules, radix
        self._has_tracks = bool(tables["tracks"].any())
        self._arrays = tables
        self._values: dict[str, ir.Value] = {}

    def next(self, at: Operand) -> ir.Value:
        """The places behind those where rows are: int32 `[rows, trees]`."""
        call = self._call
        features, first = self._ways(at)
        if isinstance(features, ir.Value):
            element = call.op("GatherElements", self._rows, features, axis=1)
        else:
            element = call.op("Gather", self._rows, features.reshape(-1), axis=1)
        holds = self._holds(element, at)
        if self._has_tracks:
            missing = call.op("IsNaN", element, dtype=BOOL)
            goes = call.op("And", self._look("tracks", at), missing, dtype=BOOL)
            holds = call.op("Or", holds, goes, dtype=BOOL)
        other = call.cast(call.op("Not", holds), INT32)
        return call.op("Add", first, other, dtype=INT32)

    def _ways(self, at: Operand) -> tuple[Operand, Operand]:
        """The element of a row that nodes here look at, and the place of the first way."""
        if "ways" not in self._arrays or not isinstance(at, ir.Value):
            return self._look("features", at), self._look("first", at)
        ways, radix = self._look("ways", at), np.array(self._radix, np.uint32)
        parts = (self._call.op(op, ways, radix, dtype=UINT32) for op in ("Mod", "Div"))
        features, first = (self._call.cast(part, INT32) for part in parts)
        return features, first

    def _holds(self, element: ir.Value, at: Operand) -> ir.Value:
        """Whether the rules of nodes hold."""
        call, split = self._call, self._look("splits", at)
        result = self._compared(self._rules[0], element, split)
        for rule in self._rules[1:]:
            number = np.array(rule, np.int32)
            has_rule = call.op("Equal", self._look("rules", at), number, dtype=BOOL)
            other = self._compared(rule, element, split)
            result = call.op("Where", has_rule, other, result, dtype=BOOL)
        return result

    def _compared(self, rule: int, element: ir.Value, split: Operand) -> ir.Value:
        result = self._call.op(_COMPARISONS[rule], element, split, dtype=BOOL)
        return self._call.op("Not", result) if COMPARISONS[rule] == "BRANCH_NEQ" else result

    def _look(self, what: str, at: Operand) -> Operand:
        """The entries of a table at these places."""
        if not isinstance(at, ir.Value):
            return self._arrays[what][at]
        if what not in self._values:
            self._values[what] = self._call.writer.value(self._arrays[what], what)
        table = self._values[what]
        return self._call.op("Gather", table, at, dtype=table.dtype)
