"""Linear models: a product with coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, Call
from ostinato.definitions.ml.scores import labels, largest, transformed
from ostinato.definitions.ml.table import ml


@ml.register("LinearRegressor")
def linear_regressor(call: Call) -> Sequence[ir.Value]:
    """x @ coefficients + intercepts, as float32."""
    call.refuse_unless("post_transform", "NONE")
    return [_scores(call, call.attribute("targets"))]


@ml.register("LinearClassifier")
def linear_classifier(call: Call) -> Sequence[ir.Value]:
    """The class with the largest score, and the scores."""
    names = labels(call, "classlabels_ints", "classlabels_strings")
    transform, given = call.attribute("post_transform"), call.attribute("intercepts")
    call.attribute("multi_class")
    width = _width(call)
    count = len(call.attribute("coefficients")) // width if width else len(given or names)
    scores = _scores(call, count)
    if count == 1:
        if transform != "LOGISTIC":
            raise call.refuse(f"a single score with post_transform {transform}")
        scores = call.op("Concat", call.op("Neg", scores), scores, axis=1)
    if (given and len(given) != count) or max(count, 2) != len(names):
        raise call.refuse(f"{count} scores of {len(names)} classes have no native form")
    return [largest(call, scores, names), call.cast(transformed(call, scores, transform), FLOAT)]


def _width(call: Call) -> int | None:
    """The length of rows; None where it is not known."""
    x = call["X"]
    if call.has_rank(x) and call.rank(x) != 2:
        raise call.refuse(f"rows of {call.rank(x)} axes have no native form")
    return call.size(x, 1) if call.has_rank(x) else None


def _scores(call: Call, count: int) -> ir.Value:
    """A column for each row of coefficients."""
    coefficients = np.array(call.attribute("coefficients"), np.float32)
    given = call.attribute("intercepts")
    width = _width(call) or coefficients.size // count
    if coefficients.size != count * width:
        raise call.refuse(f"{coefficients.size} coefficients of {count} rows of {width}")
    x = call.cast(call["X"], FLOAT)
    product = call.op("MatMul", x, np.ascontiguousarray(coefficients.reshape(count, width).T))
    return call.op("Add", product, np.array(given, np.float32)) if given else product
