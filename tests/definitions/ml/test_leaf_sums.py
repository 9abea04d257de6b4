"""Deep and narrow trees, whose nodes are all looked at, and trees that rows still go down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import ostinato
from ostinato.definitions.ml import pieces
from ostinato.definitions.ml.pieces import MOST_LEAVES, padded, pieces_of, thresholds
from ostinato.model.trees import LEAF, RULES, Forest
from tests import witness
from tests.reference_cases import FLOAT, INT64, ML, model

WIDTH = 6
RULE_NAMES = "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"


def grown(leaves: int, rng: np.random.Generator, depth: int) -> list[tuple[int, int]]:
    """The ways of the nodes of a tree, (0, 0) of leaves: one leaf after the other is split."""
    ways, levels = [(0, 0)], [0]
    while (len(ways) + 1) // 2 < leaves:
        ends = [i for i, way in enumerate(ways) if way == (0, 0) and levels[i] < depth]
        # Mostly the one that came last, so that trees are deep.
        node = ends[-1] if rng.random() < 0.7 else int(rng.choice(ends))
        ways[node] = (len(ways), len(ways) + 1)
        ways += [(0, 0)] * 2
        levels += [levels[node] + 1] * 2
    return ways


def forest(
    trees: int,
    leaves: int,
    rules: Sequence[str] = RULE_NAMES[:1],
    kind: str = "target",
    targets: int = 1,
    depth: int = 30,
    seed: int = 0,
) -> dict[str, Any]:
    """Attributes of trees that add to one target each; some rules hold for what is missing."""
    rng = np.random.default_rng(seed)
    nodes: list[tuple[object, ...]] = []
    ends: list[tuple[int, int, int]] = []
    for tree in range(trees):
        for node, way in enumerate(grown(leaves, rng, depth)):
            if way == (0, 0):
                nodes.append((tree, node, "LEAF", 0, 0.0, 0, 0, 0))
                ends.append((tree, node, tree % targets))
                continue
            split = float(np.round(rng.standard_normal() * 4) / 4 + 0.125)
            rule, tracks = str(rng.choice(rules)), int(rng.random() < 0.5)
            nodes.append((tree, node, rule, int(rng.integers(WIDTH)), split, *way, tracks))
    names = "treeids nodeids modes featureids values truenodeids falsenodeids".split()
    names.append("missing_value_tracks_true")
    columns = zip(names, zip(*nodes, strict=True), strict=True)
    return {
        **{f"nodes_{name}": list(part) for name, part in columns},
        f"{kind}_treeids": [tree for tree, _, _ in ends],
        f"{kind}_nodeids": [node for _, node, _ in ends],
        f"{kind}_ids": [target for _, _, target in ends],
        f"{kind}_weights": rng.standard_normal(len(ends)).astype("f").tolist(),
    }


def rows(count: int, dtype: str = "f") -> np.ndarray:
    rng = np.random.default_rng(1)
    x = (np.round(rng.standard_normal((count, WIDTH)) * 8) / 8).astype(dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.02] = np.inf
    x[rng.random(x.shape) < 0.02] = -np.inf
    return x


def regressor(x: np.ndarray, about: dict[str, Any], opset: int = 18) -> onnx.ModelProto:
    targets = 1 + max(about["target_ids"])
    made = model("TreeEnsembleRegressor", [x], ML, 1, [FLOAT], {**about, "n_targets": targets})
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    for imported in made.opset_import:
        if not imported.domain:
            imported.version = opset
    return made


def is_descent(session: ostinato.InferenceSession) -> bool:
    return "BitwiseAnd" not in str(session.report()["kernels"])


# Rules decide what is compared at a node, leaves how many words a tree has: half of the pairs.
@pytest.mark.parametrize(
    ("leaves", "targets", "rules"),
    [
        (*size, rules)
        for i, size in enumerate([(20, 1), (32, 3), (40, 1), (64, 2), (90, 1)])
        for rules in [RULE_NAMES[:1], RULE_NAMES[1:2], RULE_NAMES[2:], RULE_NAMES][i % 2 :: 2]
    ],
)
def test_sums_are_those_of_onnxruntime(
    leaves: int, targets: int, rules: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_NODES_OF_A_LEVEL", 100)
    about = forest(9, leaves, rules, targets=targets)
    made = regressor(rows(2), about)
    session = ostinato.InferenceSession(made, cache_dir=None, fallback=False)
    assert not is_descent(session)
    x = rows(70)
    (whole,) = session.run(None, {"x0": x})
    (expected,) = witness.run(made.SerializeToString(), {"x0": x})
    np.testing.assert_allclose(whole, expected, 1e-5, 1e-5)
    for count in (1, 2, 5, 17):
        (part,) = session.run(None, {"x0": x[3 : 3 + count]})
        assert (part == whole[3 : 3 + count]).all()


@pytest.mark.parametrize("targets", [3, 4])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classes_are_those_of_onnxruntime(targets: int, transform: str) -> None:
    about = forest(12, 24, kind="class", targets=targets)
    about |= {"classlabels_int64s": list(range(targets)), "post_transform": transform}
    made = model("TreeEnsembleClassifier", [rows(33)], ML, 1, [INT64, FLOAT], about)
    feeds = {"x0": rows(33)}
    got = ostinato.InferenceSession(made, cache_dir=None, fallback=False).run(None, feeds)
    label, scores = witness.run(made.SerializeToString(), feeds)
    assert (got[0] == label).all()
    np.testing.assert_allclose(got[1], scores, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("about", "opset"),
    [
        (forest(9, 16, depth=4), 18),
        (forest(9, 32), 17),
        (forest(9, 80, depth=79), 18),
        (forest(9, 32, ["BRANCH_LEQ", "BRANCH_EQ"]), 18),
    ],
    ids=["shallow", "older", "long", "equal"],
)
def test_other_trees_are_gone_down(about: dict[str, Any], opset: int) -> None:
    x = rows(20)
    made = regressor(x, about, opset)
    if opset < 18:
        # A node that means something else in opset 18 keeps the model where it is.
        made.graph.node[0].output[0] = "sums"
        axes = onnx.helper.make_node("ReduceMax", ["sums"], [made.graph.output[0].name], axes=[1])
        made.graph.node.append(axes)
    session = ostinato.InferenceSession(made, cache_dir=None, fallback=False)
    assert is_descent(session)
    (got,) = session.run(None, {"x0": x})
    np.testing.assert_allclose(got, witness.run(made.SerializeToString(), {"x0": x})[0], 1e-5, 1e-5)


def of_one_kind(about: dict[str, Any]) -> Forest:
    """The nodes of one tree."""
    modes = about["nodes_modes"]
    numbers = np.arange(len(modes))
    ways = [np.array(about[f"nodes_{side}nodeids"]) for side in ("true", "false")]
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    return Forest(
        np.array([LEAF if mode == "LEAF" else RULES.index(mode) for mode in modes]),
        np.array(about["nodes_featureids"]),
        np.array(about["nodes_values"]),
        np.array(about["nodes_missing_value_tracks_true"], bool),
        (np.where(is_leaf, numbers, ways[0]), np.where(is_leaf, numbers, ways[1])),
        np.array([0]),
    )


@pytest.mark.parametrize("leaves", [2, 63, 64, 65, 200])
def test_a_row_ends_in_one_leaf_of_one_piece(leaves: int) -> None:
    tree = of_one_kind(forest(1, leaves, depth=50, seed=leaves))
    found = pieces_of(tree, tree.ways, float("inf"))
    assert found is not None and (len(found) == 1) == (leaves <= MOST_LEAVES)
    assert all(len(piece.leaves) <= MOST_LEAVES for piece in found)
    assert max(len(piece.nodes) for piece in found) <= padded(found)
    rng = np.random.default_rng(0)
    for _ in range(200):
        holds = rng.random(len(tree.rules)) < 0.5
        node = 0
        while tree.rules[node] != LEAF:
            node = int(tree.ways[0 if holds[node] else 1][node])
        ends = []
        for piece in found:
            bits = (1 << len(piece.leaves)) - 1
            for inner, behind in zip(piece.nodes, piece.behind, strict=True):
                bits &= -1 if holds[inner] else ~behind
            ends.append(piece.leaves[(bits & -bits).bit_length() - 1])
        assert [leaf for leaf in ends if leaf >= 0] == [node]


@pytest.mark.parametrize("rule", RULE_NAMES)
@pytest.mark.parametrize("other", [None, *RULE_NAMES])
def test_rules_of_one_kind_hold_for_the_same_numbers(rule: str, other: str | None) -> None:
    """Splits that no float32 is equal to are rounded to the side on which no float32 lies."""
    splits = np.array([0.1, 1.0, float(np.float32(0.1)), -2.5, 0.0])
    rules = np.array([RULES.index(rule)] * 5 + ([RULES.index(other)] if other else []) + [LEAF])
    count, missing = len(rules), np.arange(len(rules)) % 2 == 0
    padding = [7.0] * (count - 5)
    first, second = np.full(count, count - 1), np.full(count, -1)
    forest = Forest(
        rules, np.zeros(count), np.append(splits, padding), missing, (first, second), np.array([0])
    )
    tests = thresholds(forest, np.float32)
    if tests is None:
        # The number below 0 is none that all modes of arithmetic tell from 0.
        assert {rule, other} & {"BRANCH_LT", "BRANCH_GTE"} and other not in (None, rule)
        return
    compare = {"LEQ": np.less_equal, "LT": np.less, "GTE": np.greater_equal, "GT": np.greater}
    near = splits.astype("f")
    numbers = np.concatenate([near, np.nextafter(near, np.float32(9)), -near, [np.inf, -np.inf]])
    for x in numbers.astype("f"):
        wanted = compare[rule.removeprefix("BRANCH_")](float(x), splits)
        got = (x < tests.splits if tests.is_strict else x <= tests.splits)[:5]
        goes_first = np.where(got, tests.ways[0][:5], tests.ways[1][:5]) == count - 1
        assert (goes_first == wanted).all()
    goes_first = np.where(tests.missing, tests.ways[0], tests.ways[1])[:5] == count - 1
    assert (goes_first == missing[:5]).all()
