"""Graphs of nodes are visited operands first, without recursion."""

from __future__ import annotations

from ostinato.walk import operands_first

BELOW = {"d": ["b", "c"], "c": ["a", "b"], "b": ["a"], "a": []}


def test_each_node_comes_once_behind_its_operands() -> None:
    assert [*operands_first(["d"], BELOW.__getitem__)] == ["a", "b", "c", "d"]
    assert [*operands_first(["c", "b"], BELOW.__getitem__)] == ["a", "b", "c"]


def test_what_is_below_skipped_nodes_alone_is_not_visited() -> None:
    assert [*operands_first(["d"], BELOW.__getitem__, skip={"b"})] == ["a", "c", "d"]
    skip: set[str] = set()
    seen = []
    for node in operands_first(["d", "c"], BELOW.__getitem__, skip):
        seen.append(node)
        skip.add("c")
    assert seen == ["a", "b", "d"]


def test_depth_is_not_limited() -> None:
    depth = 100_000
    assert [*operands_first([depth], lambda n: [n - 1] if n else [])] == [*range(depth + 1)]
