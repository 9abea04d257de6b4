"""What has a size that only its elements tell, as its documents define it."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from tests.oracle.graph import Array, Node, op


@op("NonZero")
def _non_zero(node: Node, x: Array) -> Array:
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@op("Compress")
def _compress(node: Node, x: Array, condition: Array) -> Array:
    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return np.take(x, np.flatnonzero(condition), axis)


def _compared(left: Array, right: Array) -> int:
    """The order of two rows: NaN is equal to itself and larger than any number."""
    for a, b in zip(left.reshape(-1).tolist(), right.reshape(-1).tolist(), strict=True):
        pair = (a != a, 0 if a != a else a), (b != b, 0 if b != b else b)
        if pair[0] != pair[1]:
            return -1 if pair[0] < pair[1] else 1
    return 0


@op("Unique")
def _unique(node: Node, x: Array) -> list[Array]:
    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    rows = np.moveaxis(x, axis, 0)
    first: list[int] = []
    inverse: list[int] = []
    for number, row in enumerate(rows):
        same = (i for i, other in enumerate(first) if _compared(rows[other], row) == 0)
        found = next(same, len(first))
        first += [number] if found == len(first) else []
        inverse.append(found)
    order = list(range(len(first)))
    if node.get("sorted", 1):
        by_row = functools.cmp_to_key(lambda a, b: _compared(rows[first[a]], rows[first[b]]))
        order.sort(key=by_row)
    numbers = [order.index(i) for i in inverse]
    indices = np.array([first[i] for i in order], np.int64)
    counts = np.bincount(np.array(inverse, np.int64), minlength=len(first))
    return [np.take(x, indices, axis), indices, np.array(numbers, np.int64), counts[order]]


def _corners(box: Array, form: int) -> tuple[Array, Array]:
    if form == 0:
        return np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
    return box[:2] - box[2:] / np.float32(2), box[:2] + box[2:] / np.float32(2)


def _overlaps(left: Array, right: Array, form: int, share: Any) -> bool:
    (low, high), (other_low, other_high) = (_corners(box, form) for box in (left, right))
    sides = np.minimum(high, other_high) - np.maximum(low, other_low)
    areas = np.prod(high - low), np.prod(other_high - other_low)
    if not ((sides > 0).all() and min(areas) > 0):
        return False
    common = sides[0] * sides[1]
    return bool(common / (areas[0] + areas[1] - common) > share)


@op("NonMaxSuppression")
def _non_max_suppression(node: Node, boxes: Array, scores: Array, *limits: Array | None) -> Array:
    most, share, least = (
        None if x is None else np.reshape(x, ()).item() for x in (*limits, None, None, None)[:3]
    )
    # In the type of the operator: a comparison decides.
    boxes, share = boxes.astype(np.float32), np.float32(share or 0)
    form, found = node.get("center_point_box", 0), []
    for batch, kind in np.ndindex(*scores.shape[:2]):
        row, kept = scores[batch, kind], list[int]()
        for i in sorted(range(len(row)), key=lambda i: (row[i] == row[i], -row[i], i)):
            if len(kept) >= (most or 0) or (least is not None and not row[i] > least):
                continue
            if not any(_overlaps(boxes[batch, i], boxes[batch, j], form, share) for j in kept):
                kept.append(i)
        found += [(batch, kind, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)


@op("TfIdfVectorizer")
def _tf_idf(node: Node, tokens: Array) -> Array:
    places = node.get("ngram_indexes")
    starts = [*node.get("ngram_counts"), len(node.get("pool_int64s"))]
    skips, shortest = node.get("max_skip_count"), node.get("min_gram_length")
    result = np.zeros((*tokens.shape[:-1], max(places) + 1))
    number = 0
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        for gram in np.reshape(node.get("pool_int64s")[start:end], (-1, length)):
            weight = (node.get("weights") or [1.0] * len(places))[number]
            column, number = places[number], number + 1
            if not shortest <= length <= node.get("max_gram_length"):
                continue
            for row in np.ndindex(tokens.shape[:-1]):
                count = sum(
                    bool((tokens[row][i : i + (length - 1) * step + 1 : step] == gram).all())
                    for step in range(1, skips + 2 if length > 1 else 2)
                    for i in range(tokens.shape[-1] - (length - 1) * step)
                )
                scale = {"TF": 1, "IDF": weight, "TFIDF": weight}[node.get("mode")]
                result[(*row, column)] = scale * (
                    min(count, 1) if node.get("mode") == "IDF" else count
                )
    return result
