"""Products of rows that are rounded to 8 bits, block by block.

    y[m, n] = sum_k s[m, k] r[k, n] sum_j q[m, k, j] w[k, j, n]

Block k of row m has a scale s, a 127th of its largest magnitude, and whole numbers q. So a row does
not depend on those beside it. onnxruntime's kernels do that (`SQNBIT_CompInt8` in its MLAS).
"""

from __future__ import annotations

import string

import numpy as np
import onnx_ir as ir

from ostinato.graph.writer import Array, Operand, Writer
from ostinato.records import dataclass

# The first opset whose operators write these products.
OLDEST = 12
# Blocks of weights, by the bits of these, for which onnxruntime has kernels.
_BLOCKS = {2: (32, 64, 128), 4: (16, 32, 64, 128, 256), 8: (16, 32, 64, 128, 256)}
# A sum of products of bytes is below this many times 127: scaled by the largest of a row over both,
# none overflows. A power of two, so that no bit differs.
_HEADROOM = np.float32(2**16)
_FLOAT, _INT8, _INT32 = ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.INT32
_BOOL = ir.DataType.BOOL


@dataclass(frozen=True)
class Rows:
    """An operand in 8 bits.

    bytes: int8 `[.., blocks, rows, block]`. scale: float32 `[.., blocks, rows, 1]`, divided by
    `_HEADROOM`. rank: of the operand, 1 for a single row.
    """

    bytes: ir.Value
    scale: ir.Value
    rank: int


def has_kernels(bits: int, block: int) -> bool:
    """Whether onnxruntime has such products, for weights of so many bits in such blocks."""
    return block in _BLOCKS.get(bits, ())


def rows_in_blocks(
    writer: Writer, x: ir.Value, rank: int, terms: int, blocks: int, block: int
) -> Rows:
    """Round `x`, float32 `[.., terms]`, to 8 bits; zeros fill its last block."""
    if rest := blocks * block - terms:
        pads = np.array([0] * (2 * rank - 1) + [rest], np.int64)
        x = writer.op("Pad", [x, pads], "padded")
    if rank == 1:
        x = writer.unsqueeze(x, [0], "row")
    batch = max(rank - 2, 0)
    sizes = np.array([*[0] * (batch + 1), blocks, block], np.int64)
    x = writer.op("Reshape", [x, sizes], "blocks")
    magnitude = writer.op("Abs", [x], "magnitudes")
    largest = writer.reduce("ReduceMax", magnitude, [-1], "largest")
    one, most = np.array(1, np.float32), np.array(127, np.float32)
    is_zero = writer.op("Equal", [largest, np.array(0, np.float32)], "is_zero", dtype=_BOOL)
    divisor = writer.op("Where", [is_zero, one, largest], "divisor")
    factor = writer.op("Div", [most, divisor], "factor")
    rounded = writer.op("Round", [writer.op("Mul", [x, factor], "multiples")], "rounded")
    bytes_ = writer.op("Cast", [rounded], "bytes", {"to": int(_INT8)}, _INT8)
    scale = writer.op("Div", [largest, most * _HEADROOM], "scale")
    perm = {"perm": [*range(batch), batch + 1, batch, batch + 2]}
    return Rows(
        writer.op("Transpose", [bytes_], "rows", perm, _INT8),
        writer.op("Transpose", [scale], "scales", perm),
        rank,
    )


def product_in_blocks(
    writer: Writer, rows: Rows, weights: Operand, scales: Array, zero: Array | None = None
) -> ir.Value:
    """Multiply by bytes `[blocks, block, n]` with scales `[blocks, n]`.

    zero: what is subtracted from the bytes: `[blocks, 1, n]`, or a number.
    """
    operands: list[Operand] = [rows.bytes, weights]
    if zero is not None:
        operands += [np.array(0, np.int8), zero]
    sums = writer.op("MatMulInteger", operands, "sums", dtype=_INT32)
    wide = writer.op("Cast", [sums], "wide", {"to": int(_FLOAT)})
    scaled = writer.op("Mul", [wide, rows.scale], "scaled")
    batch = string.ascii_uppercase[: max(rows.rank - 2, 0)]
    equation = {"equation": f"{batch}kmn,kn->{batch}mn"}
    total = writer.op("Einsum", [scaled, scales * _HEADROOM], "product", equation)
    return writer.squeeze(total, 0, "vector") if rows.rank == 1 else total
