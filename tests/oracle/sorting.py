"""Order, position and running sums as their documents define them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.graph import OPS, Array, Node, op


def _cumulative(node: Node, x: Array, axis: Array, function: Any, start: int) -> Array:
    axis = int(np.reshape(axis, ()))
    if node.get("reverse", 0):
        x = np.flip(x, axis)
    y = function(x, axis, dtype=x.dtype)
    if node.get("exclusive", 0):
        first = np.full_like(np.take(x, [0] if x.shape[axis] else [], axis), start)
        y = np.concatenate([first, np.take(y, range(x.shape[axis] - 1), axis)], axis)
    return np.flip(y, axis) if node.get("reverse", 0) else y


OPS["CumSum"] = lambda node, x, axis: _cumulative(node, x, axis, np.cumsum, 0)
OPS["CumProd"] = lambda node, x, axis: _cumulative(node, x, axis, np.cumprod, 1)


def _arg_extreme(node: Node, x: Array, function: Any) -> Array:
    axis = node.get("axis", 0)
    if node.get("select_last_index", 0):
        y = x.shape[axis] - 1 - function(np.flip(x, axis), axis)
    else:
        y = function(x, axis)
    return np.expand_dims(y, axis) if node.get("keepdims", 1) else y


OPS["ArgMax"] = lambda node, x: _arg_extreme(node, x, np.argmax)
OPS["ArgMin"] = lambda node, x: _arg_extreme(node, x, np.argmin)


@op("Hardmax")
def _hardmax(node: Node, x: Array) -> Array:
    axis, shape = node.get("axis", -1 if node.opset >= 13 else 1), x.shape
    if not x.size:
        return x
    if node.opset < 13:
        x, axis = x.reshape(int(np.prod(shape[:axis])), -1), 1
    hot = np.arange(x.shape[axis]) == np.expand_dims(np.argmax(x, axis), -1)
    return np.moveaxis(hot, -1, axis).astype(x.dtype).reshape(shape)


@op("TopK")
def _top_k(node: Node, x: Array, k: Array | None = None) -> list[Array]:
    axis = node.get("axis", -1)
    count = node.get("k") if k is None else int(np.reshape(k, ()))
    rows = np.moveaxis(x, axis, -1)
    values, places = (np.empty((*rows.shape[:-1], count), t) for t in (x.dtype, np.int64))
    for place in np.ndindex(*rows.shape[:-1]):
        row = rows[place]
        # NaN is larger than any number; -0 and 0 are equal.
        keys = [(bool(v != v), 0 if v != v else v.item()) for v in row]
        if node.get("largest", 1):
            order = sorted(range(len(row)), key=lambda i: (-keys[i][0], -keys[i][1], i))
        else:
            order = sorted(range(len(row)), key=lambda i: (*keys[i], i))
        places[place] = order[:count]
        values[place] = row[order[:count]]
    return [np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)]


@op("Einsum")
def _einsum(node: Node, *operands: Array) -> Array:
    return np.einsum(node.get("equation").replace(" ", ""), *operands)
