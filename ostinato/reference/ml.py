"""Kernels of ai.onnx.ml for what `onnx.reference` lacks, or computes unlike onnxruntime.

What `onnx.reference` 1.23 does instead:

* Normalizer: divides by the largest magnitude, keeps the type of the input, has no vectors;
* Scaler and FeatureVectorizer: keep the type of the input, and vectors are columns;
* LabelEncoder of version 1: is missing;
* LinearRegressor and LinearClassifier: without intercepts the result is NaN;
* TreeEnsemble: has no post-transforms;
* TreeEnsembleRegressor and TreeEnsembleClassifier: the leaves of a row are looked up by its number,
  targets that no tree mentions are the largest float, and missing values have no default.

Forms whose scores are not those of onnxruntime, and post-transforms that are missing, are refused
when a model is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.aionnxml._op_run_aionnxml import OpRunAiOnnxMl
from onnx.reference.ops.aionnxml.op_label_encoder import LabelEncoder as _LabelEncoder
from onnx.reference.ops.aionnxml.op_svm_classifier import SVMClassifier as _SVMClassifier
from onnx.reference.ops.aionnxml.op_svm_regressor import SVMRegressor as _SVMRegressor

Array = np.ndarray[Any, Any]


def _refuse(holds: bool, what: str) -> None:
    """Raise an error that says what is refused, if that holds."""
    if holds:
        raise NotImplementedError(f"{what} has no kernel")


class _Kernel(OpRunAiOnnxMl):
    """Reads attributes by name: None for those that are left out and have no default."""

    def given(self, name: str) -> Any:
        """The value of an attribute."""
        value = getattr(self, name, None)
        return value.decode() if isinstance(value, bytes) else value


class Normalizer(_Kernel):
    """Rows divided by their maximum, or by the norm; rows whose divisor is 0 stay."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        norm, x = self.given("norm"), x.astype(np.float32)
        if norm == "MAX":
            divisor = x.max(-1, keepdims=True)
        else:
            divisor = np.linalg.norm(x, {"L1": 1, "L2": 2}[norm], -1, keepdims=True)
        return (np.where(divisor == 0, x, x / np.where(divisor == 0, 1, divisor)),)


class Scaler(_Kernel):
    """(x - offset) * scale, as float32."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        offset, scale = (np.array(self.given(name), np.float32) for name in ("offset", "scale"))
        return ((x.astype(np.float32) - offset) * scale,)


class FeatureVectorizer(_Kernel):
    """Rows one behind the other as float32, each cut or filled up with zeros to its size."""

    def _run(self, *inputs: Array, **_: Any) -> tuple[Array]:
        parts = []
        for x, size in zip(inputs, self.given("inputdimensions"), strict=True):
            row = np.atleast_2d(x).astype(np.float32)[:, :size]
            parts.append(np.pad(row, ((0, 0), (0, size - row.shape[1]))))
        return (np.concatenate(parts, 1),)


_by_keys: Any = _LabelEncoder._run


class LabelEncoder(_Kernel):
    """Values by keys; in version 1 strings by their place in a list, or the other way around."""

    def _run(self, x: Array, *, classes_strings: Any = None, **about: Any) -> tuple[Array]:
        if classes_strings is None:
            result: tuple[Array] = _by_keys(self, x, **about)
            return result
        if x.dtype.kind in "OUT":
            places = {label: i for i, label in enumerate(classes_strings)}
            found = [places.get(label, about["default_int64"]) for label in x.reshape(-1)]
            return (np.array(found, np.int64).reshape(x.shape),)
        default, count = about["default_string"], len(classes_strings)
        found = [classes_strings[i] if 0 <= i < count else default for i in x.reshape(-1)]
        return (np.array(found, object).reshape(x.shape),)


class _Linear(_Kernel):
    """x @ coefficients + intercepts."""

    def scores(self, x: Array) -> Array:
        """A column for each row of coefficients."""
        rows = np.atleast_2d(x).astype(np.float32)
        columns = np.array(self.given("coefficients"), np.float32).reshape(-1, rows.shape[1]).T
        return np.asarray(rows @ columns + np.array(self.given("intercepts") or 0, np.float32))


class LinearRegressor(_Linear):
    """x @ coefficients + intercepts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        transform = self.given("post_transform")
        _refuse(transform != "NONE", f"post_transform {transform}")

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (self.scores(x),)


class LinearClassifier(_Linear):
    """The class with the largest score, and the scores."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        _refuse(self.given("post_transform") == "PROBIT", "post_transform PROBIT")

    def _run(self, x: Array, **_: Any) -> tuple[Array, Array]:
        transform, scores = self.given("post_transform"), self.scores(x)
        labels = self.given("classlabels_ints") or self.given("classlabels_strings")
        if scores.shape[1] == 1:
            _refuse(transform != "LOGISTIC", f"a single score with post_transform {transform}")
            scores = np.concatenate([-scores, scores], 1)
        kind = np.int64 if self.given("classlabels_ints") else object
        chosen = np.array([labels[i] for i in scores.argmax(1)], kind)
        return chosen, _transformed(scores, transform).astype(np.float32)


class SVMRegressor(_SVMRegressor):
    """The sum over support vectors."""

    post_transform: str

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        _refuse(self.post_transform != "NONE", f"post_transform {self.post_transform}")


class SVMClassifier(_SVMClassifier):
    """The class with the most votes or the largest probability, and the scores."""

    classlabels_ints: list[int] | None
    classlabels_strings: list[str] | None
    post_transform: str
    prob_a: list[float] | None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        labels = self.classlabels_ints or self.classlabels_strings or ()
        transform, has_probabilities = self.post_transform, bool(self.prob_a)
        many = len(labels) > 2
        _refuse(transform == "PROBIT", "post_transform PROBIT")
        _refuse(many and has_probabilities, "probabilities of more than two classes")
        softmax = transform.startswith("SOFTMAX") and not many and not has_probabilities
        _refuse(softmax, f"post_transform {transform} of two classes")


_RULES: dict[str, Any] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}


class _Trees(_Kernel):
    """Trees of decisions, each a row of the attributes `nodes_..`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        ids = list(zip(self.given("nodes_treeids"), self.given("nodes_nodeids"), strict=True))
        self._places = {key: i for i, key in enumerate(ids)}
        self._trees = list(dict.fromkeys(self.given("nodes_treeids")))
        # A tree begins with the node that no other one leads to.
        led = set()
        for (tree, _), mode, *ways in zip(
            ids, self.given("nodes_modes"), *map(self.given, _WAYS), strict=True
        ):
            led |= set() if mode == "LEAF" else {(tree, way) for way in ways}
        self._roots = [key for key in ids if key not in led]
        if len(self._roots) != len(self._trees):
            raise ValueError("a tree has no first node, or several")

    def numbers(self, name: str) -> Array | None:
        """A list of numbers that may be given as a tensor."""
        tensor = self.given(f"{name}_as_tensor")
        values = self.given(name) if tensor is None else tensor
        return None if values is None else np.asarray(values)

    def leaves(self, x: Array) -> list[list[tuple[int, int]]]:
        """For each row, the leaf (tree, node) that it ends at in each tree."""
        return [[self._leaf(row, root) for root in self._roots] for row in x]

    def _leaf(self, row: Array, root: tuple[int, int]) -> tuple[int, int]:
        modes, values = self.given("nodes_modes"), self.numbers("nodes_values")
        missing, features = (
            self.given(f"nodes_{name}") for name in ("missing_value_tracks_true", "featureids")
        )
        assert values is not None
        key = root
        for _ in modes:
            i = self._places[key]
            if modes[i] == "LEAF":
                return key
            element = row[features[i]]
            goes = bool(_RULES[modes[i]](element, values[i]))
            goes = goes or bool(missing and missing[i] and np.isnan(element))
            key = key[0], self.given(_WAYS[0 if goes else 1])[i]
        raise ValueError("a tree has a circle")

    def weights(self, kind: str) -> dict[tuple[int, int], list[tuple[int, float]]]:
        """By leaf, what it adds to which targets or classes."""
        values = self.numbers(f"{kind}_weights")
        assert values is not None
        found: dict[tuple[int, int], list[tuple[int, float]]] = {}
        names = (f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids")
        for tree, node, target, weight in zip(*map(self.given, names), values, strict=True):
            found.setdefault((tree, node), []).append((target, float(weight)))
        return found


_WAYS = "nodes_truenodeids", "nodes_falsenodeids"


def _aggregated(rows: list[list[list[tuple[int, float]]]], count: int, how: str) -> Array:
    """For each row and target, what leaves add to it: their sum, mean, minimum or maximum, or 0.

    rows: of each row for each tree the targets and weights of the leaf.
    """
    y = np.zeros((len(rows), count))
    for row, leaves in enumerate(rows):
        values: dict[int, list[float]] = {}
        for target, weight in (pair for leaf in leaves for pair in leaf):
            values.setdefault(target, []).append(weight)
        for target, found in values.items():
            combine = {"MIN": min, "MAX": max}.get(how, sum)
            y[row, target] = combine(found) / (len(leaves) if how == "AVERAGE" else 1)
    return y


class TreeEnsemble(_Kernel):
    """Trees of version 5, whose nodes and leaves have numbers of their own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # onnxruntime means LOGISTIC by 1 and SOFTMAX by 2, the document the other way around.
        transform = _TRANSFORMS[self.given("post_transform")]
        _refuse(transform not in ("NONE", "SOFTMAX_ZERO"), f"post_transform {transform}")
        members = self.given("membership_values")
        self._sets: list[Array] = [] if members is None else _split_at_nan(np.asarray(members))

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        rows = [[self._leaf(row, root) for root in self.given("tree_roots")] for row in x]
        weights = list(zip(self.given("leaf_targetids"), self.given("leaf_weights"), strict=True))
        found = [[[weights[leaf]] for leaf in leaves] for leaves in rows]
        how = ("AVERAGE", "SUM", "MIN", "MAX")[self.given("aggregate_function")]
        y = _aggregated(found, self.given("n_targets"), how)
        return (_transformed(y, _TRANSFORMS[self.given("post_transform")]).astype(x.dtype),)

    def _leaf(self, row: Array, node: int) -> int:
        modes, missing = self.given("nodes_modes"), self.given("nodes_missing_value_tracks_true")
        for _ in modes:
            element = row[self.given("nodes_featureids")[node]]
            if modes[node] == len(_RULES):
                members = int((np.asarray(modes[:node]) == len(_RULES)).sum())
                goes = bool((self._sets[members] == element).any())
            else:
                goes = bool(_BY_NUMBER[modes[node]](element, self.given("nodes_splits")[node]))
            goes = goes or bool(missing and missing[node] and np.isnan(element))
            way = "true" if goes else "false"
            following: int = self.given(f"nodes_{way}nodeids")[node]
            if self.given(f"nodes_{way}leafs")[node]:
                return following
            node = following
        raise ValueError("a tree has a circle")


_TRANSFORMS = "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"
_BY_NUMBER = list(_RULES.values())


def _split_at_nan(members: Array) -> list[Array]:
    ends = np.flatnonzero(np.isnan(members))
    return [part[~np.isnan(part)] for part in np.split(members, ends)]


class TreeEnsembleRegressor(_Trees):
    """The sum, mean, minimum or maximum of what the leaves of a row add to each target."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        _refuse(
            self.given("post_transform") != "NONE", f"post_transform {self.given('post_transform')}"
        )

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        weights, base = self.weights("target"), self.numbers("base_values")
        found = [[weights.get(leaf, []) for leaf in leaves] for leaves in self.leaves(x)]
        y = _aggregated(found, self.given("n_targets"), self.given("aggregate_function"))
        return ((y if base is None else y + base).astype(np.float32),)


class TreeEnsembleClassifier(_Trees):
    """The class with the largest sum of what the leaves of a row add to it, and the scores.

    Of two classes the weights are those of one score s. It decides by 0.5 where no weight is
    negative, and the scores are 1 - s and s; else by 0, and they are -s and s.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        labels = self.given("classlabels_int64s") or self.given("classlabels_strings")
        others = len(labels) == 2 and set(self.given("class_ids")) != {0}
        _refuse(self.given("post_transform") == "PROBIT", "post_transform PROBIT")
        _refuse(others, "one of two classes with weights for others than the first")

    def _run(self, x: Array, **_: Any) -> tuple[Array, Array]:
        labels = self.given("classlabels_int64s") or self.given("classlabels_strings")
        weights, base = self.weights("class"), self.numbers("base_values")
        found = [[weights.get(leaf, []) for leaf in leaves] for leaves in self.leaves(x)]
        scores = _aggregated(found, len(labels), "SUM")
        if len(labels) == 2:
            chosen, scores = self._of_two(scores.sum(1), base)
        else:
            scores = scores if base is None else scores + base
            chosen = scores.argmax(1)
            scores = _transformed(scores, self.given("post_transform"))
        kind = np.int64 if self.given("classlabels_int64s") else object
        return np.array([labels[i] for i in chosen], kind), scores.astype(np.float32)

    def _of_two(self, score: Array, base: Array | None) -> tuple[Array, Array]:
        values = self.numbers("class_weights")
        assert values is not None
        positive = bool((values >= 0).all())
        if base is not None:
            _refuse(len(base) != 1, "base values for a class without weights")
            score = score + base[0]
        if positive:
            return (score > 0.5).astype(int), np.stack([1 - score, score], 1)
        scores = np.stack([-score, score], 1)
        if self.given("post_transform") == "LOGISTIC":
            scores = _transformed(scores, "LOGISTIC")
        return (score > 0).astype(int), scores


def _transformed(scores: Array, transform: str) -> Array:
    """Scores as probabilities; SOFTMAX_ZERO passes over scores of 0."""
    if transform == "LOGISTIC":
        return np.asarray(1 / (1 + np.exp(-scores)))
    if not transform.startswith("SOFTMAX"):
        return scores
    powers = np.exp(scores - scores.max(1, keepdims=True))
    if transform == "SOFTMAX_ZERO":
        powers = np.where(scores == 0, 0, powers)
    return np.asarray(powers / powers.sum(1, keepdims=True))


KERNELS: list[type[OpRun]] = [
    Normalizer,
    Scaler,
    FeatureVectorizer,
    LabelEncoder,
    LinearRegressor,
    LinearClassifier,
    SVMRegressor,
    SVMClassifier,
    TreeEnsemble,
    TreeEnsembleRegressor,
    TreeEnsembleClassifier,
]
