"""Matrix products and convolutions with what onnxruntime has fused into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, INT32, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.tables import microsoft
from ostinato.graph.writer import Operand, Writer
from ostinato.model.values import filled

# The zero points of two operands, None for 0.
Points: TypeAlias = "tuple[Operand | None, Operand | None]"

CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
POOL = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")

# The attributes of each activation, in the order of `activation_params` and of alpha, beta, gamma.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "": (),
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "Softplus": (),
    "Softsign": (),
    "ThresholdedRelu": ("alpha",),
}


def attributes(call: Call, names: Sequence[str]) -> dict[str, Any]:
    """Attributes that are copied as they are."""
    return {name: call.attribute(name) for name in names}


def activate(call: Call, x: ir.Value, name: str, parameters: Sequence[float]) -> ir.Value:
    """An activation that was fused into an operator."""
    if name not in _ACTIVATIONS:
        known = ", ".join(filter(None, _ACTIVATIONS))
        raise call.refuse(f"attribute 'activation' is {name!r}, expected one of {known}")
    names = _ACTIVATIONS[name]
    if len(parameters) != len(names):
        expected = f"{len(names)} ({', '.join(names)})" if names else "none"
        raise call.refuse(
            f"activation {name!r} has {len(parameters)} parameters, expected {expected}"
        )
    if name == "Clip":
        bounds: list[Operand] = [call.number(p, x) for p in parameters]
        return call.op("Clip", x, *bounds)
    if name == "HardSwish":
        return call.op("Mul", x, call.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    given: dict[str, Any] = dict(zip(names, parameters, strict=True))
    return call.op(name, x, **given) if name else x


@microsoft.register("FusedConv")
def fused_conv(call: Call) -> Sequence[Maybe]:
    """`activation(Conv(X, W, B) + Z)`."""
    return [fused_convolution(call, call["X"], call["W"], call.input("B"), call.input("Z"))]


def fused_convolution(call: Call, x: ir.Value, w: ir.Value, b: Maybe, z: Maybe) -> ir.Value:
    """A convolution, a sum, an activation: whose attributes are those of the node."""
    operands = [x, w] if b is None else [x, w, b]
    result = call.op("Conv", *operands, **attributes(call, CONVOLUTION))
    if z is not None:
        result = call.op("Add", result, z)
    name, parameters = call.attribute("activation"), call.attribute("activation_params")
    return activate(call, result, name or "", parameters or ())


@microsoft.register("NhwcConv", "NhwcFusedConv")
def nhwc_conv(call: Call) -> Sequence[Maybe]:
    """FusedConv of images whose last axis counts channels; so does that of filters of NhwcConv."""
    x, z = call["X"], None
    if call.node.op_type == "NhwcConv":
        operands = [channels_second(call, x), channels_second(call, call["W"])]
        operands += [b for b in [call.input("B")] if b is not None]
        result = call.op("Conv", *operands, **attributes(call, CONVOLUTION))
        return [channels_last(call, result, call.rank(x))]
    if (other := call.input("Z")) is not None:
        z = channels_second(call, other)
    result = fused_convolution(call, channels_second(call, x), call["W"], call.input("B"), z)
    return [channels_last(call, result, call.rank(x))]


@microsoft.register("NhwcMaxPool")
def nhwc_max_pool(call: Call) -> Sequence[Maybe]:
    """MaxPool of images whose last axis counts channels."""
    given = attributes(call, POOL)
    rank = len(given["kernel_shape"]) + 2
    x, kind = call.op("Transpose", call["x"], perm=_second(rank)), call["x"].dtype
    assert kind is not None
    if kind in (ir.DataType.INT8, ir.DataType.UINT8) and call.writer.opset < 12:
        # MaxPool takes bytes from there on; floats hold them all.
        x = call.cast(x, FLOAT)
    return [channels_last(call, call.cast(call.op("MaxPool", x, **given), kind), rank)]


def _second(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def channels_second(call: Call, x: ir.Value) -> ir.Value:
    """Images `[N, ..., C]` as `[N, C, ...]`."""
    return call.op("Transpose", x, perm=_second(call.rank(x)))


def channels_last(call: Call, x: ir.Value, rank: int) -> ir.Value:
    """Images `[N, C, ...]` as `[N, ..., C]`."""
    return call.op("Transpose", x, perm=[0, *range(2, rank), 1])


@microsoft.register("FusedGemm")
def fused_gemm(call: Call) -> Sequence[Maybe]:
    """`activation(Gemm(A, B, C))`."""
    operands = [call["A"], call["B"], *(c for c in [call.input("C")] if c is not None)]
    given = attributes(call, ("alpha", "beta", "transA", "transB"))
    result = call.op("Gemm", *operands, **given)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    parameters = [p for p in map(call.attribute, names) if p is not None]
    return [activate(call, result, call.attribute("activation") or "", parameters)]


@microsoft.register("FusedMatMul", "TransposeMatMul")
def fused_mat_mul(call: Call) -> Sequence[Maybe]:
    """`alpha A' B'`, where each operand may be transposed.

    trans: the last two axes are exchanged. transBatch: the first axis comes behind the others of
    the batch, before that.
    """
    operands = []
    for letter in "AB":
        x = call[letter]
        swaps = call.attribute(f"trans{letter}")
        moves = call.node.op_type == "FusedMatMul" and call.attribute(f"transBatch{letter}")
        if swaps and not moves and not call.has_rank(x):
            x = call.op("Einsum", x, equation="...ij->...ji")
        elif (swaps or moves) and (rank := call.rank(x)) >= 2:
            perm = [*range(1, rank - 1), 0, rank - 1] if moves else [*range(rank)]
            if swaps:
                perm[-2:] = perm[:-3:-1]
            x = call.op("Transpose", x, perm=perm)
        operands.append(x)
    product, alpha = call.op("MatMul", *operands), call.attribute("alpha")
    return [product if alpha == 1 else call.op("Mul", product, alpha)]


@microsoft.register("MatMulIntegerToFloat")
def mat_mul_integer_to_float(call: Call) -> Sequence[Maybe]:
    """`(A - a_zero_point) (B - b_zero_point) a_scale b_scale + bias`."""
    call.single("a_scale", "a_zero_point")
    points = call.input("a_zero_point"), call.input("b_zero_point")
    scale = call.op("Mul", call["a_scale"], call["b_scale"])
    return [scaled_product(call, call["A"], call["B"], points, scale, call.input("bias"))]


@microsoft.register("DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(call: Call) -> Sequence[Maybe]:
    """A product with quantised weights, whose other operand is quantised first."""
    points, b = call.input("b_zero_point"), call["B"]
    return [dynamic_product(call, call["A"], b, call["b_scale"], points, call.input("bias"))]


def dynamic_product(
    call: Call, a: ir.Value, b: Operand, scale: Operand, point: Operand | None, bias: Maybe
) -> ir.Value:
    """`a b scale + bias`, where `a` is quantised to 8 bits over its range."""
    quantized, a_scale, a_point = dynamically_quantized(call.writer, a)
    whole = call.op("Mul", a_scale, scale)
    return scaled_product(call, quantized, b, (a_point, point), whole, bias)


def dynamically_quantized(writer: Writer, a: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Bytes, their scale and zero point."""
    names = ("quantized", "scale", "zero_point")
    kinds = (ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8)
    made = [writer.declare(n, None, kind) for n, kind in zip(names, kinds, strict=True)]
    writer.node("DynamicQuantizeLinear", [a], made, role="DynamicQuantizeLinear")
    return made[0], made[1], made[2]


def scaled_product(
    call: Call, a: ir.Value, b: Operand, points: Points, scale: ir.Value, bias: Maybe
) -> ir.Value:
    """`(a - points[0]) (b - points[1]) scale + bias`, summed in integers."""
    result = integer_product(call.writer, a, b, points, scale)
    return result if bias is None else call.op("Add", result, bias)


def integer_product(
    writer: Writer, a: ir.Value, b: Operand, points: Points, scale: ir.Value
) -> ir.Value:
    """`(a - points[0]) (b - points[1]) scale`; a zero point that is None is 0."""
    first, second = points
    if first is None and second is not None:
        first = filled(a)
    operands = [a, b, *(point for point in (first, second) if point is not None)]
    total = writer.op("MatMulInteger", operands, "integers", dtype=INT32)
    kind = scale.dtype
    assert kind is not None
    wide = writer.op("Cast", [total], "sums", {"to": int(kind)}, kind)
    return writer.op("Mul", [wide, scale], "product", dtype=kind)


@microsoft.register("QGemm")
def q_gemm(call: Call) -> Sequence[Maybe]:
    """`alpha a_scale b_scale ((A - a_zero_point)' (B - b_zero_point)' + C)`, quantised.

    C has the scale of the product. Without `y_scale` the result is float32.
    """
    call.single("a_scale", "a_zero_point", "y_scale", "y_zero_point")
    a, b = call["A"], call["B"]
    if call.attribute("transA"):
        a = call.op("Transpose", a, perm=[1, 0])
    if call.attribute("transB"):
        b = call.op("Transpose", b, perm=[1, 0])
    points = call["a_zero_point"], call["b_zero_point"]
    total = call.op("MatMulInteger", a, b, *points, dtype=INT32)
    if (c := call.input("C")) is not None:
        total = call.op("Add", total, c)
    scale = call.op("Mul", call["a_scale"], call["b_scale"])
    if (alpha := call.attribute("alpha")) != 1:
        scale = call.op("Mul", scale, alpha)
    result = call.op("Mul", call.cast_like(total, scale), scale)
    y_scale, point = call.input("y_scale"), call.input("y_zero_point")
    if y_scale is None:
        return [result]
    if point is None:
        raise call.refuse("input 'y_zero_point' is required beside 'y_scale'")
    return [call.op("QuantizeLinear", result, y_scale, point, dtype=point.dtype)]


@microsoft.register("CDist")
def distances(call: Call) -> Sequence[Maybe]:
    """The distance of each row of A to each of B: the sum of squared differences, or its root."""
    call.refuse_unless("metric", "sqeuclidean", "euclidean")
    # Sums along the first axis: lanes run along the rows of B, and each sum is one chain.
    a, b = (call.op("Transpose", call[name], perm=[1, 0]) for name in "AB")
    rows, columns = call.writer.unsqueeze(a, [2], "rows"), call.writer.unsqueeze(b, [1], "columns")
    difference = call.op("Sub", rows, columns)
    total = call.reduce("ReduceSumSquare", difference, [0], keepdims=False)
    return [call.op("Sqrt", total) if call.attribute("metric") == "euclidean" else total]
