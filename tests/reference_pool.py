"""The windows of the onnx package's pools many at once: it looks at them one by one in Python.

Images of 32 x 32 x 32, as the backend suite has them, take it a second each: to make the cases, and
whenever the reference evaluator runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.ops import op_pool_common

Array = np.ndarray
one_by_one = op_pool_common.pool


def install() -> None:
    """Put `pool` in the place of the package's; it must come before what imports that by name."""
    op_pool_common.pool = pool


def pool(
    padded: Array,
    x_shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    out_shape: Sequence[int],
    pooling_type: str,
    pads_required: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    count_include_pad: int = 0,
    p: int = 1,
) -> Array:
    """What `one_by_one` gives, to the bit."""
    rank = len(x_shape) - 2
    strides, dilations = strides or [1] * rank, [1] * rank if dilations is None else dilations
    required, given = _of_axes(pads_required, rank), _of_axes(pads, rank)
    places, whole = [], []
    for i in range(rank):
        span = 1 + (kernel[i] - 1) * dilations[i]
        count = int((x_shape[i + 2] + sum(required[i]) - span) / strides[i] + 1)
        first = strides[i] * np.arange(count)
        places.append(first[:, None] + dilations[i] * np.arange(kernel[i]))
        # Where a window ends in the data and its padding, for any that begins inside.
        whole.append(int((places[i][:, -1] < x_shape[i + 2] + sum(given[i])).sum()))
    y = np.zeros([x_shape[0], x_shape[1], *out_shape], dtype=padded.dtype)
    rows = _rows(padded, [one[:n] for one, n in zip(places, whole, strict=True)])
    keeps_all = count_include_pad == 1 and pooling_type in ("AVG", "LPPOOL")
    has_all = np.full(rows.shape[:-1], True) if keeps_all else ~np.isnan(rows).any(-1)
    done = np.full([*x_shape[:2], *map(len, places)], False)
    done[tuple(map(slice, has_all.shape))] = has_all
    y[done] = _results(rows[has_all], pooling_type, p)
    for place in map(tuple, np.argwhere(~done)):
        inside = [
            one[at][one[at] < x_shape[i + 2] + sum(given[i])]
            for i, (one, at) in enumerate(zip(places, place[2:], strict=True))
        ]
        values = padded[place[:2]][np.ix_(*inside)].ravel()
        kept = values if keeps_all else values[~np.isnan(values)]
        y[place] = _results(kept[None], pooling_type, p)[0]
    return y


def _of_axes(pads: Sequence[int] | None, rank: int) -> list[tuple[int, int]]:
    """Before and behind each axis."""
    pads = [0] * 2 * rank if pads is None else list(pads) * (2 * rank if len(pads) == 1 else 1)
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _rows(padded: Array, places: Sequence[Array]) -> Array:
    """The elements of each window, one after the other along the last axis."""
    rank = len(places)
    indices = []
    for i, one in enumerate(places):
        shape = [1] * 2 * rank
        shape[i], shape[rank + i] = one.shape
        indices.append(one.reshape(shape))
    taken = padded[(slice(None), slice(None), *indices)]
    return taken.reshape(*taken.shape[: 2 + rank], -1)


def _results(rows: Array, pooling_type: str, p: int) -> Any:
    if pooling_type == "MAX":
        return rows.max(-1)
    if pooling_type == "AVG":
        return rows.mean(-1)
    assert pooling_type == "LPPOOL", pooling_type
    # Roots of arrays round in another way than those of single numbers.
    return [total ** (1.0 / p) for total in (np.abs(rows) ** p).sum(-1)]
