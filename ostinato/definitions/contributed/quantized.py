"""Operators on 8-bit and 16-bit numbers: dequantise, compute in float32, quantise again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, INT32, INT64, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.products import (
    CONVOLUTION,
    attributes,
    channels_last,
    channels_second,
)
from ostinato.definitions.contributed.tables import microsoft
from ostinato.graph.writer import Array, Operand

_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
# The first operator set in which the standard quantises to and from these along an axis.
_FIRST = {**dict.fromkeys(_BYTES, 13), ir.DataType.INT16: 21, ir.DataType.UINT16: 21}
# Sums of this many bytes are float32.
_MOST_SUMMED = 2**24 // 255


def _number(call: Call, name: str, scale: Array | None = None) -> ir.Value:
    """An operand such as "A" with its zero point and its scale, or another one, as float32."""
    _refuse_several(call, name)
    operands = [call[name], call[_like(call, name, "scale")] if scale is None else scale]
    point = call.input(_like(call, name, "zero_point"))
    return call.op("DequantizeLinear", *operands, *([] if point is None else [point]), dtype=FLOAT)


def _refuse_several(call: Call, name: str) -> None:
    """Refuse more than one scale, or zero point, of an operand such as "A"."""
    call.single(_like(call, name, "scale"), _like(call, name, "zero_point"))


def _like(call: Call, name: str, suffix: str) -> str:
    """The schemas spell these names in either case."""
    wanted = f"{name}_{suffix}"
    return next((n for n in call.names if n.lower() == wanted.lower()), wanted)


def _stored(
    call: Call,
    result: ir.Value,
    name: str,
    kind: ir.DataType | None,
    scale: Operand | None = None,
) -> list[Maybe]:
    """`result`, quantised with the zero point and scale of the operands called `name`.

    scale: another one in its place.
    """
    _refuse_several(call, name)
    point: Operand | None = call.input(_like(call, name, "zero_point"))
    if point is None:
        assert kind is not None
        point = np.zeros((), kind.numpy())
    scale = call[_like(call, name, "scale")] if scale is None else scale
    return [call.op("QuantizeLinear", result, scale, point, dtype=kind)]


@microsoft.register("QLinearAdd", "QLinearMul")
def q_linear_pair(call: Call) -> Sequence[Maybe]:
    """A sum or a product.

    Where scales are known, operands are taken in steps of the result, as onnxruntime does: there is
    nothing to divide then.
    """
    op_type = call.node.op_type.removeprefix("QLinear")
    scales = [call.constant(f"{name}_scale") for name in "ABC"]
    known = [scale for scale in scales if scale is not None and scale.size == 1]
    if len(known) < len(scales):
        result = call.op(op_type, _number(call, "A"), _number(call, "B"))
        return _stored(call, result, "C", call["A"].dtype)
    left, right, divisor = known
    with np.errstate(all="ignore"):
        left, right = left / divisor, right if op_type == "Mul" else right / divisor
    result = call.op(op_type, _number(call, "A", left), _number(call, "B", right))
    return _stored(call, result, "C", call["A"].dtype, np.ones((), np.float32))


def _of_one(call: Call, function: Callable[[ir.Value], ir.Value]) -> list[Maybe]:
    return _stored(call, function(_number(call, "X")), "Y", call["X"].dtype)


@microsoft.register("QLinearSigmoid")
def q_linear_sigmoid(call: Call) -> Sequence[Maybe]:
    """Sigmoid."""
    return _of_one(call, lambda x: call.op("Sigmoid", x))


@microsoft.register("QLinearLeakyRelu")
def q_linear_leaky_relu(call: Call) -> Sequence[Maybe]:
    """LeakyRelu."""
    alpha = call.attribute("alpha")
    return _of_one(call, lambda x: call.op("LeakyRelu", x, alpha=alpha))


@microsoft.register("QLinearSoftmax")
def q_linear_softmax(call: Call) -> Sequence[Maybe]:
    """Softmax as operator set `opset` defines it: up to 12, over all axes from `axis` on."""
    axis, opset = call.attribute("axis"), call.attribute("opset")

    def softmax(x: ir.Value) -> ir.Value:
        rank = call.rank(call["X"])
        if axis % rank == rank - 1:
            return call.op("Softmax", x, axis=-1)
        if opset >= 13:
            perm = [i for i in range(rank) if i != axis % rank] + [axis % rank]
            weights = call.op("Softmax", call.op("Transpose", x, perm=perm), axis=-1)
            return call.op("Transpose", weights, perm=[perm.index(i) for i in range(rank)])
        weights = call.op("Softmax", call.op("Flatten", x, axis=axis), axis=-1)
        return call.op("Reshape", weights, call.op("Shape", x, dtype=INT64))

    return _of_one(call, softmax)


@microsoft.register("QLinearGlobalAveragePool")
def q_linear_global_average_pool(call: Call) -> Sequence[Maybe]:
    """The mean of each channel."""
    _refuse_several(call, "X")
    first = 1 if call.attribute("channels_last") else 2
    axes = [*range(first, call.rank(call["X"]) - 2 + first)]
    sizes = [call.size(call["X"], axis) for axis in axes]
    known = [size for size in sizes if size is not None]
    count = int(np.prod(known))
    if len(known) < len(sizes) or not 0 < count <= _MOST_SUMMED:
        return _of_one(call, lambda x: call.reduce("ReduceMean", x, axes, True))
    x, summed = call["X"], axes
    if first == 2 and len(axes) > 1:
        # The elements of a channel lie beside each other: one axis.
        x, summed = call.reshape(x, 0, 0, -1), [2]
    total = call.cast(call.reduce("ReduceSum", call.cast(x, INT32), summed, True), FLOAT)
    if summed != axes:
        total = call.reshape(total, 0, 0, *[1] * len(axes))
    point, elements = call.input(_like(call, "X", "zero_point")), np.array(count, np.float32)
    if point is not None:
        share = call.op("Mul", call.cast(point, FLOAT), elements)
        total = call.op("Sub", total, share)
    scale = call.op("Div", call[_like(call, "X", "scale")], elements)
    return _stored(call, call.op("Mul", total, scale), "Y", call["X"].dtype)


@microsoft.register("QLinearAveragePool")
def q_linear_average_pool(call: Call) -> Sequence[Maybe]:
    """AveragePool."""
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    given, is_last = attributes(call, names), call.attribute("channels_last")
    rank = len(given["kernel_shape"]) + 2

    def pool(x: ir.Value) -> ir.Value:
        if not is_last:
            return call.op("AveragePool", x, **given)
        second = call.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
        return channels_last(call, call.op("AveragePool", second, **given), rank)

    return _of_one(call, pool)


@microsoft.register("QLinearReduceMean")
def q_linear_reduce_mean(call: Call) -> Sequence[Maybe]:
    """ReduceMean."""
    axes, keepdims = call.attribute("axes"), bool(call.attribute("keepdims"))
    return _of_one(call, lambda x: call.reduce("ReduceMean", x, axes, keepdims))


@microsoft.register("QLinearWhere")
def q_linear_where(call: Call) -> Sequence[Maybe]:
    """Where."""
    parts = _number(call, "X"), _number(call, "Y")
    result = call.op("Where", call["condition"], *parts, dtype=FLOAT)
    return _stored(call, result, "z", call["X"].dtype)


@microsoft.register("QLinearConcat")
def q_linear_concat(call: Call) -> Sequence[Maybe]:
    """Concat of parts that have a scale and a zero point each."""
    given = [value for value in call.node.inputs[2:] if value is not None]
    if len(given) % 3:
        raise call.refuse("each part needs a scale and a zero point")
    scale, point = call["Y_scale"], call["Y_zero_point"]
    parts = []
    for i in range(0, len(given), 3):
        number = call.op("DequantizeLinear", *given[i : i + 3], dtype=FLOAT)
        parts.append(call.op("QuantizeLinear", number, scale, point, dtype=point.dtype))
    return [call.op("Concat", *parts, axis=call.attribute("axis"))]


@microsoft.register("QLinearConv")
def q_linear_conv(call: Call) -> Sequence[Maybe]:
    """QLinearConv of the standard, also of images whose last axis counts channels."""
    names = "x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point".split()
    is_last, x, bias = call.attribute("channels_last"), call["x"], call.input("B")
    operands = [channels_second(call, x) if is_last else x, *(call[name] for name in names)]
    operands += [] if bias is None else [bias]
    given = attributes(call, CONVOLUTION)
    result = call.op("QLinearConv", *operands, dtype=call["y_zero_point"].dtype, **given)
    return [channels_last(call, result, call.rank(x)) if is_last else result]


@microsoft.register("DequantizeLinear")
def dequantize_linear(call: Call) -> Sequence[Maybe]:
    """`(x - x_zero_point) x_scale`, for types that an older operator set does not take as well."""
    x, scale, point = call["x"], call["x_scale"], call.input("x_zero_point")
    axis = call.attribute("axis")
    if _is_standard(call, x.dtype):
        operands = [x, scale] if point is None else [x, scale, point]
        return [call.op("DequantizeLinear", *operands, dtype=scale.dtype, axis=axis)]
    wide = call.cast(x, INT32)
    if point is not None:
        wide = call.op("Sub", wide, call.cast(_along(call, point, x, axis), INT32))
    return [call.op("Mul", call.cast_like(wide, scale), _along(call, scale, x, axis))]


@microsoft.register("QuantizeLinear")
def quantize_linear(call: Call) -> Sequence[Maybe]:
    """`round(x / y_scale) + y_zero_point`, bounded to the range of its type; halves to even."""
    x, scale, point = call["x"], call["y_scale"], call.input("y_zero_point")
    axis = call.attribute("axis")
    kind = ir.DataType.UINT8 if point is None or point.dtype is None else point.dtype
    if _is_standard(call, kind):
        operands = [x, scale] if point is None else [x, scale, point]
        return [call.op("QuantizeLinear", *operands, dtype=kind, axis=axis)]
    whole = call.op("Round", call.op("Div", x, _along(call, scale, x, axis)))
    if point is not None:
        whole = call.op("Add", whole, call.cast_like(_along(call, point, x, axis), x))
    info = np.iinfo(kind.numpy())
    bounds = call.number(info.min, x), call.number(info.max, x)
    return [call.cast(call.op("Clip", whole, *bounds), kind)]


def _is_standard(call: Call, kind: ir.DataType | None) -> bool:
    return kind in _FIRST and call.writer.opset >= _FIRST[kind]


def _along(call: Call, parameter: ir.Value, x: ir.Value, axis: int) -> ir.Value:
    """A scale or zero point for each slice of `x` along an axis, where there is more than one."""
    if call.rank(parameter) == 0:
        return parameter
    rank = call.rank(x)
    return call.reshape(parameter, *(-1 if i == axis % rank else 1 for i in range(rank)))
