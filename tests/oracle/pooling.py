"""Windows that move over images, and pools, as their documents define them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.oracle.graph import OPS, Array, Node, op


def window_places(
    node: Node, spatial: Sequence[int], kernel: Sequence[int]
) -> list[list[list[int]]]:
    """For each spatial axis and each output position, where every tap lies in the data."""
    rank = len(spatial)
    strides = node.get("strides", [1] * rank)
    dilations = node.get("dilations", [1] * rank)
    pads, automatic = node.get("pads", [0] * 2 * rank), node.get("auto_pad", "NOTSET")
    result = []
    for i, (extent, taps) in enumerate(zip(spatial, kernel, strict=True)):
        span = (taps - 1) * dilations[i] + 1
        before, after = pads[i], pads[i + rank]
        outputs = (extent + before + after - span) // strides[i] + 1
        if node.get("ceil_mode", 0):
            outputs = math.ceil((extent + before + after - span) / strides[i]) + 1
            outputs -= (outputs - 1) * strides[i] >= extent + before
        if automatic.startswith("SAME"):
            outputs = math.ceil(extent / strides[i])
            total = max((outputs - 1) * strides[i] + span - extent, 0)
            before = total // 2 if automatic == "SAME_UPPER" else total - total // 2
        starts = [position * strides[i] - before for position in range(outputs)]
        result.append([[s + t * dilations[i] for t in range(taps)] for s in starts])
    return result


def _pool_of(node: Node, x: Array, is_max: bool) -> Array:
    kernel, spatial = node.get("kernel_shape"), x.shape[2:]
    windows = window_places(node, spatial, kernel)
    after = node.get("pads", [0] * 2 * len(kernel))[len(kernel) :]
    if node.get("auto_pad", "NOTSET").startswith("SAME"):
        after = [math.inf] * len(kernel)  # no window leaves what it pads
    counts_pads = node.get("count_include_pad", 0)
    y = np.zeros((*x.shape[:2], *map(len, windows)), x.dtype)
    for place in np.ndindex(*y.shape[2:]):
        values, count = [], 0
        for tap in np.ndindex(*kernel):
            at = [windows[i][p][t] for i, (p, t) in enumerate(zip(place, tap, strict=True))]
            if all(0 <= a < n for a, n in zip(at, spatial, strict=True)):
                values.append(x[(slice(None), slice(None), *at)])
            count += all(a < n + p for a, n, p in zip(at, spatial, after, strict=True))
        total = (
            np.max(values, 0)
            if is_max
            else np.sum(values, 0) / (count if counts_pads else len(values))
        )
        y[(slice(None), slice(None), *place)] = total
    return y


@op("LpPool")
def _lp_pool(node: Node, x: Array) -> Array:
    p, kernel = node.get("p", 2), node.get("kernel_shape")
    windows = window_places(node, x.shape[2:], kernel)
    y = np.zeros((*x.shape[:2], *map(len, windows)))
    for place in np.ndindex(*y.shape[2:]):
        for tap in np.ndindex(*kernel):
            at = [windows[i][p_][t] for i, (p_, t) in enumerate(zip(place, tap, strict=True))]
            if all(0 <= a < n for a, n in zip(at, x.shape[2:], strict=True)):
                y[(..., *place)] += np.abs(x[(..., *at)]) ** p
    return y ** (1 / p)


@op("MaxPool")
def _max_pool(node: Node, x: Array) -> list[Array]:
    y = _pool_of(node, x, is_max=True)
    return [y, _positions(node, x, y)]


def _positions(node: Node, x: Array, y: Array) -> Array:
    """Where the first largest element below each window is, counted over the whole value."""
    kernel, spatial = node.get("kernel_shape"), x.shape[2:]
    found = window_places(node, spatial, kernel)
    order = "F" if node.get("storage_order", 0) else "C"
    numbers = np.arange(np.prod(spatial)).reshape(spatial, order=order)
    places = np.full(y.shape, -1)
    for n, c, *place in np.ndindex(*y.shape):
        for tap in np.ndindex(*kernel):
            at = tuple(found[i][p][t] for i, (p, t) in enumerate(zip(place, tap, strict=True)))
            if not all(0 <= a < size for a, size in zip(at, spatial, strict=True)):
                continue
            if np.array_equal(x[(n, c, *at)], y[(n, c, *place)], equal_nan=True):
                places[(n, c, *place)] = (n * x.shape[1] + c) * numbers.size + numbers[at]
                break
    return places


@op("MaxUnpool")
def _max_unpool(node: Node, x: Array, places: Array, shape: Array | None = None) -> Array:
    kernel = node.get("kernel_shape")
    rank = len(kernel)
    strides, pads = node.get("strides", [1] * rank), node.get("pads", [0] * 2 * rank)
    if shape is None:
        spatial = [
            (x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank]
            for i in range(rank)
        ]
        shape = np.array([*x.shape[:2], *spatial])
    y = np.zeros(np.prod(shape), x.dtype)
    for value, place in zip(x.reshape(-1), places.reshape(-1), strict=True):
        y[place] = value
    return y.reshape(shape)


OPS["AveragePool"] = lambda node, x: _pool_of(node, x, is_max=False)
OPS["GlobalMaxPool"] = lambda node, x: x.max(tuple(range(2, x.ndim)), keepdims=True)
OPS["GlobalAveragePool"] = lambda node, x: x.mean(tuple(range(2, x.ndim)), keepdims=True)
