"""Resampling and transposed convolution as their documents define them."""

from __future__ import annotations

import itertools

import numpy as np

from tests.oracle.graph import Array, Node, op


@op("ConvTranspose")
def _conv_transpose(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    rank, group = x.ndim - 2, node.get("group", 1)
    kernel, extents = w.shape[2:], x.shape[2:]
    strides = node.get("strides", [1] * rank)
    dilations = node.get("dilations", [1] * rank)
    extra = node.get("output_padding", [0] * rank)
    pads = node.get("pads", [0] * 2 * rank)
    full = [
        strides[i] * (extents[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
        for i in range(rank)
    ]
    automatic, asked = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if asked is None and automatic.startswith("SAME"):
        asked = [n * s for n, s in zip(extents, strides, strict=True)]
    if asked is None:
        starts = pads[:rank]
        asked = [full[i] - pads[i] - pads[i + rank] for i in range(rank)]
    else:
        total = [max(0, f - o) for f, o in zip(full, asked, strict=True)]
        starts = [t // 2 if automatic == "SAME_UPPER" else t - t // 2 for t in total]
    per_group, depth = w.shape[1], x.shape[1] // group
    y = np.zeros((x.shape[0], per_group * group, *asked))
    for place in itertools.product(*map(range, extents)):
        for tap in itertools.product(*map(range, kernel)):
            at = [place[i] * strides[i] + tap[i] * dilations[i] - starts[i] for i in range(rank)]
            if not all(0 <= a < n for a, n in zip(at, asked, strict=True)):
                continue
            for g in range(group):
                c = slice(g * depth, (g + 1) * depth)
                y[(slice(None), slice(g * per_group, (g + 1) * per_group), *at)] += (
                    x[(slice(None), c, *place)] @ w[(c, slice(None), *tap)]
                )
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)
