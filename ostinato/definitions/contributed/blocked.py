"""Operators on images whose channels lie in blocks, which onnxruntime writes for its own kernels.

Blocks are a matter of layout: here the images have the layout of the standard, with the channels
that fill up the last block, and weights are taken out of their blocks. How many channels a block
has depends on the machine that wrote the file, and the file does not say it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.definitions.contributed.call import Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.products import (
    POOL,
    attributes,
    channels_last,
    channels_second,
    fused_convolution,
)
from ostinato.definitions.contributed.tables import blocked


@blocked.register("ReorderInput")
def reorder_input(call: Call) -> Sequence[Maybe]:
    """Into blocks."""
    x = call["X"]
    return [channels_second(call, x) if call.attribute("channels_last") else call.op("Identity", x)]


@blocked.register("ReorderOutput")
def reorder_output(call: Call) -> Sequence[Maybe]:
    """Out of blocks, without the channels that fill up the last one."""
    x, channels, is_last = call["X"], call.attribute("channels"), call.attribute("channels_last")
    rank = call.rank(x)
    if channels:
        x = call.slice(x, 0, channels, 1)
    return [channels_last(call, x, rank) if is_last else call.op("Identity", x)]


@blocked.register("Conv")
def conv(call: Call) -> Sequence[Maybe]:
    """FusedConv with weights in blocks of channels; `ShapeError` where these do not divide."""
    weights = call.constant("W")
    if weights is None:
        raise call.refuse("input 'W' is no constant")
    outputs, inputs = weights.shape[:2]
    if outputs % call.block or (inputs >= call.block and inputs % call.block):
        raise call.wrong_shape("W", weights, f"channels in blocks of {call.block}")
    x, group = call["X"], call.attribute("group")
    plain = _unblocked(weights, call.block)
    channels, wanted = call.size(x, 1), plain.shape[1] * group
    if channels is not None and channels < wanted and group == 1:
        plain = plain[:, :channels]
    elif channels is not None and channels < wanted:
        # Each channel that fills up the last block is a group, too.
        rank = call.rank(x)
        x = call.op("Pad", x, np.array([0] * (rank + 1) + [wanted - channels] + [0] * (rank - 2)))
    w = call.writer.value(np.ascontiguousarray(plain), "weights")
    return [fused_convolution(call, x, w, call.input("B"), call.input("Sum"))]


def _unblocked(weights: np.ndarray, block: int) -> np.ndarray:
    """Weights `[O, I, ...]` that lie as `[O/b, I/b, ..., b, b]`, or `[O/b, I, ..., b]`."""
    outputs, inputs, *kernel = weights.shape
    window = range(2, 2 + len(kernel))
    if inputs < block:
        parts = weights.reshape(outputs // block, inputs, *kernel, block)
        order = (0, len(kernel) + 2, 1, *window)
    else:
        parts = weights.reshape(outputs // block, inputs // block, *kernel, block, block)
        order = (0, len(kernel) + 3, 1, len(kernel) + 2, *window)
    return parts.transpose(order).reshape(outputs, inputs, *kernel)


@blocked.register("MaxPool", "AveragePool")
def pool(call: Call) -> Sequence[Maybe]:
    """The pool of the standard."""
    given = attributes(call, POOL)
    if call.node.op_type == "MaxPool":
        call.refuse_unless("storage_order", 0)
        return [call.op("MaxPool", call["X"], **given)]
    given["count_include_pad"] = call.attribute("count_include_pad")
    if any(step != 1 for step in given.pop("dilations") or ()):
        raise call.refuse("attribute 'dilations' is not honoured by an average")
    return [call.op("AveragePool", call["X"], **given)]


@blocked.register("GlobalMaxPool", "GlobalAveragePool")
def global_pool(call: Call) -> Sequence[Maybe]:
    """The pool of the standard."""
    return [call.op(call.node.op_type, call["X"])]


@blocked.register("Upsample")
def upsample(call: Call) -> Sequence[Maybe]:
    """Resize by whole factors for each axis."""
    factors = np.array(call.attribute("scales"), np.float32)
    mode = call.attribute("mode")
    how = call.attribute("coordinate_transformation_mode")
    nowhere = np.zeros(0, np.float32)
    rounding = "floor" if mode == "nearest" else None
    return [
        call.op(
            "Resize",
            call["X"],
            nowhere,
            factors,
            mode=mode,
            coordinate_transformation_mode=how,
            nearest_mode=rounding,
        )
    ]
