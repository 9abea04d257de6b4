"""Conversions between element types: Cast, CastLike, BitCast."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.ops.core.byte_floats import ROUND_MODES, narrowed_to_bytes, widened_bytes
from ostinato.ops.core.known_sizes import fold_sizes
from ostinato.ops.core.progressions import computed
from ostinato.ops.core.quotients import followed, whole_sizes
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Value
from ostinato.program.expr import (
    BYTE_FLOATS,
    FLOATS,
    HALVES,
    INTEGERS,
    ITEM_BYTES,
    Expr,
    cast,
    dtype_of,
    literal,
    op,
    select,
)


def convert(x: Expr, dtype: str) -> Expr:
    """`x` as `dtype`, with a value for every float.

    Integers wrap. The documents leave open what becomes of floats that the integer type does not
    hold, and of NaN; here it is what C compilers make of it on x86-64, and so NumPy and
    onnxruntime: the least integer of int32 or int64, of which narrower types keep the low bits.
    """
    source = dtype_of(x)
    if source in BYTE_FLOATS:
        return convert(widened_bytes(x), dtype)
    if source in HALVES:
        return convert(cast(x, "float32"), dtype)
    if source not in FLOATS or dtype not in INTEGERS:
        return cast(x, dtype)
    if dtype != "uint64":
        narrow = dtype == "int32" or ITEM_BYTES[dtype] < 4
        return cast(_truncated(x, "int32" if narrow else "int64"), dtype)
    half = literal(2.0**63, x)
    # The upper half of the unsigned range, moved down and back; NaN counts as below it.
    upper = x >= half
    moved = _truncated(select(upper, x - half, x), "int64")
    return cast(select(upper, moved ^ -(2**63), moved), dtype)


def _truncated(x: Expr, dtype: str) -> Expr:
    """`x` without its fraction, the least integer of the signed `dtype` where it holds no such."""
    limit = literal(2.0 ** (8 * ITEM_BYTES[dtype] - 1), x)
    whole = cast(x, dtype)
    least = literal(-(1 << 8 * ITEM_BYTES[dtype] - 1), whole)
    # What is too small saturates to the least integer by itself.
    return select(x < limit, whole, least)


@lowers("Cast", "CastLike")
def lower_cast(context: Context) -> Value:
    """Conversion between native number types; see `convert`."""
    value = context.input(0)
    saturate = bool(context.attributes.int("saturate", 1))
    mode = context.attributes.string("round_mode", "up")
    if mode not in ROUND_MODES:
        raise context.invalid(f"attribute 'round_mode' is {mode!r}")
    if context.node.op_type == "CastLike":
        dtype = context.input(1).dtype
    elif context.since < 6:
        dtype = _named_dtype(context, context.attributes.string("to"))
    else:
        dtype = context.native_dtype(context.attributes.int("to"), with_bytes=True)
    if value.dtype == dtype:
        return value
    if dtype in BYTE_FLOATS:
        return context.builder.pointwise(
            lambda x: narrowed_to_bytes(convert(x, "float32"), dtype, saturate, mode), value
        )
    folded = fold_sizes(context, [value], dtype) if dtype != "bool" else None
    if folded is not None:
        return folded
    whole = whole_sizes(context, value, dtype)
    if whole is not None:
        return whole
    result = context.builder.pointwise(lambda x: convert(x, dtype), value)
    return followed(context, [value], computed(context, [value], result))


def _named_dtype(context: Context, name: str) -> str:
    """The dtype of a type's name, as version 1 of Cast gives it."""
    if name not in ir.DataType.__members__:
        raise context.invalid(f"attribute 'to' is {name!r}, which is no type")
    return context.native_dtype(ir.DataType[name].value)


@lowers("BitCast")
def lower_bit_cast(context: Context) -> Value:
    """The same bits as another type of the same size."""
    value = context.input(0)
    dtype = context.native_dtype(context.attributes.int("to"), with_bytes=True)
    if ITEM_BYTES[value.dtype] != ITEM_BYTES[dtype]:
        raise context.invalid(f"{value.dtype} and {dtype} differ in size")
    if value.dtype == dtype:
        return value

    def bits(x: Expr) -> Expr:
        # A bool is a byte in memory, and one bit in a register.
        if "bool" in (value.dtype, dtype):
            return cast(x, dtype)
        return op("bitcast", x, dtype=dtype)

    return context.builder.pointwise(bits, value)
