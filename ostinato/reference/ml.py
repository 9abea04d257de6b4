"""Kernels of ai.onnx.ml for what `onnx.reference` lacks, or computes unlike onnxruntime.

What `onnx.reference` 1.23 does instead:

* Normalizer: divides by the largest magnitude, keeps the type of the input, has no vectors;
* Scaler and FeatureVectorizer: keep the type of the input, and vectors are columns;
* LabelEncoder: of keys that are repeated the last one counts; version 1 is missing;
* OneHotEncoder: writes one element after the other, of one or two axes only;
* LinearRegressor and LinearClassifier: without intercepts the result is NaN;
* TreeEnsemble: has no post-transforms;
* TreeEnsembleRegressor and TreeEnsembleClassifier: the leaves of a row are looked up by its number,
  targets that no tree mentions are the largest float, and missing values have no default.

Forms whose scores are not those of onnxruntime, and post-transforms that are missing, are refused
when a model is loaded.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.aionnxml._op_run_aionnxml import OpRunAiOnnxMl
from onnx.reference.ops.aionnxml.op_label_encoder import LabelEncoder as _LabelEncoder
from onnx.reference.ops.aionnxml.op_svm_classifier import SVMClassifier as _SVMClassifier
from onnx.reference.ops.aionnxml.op_svm_regressor import SVMRegressor as _SVMRegressor

from ostinato.model.trees import LEAF, RULES
from ostinato.reference.trees import Forest, Weights

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
            # Of keys that are repeated the last one is found.
            for name, given in about.items():
                if name.startswith(("keys_", "values_")) and given is not None:
                    about[name] = given[::-1]
            result: tuple[Array] = _by_keys(self, x, **about)
            return result
        if x.dtype.kind in "OUT":
            places = {label: i for i, label in enumerate(classes_strings)}
            found = [places.get(label, about["default_int64"]) for label in x.reshape(-1)]
            return (np.array(found, np.int64).reshape(x.shape),)
        default, count = about["default_string"], len(classes_strings)
        found = [classes_strings[i] if 0 <= i < count else default for i in x.reshape(-1)]
        return (np.array(found, object).reshape(x.shape),)


class OneHotEncoder(_Kernel):
    """A new last axis with 1 at the place of each element among categories, else 0."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        categories = self.given("cats_int64s") or self.given("cats_strings") or []
        places = {category: i for i, category in enumerate(categories)}
        flat = x.reshape(-1)
        numbers = map(places.get, flat.tolist(), itertools.repeat(-1))
        found = np.fromiter(numbers, np.int64, flat.size)
        known = found >= 0
        if not self.given("zeros") and not known.all():
            other = flat[np.argmin(known)]
            raise ValueError(
                f"{other!r} is none of the {len(categories)} categories, expected since attribute "
                "'zeros' is 0: add it to them, or set 'zeros' to 1"
            )
        result = np.zeros((flat.size, len(categories)), np.float32)
        result[known, found[known]] = 1
        return (result.reshape(*x.shape, len(categories)),)


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
    prob_b: list[float] | None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        labels = self.classlabels_ints or self.classlabels_strings or ()
        transform, has_probabilities = self.post_transform, bool(self.prob_a)
        many = len(labels) > 2
        _refuse(transform == "PROBIT", "post_transform PROBIT")
        softmax = transform.startswith("SOFTMAX") and not many and not has_probabilities
        _refuse(softmax, f"post_transform {transform} of two classes")

    def _probabilities(self, scores: Array, count: int) -> Array:
        """Probabilities of classes from the scores of all pairs, as libsvm couples them.

        onnx sums the products between which the system of equations has to tell (Wu, Lin and
        Weng, JMLR 2004, section 4.2).
        """
        slopes, offsets = (np.array(each, np.float32) for each in (self.prob_a, self.prob_b))
        first, second = np.triu_indices(count, 1)
        scaled = scores * slopes + offsets
        won = np.clip(1 / (1 + np.exp(scaled)), 1e-7, 1 - 1e-7).astype(np.float32)
        pairs = np.zeros((count, count), np.float32)
        pairs[first, second], pairs[second, first] = won, 1 - won
        system = -pairs * pairs.T
        np.fill_diagonal(system, (pairs**2).sum(0))
        return _coupled(system)


def _coupled(system: Array) -> Array:
    """The shares that minimise `p @ system @ p`, one after the other until hardly any changes."""
    count = len(system)
    shares = np.full(count, 1 / count, np.float32)
    for _ in range(max(100, count)):
        products = system @ shares
        total = shares @ products
        if np.abs(products - total).max() < 0.005 / count:
            break
        for t in range(count):
            change = (total - products[t]) / system[t, t]
            shares[t] += change
            whole = 1 + change
            total = (total + change * (change * system[t, t] + 2 * products[t])) / whole**2
            products, shares = (products + change * system[t]) / whole, shares / whole
    return shares


class _Trees(_Kernel):
    """Trees of decisions, each a row of the attributes `nodes_..`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        trees, modes = self.given("nodes_treeids"), self.given("nodes_modes")
        ids = list(zip(trees, self.given("nodes_nodeids"), strict=True))
        self._places = {key: i for i, key in enumerate(ids)}
        rules = np.array([LEAF if mode == "LEAF" else RULES.index(mode) for mode in modes], int)
        is_leaf, own = rules == LEAF, np.arange(len(ids))
        ways = tuple(
            np.array(
                [
                    i if leaf else self._places[tree, node]
                    for i, leaf, tree, node in zip(
                        own, is_leaf, trees, self.given(name), strict=True
                    )
                ],
                int,
            )
            for name in ("nodes_truenodeids", "nodes_falsenodeids")
        )
        # A tree begins with the node that no other one leads to.
        led = {*ways[0][~is_leaf], *ways[1][~is_leaf]}
        roots = np.array([i for i in own if i not in led], int)
        if len(roots) != len(set(trees)):
            raise ValueError("a tree has no first node, or several")
        splits, tracks = self.numbers("nodes_values"), self.given(_TRACKS)
        assert splits is not None
        self.forest = Forest(
            rules=rules,
            features=np.where(is_leaf, 0, self.given("nodes_featureids")),
            splits=splits,
            tracks=np.asarray(tracks if tracks else np.zeros(len(ids)), bool),
            ways=(ways[0], ways[1]),
            roots=roots,
            sets={},
        )

    def numbers(self, name: str) -> Array | None:
        """A list of numbers that may be given as a tensor."""
        tensor = self.given(f"{name}_as_tensor")
        values = self.given(name) if tensor is None else tensor
        return None if values is None else np.asarray(values)

    def weights(self, kind: str, count: int, how: str) -> Weights:
        """The weights that leaves add to `count` targets or classes."""
        values = self.numbers(f"{kind}_weights")
        assert values is not None
        leaves = zip(self.given(f"{kind}_treeids"), self.given(f"{kind}_nodeids"), strict=True)
        nodes = [self._places[leaf] for leaf in leaves]
        shape = len(self._places), count
        return Weights(nodes, self.given(f"{kind}_ids"), values, shape, how)


_TRACKS = "nodes_missing_value_tracks_true"


class TreeEnsemble(_Kernel):
    """Trees of version 5, whose nodes and leaves have numbers of their own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # onnxruntime means LOGISTIC by 1 and SOFTMAX by 2, the document the other way around.
        transform = _TRANSFORMS[self.given("post_transform")]
        _refuse(transform not in ("NONE", "SOFTMAX_ZERO"), f"post_transform {transform}")
        modes, count = self.given("nodes_modes"), len(self.given("leaf_targetids"))
        of_sets = np.flatnonzero(np.asarray(modes) == RULES.index("BRANCH_MEMBER"))
        members = self.given("membership_values")
        sets = [] if members is None else _split_at_nan(np.asarray(members))
        if len(sets) < len(of_sets):
            raise ValueError("a node asks for a set of values that is missing")
        tracks, leaves, own = self.given(_TRACKS), np.zeros(count), len(modes) + np.arange(count)

        def way(side: str) -> Array:
            to_leaf, places = (self.given(f"nodes_{side}{what}") for what in ("leafs", "nodeids"))
            numbers = np.asarray(places, int) + len(modes) * np.asarray(to_leaf, int)
            return np.concatenate([numbers, own])

        how = ("AVERAGE", "SUM", "MIN", "MAX")[self.given("aggregate_function")]
        shape = len(modes) + count, self.given("n_targets")
        values = np.asarray(self.given("leaf_weights"))
        targets = self.given("leaf_targetids")
        self._weights = Weights(own.tolist(), targets, values, shape, how)
        self._forest = Forest(
            rules=np.r_[np.asarray(modes, int), np.full(count, LEAF)],
            features=np.r_[self.given("nodes_featureids"), leaves].astype(int),
            splits=np.r_[self.given("nodes_splits"), leaves],
            tracks=np.r_[tracks if tracks else np.zeros(len(modes)), leaves].astype(bool),
            ways=(way("true"), way("false")),
            roots=np.array(self.given("tree_roots"), int),
            sets=dict(zip(of_sets.tolist(), sets, strict=False)),
        )

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        y = self._forest.sums(x, self._weights)
        return (_transformed(y, _TRANSFORMS[self.given("post_transform")]).astype(x.dtype),)


_TRANSFORMS = "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"


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
        how = self.given("aggregate_function")
        self._weights = self.weights("target", self.given("n_targets"), how)

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        base, y = self.numbers("base_values"), self.forest.sums(x, self._weights)
        return ((y if base is None else y + base).astype(np.float32),)


class TreeEnsembleClassifier(_Trees):
    """The class with the largest sum of what the leaves of a row add to it, and the scores.

    Of two classes, weights for the first alone are those of one score s. It decides by 0.5 where no
    weight is negative, and the scores are 1 - s and s; else by 0, and they are -s and s.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        labels = self.given("classlabels_int64s") or self.given("classlabels_strings")
        classes = set(self.given("class_ids"))
        self._has_one_score = len(labels) == 2 and len(classes) == 1
        _refuse(self.given("post_transform") == "PROBIT", "post_transform PROBIT")
        _refuse(
            self._has_one_score and classes != {0}, "weights for the second of two classes alone"
        )
        has_two = len(labels) == 2 and not self._has_one_score
        has_base = self.numbers("base_values") is not None
        _refuse(has_two and has_base, "base values of two classes with weights")
        self._weights = self.weights("class", len(labels), "SUM")

    def _run(self, x: Array, **_: Any) -> tuple[Array, Array]:
        labels = self.given("classlabels_int64s") or self.given("classlabels_strings")
        base = self.numbers("base_values")
        scores = self.forest.sums(x, self._weights)
        if self._has_one_score:
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
    OneHotEncoder,
    LinearRegressor,
    LinearClassifier,
    SVMRegressor,
    SVMClassifier,
    TreeEnsemble,
    TreeEnsembleRegressor,
    TreeEnsembleClassifier,
]
