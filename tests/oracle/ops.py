"""Operators as their documents define them: NumPy, float64, plain loops where a loop says it best.

https://onnx.ai/onnx/operators/. Floats are computed in float64 whatever the model says, so that the
error of a float32 result can be measured; integers wrap in their own type.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.oracle.graph import OPS, Array, Node, op, run
from tests.oracle.pooling import window_places
from tests.oracle.recurrent import gru, lstm, rnn

__all__ = ["run"]

# Importing a family adds its operators to OPS.
for family in (
    "casts compaction functions norms pooling quantization random resize sampling scatter "
    "sequences signals sorting"
).split():
    importlib.import_module(f"tests.oracle.{family}")


def simple(**functions: Callable[..., Any]) -> None:
    for name, function in functions.items():
        OPS[name] = lambda node, *args, _function=function: _function(*args)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, 0)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


def _legacy(node: Node, a: Array, b: Array) -> Array:
    """The right operand where broadcasting before opset 7 puts it."""
    axis = node.get("axis", a.ndim - b.ndim)
    return b.reshape((*b.shape, *[1] * (a.ndim - axis - b.ndim))) if node.opset < 7 else b


simple(
    Abs=np.abs, Neg=np.negative, Sqrt=np.sqrt, Exp=np.exp, Log=np.log, Sigmoid=_sigmoid,
    Tanh=np.tanh, Floor=np.floor, Ceil=np.ceil, Round=np.rint, Sin=np.sin, Cos=np.cos,
    Tan=np.tan, Sinh=np.sinh, Cosh=np.cosh, Asin=np.arcsin, Acos=np.arccos, Atan=np.arctan,
    Asinh=np.arcsinh, Acosh=np.arccosh, Atanh=np.arctanh, Not=np.logical_not,
    BitwiseNot=np.invert, Sign=np.sign, IsNaN=np.isnan, Softplus=_softplus,
    Relu=lambda x: np.where(np.isnan(x), x, np.maximum(x, 0)).astype(x.dtype),
    Reciprocal=lambda x: 1 / x,
    Erf=lambda x: _erf(x).astype(x.dtype),
    Softsign=lambda x: x / (1 + np.abs(x)),
    HardSwish=lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    Mish=lambda x: x * np.tanh(_softplus(x)),
    Add=np.add, Sub=np.subtract, Mul=np.multiply, Div=_divide, And=np.logical_and,
    Or=np.logical_or, Xor=np.logical_xor, BitwiseAnd=np.bitwise_and, BitwiseOr=np.bitwise_or,
    BitwiseXor=np.bitwise_xor, Equal=np.equal, Less=np.less, LessOrEqual=np.less_equal,
    Greater=np.greater, GreaterOrEqual=np.greater_equal, Where=np.where, Identity=lambda x: x,
    MatMul=np.matmul,
    Sum=lambda *xs: sum(xs[1:], xs[0]),
    Mean=lambda *xs: sum(xs[1:], xs[0]) / len(xs),
    Size=lambda x: np.array(x.size, np.int64),
    Tile=np.tile,
)  # fmt: skip


def _reduce(function: Callable[[Array, Array], Array], xs: Sequence[Array]) -> Array:
    total = xs[0]
    for x in xs[1:]:
        total = function(total, x)
    return total


OPS["Max"] = lambda node, *xs: _reduce(np.maximum, xs)
OPS["Min"] = lambda node, *xs: _reduce(np.minimum, xs)


for _name in ("Sub", "Div"):
    OPS[_name] = lambda node, a, b, _f=OPS[_name]: _f(node, a, _legacy(node, a, b))


@op("Pow")
def _pow(node: Node, x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.power(x, y.astype(np.float64))
    pairs = np.broadcast(x, y)
    return np.array([_whole_power(int(a), b, x.dtype) for a, b in pairs], x.dtype).reshape(
        pairs.shape
    )


def _whole_power(base: int, exponent: Any, dtype: np.dtype) -> int:
    """base ** exponent toward zero, and as the low bits of what is too large."""
    if exponent == int(exponent) and exponent >= 0:
        bits = 8 * dtype.itemsize
        low = pow(base, int(exponent), 1 << bits)
        return low - (1 << bits) * (low >> (bits - 1))
    if exponent == int(exponent):
        return base ** int(-exponent % 2) if base in (1, -1) else 0
    return math.trunc(float(base) ** float(exponent))


@op("BitShift")
def _bit_shift(node: Node, x: Array, y: Array) -> Array:
    pairs = np.broadcast(x, y)
    bits, low = 8 * x.dtype.itemsize, int(np.iinfo(x.dtype).min)
    results = []
    for a, b in ((int(a), int(b)) for a, b in pairs):
        count = b if 0 <= b < bits else bits
        moved = a >> count if node.get("direction") == "RIGHT" else a << count
        results.append((moved - low) % (1 << bits) + low)
    return np.array(results, x.dtype).reshape(pairs.shape)


@op("PRelu")
def _prelu(node: Node, x: Array, slope: Array) -> Array:
    if node.opset < 7 and slope.size > 1:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return np.where(x < 0, slope * x, x)


@op("Mod")
def _mod(node: Node, a: Array, b: Array) -> Array:
    return np.fmod(a, b) if node.get("fmod", 0) else np.mod(a, b)


@op("IsInf")
def _is_inf(node: Node, x: Array) -> Array:
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    return (np.isposinf(x) & bool(positive)) | (np.isneginf(x) & bool(negative))


def _with_defaults(name: str, formula: Callable[..., Array], **defaults: float) -> None:
    def evaluate(node: Node, x: Array) -> Array:
        # Attributes, and the defaults of the documents, are float32.
        given = {k: float(np.float32(node.get(k, d))) for k, d in defaults.items()}
        return formula(x, *given.values())

    OPS[name] = evaluate


_with_defaults("LeakyRelu", lambda x, a: np.where(x < 0, a * x, x), alpha=0.01)
_with_defaults("Elu", lambda x, a: np.where(x < 0, a * np.expm1(x), x), alpha=1.0)
_with_defaults("Celu", lambda x, a: np.where(x < 0, a * np.expm1(x / a), x), alpha=1.0)
_with_defaults("ThresholdedRelu", lambda x, a: np.where(x > a, x, 0), alpha=1.0)
_with_defaults("HardSigmoid", lambda x, a, b: np.clip(a * x + b, 0, 1), alpha=0.2, beta=0.5)
_with_defaults("Swish", lambda x, a: x * _sigmoid(a * x), alpha=1.0)
_with_defaults(
    "Shrink",
    lambda x, lambd, bias: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
    lambd=0.5,
    bias=0.0,
)


@op("Selu")
def _selu(node: Node, x: Array) -> Array:
    alpha, gamma = (1.6732, 1.0507) if node.opset < 6 else (1.67326319217681884, 1.05070102214813)
    alpha, gamma = (np.float32(node.get(k, d)) for k, d in (("alpha", alpha), ("gamma", gamma)))
    return np.float64(gamma) * np.where(x < 0, np.float64(alpha) * np.expm1(x), x)


@op("Gelu")
def _gelu(node: Node, x: Array) -> Array:
    if node.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


@op("Clip")
def _clip(node: Node, x: Array, low: Any = None, high: Any = None) -> Array:
    if node.opset < 11:
        limits = float(np.finfo(np.float32).max)
        low = np.float64(np.float32(node.get("min", -limits)))
        high = np.float64(np.float32(node.get("max", limits)))
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@op("Range")
def _range(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start, limit, delta, dtype=start.dtype)


OPS["ConstantOfShape"] = lambda node, shape: np.full(
    shape, numpy_helper.to_array(node.get("value"))[0] if node.get("value") else np.float32(0)
)


@op("Shape")
def _shape(node: Node, x: Array) -> Array:
    return np.array(x.shape[node.get("start", 0) : node.get("end")], np.int64)


@op("Transpose")
def _transpose(node: Node, x: Array) -> Array:
    return np.transpose(x, node.get("perm"))


def _axes(node: Node, given: Array | None) -> tuple[int, ...] | None:
    axes = node.get("axes") if given is None else given
    return None if axes is None else tuple(int(a) for a in axes)


@op("Unsqueeze")
def _unsqueeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    return np.expand_dims(x, _axes(node, axes))


@op("Squeeze")
def _squeeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    return np.squeeze(x, _axes(node, axes))


@op("Reshape")
def _reshape(node: Node, x: Array, shape: Array | None = None) -> Array:
    target = [int(n) for n in (node.get("shape") if shape is None else shape)]
    if not node.get("allowzero", 0):
        target = [x.shape[i] if n == 0 else n for i, n in enumerate(target)]
    if -1 in target and x.size == 0:
        rest = math.prod(n for n in target if n != -1)
        target[target.index(-1)] = 0 if rest else 1
    return x.reshape(target)


@op("Flatten")
def _flatten(node: Node, x: Array) -> Array:
    axis = node.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Expand")
def _expand(node: Node, x: Array, shape: Array) -> Array:
    return x * np.ones(tuple(shape), x.dtype)


@op("Concat")
def _concat(node: Node, *xs: Array) -> Array:
    return np.concatenate(xs, node.get("axis"))


@op("Split")
def _split(node: Node, x: Array, sizes: Array | None = None) -> list[Array]:
    axis = node.get("axis", 0)
    lengths = node.get("split") if sizes is None else list(sizes)
    if lengths is None:
        chunk = -(-x.shape[axis] // node.outputs)
        lengths = [max(0, min(chunk, x.shape[axis] - i * chunk)) for i in range(node.outputs)]
    ends = list(itertools.accumulate(lengths))
    return [
        np.take(x, range(end - length, end), axis)
        for end, length in zip(ends, lengths, strict=True)
    ]


@op("Slice")
def _slice(node: Node, x: Array, *operands: Array | None) -> Array:
    starts, ends, axes, steps = (*operands, *[None] * (4 - len(operands)))
    starts = node.get("starts") if starts is None else starts
    ends = node.get("ends") if ends is None else ends
    axes = node.get("axes", range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent, start, step = x.shape[axis], int(start), int(step)
        # What falls begins with the first element at the latest, unlike in Python.
        start = max(start, -extent) if step < 0 else start
        where = range(extent)[start : int(end) : step]
        x = np.take(x, where, axis)
    return x


@op("Gather")
def _gather(node: Node, x: Array, indices: Array) -> Array:
    return np.take(x, indices, node.get("axis", 0))


@op("Pad")
def _pad(node: Node, x: Array, pads: Any = None, value: Any = None, axes: Any = None) -> Array:
    pads = node.get("pads") if pads is None else pads
    value = node.get("value", 0) if value is None else value
    axes = range(x.ndim) if axes is None else axes
    count = len(pads) // 2
    for i, axis in enumerate(axes):
        before, after = int(pads[i]), int(pads[count + i])
        mode = node.get("mode", "constant")
        grow = [(0, 0)] * x.ndim
        grow[axis] = (max(0, before), max(0, after))
        extra = {"constant_values": value} if mode == "constant" else {}
        wide = np.pad(x, grow, mode, **extra)
        # Removal comes last, so that it may take away what was added at the other end.
        x = np.take(wide, range(max(0, -before), wide.shape[axis] - max(0, -after)), axis)
    return x


@op("DepthToSpace")
def _depth_to_space(node: Node, x: Array) -> Array:
    b = node.get("blocksize")
    n, c, h, w = x.shape
    y = np.empty((n, c // b**2, h * b, w * b))
    for k, i, j in itertools.product(range(c // b**2), range(b), range(b)):
        is_dcr = node.get("mode", "DCR") == "DCR"
        channel = (i * b + j) * (c // b**2) + k if is_dcr else k * b**2 + i * b + j
        y[:, k, i::b, j::b] = x[:, channel]
    return y


@op("SpaceToDepth")
def _space_to_depth(node: Node, x: Array) -> Array:
    b, c = node.get("blocksize"), x.shape[1]
    return np.concatenate([x[:, :, i::b, j::b] for i in range(b) for j in range(b)], 1).reshape(
        x.shape[0], c * b * b, x.shape[2] // b, x.shape[3] // b
    )


def _reduction(name: str, formula: Callable[..., Array]) -> None:
    def evaluate(node: Node, x: Array, axes: Array | None = None) -> Array:
        named = _axes(node, axes)
        if not named:
            named = () if node.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))
        result = formula(x, axis=named, keepdims=bool(node.get("keepdims", 1)))
        return np.asarray(result).astype(x.dtype)

    OPS[name] = evaluate


def _or_lowest(x: Array, function: np.ufunc, lowest: float, **where: Any) -> Array:
    if x.dtype.kind == "f":
        return function.reduce(x, initial=lowest, **where)
    return function.reduce(x, **where)


_reduction("ReduceSum", np.sum)
_reduction("ReduceProd", np.prod)
_reduction("ReduceMean", np.mean)
_reduction("ReduceMax", lambda x, **w: _or_lowest(x, np.maximum, -np.inf, **w))
_reduction("ReduceMin", lambda x, **w: _or_lowest(x, np.minimum, np.inf, **w))
_reduction("ReduceSumSquare", lambda x, **w: np.sum(x * x, **w))
_reduction("ReduceL1", lambda x, **w: np.sum(np.abs(x), **w))
_reduction("ReduceL2", lambda x, **w: np.sqrt(np.sum(x * x, **w)))
_reduction("ReduceLogSum", lambda x, **w: np.log(np.sum(x, **w)))


def _reduce_log_sum_exp(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    for a in axis:
        x = (
            np.logaddexp.reduce(x, a, keepdims=True)
            if x.shape[a]
            else np.full([1 if i == a else n for i, n in enumerate(x.shape)], -np.inf)
        )
    return x if keepdims else np.squeeze(x, axis)


_reduction("ReduceLogSumExp", _reduce_log_sum_exp)


def _softmax_of(node: Node, x: Array, logarithm: bool) -> Array:
    axis = node.get("axis", -1 if node.opset >= 13 else 1) % max(x.ndim, 1)
    axes = (axis,) if node.opset >= 13 else tuple(range(axis, x.ndim))
    if x.size == 0:
        return x
    shifted = x - x.max(axes, keepdims=True)
    total = np.exp(shifted).sum(axes, keepdims=True)
    return shifted - np.log(total) if logarithm else np.exp(shifted) / total


OPS["Softmax"] = lambda node, x: _softmax_of(node, x, logarithm=False)
OPS["LogSoftmax"] = lambda node, x: _softmax_of(node, x, logarithm=True)


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)


def _epsilon(node: Node) -> float:
    return float(np.float32(node.get("epsilon", 1e-5)))


@op("LayerNormalization")
def _layer_normalization(node: Node, x: Array, scale: Array, bias: Array | None = None) -> Any:
    axes = tuple(range(node.get("axis", -1) % x.ndim, x.ndim))
    y = _normalized(x, axes, _epsilon(node)) * scale
    inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + _epsilon(node))
    results = [y if bias is None else y + bias, x.mean(axes, keepdims=True), inverse]
    return results[: node.outputs]


@op("RMSNormalization")
def _rms_normalization(node: Node, x: Array, scale: Array) -> Array:
    axes = tuple(range(node.get("axis", -1) % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + _epsilon(node)) * scale


def _channels(vector: Array, x: Array) -> Array:
    return vector.reshape(-1, *[1] * (x.ndim - 2))


@op("InstanceNormalization")
def _instance_normalization(node: Node, x: Array, scale: Array, bias: Array) -> Array:
    y = _normalized(x, tuple(range(2, x.ndim)), _epsilon(node))
    return y * _channels(scale, x) + _channels(bias, x)


@op("GroupNormalization")
def _group_normalization(node: Node, x: Array, scale: Array, bias: Array) -> Array:
    groups = node.get("num_groups")
    if node.opset < 21:
        scale, bias = (np.repeat(v, x.shape[1] // groups) for v in (scale, bias))
    parts = np.split(x, groups, 1)
    axes = tuple(range(1, x.ndim))
    y = np.concatenate([_normalized(part, axes, _epsilon(node)) for part in parts], 1)
    return y * _channels(scale, x) + _channels(bias, x)


@op("BatchNormalization")
def _batch_normalization(node: Node, x: Array, *statistics: Array) -> list[Array]:
    updated: list[Array] = []
    if node.get("training_mode", 0):
        momentum = float(np.float32(node.get("momentum", 0.9)))
        axes = (0, *range(2, x.ndim))
        scale, bias, *running = statistics
        found = [np.reshape(f(x, axes), scale.shape) for f in (np.mean, np.var)]
        updated = [
            old * momentum + new * (1 - momentum) for old, new in zip(running, found, strict=True)
        ]
        statistics = (scale, bias, *found)
    scale, bias, mean, variance = (_channels(v, x) if x.ndim > 1 else v for v in statistics)
    return [(x - mean) / np.sqrt(variance + _epsilon(node)) * scale + bias, *updated]


@op("Gemm")
def _gemm(node: Node, a: Array, b: Array, c: Array | None = None) -> Array:
    a, b = (m.T if node.get(t, 0) else m for m, t in ((a, "transA"), (b, "transB")))
    alpha, beta = (float(np.float32(node.get(k, 1.0))) for k in ("alpha", "beta"))
    return (alpha * (a @ b) + (0 if c is None else beta * c)).astype(a.dtype)


@op("Conv")
def _conv(node: Node, x: Array, w: Array, bias: Array | None = None) -> Array:
    group = node.get("group", 1)
    per_group, channels, spatial = len(w) // group, w.shape[1], x.shape[2:]
    windows = [np.asarray(places) for places in window_places(node, spatial, w.shape[2:])]
    y = np.zeros((len(x), len(w), *map(len, windows)))
    for tap in np.ndindex(*w.shape[2:]):
        # Where this tap lies for each position, and the positions for which that is in the data.
        at = [places[:, t] for places, t in zip(windows, tap, strict=True)]
        inside = [np.flatnonzero((a >= 0) & (a < n)) for a, n in zip(at, spatial, strict=True)]
        read = [a[positions] for a, positions in zip(at, inside, strict=True)]
        rows = x[np.ix_(range(len(x)), range(x.shape[1]), *read)]
        for g in range(group):
            filters = range(g * per_group, (g + 1) * per_group)
            part = rows[:, g * channels : (g + 1) * channels]
            factors = w[(slice(filters.start, filters.stop), slice(None), *tap)]
            sums = np.einsum("nc...,fc->nf...", part, factors)
            y[np.ix_(range(len(x)), filters, *inside)] += sums
    return y if bias is None else y + _channels(bias, y)


def _recurrent(formula: Callable[..., tuple[Array, ...]]) -> Callable[..., list[Array]]:
    def evaluate(node: Node, *args: Array) -> list[Array]:
        attributes = {k: node.get(k) for k in node.attributes if k != "hidden_size"}
        if "activations" in attributes:
            attributes["activations"] = [name.decode() for name in attributes["activations"]]
        return list(formula(*args, **attributes))

    return evaluate


OPS["Det"] = lambda node, x: np.linalg.det(x)
OPS |= {"RNN": _recurrent(rnn), "GRU": _recurrent(gru), "LSTM": _recurrent(lstm)}
