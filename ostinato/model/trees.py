"""Decision trees as operators of `ai.onnx.ml` write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.records import dataclass

Array = np.ndarray[Any, Any]

COMPARISONS = "BRANCH_LEQ BRANCH_LT BRANCH_GTE BRANCH_GT BRANCH_EQ BRANCH_NEQ".split()
# The numbers of rules in version 5 are their places; the last one asks for one of a set of values.
RULES = [*COMPARISONS, "BRANCH_MEMBER"]
LEAF = -1


@dataclass(frozen=True, eq=False)
class Forest:
    """Nodes of trees, one in each place of the arrays. A leaf leads to itself.

    rules: the places of their rules in `RULES`, or `LEAF`. features, splits: the element of a row
    that a node looks at, and what this is compared with. tracks: whether a missing element goes
    the first way. ways: by node where to go if the rule holds, and if not. roots: the first node
    of each tree.
    """

    rules: Array
    features: Array
    splits: Array
    tracks: Array
    ways: tuple[Array, Array]
    roots: Array
