"""What runs on reference kernels agrees with onnxruntime, or is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

import ostinato
from ostinato.errors import RunError, UnsupportedError
from tests import witness
from tests.reference_cases import (
    CASES,
    FLOAT,
    HOLES,
    INT64,
    KERNELS,
    LEAVES,
    MACHINE,
    ML,
    STANDARD,
    STRING,
    TYPES,
    Case,
    X,
    ensembles,
    model,
    strings,
    trees,
)


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_a_reference_kernel_agrees_with_onnxruntime(case: Case) -> None:
    op, inputs, about, version = case
    domain = "" if op in STANDARD else ML
    made = model(op, inputs, domain, version, TYPES.get(op, [FLOAT]), about)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    session = ostinato.InferenceSession(made, cache_dir=None, disable=("expand_ml",))
    assert session.report()["fallback"], "it has a native form: its cases belong elsewhere"
    expected = witness.run(made.SerializeToString(), feeds)
    for got, wanted in zip(session.run(None, feeds), expected, strict=True):
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-6, strict=True)
        else:
            assert got.shape == wanted.shape and (got == wanted).all()


# onnxruntime has other scores than `onnx.reference`, which has none for some.
REFUSED: list[Case] = [
    ("LinearRegressor", [X], {"coefficients": [1.0] * 3, "post_transform": "PROBIT"}, 1),
    ("SVMRegressor", [X], {"kernel_type": "LINEAR", "n_supports": 4, **MACHINE,
                           "kernel_params": [0.0] * 3, "post_transform": "LOGISTIC"}, 1),
    ("SVMClassifier", [X], {"kernel_type": "RBF", "kernel_params": KERNELS["RBF"], **MACHINE,
                            "vectors_per_class": [2, 2], "classlabels_ints": [3, 8],
                            "post_transform": "SOFTMAX"}, 1),
    ("TreeEnsembleRegressor", [X], {**trees("target", [0] * 5, [1] * 5, "BRANCH_LT"),
                                    "post_transform": "SOFTMAX"}, 1),
    ("TreeEnsembleClassifier", [X], {**trees("class", [1] * 5, [1] * 5, "BRANCH_LT"),
                                     "classlabels_int64s": [4, 5]}, 1),
    ("TreeEnsembleClassifier", [X], {**trees("class", [0, 1, 0, 1, 0], [1] * 5, "BRANCH_LT"),
                                     "classlabels_int64s": [4, 5], "base_values": [1.0, 2.0]}, 1),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_what_no_kernel_does_is_refused_by_name(case: Case) -> None:
    op, inputs, about, version = case
    made = model(op, inputs, ML, version, TYPES.get(op, [FLOAT]), about)
    with pytest.raises(UnsupportedError, match=rf"'n' \({op}\).*has no kernel"):
        ostinato.InferenceSession(made, cache_dir=None)


@pytest.mark.parametrize("after", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_two_classes_with_weights_of_their_own(after: str) -> None:
    """A forest of scikit-learn; onnxruntime takes 1 for the label of whatever is positive."""
    about = trees("class", [0] * 5 + [1] * 5, [0.3, 0.4, 0.1, 0.2, 0.6] * 2, "BRANCH_LEQ")
    about["class_weights"][5:] = [0.2, 0.1, 0.4, 0.3, 0.5]
    about |= {f"class_{name}": ids * 2 for name, ids in LEAVES.items()}
    about |= {"classlabels_int64s": [4, 5], "post_transform": after}
    made = model("TreeEnsembleClassifier", [HOLES], ML, 1, [INT64, FLOAT], about)
    labels, scores = ostinato.InferenceSession(made, cache_dir=None).run(None, {"x0": HOLES})
    _, expected = witness.run(made.SerializeToString(), {"x0": HOLES})
    np.testing.assert_allclose(scores, expected, 1e-5, 1e-6, strict=True)
    assert set(labels) == {4, 5}
    assert (labels == np.where(expected[:, 1] > expected[:, 0], 5, 4)).all()


def test_a_single_score_without_a_meaning_is_refused() -> None:
    about = {"coefficients": [1.0, 2.0, 3.0], "classlabels_ints": [5, 9]}
    made = model("LinearClassifier", [X], ML, 1, [INT64, FLOAT], about)
    with pytest.raises(RunError, match="single score"):
        ostinato.InferenceSession(made, cache_dir=None).run(None, {"x0": X})


def test_sets_of_values_that_are_missing_are_an_error() -> None:
    (_, (x,), about, _) = ensembles()[-1]
    sets = numpy_helper.from_array(np.array([1, 2], "f"))
    made = model("TreeEnsemble", [x], ML, 5, [FLOAT], {**about, "membership_values": sets})
    with pytest.raises(UnsupportedError, match="a set of values that is missing"):
        ostinato.InferenceSession(made, cache_dir=None).run(None, {"x0": x})


def test_base_values_of_two_classes_with_weights_are_refused() -> None:
    about = trees("class", [0] * 5 + [1] * 5, [0.3, 0.4, 0.1, 0.2, 0.6] * 2, "BRANCH_LEQ")
    about |= {f"class_{name}": ids * 2 for name, ids in LEAVES.items()}
    base = numpy_helper.from_array(np.array([0.5, 0.25], "f"))
    about |= {"classlabels_int64s": [4, 5], "base_values_as_tensor": base}
    made = model("TreeEnsembleClassifier", [X], ML, 3, [INT64, FLOAT], about)
    with pytest.raises(UnsupportedError, match="base values of two classes with weights"):
        ostinato.InferenceSession(made, cache_dir=None).run(None, {"x0": X})


def test_labels_of_version_1() -> None:
    about = {"classes_strings": ["a", "b"], "default_int64": -3, "default_string": "?"}
    words, places = strings("b", "a", "q"), np.array([1, 0, 7])
    for x, kind, expected in ((words, INT64, [1, 0, -3]), (places, STRING, ["b", "a", "?"])):
        made = model("LabelEncoder", [x], ML, 1, [kind], about)
        (y,) = ostinato.InferenceSession(made, cache_dir=None).run(None, {"x0": x})
        assert y.tolist() == expected


def test_base_values_are_those_of_every_target() -> None:
    """onnxruntime leaves them out where no leaf of a row has the target."""
    about = {**trees("target", [0] * 5, [1, 2, 3, 4, 5], "BRANCH_LT"), "n_targets": 2}
    made = model("TreeEnsembleRegressor", [X], ML, 1, [FLOAT], {**about, "base_values": [1.0, 2.0]})
    (y,) = ostinato.InferenceSession(made, cache_dir=None).run(None, {"x0": X})
    assert (y[:, 1] == 2).all() and (y[:, 0] > 2).all()
