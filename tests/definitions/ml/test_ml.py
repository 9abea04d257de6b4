"""Operators of `ai.onnx.ml` by those of the standard: onnxruntime's results, and native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import ostinato
from ostinato.errors import OstinatoError
from tests import witness
from tests.reference_cases import (
    CASES,
    FLOAT,
    HOLES,
    INT64,
    KERNELS,
    MACHINE,
    ML,
    TYPES,
    Case,
    X,
    model,
    trees,
)


def is_kept(case: Case) -> bool:
    _, inputs, about, _ = case
    has_texts = any(x.dtype == object for x in inputs)
    has_nan = any(np.isnan(about.get("keys_floats", [0.0])))
    return has_texts or has_nan or "membership_values" in about


OWN = [case for case in CASES if case[0] not in ("Unique", "OneHot", "TfIdfVectorizer")]
OWN = [case for case in OWN if not is_kept(case) and not case[0].startswith(("String", "Regex"))]


def session_of(made: onnx.ModelProto, **options: Any) -> ostinato.InferenceSession:
    return ostinato.InferenceSession(made, cache_dir=None, **options)


def agree(got: Any, wanted: Any) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6, strict=True)
        else:
            assert ours.shape == theirs.shape and (ours == theirs).all()


@pytest.mark.parametrize("case", OWN, ids=[f"{i}-{case[0]}" for i, case in enumerate(OWN)])
def test_a_definition_agrees_with_onnxruntime(case: Case) -> None:
    op, inputs, about, version = case
    made = model(op, inputs, ML, version, TYPES.get(op, [FLOAT]), about)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    got = session_of(made, fallback=False).run(None, feeds)
    agree(got, witness.run(made.SerializeToString(), feeds))


@pytest.mark.parametrize("width", [2, 3, 5])
def test_rows_of_features_whose_number_a_run_tells(width: int) -> None:
    rows, more = np.arange(2.0 * width).reshape(2, width), np.array([[7.0], [8.0]])
    about = {"inputdimensions": [3, 1]}
    made = model("FeatureVectorizer", [rows, more], ML, 1, [FLOAT], about)
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "W"
    feeds = {"x0": rows, "x1": more}
    got = session_of(made, fallback=False).run(None, feeds)
    agree(got, witness.run(made.SerializeToString(), feeds))


def numbers_by(keys: np.ndarray, values: np.ndarray, **more: Any) -> dict[str, Any]:
    kinds = {"i": "int64s", "f": "floats"}
    return {
        f"keys_{kinds[keys.dtype.kind]}": keys.tolist(),
        f"values_{kinds[values.dtype.kind]}": values.tolist(),
        **more,
    }


@pytest.mark.parametrize(
    ("x", "about"),
    [
        (np.array([[3, 1], [8, 3]]), numbers_by(np.array([1, 3]), np.array([7, 9]))),
        (np.array([3, 1, 5]), numbers_by(np.array([5, 3]), np.array([0.5, 2.5]))),
        (np.array([2.5, 0], "f"), numbers_by(np.array([0, 2.5]), np.array([4, 3]))),
        (np.array([9]), numbers_by(np.array([5]), np.array([1]), default_int64=-7)),
        (np.array([3, 1]), numbers_by(np.array([1, 3, 1]), np.array([7, 8, 9]))),
    ],
)
def test_labels_that_are_numbers(x: np.ndarray, about: dict[str, Any]) -> None:
    kind = INT64 if "values_int64s" in about else FLOAT
    made = model("LabelEncoder", [x], ML, 2, [kind], about)
    got = session_of(made, fallback=False).run(None, {"x0": x})
    agree(got, witness.run(made.SerializeToString(), {"x0": x}))


def forest(trees: int, depth: int, width: int, seed: int = 0) -> dict[str, Any]:
    """Trees whose leaves are as deep as chance has it."""
    rng = np.random.default_rng(seed)
    nodes: list[tuple[int, int, str, int, float, int, int]] = []
    leaves: list[tuple[int, int]] = []
    for tree in range(trees):
        ends, count = [(0, 0)], 1
        while ends:
            node, level = ends.pop()
            if level == depth or (level > 1 and rng.random() < 0.3):
                nodes.append((tree, node, "LEAF", 0, 0.0, 0, 0))
                leaves.append((tree, node))
                continue
            split = float(np.float32(rng.standard_normal()))
            feature = int(rng.integers(width))
            nodes.append((tree, node, "BRANCH_LEQ", feature, split, count, count + 1))
            ends += [(count, level + 1), (count + 1, level + 1)]
            count += 2
    names = "treeids nodeids modes featureids values truenodeids falsenodeids".split()
    return {
        **{
            f"nodes_{name}": list(part)
            for name, part in zip(names, zip(*nodes, strict=True), strict=True)
        },
        "target_treeids": [tree for tree, _ in leaves],
        "target_nodeids": [node for _, node in leaves],
        "target_ids": [0] * len(leaves),
        "target_weights": rng.standard_normal(len(leaves)).tolist(),
        "n_targets": 1,
    }


def test_no_index_of_a_forest_is_checked_in_a_run() -> None:
    """All indices are known to exist, so that a whole forest is one kernel, or two."""
    x = np.random.default_rng(1).standard_normal((40, 6)).astype("f")
    x[3, 2] = np.nan
    made = model("TreeEnsembleRegressor", [x], ML, 1, [FLOAT], forest(12, 7, 6))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    session = session_of(made, fallback=False)
    assert len(session.report()["kernels"]) <= 2
    agree(session.run(None, {"x0": x}), witness.run(made.SerializeToString(), {"x0": x}))
    (whole,) = session.run(None, {"x0": x})
    (one,) = session.run(None, {"x0": x[5:6]})
    assert (whole[5:6] == one).all()


def test_splits_of_doubles_are_compared_as_such() -> None:
    x = np.array([[0.1], [0.1 + 1e-12]])
    about = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_featureids": [0, 0, 0],
        "nodes_values_as_tensor": numpy_helper.from_array(np.array([0.1, 0, 0])),
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights_as_tensor": numpy_helper.from_array(np.array([1.0, 2.0])),
        "n_targets": 1,
    }
    made = model("TreeEnsembleRegressor", [x], ML, 3, [FLOAT], about)
    (y,) = session_of(made, fallback=False).run(None, {"x0": x})
    assert y.tolist() == [[1.0], [2.0]]


def test_rules_may_differ_from_node_to_node() -> None:
    about = {**trees("target", [0, 1, 0, 1, 0], [1, 2, 3, 4, 5], "BRANCH_LT"), "n_targets": 2}
    about["nodes_modes"] = [
        rule if rule == "LEAF" else ("BRANCH_GT", "BRANCH_EQ", "BRANCH_LEQ")[i % 3]
        for i, rule in enumerate(about["nodes_modes"])
    ]
    made = model("TreeEnsembleRegressor", [HOLES], ML, 1, [FLOAT], about)
    got = session_of(made, fallback=False).run(None, {"x0": HOLES})
    agree(got, witness.run(made.SerializeToString(), {"x0": HOLES}))


def test_a_model_of_an_older_opset_whose_nodes_stay_the_same_is_native() -> None:
    """As LightGBM's converter writes them: opset 9."""
    about = {**forest(3, 3, 3), "post_transform": "NONE"}
    made = model("TreeEnsembleRegressor", [X], ML, 1, [FLOAT], about)
    made.graph.output[0].name = "sum"
    made.graph.node[0].output[0] = "sum"
    made.graph.node.append(helper.make_node("Cast", ["sum"], ["y0"], to=TensorProto.DOUBLE))
    made.graph.output.append(helper.make_tensor_value_info("y0", TensorProto.DOUBLE, None))
    made.opset_import[0].version = 9
    got = session_of(made, fallback=False).run(["y0"], {"x0": X})
    agree(got, witness.run(made.SerializeToString(), {"x0": X})[1:])


LABELLED = [case for case in OWN if {"classlabels_ints", "classlabels_int64s"} & case[2].keys()]


@pytest.mark.parametrize("case", LABELLED, ids=[f"{i}-{c[0]}" for i, c in enumerate(LABELLED)])
def test_labels_that_are_texts(case: Case) -> None:
    op, inputs, about, version = case
    numbers = "classlabels_int64s" if op.startswith("Tree") else "classlabels_ints"
    of_texts = {name: value for name, value in about.items() if name != numbers}
    of_texts["classlabels_strings"] = [f"class {number}" for number in about[numbers]]
    made = model(op, inputs, ML, version, [TensorProto.STRING, FLOAT], of_texts)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    agree(
        session_of(made, fallback=False).run(None, feeds),
        witness.run(made.SerializeToString(), feeds),
    )


def test_what_a_definition_refuses_stays_on_its_kernel() -> None:
    """A node that two lead to, nodes that are missing."""
    shared = {**trees("target", [0, 1, 0, 1, 0], [1, 2, 3, 4, 5], "BRANCH_LT"), "n_targets": 2}
    shared["nodes_falsenodeids"] = [4, 2, 0, 0, 0, 2, 0, 0]
    shared["nodes_treeids"] = [0, 0, 0, 0, 0, 1, 1, 1]
    made = model("TreeEnsembleRegressor", [X], ML, 1, [FLOAT], shared)
    with pytest.raises(ostinato.OstinatoError, match="no first node, or several"):
        session_of(made).run(None, {"x0": X})


@pytest.mark.parametrize(
    "about",
    [
        {
            "one_class": 1,
            "n_supports": 4,
            "kernel_type": "RBF",
            "kernel_params": KERNELS["RBF"],
            **MACHINE,
        },
        {
            "kernel_type": "LINEAR",
            "kernel_params": KERNELS["LINEAR"],
            "coefficients": [0.5, -0.5, 1.0],
            "rho": [0.1],
        },
    ],
)
def test_machines_of_one_class_and_without_vectors(about: dict[str, Any]) -> None:
    made = model("SVMRegressor", [X], ML, 1, [FLOAT], about)
    got = session_of(made, fallback=False).run(None, {"x0": X})
    agree(got, witness.run(made.SerializeToString(), {"x0": X}))


def test_degrees_of_polynomials_need_not_be_whole() -> None:
    x = np.abs(np.random.default_rng(0).standard_normal((4, 3))).astype("f")
    about = {
        "kernel_type": "POLY",
        "kernel_params": [0.5, 1.0, 2.5],
        "support_vectors": [1.0, 0.5, 0.0, 0.25, 2.0, 1.5],
        "coefficients": [0.5, -1.0],
        "n_supports": 2,
        "rho": [0.1],
    }
    made = model("SVMRegressor", [x], ML, 1, [FLOAT], about)
    got = session_of(made, fallback=False).run(None, {"x0": x})
    agree(got, witness.run(made.SerializeToString(), {"x0": x}))


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_pair_of_four_classes_votes(kernel: str) -> None:
    rng = np.random.default_rng(0)
    counts, x = [3, 1, 4, 2], rng.standard_normal((30, 5)).astype("f")
    about = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "vectors_per_class": counts,
        "support_vectors": rng.standard_normal(50).tolist(),
        "coefficients": rng.standard_normal(30).tolist(),
        "rho": (rng.standard_normal(6) / 10).tolist(),
        "classlabels_ints": [4, 7, 1, 2],
    }
    made = model("SVMClassifier", [x], ML, 1, [INT64, FLOAT], about)
    got = session_of(made, fallback=False).run(None, {"x0": x})
    agree(got, witness.run(made.SerializeToString(), {"x0": x}))
    assert len({*got[0]}) > 1


@pytest.mark.parametrize("classes", [2, 5])
def test_pairs_are_coupled_to_probabilities_row_by_row(classes: int) -> None:
    rng = np.random.default_rng(classes)
    pairs, x = classes * (classes - 1) // 2, rng.standard_normal((40, 5)).astype("f")
    about = {
        "kernel_type": "RBF",
        "kernel_params": KERNELS["RBF"],
        "vectors_per_class": [2] * classes,
        "support_vectors": rng.standard_normal(10 * classes).tolist(),
        "coefficients": rng.standard_normal(2 * classes * (classes - 1)).tolist(),
        "rho": (rng.standard_normal(pairs) / 10).tolist(),
        "prob_a": (-3 * rng.random(pairs)).tolist(),
        "prob_b": rng.standard_normal(pairs).tolist(),
        "classlabels_ints": list(range(classes)),
    }
    made = model("SVMClassifier", [x], ML, 1, [INT64, FLOAT], about)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    session = session_of(made, fallback=False)
    got = session.run(None, {"x0": x})
    agree(got, witness.run(made.SerializeToString(), {"x0": x}))
    alone = [session.run(None, {"x0": row[None]})[1] for row in x]
    # Rows take from one to several steps, whatever is beside them.
    assert (np.concatenate(alone) == got[1]).all()


def test_probabilities_of_many_classes_run_on_a_reference_kernel() -> None:
    classes = 40
    pairs, x = classes * (classes - 1) // 2, np.ones((1, 2), "f")
    about = {
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 0.0],
        "vectors_per_class": [1] * classes,
        "support_vectors": [0.5] * 2 * classes,
        "coefficients": [0.25] * classes * (classes - 1),
        "rho": [0.1] * pairs,
        "prob_a": [-1.0] * pairs,
        "prob_b": [0.1] * pairs,
        "classlabels_ints": list(range(classes)),
    }
    session = session_of(model("SVMClassifier", [x], ML, 1, [INT64, FLOAT], about))
    assert [entry["op"] for entry in session.report()["fallback"]] == ["SVMClassifier"]
    np.testing.assert_allclose(session.run(None, {"x0": x})[1].sum(), 1, 1e-5)


def test_a_softmax_before_opset_13_keeps_its_meaning() -> None:
    text = """
    <ir_version: 7, opset_import: ["" : 9, "ai.onnx.ml" : 1]>
    g (float[2, 3, 4] x) => (float[2, 3, 4] y) {
        z = ai.onnx.ml.Normalizer <norm = "MAX"> (x)
        y = Softmax (z)
    }"""
    made = parser.parse_model(text)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("f")
    session = session_of(made)
    assert session.report()["fallback"], "Softmax means something else in a newer set"
    rows = x / x.max(-1, keepdims=True)
    powers = np.exp(rows - rows.max((1, 2), keepdims=True))
    expected = powers / powers.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, 1e-5)


def test_rows_of_coefficients_tell_the_length_of_rows() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
    g (float[N] x, int64[2] s) => (float[A, B] y, int64[A] label, float[A, C] scores) {
        rows = Reshape (x, s)
        y = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0, 3.0, -1.0, 0.5, 4.0],
                                        intercepts = [0.5, 1.5], targets = 2> (rows)
        label, scores = ai.onnx.ml.LinearClassifier <classlabels_ints = [4, 7, 9],
            coefficients = [1.0, 2.0, 3.0, -1.0, 0.5, 4.0, 0.0, 1.0, -2.0],
            intercepts = [0.5, 1.5, 0.0]> (rows)
    }"""
    made = parser.parse_model(text)
    feeds = {"x": np.random.default_rng(0).standard_normal(12).astype("f"), "s": np.array([4, 3])}
    session = session_of(made, fallback=False)
    agree(session.run(None, feeds), witness.run(made.SerializeToString(), feeds))
    with pytest.raises(OstinatoError, match="contracted axes"):
        session.run(None, feeds | {"s": np.array([3, 4])})


def test_operands_have_the_types_that_other_definitions_give_them() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
    g (float[N, 2] x) => (float[N, 2] y) <float two = {2.}> {
        a = ai.onnx.ml.Imputer <imputed_value_floats = [3.0], replaced_value_float = 1.0> (x)
        b = Mul (a, two)
        c = ai.onnx.ml.Imputer <imputed_value_floats = [5.0], replaced_value_float = 6.0> (b)
        d = Add (c, b)
        y = ai.onnx.ml.Scaler <offset = [1.0, 2.0], scale = [2.0, 3.0]> (d)
    }"""
    made = parser.parse_model(text)
    feeds = {"x": np.array([[1, 2], [3, 4], [3, 1]], "f")}
    got = session_of(made, fallback=False).run(None, feeds)
    agree(got, witness.run(made.SerializeToString(), feeds))
