"""Losses: what the outputs of a model and their targets are compared by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.errors import InputError
from ostinato.model.values import dims_of
from ostinato.training.operators import Operators

Values: TypeAlias = "Mapping[str, ir.Value]"
LossFunction: TypeAlias = "Callable[[Operators, Values, Values], ir.Value]"

IGNORED = -100
"""Targets of "cross_entropy" that do not count, as in PyTorch."""


@dataclass(frozen=True)
class Loss:
    """A loss of one output and its target, by name.

    write: (op, output, target) -> the mean over all elements.
    by_class: the target is int64, and has the shape of the output without its last axis.
    """

    write: Callable[[Operators, ir.Value, ir.Value], ir.Value]
    by_class: bool = False


def mse(op: Operators, output: ir.Value, target: ir.Value) -> ir.Value:
    """The mean of the squared differences."""
    difference = op.Sub(output, target)
    return op.ReduceMean(op.Mul(difference, difference), keepdims=0)


def l1(op: Operators, output: ir.Value, target: ir.Value) -> ir.Value:
    """The mean of the absolute differences."""
    return op.ReduceMean(op.Abs(op.Sub(output, target)), keepdims=0)


def bce_with_logits(op: Operators, output: ir.Value, target: ir.Value) -> ir.Value:
    """Binary cross-entropy of `sigmoid(output)`: the mean of `softplus(x) - x t`."""
    return op.ReduceMean(op.Sub(op.Softplus(output), op.Mul(output, target)), keepdims=0)


def cross_entropy(op: Operators, output: ir.Value, target: ir.Value) -> ir.Value:
    """Cross-entropy of scores `[.., classes]`, the mean over targets that are not `IGNORED`."""
    dims = dims_of(output)
    assert dims is not None
    if not isinstance(dims[-1], int):
        raise InputError(f"the number of classes, the last axis of {output.name!r}, is not known")
    scores = op.Reshape(output, np.array([-1, dims[-1]], np.int64))
    classes = op.Reshape(target, np.array([-1], np.int64))
    # Negative classes count from the end where elements are gathered; these are past it.
    is_wrong = op.And(op.Less(classes, 0), op.Not(op.Equal(classes, IGNORED)))
    classes = op.Where(is_wrong, dims[-1], classes)
    return op.SoftmaxCrossEntropyLoss(scores, classes, ignore_index=IGNORED, reduction="mean")


LOSSES = {
    "mse": Loss(mse),
    "l1": Loss(l1),
    "bce_with_logits": Loss(bce_with_logits),
    "cross_entropy": Loss(cross_entropy, by_class=True),
}
