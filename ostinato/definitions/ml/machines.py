"""Support vector machines: a product of coefficients with what kernels make of a row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, Call
from ostinato.definitions.ml.coupling import coupled
from ostinato.definitions.ml.scores import labels, largest, transformed
from ostinato.definitions.ml.table import ml
from ostinato.graph.writer import Array


@ml.register("SVMRegressor")
def svm_regressor(call: Call) -> Sequence[ir.Value]:
    """The weighted sum over support vectors, or its sign; without any, over the row itself."""
    call.refuse_unless("post_transform", "NONE")
    count, one_class = call.attribute("n_supports"), call.attribute("one_class")
    coefficients, vectors = _numbers(call, "coefficients"), _numbers(call, "support_vectors")
    x, kernel = call.cast(call["X"], FLOAT), _Kernel(call)
    if count > 0:
        x = kernel.of(x, vectors, count)
    (rho,) = call.attribute("rho")
    total = call.op("MatMul", x, np.ascontiguousarray(coefficients.reshape(-1, 1)))
    total = call.op("Add", total, rho)
    if not one_class:
        return [total]
    is_inside = call.op("Greater", total, 0, dtype=ir.DataType.BOOL)
    one, other = call.number(1, total), call.number(-1, total)
    return [call.op("Where", is_inside, one, other, dtype=total.dtype)]


@ml.register("SVMClassifier")
def svm_classifier(call: Call) -> Sequence[ir.Value]:
    """The class with the most votes, one from each pair of classes, and the scores of the pairs.

    With `prob_a` and `prob_b`, what each pair makes of its score is coupled to a probability of
    each class; the votes still decide.
    """
    names = labels(call, "classlabels_ints", "classlabels_strings")
    counts, transform = call.attribute("vectors_per_class"), call.attribute("post_transform")
    slopes, offsets = _numbers(call, "prob_a"), _numbers(call, "prob_b")
    if not counts or len(counts) != len(names) or len(names) < 2:
        raise call.refuse("a machine without support vectors of each class has no native form")
    coefficients, rho = _numbers(call, "coefficients"), _numbers(call, "rho")
    two = len(names) == 2 and not slopes.size
    if two and (transform.startswith("SOFTMAX") or coefficients.min() >= 0):
        raise call.refuse(f"post_transform {transform} of two classes, or no negative coefficients")
    vectors = _numbers(call, "support_vectors")
    kernels = _Kernel(call).of(call.cast(call["X"], FLOAT), vectors, sum(counts))
    pairs = [*combinations(range(len(names)), 2)]
    if len(rho) != len(pairs):
        raise call.refuse(f"{len(rho)} numbers in 'rho', expected one for each of {len(pairs)}")
    if len(offsets) != len(slopes) or len(slopes) not in (0, len(pairs)):
        raise call.refuse("'prob_a' and 'prob_b' without a number for each pair of classes")
    scores = call.op("MatMul", kernels, _columns(coefficients, counts, pairs))
    scores = call.op("Add", scores, rho)
    is_first = call.op("Greater", scores, 0, dtype=ir.DataType.BOOL)
    votes = call.op("MatMul", call.cast(is_first, FLOAT), _votes(pairs, len(names)))
    # All votes are those for the second of each pair, and what others change of them.
    seconds = np.bincount([second for _, second in pairs], minlength=len(names))
    label = largest(call, call.op("Add", votes, seconds.astype(np.float32)), names)
    if slopes.size:
        scores = coupled(call, call.op("Add", call.op("Mul", scores, slopes), offsets), pairs)
    elif two:
        scores = call.op("Concat", call.op("Neg", scores), scores, axis=1)
    return [label, transformed(call, scores, transform)]


class _Kernel:
    """The kernel function of a row and a support vector, by the attributes of a node."""

    def __init__(self, call: Call) -> None:
        self._call, self._kind = call, str(call.attribute("kernel_type"))
        given = call.attribute("kernel_params") or (0.0, 0.0, 0.0)
        if self._kind not in ("LINEAR", "POLY", "RBF", "SIGMOID") or len(given) != 3:
            raise call.refuse(f"kernel {self._kind} of {len(given)} numbers has no native form")
        self._gamma, self._shift, self._degree = map(float, given)

    def of(self, x: ir.Value, vectors: Array, count: int) -> ir.Value:
        """One column for each of `count` support vectors."""
        call = self._call
        if vectors.size % count:
            raise call.refuse(f"{vectors.size} numbers of {count} support vectors")
        columns = np.ascontiguousarray(vectors.reshape(count, -1).T)
        gamma = call.number(self._gamma, x)
        if self._kind == "RBF":
            # Lanes run along support vectors, not along the sum.
            away = call.op("Sub", call.op("Unsqueeze", x, np.array([2])), columns)
            squares = call.reduce("ReduceSum", call.op("Mul", away, away), [1], keepdims=False)
            return call.op("Exp", call.op("Neg", call.op("Mul", gamma, squares)))
        product = call.op("MatMul", x, columns)
        if self._kind == "LINEAR":
            return product
        inner = call.op("Add", call.op("Mul", product, gamma), self._shift)
        if self._kind == "SIGMOID":
            return call.op("Tanh", inner)
        return call.op("Pow", inner, self._degree)


def _numbers(call: Call, name: str) -> Array:
    return np.array(call.attribute(name) or (), np.float32)


def _columns(coefficients: Array, counts: Sequence[int], pairs: list[tuple[int, int]]) -> Array:
    """The coefficient of each support vector in the score of each pair of classes."""
    rows, ends = coefficients.reshape(-1, sum(counts)), np.cumsum(counts)
    columns = np.zeros((sum(counts), len(pairs)), np.float32)
    for pair, (first, second) in enumerate(pairs):
        for own, row in ((first, second - 1), (second, first)):
            part = slice(ends[own] - counts[own], ends[own])
            columns[part, pair] = rows[row, part]
    return columns


def _votes(pairs: list[tuple[int, int]], count: int) -> Array:
    """The change of the votes by a pair that is for the first class, not the second."""
    changes = np.zeros((len(pairs), count), np.float32)
    for pair, (first, second) in enumerate(pairs):
        changes[pair, first], changes[pair, second] = 1, -1
    return changes
