"""Lp norms, local energy and blocks of images as their documents define them."""

from __future__ import annotations

import numpy as np

from tests.oracle.graph import Array, Node, op


@op("LpNormalization")
def _lp_normalization(node: Node, x: Array) -> Array:
    axis, p = node.get("axis", -1), node.get("p", 2)
    norm = np.linalg.norm(x, p, axis, keepdims=True)
    return np.where(norm == 0, 0, x / norm)


@op("GlobalLpPool")
def _global_lp_pool(node: Node, x: Array) -> Array:
    p = node.get("p", 2)
    return np.sum(np.abs(x) ** p, tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)


@op("LRN")
def _lrn(node: Node, x: Array) -> Array:
    size = node.get("size")
    alpha, beta, bias = (
        float(np.float32(node.get(name, default)))
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    y = np.empty_like(x)
    for c in range(x.shape[1]):
        first, last = max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1)
        s = np.sum(x[:, first:last] ** 2, 1)
        y[:, c] = x[:, c] / (bias + alpha / size * s) ** beta
    return y


@op("MeanVarianceNormalization")
def _mean_variance(node: Node, x: Array) -> Array:
    axes = tuple(node.get("axes", (0, 2, 3)))
    return (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)


@op("Col2Im")
def _col2im(node: Node, x: Array, image: Array, block: Array) -> Array:
    rank = len(block)
    strides, dilations = (node.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = node.get("pads", [0] * 2 * rank)
    counts = [
        (image[i] + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(rank)
    ]
    columns = x.reshape(len(x), -1, *block, *counts)
    y = np.zeros((*columns.shape[:2], *image))
    for tap in np.ndindex(*block):
        for place in np.ndindex(*counts):
            at = tuple(place[i] * strides[i] + tap[i] * dilations[i] - pads[i] for i in range(rank))
            if all(0 <= a < n for a, n in zip(at, image, strict=True)):
                y[(..., *at)] += columns[(..., *tap, *place)]
    return y
