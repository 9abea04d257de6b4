"""Random recurrences, convolutions, pools and norms with attributes that few models have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.fuzz.random_graph import Array, Builder, Value, operator
from tools.fuzz.random_inferred import inferred

SOME_FLOATS = ("float32",) * 4 + ("float64", "float64", "float16")
ACTIVATIONS = ("Tanh", "Sigmoid", "Relu", "Softsign", "Softplus", "HardSigmoid", "LeakyRelu", "Elu")


def _weights(b: Builder, dtype: str, *shape: int) -> Array:
    return (b.data(dtype, shape) / 4).astype(dtype)


def _frames(b: Builder, least: int = 3, most: int = 3) -> Value:
    """A value with elements, of floats and so many axes."""
    dtype = b.choose(SOME_FLOATS)
    return b.pick(lambda v: v.dtype == dtype and least <= len(v.shape) <= most and 0 not in v.shape)


@operator(8)
def _cells(b: Builder) -> None:
    """With every operand and attribute, or without some."""
    x = _frames(b)
    layout = int(b.chance(0.2))
    (batch, time, inputs) = x.shape if layout else (x.shape[1], x.shape[0], x.shape[2])
    op, gates, functions = b.choose((("GRU", 3, 2), ("LSTM", 4, 3), ("RNN", 1, 1)))
    hidden = int(b.random.integers(1, 6))
    direction = b.choose(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    start = (batch, count, hidden) if layout else (count, batch, hidden)
    settings: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": layout}
    optional: list[Array | None] = [
        _weights(b, x.dtype, count, 2 * gates * hidden),
        b.random.integers(0 if b.chance(0.3) else 1, time + 1, batch).astype(np.int32),
        _weights(b, x.dtype, *start),
    ]
    if op == "LSTM":
        settings["input_forget"] = int(b.chance(0.2))
        optional += [_weights(b, x.dtype, *start), _weights(b, x.dtype, count, 3 * hidden)]
    if op == "GRU":
        settings["linear_before_reset"] = int(b.chance(0.5))
    if b.chance(0.3):
        settings["clip"] = b.choose((0.25, 1.0, 5.0))
    if b.chance(0.4):
        settings["activations"] = [b.choose(ACTIVATIONS) for _ in range(count * functions)]
    weights = [_weights(b, x.dtype, count, gates * hidden, n) for n in (inputs, hidden)]
    more = [array if b.chance(0.5) else None for array in optional]
    inferred(
        b,
        op,
        [x, *weights, *more],
        outputs=int(b.random.integers(1, 3 + (op == "LSTM"))),
        **settings,
    )


def _window(b: Builder, rank: int, *, dilated: bool = True) -> dict[str, Any]:
    """Strides, dilations, and pads or a rule for them."""
    found: dict[str, Any] = {"strides": [int(n) for n in b.random.integers(1, 4, rank)]}
    if dilated and b.chance(0.4):
        found["dilations"] = [int(n) for n in b.random.integers(1, 4, rank)]
    if b.chance(0.2):
        found["auto_pad"] = b.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        found["pads"] = [int(n) for n in b.random.integers(0, 3, 2 * rank)]
    return found


def _require_room(x: Value, kernel: Sequence[int], settings: dict[str, Any]) -> None:
    """Refuse a window that fits nowhere: runtimes round numbers of places toward 0, or down."""
    rank = len(kernel)
    pads = settings.get("pads", [0] * 2 * rank)
    dilations = settings.get("dilations", [1] * rank)
    for axis, (k, d) in enumerate(zip(kernel, dilations, strict=True)):
        if x.shape[2 + axis] + pads[axis] + pads[rank + axis] < (k - 1) * d + 1:
            raise LookupError


@operator(4)
def _convolutions(b: Builder) -> None:
    """Groups, dilations, bias; also transposed."""
    x = _frames(b, 3, 5)
    rank, channels = len(x.shape) - 2, x.shape[1]
    kernel = [int(n) for n in b.random.integers(1, 4, rank)]
    groups = b.choose([n for n in range(1, channels + 1) if channels % n == 0])
    each = int(b.random.integers(1, 4))
    if b.chance(0.5):
        op, shape, settings = "Conv", (groups * each, channels // groups), _window(b, rank)
        _require_room(x, kernel, settings)
    else:
        op, shape, settings = "ConvTranspose", (channels, each), _window(b, rank)
        if b.chance(0.3):
            settings["output_padding"] = [int(b.random.integers(s)) for s in settings["strides"]]
        # Crops that leave nothing are no model.
        if settings.get("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
            raise LookupError
    bias = [b.data(x.dtype, (groups * each,))] if b.chance(0.5) else []
    weights = b.data(x.dtype, (*shape, *kernel))
    inferred(b, op, [x, weights, *bias], group=groups, **settings)


@operator(4)
def _pools(b: Builder) -> None:
    """With dilations, rounded up, with indices."""
    x = _frames(b, 3, 5)
    rank = len(x.shape) - 2
    kernel = [int(n) for n in b.random.integers(1, 4, rank)]
    op = b.choose(("MaxPool", "MaxPool", "AveragePool", "LpPool"))
    settings = _window(b, rank, dilated=op == "MaxPool") | {"kernel_shape": kernel}
    if "pads" in settings:
        settings["pads"] = [
            min(p, k - 1) for p, k in zip(settings["pads"], kernel * 2, strict=True)
        ]
    _require_room(x, kernel, settings)
    if b.chance(0.3):
        settings["ceil_mode"] = 1
    outputs = 1
    if op == "MaxPool" and x.is_exact and x.dtype == "float32" and b.chance(0.4):
        outputs = 2
    if op == "AveragePool":
        settings["count_include_pad"] = int(b.chance(0.5))
    if op == "LpPool":
        settings["p"] = b.choose((1, 2, 3))
    made = inferred(b, op, [x], outputs=outputs, **settings)
    if "ceil_mode" in settings:
        # ONNX counts windows that begin in the padding behind, which nobody computes.
        axes = b.constant(np.arange(1, len(x.shape)))
        del b.values[-outputs:]
        b.add("ReduceMax", [made[0].name, axes], (x.dtype, x.shape[:1], False), keepdims=0)


@operator(3)
def _norms(b: Builder) -> None:
    x = _frames(b, 2, 4)
    channels = x.shape[1]
    scale, bias = (b.data(x.dtype, (channels,)) for _ in range(2))
    spread = np.abs(b.data(x.dtype, (channels,))) + np.asarray(1, x.dtype)
    kind = b.random.integers(6)
    if kind == 0:
        inferred(b, "BatchNormalization", [x, scale, bias, bias, spread], epsilon=0.5)
    elif kind == 1 and len(x.shape) > 2:
        inferred(b, "InstanceNormalization", [x, scale, bias], epsilon=0.5)
    elif kind == 2 and len(x.shape) > 2:
        inferred(b, "LRN", [x], size=b.choose((1, 2, 3, 4)), alpha=0.5, beta=0.5, bias=2.0)
    elif kind == 3:
        inferred(b, "LpNormalization", [x], axis=b.axis(x), p=b.choose((1, 2)))
    elif kind == 4:
        axes = [int(a) for a in b.random.choice(len(x.shape), 2, replace=False)]
        one = b.data(x.dtype, ())
        shifted = inferred(b, "Sin", [inferred(b, "Add", [x, one])[0]])[0]
        inferred(b, "MeanVarianceNormalization", [shifted], axes=axes)
    else:
        axis = b.axis(x)
        shape = x.shape[axis:]
        operands = [x, b.data(x.dtype, shape), b.data(x.dtype, shape)]
        inferred(b, "LayerNormalization", operands, axis=axis, epsilon=0.25)


@operator(2)
def _resize(b: Builder) -> None:
    """By factors that other runtimes hold exactly."""
    x = b.pick(lambda v: v.dtype == "float32" and 2 < len(v.shape) < 5 and 0 not in v.shape)
    count = len(x.shape) - 2
    mode = b.choose(("nearest", "linear", "cubic") if count == 2 else ("nearest", "linear"))
    ways = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
    settings = {"mode": mode, "coordinate_transformation_mode": b.choose(ways)}
    if mode == "nearest":
        settings["coordinate_transformation_mode"] = "asymmetric"
        settings["nearest_mode"] = b.choose(("floor", "ceil", "round_prefer_floor"))
    if b.chance(0.5):
        factors = [1, 1, *(b.choose((0.5, 1, 2, 1.5)) for _ in range(count))]
        inferred(b, "Resize", [x, None, np.array(factors, np.float32)], **settings)
    else:
        sizes = [*x.shape[:2], *(b.choose((1, 2, 3, 5)) for _ in range(count))]
        if mode == "nearest":
            raise LookupError
        inferred(b, "Resize", [x, None, None, np.array(sizes)], **settings)
