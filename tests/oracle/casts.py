"""Conversions between element types as their documents define them."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.oracle.graph import Array, Node, op


@op("Cast")
def _cast(node: Node, x: Array) -> Array:
    to = node.get("to")
    code = to if isinstance(to, int) else TensorProto.DataType.Value(to)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
    if dtype.name.startswith("float8"):
        return byte_float(node, x, dtype)
    return convert(x, code)


def byte_float(node: Node, x: Array, dtype: np.dtype) -> Array:
    """Floats of 8 bits, by the conversions of ml_dtypes."""
    narrow, saturate = x.astype(np.float32), bool(node.get("saturate", 1))
    if dtype == ml_dtypes.float8_e8m0fnu:
        return numpy_helper.to_float8e8m0(narrow, saturate, node.get("round_mode", "up"))
    limits = ml_dtypes.finfo(dtype)
    return (np.clip(narrow, limits.min, limits.max) if saturate else narrow).astype(dtype)


@op("CastLike")
def _cast_like(node: Node, x: Array, like: Array) -> Array:
    if like.dtype.name.startswith("float8"):
        return byte_float(node, x, like.dtype)
    return x.astype(like.dtype)


def convert(x: Array, code: int) -> Array:
    """`x` as a type; outside of what an integer type holds, as x86-64 computes it."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(code))
    if x.dtype == ml_dtypes.bfloat16:
        x = x.astype(np.float64)
    if dtype in (np.float16, ml_dtypes.bfloat16):
        return x.astype(np.float32).astype(dtype)
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    return np.array([_integer(float(v), dtype) for v in x.flat], dtype).reshape(x.shape)


def _integer(value: float, dtype: np.dtype) -> int:
    """The element of an integer type that a float becomes."""
    half = 2**31 if dtype.itemsize < 4 or dtype == np.int32 else 2**63
    if dtype == np.uint64 and value >= half:
        result = half + _signed(value - half, half)
    else:
        result = _signed(value, half)
    low = int(np.iinfo(dtype).min)
    return (result - low) % 2 ** (8 * dtype.itemsize) + low


def _signed(value: float, half: int) -> int:
    """The integer part, or the least integer where there is none or it is out of range."""
    if not math.isfinite(value) or not -half <= math.trunc(value) < half:
        return -half
    return math.trunc(value)


@op("BitCast")
def _bit_cast(node: Node, x: Array) -> Array:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(node.get("to")))
    # Floats arrive here as float64.
    narrow = {2: np.float16, 4: np.float32}.get(dtype.itemsize)
    if x.dtype == np.float64 and narrow is not None:
        x = x.astype(narrow)
    return x.view(dtype)
