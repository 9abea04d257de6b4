"""Linear quantisation and sums of quantised products as their documents define them."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.oracle.casts import byte_float
from tests.oracle.graph import OPS, Array, Node, op


def _spread(node: Node, x: Array, parameter: Array) -> Array:
    """A scale or zero point for every element of `x`."""
    if parameter.size == 1 and not node.get("block_size"):
        return np.full(x.shape, parameter.reshape(-1)[0])
    axis = node.get("axis", 1) % x.ndim
    if not node.get("block_size"):
        shape = [1] * x.ndim
        shape[axis] = -1
        return np.broadcast_to(parameter.reshape(shape), x.shape)
    repeated = np.repeat(parameter, node.get("block_size"), axis)
    return repeated.take(range(x.shape[axis]), axis)


def saturated(value: Array, zero: Array | int, dtype: np.dtype) -> Array:
    """round(value) + zero, kept within the type."""
    limits = np.iinfo(dtype)
    value = np.where(np.isnan(value), limits.min, np.rint(value) + np.float64(zero))
    return np.clip(value, limits.min, limits.max).astype(dtype)


@op("QuantizeLinear")
def _quantize(node: Node, x: Array, scale: Array, zero: Array | None = None) -> Array:
    code = node.get("output_dtype")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code) if code else np.uint8)
    code = node.get("precision")
    precision = helper.tensor_dtype_to_np_dtype(code) if code else np.float32
    quotient = x.astype(precision) / _spread(node, x, scale).astype(precision)
    given = dtype if zero is None else zero.dtype
    if given.name.startswith("float8"):
        return byte_float(node, quotient, given)
    if zero is None:
        return saturated(quotient, 0, dtype)
    return saturated(quotient, _spread(node, x, zero), zero.dtype)


@op("DequantizeLinear")
def _dequantize(node: Node, x: Array, scale: Array, zero: Array | None = None) -> Array:
    if x.dtype.kind not in "iu":
        return x.astype(np.float64) * _spread(node, x, scale)
    moved = x.astype(np.int64) - (0 if zero is None else _spread(node, x, zero).astype(np.int64))
    return moved * _spread(node, x, scale)


@op("DynamicQuantizeLinear")
def _dynamic(node: Node, x: Array) -> list[Array]:
    x = x.astype(np.float32)
    low, high = min(np.float32(0), x.min(initial=0)), max(np.float32(0), x.max(initial=0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = saturated(-low / scale, 0, np.dtype(np.uint8))
    return [saturated(x / scale, zero, zero.dtype), scale, zero]


def _by_row(value: Array) -> Array:
    return value[:, None] if value.ndim == 1 and value.size > 1 else value


@op("MatMulInteger")
def _matmul(
    node: Node, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    left, right = a.astype(np.int64), b.astype(np.int64)
    if a_zero is not None:
        left = left - _by_row(a_zero)
    if b_zero is not None:
        right = right - b_zero
    return np.matmul(left, right).astype(np.int32)


def _scaled(total: Array, left: Array, right: Array, scale: Array, zero: Array) -> Array:
    left, right, scale = (v.astype(np.float32) for v in (left, right, scale))
    return saturated(total.astype(np.float32) * (left * right / scale), zero, zero.dtype)


@op("QLinearMatMul")
def _qlinear_matmul(
    node: Node,
    a: Array, a_scale: Array, a_zero: Array,
    b: Array, b_scale: Array, b_zero: Array,
    scale: Array, zero: Array,
) -> Array:  # fmt: skip
    total = _matmul(node, a, b, a_zero, b_zero)
    return _scaled(total, _by_row(a_scale), b_scale, _by_row(scale), _by_row(zero))


def _by_filter(value: Array, rank: int) -> Array:
    return value.reshape(-1, *[1] * (rank - 1)) if value.ndim else value


@op("ConvInteger")
def _conv(
    node: Node, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    wide = x.astype(np.float64) - (0 if x_zero is None else np.float64(x_zero))
    weight = w.astype(np.float64) - (0 if w_zero is None else _by_filter(w_zero, w.ndim))
    return OPS["Conv"](node, wide, weight).astype(np.int32)


@op("QLinearConv")
def _qlinear_conv(
    node: Node,
    x: Array, x_scale: Array, x_zero: Array,
    w: Array, w_scale: Array, w_zero: Array,
    scale: Array, zero: Array, bias: Array | None = None,
) -> Array:  # fmt: skip
    total = _conv(node, x, w, x_zero, w_zero)
    if bias is not None:
        total = total + _by_filter(bias, w.ndim - 1)
    return _scaled(total, x_scale, _by_filter(w_scale, w.ndim - 1), scale, zero)
