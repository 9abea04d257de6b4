"""Indexed movement as its documents define it, element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.oracle.graph import OPS, Array, Node, op

COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@op("GatherElements")
def _gather_elements(node: Node, x: Array, indices: Array) -> Array:
    axis = node.get("axis", 0)
    y = np.empty(indices.shape, x.dtype)
    for place in np.ndindex(*indices.shape):
        source = list(place)
        source[axis] = int(indices[place])
        y[place] = x[tuple(source)]
    return y


@op("GatherND")
def _gather_nd(node: Node, x: Array, indices: Array) -> Array:
    batch = node.get("batch_dims", 0)
    count = indices.shape[-1]
    y = np.empty((*indices.shape[:-1], *x.shape[batch + count :]), x.dtype)
    for place in np.ndindex(*indices.shape[:-1]):
        y[place] = x[(*place[:batch], *map(int, indices[place]))]
    return y


@op("ScatterElements")
def _scatter_elements(node: Node, x: Array, indices: Array, updates: Array) -> Array:
    axis, combine = node.get("axis", 0), COMBINE[node.get("reduction", "none")]
    y = x.copy()
    for place in np.ndindex(*indices.shape):
        target = list(place)
        target[axis] = int(indices[place])
        y[tuple(target)] = combine(y[tuple(target)], updates[place])
    return y


OPS["Scatter"] = OPS["ScatterElements"]


@op("ScatterND")
def _scatter_nd(node: Node, x: Array, indices: Array, updates: Array) -> Array:
    combine = COMBINE[node.get("reduction", "none")]
    y = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        target = tuple(map(int, indices[place]))
        y[target] = combine(y[target], updates[place])
    return y


@op("TensorScatter")
def _tensor_scatter(node: Node, cache: Array, update: Array, starts: Array | None = None) -> Array:
    axis, y = node.get("axis", -2) % cache.ndim, cache.copy()
    for place in np.ndindex(*update.shape):
        target = list(place)
        target[axis] += 0 if starts is None else int(starts[place[0]])
        if node.get("mode", "linear") == "circular":
            target[axis] %= cache.shape[axis]
        y[tuple(target)] = update[place]
    return y


@op("OneHot")
def _one_hot(node: Node, indices: Array, depth: Array, values: Array) -> Array:
    count = int(np.reshape(depth, ()))
    hot = np.asarray(indices)[..., None].astype(np.int64)
    places = np.arange(count)
    found = (hot == places) | (hot + count == places)
    return np.moveaxis(np.where(found, values[1], values[0]), -1, node.get("axis", -1))


@op("Trilu")
def _trilu(node: Node, x: Array, k: Array | None = None) -> Array:
    diagonal = 0 if k is None else int(np.reshape(k, ()))
    return np.triu(x, diagonal) if node.get("upper", 1) else np.tril(x, diagonal)


@op("EyeLike")
def _eye_like(node: Node, x: Array) -> Array:
    return np.eye(*x.shape, k=node.get("k", 0)).astype(x.dtype)


@op("ReverseSequence")
def _reverse_sequence(node: Node, x: Array, lengths: Array) -> Array:
    axes = (node.get("batch_axis", 1), node.get("time_axis", 0))
    rows, y = np.moveaxis(x, axes, (0, 1)), np.empty_like(np.moveaxis(x, axes, (0, 1)))
    for i, length in enumerate(lengths):
        y[i] = np.concatenate([rows[i, :length][::-1], rows[i, length:]])
    return np.moveaxis(y, (0, 1), axes)


@op("CenterCropPad")
def _center_crop_pad(node: Node, x: Array, shape: Array) -> Array:
    for axis, wanted in zip(node.get("axes", range(x.ndim)), map(int, shape), strict=True):
        extent = x.shape[axis]
        if wanted <= extent:
            start = (extent - wanted) // 2
            x = np.take(x, range(start, start + wanted), axis)
        else:
            grow = [(0, 0)] * x.ndim
            before = (wanted - extent) // 2
            grow[axis] = (before, wanted - extent - before)
            x = np.pad(x, grow)
    return x
