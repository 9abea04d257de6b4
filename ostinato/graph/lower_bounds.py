"""Lower bounds of the elements of a short vector, as bounds of slices are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from ostinato.graph.linear_index import Elements, Indices, rows
from ostinato.model.values import constant_array

Lows: TypeAlias = "tuple[float | None, ...]"
"""A bound for each element, None where there is none; one of None for an unknown number."""

_NONE: Lows = (None,)
# A slice has one bound for each axis, of which there are fewer.
_MOST_ELEMENTS = 64
# Bounds of slices are computed by fewer operators one behind the other.
_DEEPEST = 16
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


def lower_bounds(value: ir.Value | None, indices: Indices, depth: int = 0) -> Lows:
    """Bound elements from below, through Cast, Max and Where; floats have bounds only as casts."""
    array = constant_array(value)
    if array is not None:
        short = array.size <= _MOST_ELEMENTS and array.dtype.kind in "iuf"
        return tuple(map(float, array.flat)) if short and not np.isnan(array).any() else _NONE
    node = value.producer() if value is not None else None
    if node is None or node.domain or depth > _DEEPEST:
        return _NONE
    operands = [lower_bounds(each, indices, depth + 1) for each in node.inputs]
    if node.op_type == "Cast" and _holds_numbers(node.inputs[0]):
        return operands[0]
    if node.op_type == "Max" and all(map(_holds_numbers, node.inputs)):
        return tuple(max(_known(row), default=None) for row in rows(operands) or [_NONE])
    if node.op_type == "Where":
        return _chosen(indices.elements(node.inputs[0]) or (None,), *operands[1:])
    return _NONE


def _holds_numbers(value: ir.Value | None) -> bool:
    """Whether no element can be NaN: integers, and what is cast from them or chosen among such."""
    array = constant_array(value)
    if array is not None:
        return array.dtype.kind in "iu" or (array.dtype.kind == "f" and not np.isnan(array).any())
    if value is None or value.dtype in _INTEGERS:
        return value is not None
    node = value.producer()
    if node is None or node.domain or node.op_type not in ("Cast", "Max"):
        return False
    return all(map(_holds_numbers, node.inputs))


def _known(row: Sequence[float | None]) -> list[float]:
    return [low for low in row if low is not None]


def _chosen(truths: Elements, yes: Lows, no: Lows) -> Lows:
    """The bounds of a choice: the lower one where the condition is not known."""
    conditions = [float(truth) if isinstance(truth, int) else None for truth in truths]
    found: list[float | None] = []
    for condition, left, right in rows([conditions, yes, no]) or [(None, None, None)]:
        if condition is not None:
            found.append(left if condition else right)
        else:
            found.append(None if left is None or right is None else min(left, right))
    return tuple(found)
