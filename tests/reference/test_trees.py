from __future__ import annotations

import numpy as np
import pytest

from ostinato.model.trees import LEAF, RULES
from ostinato.reference import trees
from ostinato.reference.trees import Forest, Weights


def forest(ways: tuple[list[int], list[int]]) -> Forest:
    """One tree: node 0 asks for x[0] <= 0.5, node 1 whether x[1] is 2 or 3; the rest are leaves."""
    return Forest(
        rules=np.array([0, RULES.index("BRANCH_MEMBER"), LEAF, LEAF, LEAF]),
        features=np.array([0, 1, 0, 0, 0]),
        splits=np.array([0.5, 0, 0, 0, 0]),
        tracks=np.array([True, False, False, False, False]),
        ways=(np.array(ways[0]), np.array(ways[1])),
        roots=np.array([0]),
        sets={1: np.array([2.0, 3.0])},
    )


def test_rows_end_at_leaves() -> None:
    x = np.array([[0.5, 2], [0, 1], [1, 2], [np.nan, 3]], np.float32)
    leaves = forest(([1, 2, 2, 3, 4], [4, 3, 2, 3, 4])).leaves(x)
    assert leaves.tolist() == [[2], [3], [4], [2]]


def test_a_circle_is_an_error() -> None:
    with pytest.raises(ValueError, match="circle"):
        forest(([1, 0, 2, 3, 4], [4, 3, 2, 3, 4])).leaves(np.array([[0, 2]], np.float32))


@pytest.mark.parametrize(("how", "expected"), [("SUM", 3), ("AVERAGE", 3), ("MIN", 1), ("MAX", 2)])
def test_what_a_leaf_adds(how: str, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_MOST_TERMS", 4)  # two rows at a time
    weights = Weights([2, 2, 3], [0, 0, 1], np.array([1.0, 2.0, 5.0]), (5, 2), how)
    x = np.array([[0, 2], [0, 1], [1, 2]] * 2, np.float32)
    sums = forest(([1, 2, 2, 3, 4], [4, 3, 2, 3, 4])).sums(x, weights)
    assert sums.tolist() == [[expected, 0], [0, 5], [0, 0]] * 2
