"""Nodes of one tree each become one node, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import ostinato
from ostinato.model.load import load_model
from ostinato.passes.normalise.merge_trees import merge_trees
from tests import witness
from tests.definitions.ml.test_ml import forest


def model(trees: list[dict[str, Any]], columns: list[list[int]]) -> onnx.ModelProto:
    """Each tree on these columns of x."""
    nodes, constants = [], []
    for number, (about, used) in enumerate(zip(trees, columns, strict=True)):
        name = "".join(map(str, used))
        if name not in {tensor.name for tensor in constants}:
            constants.append(onnx.numpy_helper.from_array(np.array(used), name))
        rows, y = f"r{number}", f"y{number}"
        nodes += [
            helper.make_node("Gather", ["x", name], [rows], axis=1),
            helper.make_node("TreeEnsembleRegressor", [rows], [y], domain="ai.onnx.ml", **about),
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4])],
        [
            helper.make_tensor_value_info(f"y{n}", onnx.TensorProto.FLOAT, ["N", 1])
            for n in range(len(trees))
        ],
        constants,
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("depth", [2, 9])
def test_trees_on_the_same_rows_become_one_node(depth: int) -> None:
    trees = [forest(1, depth, 3, seed=seed) for seed in range(5)]
    made = model(trees, [[0, 1, 3], [0, 1, 3], [1, 2, 3], [0, 1, 3], [1, 2, 3]])
    loaded = load_model(made)
    assert merge_trees(loaded) == 3
    kinds = [node.op_type for node in loaded.graph if node.op_type != "Gather"]
    assert kinds == ["TreeEnsembleRegressor", "Split"] * 2
    x = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    merged = ostinato.InferenceSession(made, cache_dir=None, fallback=False).run(None, {"x": x})
    apart = ostinato.InferenceSession(made, cache_dir=None, disable=("merge_trees",))
    for got, own, expected in zip(
        merged,
        apart.run(None, {"x": x}),
        witness.run(made.SerializeToString(), {"x": x}),
        strict=True,
    ):
        np.testing.assert_array_equal(got, own)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "other",
    [
        forest(2, 3, 3),
        {**forest(1, 3, 3), "base_values": [1.0]},
        {**forest(1, 3, 3), "aggregate_function": "AVERAGE"},
        {**forest(1, 3, 3), "post_transform": "LOGISTIC"},
        {**forest(1, 3, 3), "n_targets": 2},
    ],
    ids=["trees", "base", "aggregate", "transform", "targets"],
)
def test_nodes_that_do_more_stay(other: dict[str, Any]) -> None:
    made = load_model(model([forest(1, 3, 3), other], [[0, 1, 3]] * 2))
    assert merge_trees(made) == 0


def test_rows_by_other_tables_are_not_the_same() -> None:
    """Printed, tensors of so many elements are equal."""
    made = model([forest(1, 5, 3, seed=seed) for seed in (0, 1)], [[0, 1, 3]] * 2)
    made.opset_import[1].version = 4
    keys = onnx.numpy_helper.from_array(np.arange(2000), "table")
    nodes = [made.graph.node[0], helper.make_node("Cast", ["r0"], ["places"], to=7)]
    trees = [node for node in made.graph.node if node.op_type == "TreeEnsembleRegressor"]
    for number, tree in enumerate(trees):
        values = np.zeros(2000, np.float32)
        values[number] = 1
        tree.input[0] = f"rows{number}"
        table = helper.make_node(
            "LabelEncoder",
            ["places"],
            [tree.input[0]],
            domain="ai.onnx.ml",
            keys_tensor=keys,
            values_tensor=onnx.numpy_helper.from_array(values, "table"),
            default_tensor=onnx.numpy_helper.from_array(np.zeros(1, np.float32), "default"),
        )
        nodes += [table, tree]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    assert merge_trees(load_model(made)) == 0
