"""Activations with a bias, and normalisation behind a residual sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, INT32, INT64, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.tables import microsoft, standard
from ostinato.graph.writer import Operand


@microsoft.register("Gelu")
def gelu(call: Call) -> Sequence[Maybe]:
    """`x Phi(x)`, by the error function."""
    return [_gelu(call, call["X"])]


@microsoft.register("BiasGelu")
def bias_gelu(call: Call) -> Sequence[Maybe]:
    """Gelu of a sum."""
    return [_gelu(call, call.op("Add", call["A"], call["B"]))]


@microsoft.register("BiasSplitGelu")
def bias_split_gelu(call: Call) -> Sequence[Maybe]:
    """The left half of the last axis of `X + bias` times the Gelu of the right half."""
    total = call.op("Add", call["X"], call["bias"])
    width = call.size(call["bias"], -1)
    if width is None or width % 2:
        raise call.refuse("the size of input 'bias' is not known, or odd")
    left, right = (call.slice(total, n, n + width // 2, -1) for n in (0, width // 2))
    return [call.op("Mul", left, _gelu(call, right))]


def _gelu(call: Call, x: ir.Value) -> ir.Value:
    error = call.op("Erf", call.op("Mul", x, math.sqrt(0.5)))
    half = call.op("Mul", x, 0.5)
    return call.op("Mul", half, call.op("Add", error, 1))


@microsoft.register("FastGelu")
def fast_gelu(call: Call) -> Sequence[Maybe]:
    """`0.5 x (1 + tanh(x (0.0356774 x x + 0.797885)))`, the approximation by tanh."""
    return [_fast_gelu(call, _added(call, call["X"], call.input("bias")))]


def _fast_gelu(call: Call, x: ir.Value) -> ir.Value:
    cubic, linear = math.sqrt(2 / math.pi) * 0.044715, math.sqrt(2 / math.pi)
    slope = call.op("Mul", call.op("Mul", x, x), cubic)
    inner = call.op("Mul", x, call.op("Add", slope, linear))
    half = call.op("Mul", x, 0.5)
    return call.op("Mul", half, call.op("Add", call.op("Tanh", inner), 1))


@microsoft.register("GemmFastGelu")
def gemm_fast_gelu(call: Call) -> Sequence[Maybe]:
    """FastGelu of `X W + bias`."""
    product = call.op("MatMul", call["X"], call["W"])
    return [_fast_gelu(call, _added(call, product, call.input("bias")))]


@microsoft.register("QuickGelu")
def quick_gelu(call: Call) -> Sequence[Maybe]:
    """`x sigmoid(alpha x)`."""
    x = call["X"]
    scaled = call.op("Mul", x, call.attribute("alpha"))
    return [call.op("Mul", x, call.op("Sigmoid", scaled))]


@microsoft.register("ScaledSiLU")
def scaled_silu(call: Call) -> Sequence[Maybe]:
    """`z sigmoid(z)` of `z = scale X`, with `alpha` where no scale is given."""
    x, scale = call["X"], call.input("scale")
    factor: Operand = call.number(call.attribute("alpha"), x)
    if scale is not None:
        factor = call.cast_like(scale, x)
    scaled = call.op("Mul", x, factor)
    return [call.op("Mul", scaled, call.op("Sigmoid", scaled))]


@microsoft.register("GatedAdd")
def gated_add(call: Call) -> Sequence[Maybe]:
    """`X + Y gate`."""
    return [call.op("Add", call["X"], call.op("Mul", call["Y"], call["gate"]))]


@microsoft.register("BiasAdd")
def bias_add(call: Call) -> Sequence[Maybe]:
    """`X + bias + skip`."""
    return [call.op("Add", call.op("Add", call["X"], call["bias"]), call["skip"])]


@microsoft.register("BiasDropout")
def bias_dropout(call: Call) -> Sequence[Maybe]:
    """`data + bias + residual`: nothing is dropped where a network is not trained."""
    call.attribute("seed")
    training = call.constant("training_mode")
    if call.input("training_mode") is not None and (training is None or training.any()):
        raise call.refuse("input 'training_mode' is not a constant false")
    total = _added(call, call.op("Add", call["data"], call["bias"]), call.input("residual"))
    if not call.wanted(1):
        return [total]
    kept = call.op("Equal", total, total, dtype=ir.DataType.BOOL)
    is_nan = call.op("Not", kept)
    return [total, call.op("Or", kept, is_nan)]


@microsoft.register("BiasSoftmax")
def bias_softmax(call: Call) -> Sequence[Maybe]:
    """Softmax over the axes from `axis` on of `data + bias`.

    With `is_inner_broadcast` the bias is shared by the axes just before `axis`, and else by the
    first ones, as in the broadcasting of the standard.
    """
    data, bias = call["data"], call["bias"]
    axis, rank = call.attribute("axis"), call.rank(call["data"])
    axis %= rank
    inner = call.attribute("is_inner_broadcast")
    if inner and (missing := rank - call.rank(bias)) > 0:
        places = [axis - 1 - i for i in range(missing)]
        bias = call.writer.unsqueeze(bias, sorted(places), "bias")
    total = call.op("Add", data, bias)
    if axis == rank - 1:
        return [call.op("Softmax", total, axis=-1)]
    flat = call.op("Flatten", total, axis=axis)
    weights = call.op("Softmax", flat, axis=-1)
    return [call.op("Reshape", weights, call.op("Shape", data, dtype=INT64))]


def _added(call: Call, x: ir.Value, other: Maybe) -> ir.Value:
    return x if other is None else call.op("Add", x, other)


@microsoft.register("SkipLayerNormalization")
def skip_layer_normalization(call: Call) -> Sequence[Maybe]:
    """LayerNormalization of `input + skip + bias`, which is the last output."""
    total = _added(call, call.op("Add", call["input"], call["skip"]), call.input("bias"))
    epsilon = call.attribute("epsilon")
    results = _layer_norm(call, total, call["gamma"], call.input("beta"), epsilon)
    return [*results, *[None] * (3 - len(results)), total]


@microsoft.register("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(call: Call) -> Sequence[Maybe]:
    """The mean of squares in place of the variance, and no mean is subtracted."""
    total = _added(call, call.op("Add", call["input"], call["skip"]), call.input("bias"))
    result, inverse = _rms_norm(call, total, call["gamma"], call.attribute("epsilon"), -1)
    return [result, None, inverse, total]


@microsoft.register("GroupNorm", "SkipGroupNorm")
def group_norm(call: Call) -> Sequence[Maybe]:
    """Groups of channels, normalised over all places in float32; times their sigmoid, if asked.

    SkipGroupNorm adds `skip`, images or a row of channels for each, and `bias` first; the sum is
    its second output.
    """
    call.refuse_unless("activation", 0, 1)
    is_last, total = call.attribute("channels_last"), call["X"]
    rank = call.rank(total)
    if call.node.op_type == "SkipGroupNorm":
        skip = call["skip"]
        if call.rank(skip) == 2:
            skip = call.reshape(skip, 0, *[1] * (rank - 2), -1)
        total = _added(call, call.op("Add", total, skip), call.input("bias"))
    second = call.cast(total, FLOAT)
    if is_last:
        second = call.op("Transpose", second, perm=[0, rank - 1, *range(1, rank - 1)])
    groups = call.attribute("groups")
    one, zero = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    flat, epsilon = call.reshape(second, 0, groups, -1), call.attribute("epsilon")
    normal = call.op("InstanceNormalization", flat, one, zero, epsilon=epsilon)
    normal = call.op("Reshape", normal, call.op("Shape", second, dtype=INT64))
    gamma, beta = (
        call.reshape(call.cast(call[name], FLOAT), -1, *[1] * (rank - 2))
        for name in ("gamma", "beta")
    )
    result = call.op("Add", call.op("Mul", normal, gamma), beta)
    if call.attribute("activation"):
        result = call.op("Mul", result, call.op("Sigmoid", result))
    if is_last:
        result = call.op("Transpose", result, perm=[0, *range(2, rank), 1])
    return [call.cast_like(result, total), total]


@standard.register("SimplifiedLayerNormalization")
def simplified_layer_normalization(call: Call) -> Sequence[Maybe]:
    """`X / sqrt(mean(X X) + epsilon) scale` over the axes from `axis` on, computed in float32."""
    call.refuse_unless("stash_type", 1)
    return _rms_norm(
        call, call["X"], call["scale"], call.attribute("epsilon"), call.attribute("axis")
    )


def _rms_norm(
    call: Call, x: ir.Value, gamma: ir.Value, epsilon: float, axis: int
) -> tuple[ir.Value, ir.Value]:
    wide = x if x.dtype == ir.DataType.DOUBLE else call.cast(x, FLOAT)
    axes = [*range(axis % call.rank(x) - call.rank(x), 0)] if axis != -1 else [-1]
    squares = call.reduce("ReduceMean", call.op("Mul", wide, wide), axes, keepdims=True)
    deviation = call.op("Sqrt", call.op("Add", squares, epsilon))
    inverse = call.op("Reciprocal", deviation)
    normal = call.op("Mul", wide, inverse)
    return call.op("Mul", call.cast_like(normal, gamma), gamma), inverse


def _layer_norm(
    call: Call, x: ir.Value, gamma: ir.Value, beta: Maybe, epsilon: float
) -> tuple[ir.Value, ...]:
    """The result; the mean and the inverse of the standard deviation where these are wanted."""
    operands: list[Operand] = [x, gamma] if beta is None else [x, gamma, beta]
    count = 3 if call.wanted(1) or call.wanted(2) else 1
    return call.ops("LayerNormalization", count, *operands, axis=-1, epsilon=epsilon)


@microsoft.register("EmbedLayerNormalization")
def embed_layer_normalization(call: Call) -> Sequence[Maybe]:
    """LayerNormalization of the sum of the rows of three tables.

    The positions are 0, 1, ... where they are not given. The second output counts the ones in each
    row of the mask; it is zero without a mask.
    """
    # Says which shape the second output has, which is that of the nodes written here anyway.
    call.attribute("mask_index_type")

    def rows(name: str, places: Operand) -> ir.Value:
        table = call[f"{name}_embedding"]
        return call.op("Gather", table, places, dtype=table.dtype)

    return normalised_embedding(call, rows, call["gamma"], call["beta"])


def normalised_embedding(
    call: Call, rows: Callable[[str, Operand], ir.Value], gamma: ir.Value, beta: ir.Value
) -> list[Maybe]:
    """The outputs of EmbedLayerNormalization; `rows` reads the table of words, and so on."""
    ids = call["input_ids"]
    positions = call.input("position_ids") if "position_ids" in call.names else None
    places: Operand = call.writer.positions(ids, 1) if positions is None else positions
    total = call.op("Add", rows("word", ids), rows("position", places))
    segments = call.input("segment_ids")
    if segments is not None and call.input("segment_embedding") is not None:
        total = call.op("Add", total, rows("segment", segments))
    normal = _layer_norm(call, total, gamma, beta, call.attribute("epsilon"))[0]
    if not call.wanted(1):
        return [normal, None, total]
    mask = call.input("mask")
    if mask is None:
        mask = call.op("Sub", ids, ids)
    ones = call.reduce("ReduceSum", call.cast(mask, INT32), [1], keepdims=False)
    return [normal, ones, total]


@microsoft.register("ExpandDims")
def expand_dims(call: Call) -> Sequence[Maybe]:
    """A new axis of size 1, at a constant place."""
    axis = call.constant("axis")
    if axis is None:
        raise call.refuse("input 'axis' is no constant")
    place = int(call.sized("axis", axis))
    return [call.writer.unsqueeze(call["X"], [place], "expanded")]
