"""Nodes of operators for which there are reference kernels, as models of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Operator, inputs, attributes, version of its operator set.
Case = tuple[str, Sequence[np.ndarray], dict[str, Any], int]

ML = "ai.onnx.ml"
FLOAT, INT64, STRING, BOOL = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.STRING,
    TensorProto.BOOL,
)
TYPES: dict[str, Sequence[int]] = {
    "StringConcat": [STRING],
    "StringSplit": [STRING, INT64],
    "StringNormalizer": [STRING],
    "RegexFullMatch": [BOOL],
    "LinearClassifier": [INT64, FLOAT],
    "SVMClassifier": [INT64, FLOAT],
    "TreeEnsembleClassifier": [INT64, FLOAT],
    "OneHot": [STRING],
    "Unique": [STRING, INT64, INT64, INT64],
}


def strings(*texts: str) -> np.ndarray:
    return np.array(texts, object)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f")


def model(
    op: str, inputs: Sequence[Any], domain: str, version: int, types: Sequence[int], about: Any
) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(
            name,
            STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype),
            x.shape,
        )
        for name, x in zip(names, inputs, strict=True)
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(types)]
    node = helper.make_node(op, names, [o.name for o in outputs], name="n", domain=domain, **about)
    opsets = [helper.make_opsetid("", 20)] + [helper.make_opsetid(ML, version)] * (domain == ML)
    graph = helper.make_graph([node], "g", infos, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


X = random(4, 3)
HOLES = np.where(abs(X) < 0.4, np.float32("nan"), X)
WORDS = np.array([["ab", "cd e", ""], ["Ä b", "x", " the  cat "]], object)
VECTORS = {"support_vectors": random(4, 3, seed=1).reshape(-1).tolist()}
KERNELS = {"LINEAR": [0.0, 0.0, 0.0], "RBF": [0.5, 0.0, 3.0], "POLY": [0.5, 0.3, 2.0],
           "SIGMOID": [0.5, 0.3, 2.0]}  # fmt: skip
MACHINE = {"coefficients": [0.5, -0.5, 1.0, 0.2], "rho": [0.1], **VECTORS}
COUNTS = {
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 1,
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    "pool_strings": list("2354567867"),
}
TREES = {
    "nodes_treeids": [0] * 5 + [1] * 3,
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
    "nodes_values": [0.0, 0.5, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0],
    "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
}
MISSING = {"nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 1, 0, 0]}
LEAVES = {"nodeids": [2, 3, 4, 1, 2], "treeids": [0, 0, 0, 1, 1]}


def ensembles() -> list[Case]:
    """Trees of version 5: a node leads to nodes or, where it says so, to leaves."""
    shape = {
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 2],
        "nodes_splits": numpy_helper.from_array(np.array([0, 0.5, 0.1], "f")),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 4],
        "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 0],
        "leaf_weights": numpy_helper.from_array(np.array([1, 2, 3, 4, 5], "f")),
        "n_targets": 2,
    }
    cases: list[Case] = []
    for mode in range(6):
        modes = numpy_helper.from_array(np.array([mode, mode, 0], np.uint8))
        about = {
            "nodes_modes": modes,
            "aggregate_function": mode % 4,
            "post_transform": mode % 2 * 3,
        }
        missing = {"nodes_missing_value_tracks_true": [1, 0, 1]} if mode % 2 else {}
        cases.append(("TreeEnsemble", [HOLES], {**shape, **about, **missing}, 5))
    sets = numpy_helper.from_array(np.array([1, 2, np.nan, 7], "f"))
    modes = numpy_helper.from_array(np.array([6, 0, 6], np.uint8))
    about = {"nodes_modes": modes, "membership_values": sets, "aggregate_function": 1}
    x = np.array([[1, 0, 7], [2, 1, 1], [3, 0, 7]], "f")
    return [*cases, ("TreeEnsemble", [x], {**shape, **about}, 5)]


def trees(kind: str, ids: Sequence[int], weights: Sequence[float], rule: str) -> dict[str, Any]:
    rules = [rule if way else "LEAF" for way in TREES["nodes_truenodeids"]]
    leaves = {f"{kind}_{name}": value for name, value in LEAVES.items()}
    numbers = {f"{kind}_ids": ids, f"{kind}_weights": [float(weight) for weight in weights]}
    return {**TREES, **leaves, **numbers, "nodes_modes": rules}


def standard() -> list[Case]:
    words = strings("The", "cat", "on", "ÄÖ")
    pieces = strings("a,b c", " a  b,", "", ",,", "x")
    table = strings(*"b a b c a c d a d b a b".split()).reshape(4, 3)
    tokens = strings(*"113337867568").reshape(2, 6)
    return [
        ("StringConcat", [WORDS, strings("!", "?", "#")], {}, 20),
        *(("StringSplit", [pieces], about, 20)
          for about in ({}, {"delimiter": ","}, {"delimiter": " ", "maxsplit": 1})),
        ("StringSplit", [strings("", "")], {"delimiter": "-"}, 20),
        *(("RegexFullMatch", [WORDS], {"pattern": p}, 20) for p in ("a.*", "[a-z ]+|", r"\w+")),
        ("StringNormalizer", [words], {}, 10),
        ("StringNormalizer", [words[None]], {"stopwords": ["the", "cat"], "is_case_sensitive": 1},
         10),
        ("StringNormalizer", [words], {"stopwords": list(words), "is_case_sensitive": 1}, 10),
        *(("TfIdfVectorizer", [tokens], {**COUNTS, "mode": mode, **weights}, 9)
          for mode in ("TF", "IDF", "TFIDF")
          for weights in ({}, {"weights": [0.5, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0]})),
        ("OneHot", [np.array([0, 2, -1]), np.array(3), strings("no", "yes")], {"axis": 0}, 11),
        *(("Unique", [table], about, 11)
          for about in ({}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 0}, {"axis": -1})),
    ]  # fmt: skip


def tables() -> list[Case]:
    """Operators that look at elements or rows alone."""
    nan = float("nan")
    return [
        ("ArrayFeatureExtractor", [X, np.array([0, 2])], {}, 1),
        ("Binarizer", [X], {"threshold": 0.5}, 1),
        ("FeatureVectorizer", [X, X], {"inputdimensions": [2, 4]}, 1),
        ("FeatureVectorizer", [X[0], np.arange(2)[:1].astype("f")], {"inputdimensions": [3, 1]}, 1),
        ("FeatureVectorizer", [np.arange(6).reshape(2, 3)], {"inputdimensions": [3]}, 1),
        ("Imputer", [HOLES], {"imputed_value_floats": [1.0, 2.0, 3.0],
                              "replaced_value_float": nan}, 1),
        ("LabelEncoder", [np.array([1, np.nan, 2.5], "f")],
         {"keys_floats": [1.0, nan], "values_floats": [5.0, 6.0], "default_float": 0.5}, 2),
        ("LabelEncoder", [np.array([1, 3])],
         {"keys_int64s": [1, 3, 1], "values_floats": [5.0, 6.0, 7.0]}, 2),
        *(("Normalizer", [x.astype(dtype)], {"norm": norm}, 1)
          for norm in ("MAX", "L1", "L2")
          for x, dtype in ((X, "f"), (-abs(X), "d"), (np.array([0, 0]), "i8"))),
        ("OneHotEncoder", [np.array([1, 3, 5])], {"cats_int64s": [1, 2, 3]}, 1),
        ("Scaler", [X.astype("d")], {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 1.0, 2.0]}, 1),
        ("Scaler", [np.arange(6).reshape(2, 3)], {"offset": [1.0], "scale": [0.5]}, 1),
        ("LinearRegressor", [X], {"coefficients": [0.5, -1.0, 2.0, 1.0, 1.0, -0.5], "targets": 2},
         1),
        ("LinearClassifier", [X], {"coefficients": [0.5, -1.0, 2.0], "intercepts": [0.1],
                                   "post_transform": "LOGISTIC", "classlabels_ints": [5, 9]}, 1),
        *(("LinearClassifier", [X], {"coefficients": random(9).tolist(), "post_transform": how,
                                     "intercepts": [0.1, 0.0, -0.2],
                                     "classlabels_ints": [5, 9, 7]}, 1)
          for how in ("NONE", "SOFTMAX", "SOFTMAX_ZERO", "LOGISTIC")),
    ]  # fmt: skip


def machines() -> list[Case]:
    cases: list[Case] = []
    for kernel, numbers in KERNELS.items():
        about = {"kernel_type": kernel, "kernel_params": numbers, **MACHINE}
        many = {"vectors_per_class": [2, 1, 1], "classlabels_ints": [0, 1, 2],
                "coefficients": random(8).tolist(), "rho": [0.1, 0.2, 0.3]}  # fmt: skip
        two = {"vectors_per_class": [2, 2], "classlabels_ints": [3, 8]}
        cases += [
            ("SVMRegressor", [X], {**about, "n_supports": 4}, 1),
            ("SVMClassifier", [X], {**about, **two, "post_transform": "LOGISTIC"}, 1),
            ("SVMClassifier", [X], {**about, **two, "prob_a": [0.5], "prob_b": [0.1]}, 1),
            ("SVMClassifier", [X], {**about, **many, "post_transform": "SOFTMAX"}, 1),
            (
                "SVMClassifier",
                [X],
                {**about, **many, "prob_a": [-0.5, -2.0, -1.0], "prob_b": [0.1, 0.0, -0.3]},
                1,
            ),
        ]
    for number, rule in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")):
        of_targets = trees("target", [0, 1, 0, 1, 0], [1, 2, 3, 4, 5], f"BRANCH_{rule}")
        of_three = trees("class", [0, 1, 2, 0, 1], [1, 0.2, 0.3, 0.4, 0.5], f"BRANCH_{rule}")
        of_two = trees("class", [0] * 5, [1, -0.2, 0.3, 0.4, -0.5], f"BRANCH_{rule}")
        positive = trees("class", [0] * 5, [0.9, 0.2, 0.3, 0.4, 0.5], f"BRANCH_{rule}")
        missing = MISSING if number % 2 else {}
        how = ("SUM", "AVERAGE", "MIN", "MAX")[number % 4]
        after = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")[number % 4]
        cases += [
            ("TreeEnsembleRegressor", [HOLES],
             {**of_targets, **missing, "n_targets": 2, "aggregate_function": how}, 1),
            ("TreeEnsembleClassifier", [HOLES],
             {**of_three, **missing, "classlabels_int64s": [4, 5, 6], "post_transform": after}, 1),
            ("TreeEnsembleClassifier", [HOLES],
             {**of_two, "classlabels_int64s": [4, 5], "post_transform": after,
              "base_values": [0.1]}, 1),
            ("TreeEnsembleClassifier", [HOLES], {**positive, "classlabels_int64s": [4, 5]}, 1),
        ]  # fmt: skip
    return cases


STANDARD = {"StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch", "OneHot",
            "TfIdfVectorizer", "Unique"}  # fmt: skip
CASES = [*standard(), *tables(), *machines(), *ensembles()]
