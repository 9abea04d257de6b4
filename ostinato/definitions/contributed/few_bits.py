"""Products with weights of few bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ostinato.definitions.bytes_in_blocks import (
    OLDEST,
    has_kernels,
    product_in_blocks,
    rows_in_blocks,
)
from ostinato.definitions.contributed.call import FLOAT, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.tables import microsoft
from ostinato.graph.quantised import even_block
from ostinato.graph.writer import Operand

# The `accuracy_level` at which products of A may be those of bytes.
_BYTES_OF_A = 4


@microsoft.register("MatMulNBits")
def mat_mul_n_bits(call: Call) -> Sequence[Maybe]:
    """`A (scales (B - zero_points))' + bias`, for weights `[N, K]` in blocks along K.

    B has `bits` for each weight, the first one in the lowest: uint8 `[N, blocks, bytes]`. Zero
    points are packed alike, `[N, bytes]`, or numbers of the type of A; half the range without.

    Where `accuracy_level` asks for no more than 8 bits of A (4), blocks of its rows are rounded to
    them, and products are those of integers; otherwise they are of float32.

    Raises `ShapeError` for operands of another size.
    """
    k, n, block = (call.attribute(name) for name in ("K", "N", "block_size"))
    bits, level = call.attribute("bits"), call.attribute("accuracy_level")
    call.refuse_unless("weight_prepacked", 0)
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1):
        raise call.refuse(f"attributes 'bits' and 'block_size' are {bits} and {block}")
    if k < 1 or n < 1:
        raise call.refuse(f"attributes 'K' and 'N' are {k} and {n}")
    call.refuse_input("g_idx")
    packed, scales, a = call.constant("B"), call.constant("scales"), call["A"]
    if packed is None or scales is None:
        raise call.refuse("inputs 'B' and 'scales' are no constants")
    blocks = math.ceil(k / block)
    weights = unpacked(call.sized("B", packed, n, blocks * block * bits // 8), bits)
    points = call.constant("zero_points")
    if call.input("zero_points") is None:
        zero: np.ndarray = np.full((n, blocks), 1 << (bits - 1), np.uint8)
    elif points is None:
        raise call.refuse("input 'zero_points' is no constant")
    elif points.dtype == np.uint8:
        size = math.ceil(blocks * bits / 8)
        zero = unpacked(call.sized("zero_points", points, n, size), bits)[:, :blocks]
    else:
        zero = call.sized("zero_points", points, n, blocks)
    scales = call.sized("scales", scales, n, blocks).astype(np.float32)
    x, bias = call.cast(a, FLOAT), call.input("bias")
    is_known = call.has_rank(a) and call.rank(a) > 0 and call.writer.opset >= OLDEST
    has_bytes = zero.dtype == np.uint8 and has_kernels(bits, block)
    if level == _BYTES_OF_A and has_bytes and is_known:
        product = _product_of_bytes(call, x, weights, zero, scales)
    else:
        product = call.op("MatMul", x, _dequantized(call, weights, zero, scales, k))
    if bias is not None:
        product = call.op("Add", product, call.cast(bias, FLOAT))
    result = call.cast_like(product, a)
    # The shape is known here; behind many such nodes, inferring it takes long.
    return [result if a.shape is None else call.shaped(result, *a.shape[:-1], n)]


def _product_of_bytes(
    call: Call, x: ir.Value, weights: np.ndarray, zero: np.ndarray, scales: np.ndarray
) -> ir.Value:
    """`x ((weights - zero) scales)'`, with blocks of the rows of `x` `[.., K]` in 8 bits."""
    n, blocks = zero.shape
    block, writer = weights.shape[1] // blocks, call.writer
    rows = rows_in_blocks(writer, x, call.rank(x), call.attribute("K"), blocks, block)
    is_same = bool(np.all(zero == zero.flat[0]))
    points = zero[:1, 0].reshape(()) if is_same else np.ascontiguousarray(zero.T)[:, None]
    matrix = np.ascontiguousarray(weights.reshape(n, blocks, block).transpose(1, 2, 0))
    return product_in_blocks(writer, rows, matrix, np.ascontiguousarray(scales.T), points)


def _dequantized(
    call: Call, weights: np.ndarray, zero: np.ndarray, scales: np.ndarray, k: int
) -> Operand:
    """`(weights - zero) scales` as `[k, N]`, of weights `[N, blocks * block]`.

    Whole zero points leave the weights as narrow as they are: a row for each block. Where the last
    block is not full, rows are as long as divides all of them.
    """
    n, blocks = zero.shape
    block = weights.shape[1] // blocks
    length = even_block(k, block) or 1
    zero, scales = (np.repeat(x, block // length, 1)[:, : k // length] for x in (zero, scales))
    rows = weights[:, :k].reshape(-1, length)
    is_narrow = zero.dtype == np.uint8 and call.writer.opset >= 13
    if length == 1 or not is_narrow:
        centred: np.ndarray = rows.astype(np.float32) - zero.reshape(-1, 1).astype(np.float32)
        matrix = (centred * scales.reshape(-1, 1)).reshape(n, k)
        return np.ascontiguousarray(matrix.T)
    points = [zero.reshape(-1)]
    if np.all(zero == zero.flat[0]):
        centred = rows.astype(np.int16) - int(zero.flat[0])
        if centred.min() >= -128 and centred.max() <= 127:
            rows, points = centred.astype(np.int8), []
    operands = (call.writer.value(array, "weights") for array in (rows, scales.reshape(-1)))
    wide = call.op("DequantizeLinear", *operands, *points, dtype=FLOAT, axis=0)
    return call.op("Transpose", call.reshape(wide, n, k), perm=[1, 0])


def unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of some bits each along the last axis, the first one in the lowest bits of a byte."""
    parts = [data >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*data.shape[:-1], -1)


# The values of the 16 codes of each `quant_type`, as fractions of the largest number of a block.
_BNB4 = (
    "0 1/192 2/3 1 1/3 1/2 1/6 1/4 0 -1/192 -2/3 -1 -1/3 -1/2 -1/6 -1/4",
    "-1 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635 "
    "-0.18477343022823334 -0.09105003625154495 0 0.07958029955625534 0.16093020141124725 "
    "0.24611230194568634 0.33791524171829224 0.44070982933044434 0.5626170039176941 "
    "0.7229568362236023 1",
)


@microsoft.register("MatMulBnb4")
def mat_mul_bnb4(call: Call) -> Sequence[Maybe]:
    """`A B'`, or `A B` with transB = 0, for weights `[N, K]` in codes of 4 bits.

    A code stands for a fraction of `absmax`, which blocks of the flat weights have one of each. The
    first of two codes is in the highest bits (https://github.com/bitsandbytes-foundation).

    Raises `ShapeError` for operands of another size.
    """
    k, n, block = (call.attribute(name) for name in ("K", "N", "block_size"))
    kind, is_transposed = call.attribute("quant_type"), call.attribute("transB")
    call.refuse_unless("quant_type", 0, 1)
    call.refuse_unless("training_mode", 0)
    if k < 1 or n < 1 or block < 1:
        raise call.refuse(f"attributes 'K', 'N' and 'block_size' are {k}, {n} and {block}")
    packed, scales = call.constant("B"), call.constant("absmax")
    if packed is None or scales is None:
        raise call.refuse("inputs 'B' and 'absmax' are no constants")
    pairs = unpacked(call.sized("B", packed, (n * k + 1) // 2, 1), 4)[:, ::-1]
    levels = np.array([float(Fraction(text)) for text in _BNB4[kind].split()], np.float32)
    largest = call.sized("absmax", scales, math.ceil(n * k / block)).astype(np.float32)
    weights = levels[pairs.reshape(-1)[: n * k]] * np.repeat(largest, block)[: n * k]
    matrix = weights.reshape(n, k).astype(scales.dtype)
    matrix = np.ascontiguousarray(matrix.T) if is_transposed else matrix
    return [call.op("MatMul", call["A"], matrix)]
