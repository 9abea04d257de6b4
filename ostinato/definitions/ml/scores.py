"""The results of classifiers from their scores: a label for each row, and probabilities."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import INT64, Call


def labels(call: Call, numbers: str, texts: str) -> np.ndarray:
    """The label of each class: int64, or objects that are texts. Refuses none, or both."""
    found, names = call.attribute(numbers), call.attribute(texts)
    if bool(found) == bool(names):
        raise call.refuse("classes without labels, or with two, have no native form")
    return np.array(found, np.int64) if found else np.array(names, object)


def named(call: Call, places: ir.Value, names: np.ndarray) -> ir.Value:
    """The label of the class at each place; texts are looked up behind what is native."""
    dtype = ir.DataType.STRING if names.dtype == object else INT64
    return call.op("Gather", names, places, dtype=dtype)


def largest(call: Call, scores: ir.Value, names: np.ndarray) -> ir.Value:
    """The label of the class with the largest score in each row."""
    chosen = call.op("ArgMax", scores, dtype=INT64, axis=1, keepdims=0)
    return named(call, chosen, names)


def transformed(call: Call, scores: ir.Value, transform: str) -> ir.Value:
    """Scores as probabilities of their type; SOFTMAX_ZERO passes over scores of 0."""
    if transform == "LOGISTIC":
        return call.op("Sigmoid", scores)
    if transform == "SOFTMAX":
        return call.op("Softmax", scores, axis=1)
    if transform == "SOFTMAX_ZERO":
        top = call.reduce("ReduceMax", scores, [1], keepdims=True)
        powers = call.op("Exp", call.op("Sub", scores, top))
        zero = call.number(0, scores)
        is_zero = call.op("Equal", scores, zero, dtype=ir.DataType.BOOL)
        powers = call.op("Where", is_zero, zero, powers, dtype=scores.dtype)
        total = call.reduce("ReduceSum", powers, [1], keepdims=True)
        return call.op("Div", powers, total)
    if transform != "NONE":
        raise call.refuse(f"post_transform {transform} has no native form")
    return scores
