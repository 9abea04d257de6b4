"""Sums of products of small integers: exact in int32, so no order matters and sums come apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ostinato.ops.builder import literal
from ostinato.ops.parts import pad
from ostinato.ops.registry import Context
from ostinato.ops.tensor import Tensor, Value, slice_axis
from ostinato.program.dims import Size, ceildiv
from ostinato.program.expr import Expr, Extent, cast, constant, op

# The bytes of a word, and what makes signed ones of unsigned ones and back: x +- 128.
BYTES = 4
FLIP = -0x7F7F7F80


def is_zero(value: Value | None) -> bool:
    """Whether a zero point is known to be 0 everywhere."""
    numbers = None if value is None else known_numbers(value)
    return numbers is not None and not np.any(numbers)


def known_numbers(value: Value) -> np.ndarray | None:
    """The elements of a value where they are numbers known while compiling."""
    known = value.known
    return None if known is None or known.dtype == object else known


def integer_matmul(
    context: Context, left: Value, right: Value, left_zero: Value | None, right_zero: Value | None
) -> Tensor:
    """`(left - left_zero) @ (right - right_zero)` in int32, for int8 and uint8.

    left `[.., m, k]`, right `[.., k, n]`; the zero points are scalars, or `[.., m, 1]` and
    `[.., 1, n]` or `[n]`.

    Products are of unsigned and signed bytes: int8 on the left and uint8 on the right are moved by
    128, values and zero points. The sum of products of such a and b with zero points p and q is

        sum(a b) - p sum(b) - q sum(a) + k p q

    where sums over constants are constants. int32 wraps, which changes none of it.
    """
    builder = context.builder
    a, b = builder.strided(left), builder.strided(right)
    builder.require_equal(a.shape[-1], b.shape[-2], "contracted axes")
    moved = 128 if a.dtype == "int8" else 0, -128 if b.dtype == "uint8" else 0
    zeros = [_moved(context, z, by) for z, by in zip((left_zero, right_zero), moved, strict=True)]
    operands: list[Value] = [_products(context, a, b)]
    if not is_zero(zeros[0]):
        operands += [zeros[0], _sums(context, b, -2, moved[1])]
    if not is_zero(zeros[1]):
        operands += [zeros[1], _sums(context, a, -1, moved[0])]
    depth = cast(Extent(a.shape[-1]), "int32")

    def corrected(total: Expr, *others: Expr) -> Expr:
        for zero, sums in zip(others[::2], others[1::2], strict=True):
            total = op("sub", total, op("mul", zero, sums))
        if len(others) == 4:
            total = op("add", total, op("mul", depth, op("mul", others[0], others[2])))
        return total

    return builder.pointwise(corrected, *operands) if len(operands) > 1 else _only(operands)


def _only(operands: Sequence[Value]) -> Tensor:
    (total,) = operands
    assert isinstance(total, Tensor)
    return total


def _moved(context: Context, zero: Value | None, by: int) -> Value:
    """A zero point in int32, moved."""
    numbers = np.zeros((), np.int32) if zero is None else known_numbers(zero)
    if zero is None or numbers is not None:
        return context.builder.constant(np.asarray(numbers, np.int32) + np.int32(by))
    move = constant(by, "int32")
    return context.builder.pointwise(lambda z: op("add", cast(z, "int32"), move), zero)


def _sums(context: Context, value: Tensor, axis: int, move: int) -> Tensor:
    """Sums along an axis, which keeps an extent of 1, of the elements moved, in int32."""
    numbers = known_numbers(value)
    if numbers is not None:
        sums = numbers.sum(axis, np.int32, keepdims=True)
        return context.builder.constant(sums + np.int32(move * numbers.shape[axis]))
    rank = len(value.shape)
    offset = constant(move, "int32")
    return context.builder.reduce(
        value, (axis % rank,), "sum", lambda x: op("add", cast(x, "int32"), offset)
    )


def _products(context: Context, a: Tensor, b: Tensor) -> Tensor:
    """The sums of products of bytes, four of them at a time: words along the contracted axis.

    Where it does not fill the last word, the left operand is filled with bytes that are 0.
    """
    builder = context.builder
    batch = builder.broadcast(a.shape[:-2], b.shape[:-2])
    shape: tuple[Size, ...] = (*batch, a.shape[-2], b.shape[-1])
    axes = builder.axes(shape)
    inner = builder.axis(ceildiv(a.shape[-1], BYTES), "r")
    outer, row, column = axes[:-2], axes[-2], axes[-1]
    flips = a.dtype == "int8", b.dtype == "uint8"
    parts = _parts(context, a, -1, -128 if flips[0] else 0)
    # Not stored as words: bytes side by side are read as one.
    left = _word([builder.load(part, (*outer, row, inner)) for part in parts], flips[0])
    words = _words(context, b, flips[1])
    right = builder.load(words, (*outer, inner, column))
    return builder.dot(shape, axes, (inner,), left, right)


def _words(context: Context, b: Tensor, flip: bool) -> Tensor:
    """Words along the axis before the last one."""
    numbers = known_numbers(b)
    if numbers is None:
        parts = _parts(context, b, -2, 0)
        return context.builder.pointwise(lambda *bytes_: _word(bytes_, flip), *parts)
    *batch, depth, columns = numbers.shape
    count = -(-depth // BYTES)
    data = np.zeros((*batch, count * BYTES, columns), np.uint8)
    data[..., :depth, :] = numbers.view(np.uint8)
    lanes = data.reshape(*batch, count, BYTES, columns).swapaxes(-1, -2)
    words = np.ascontiguousarray(lanes).view("<i4")[..., 0]
    return context.builder.constant(words ^ np.int32(FLIP if flip else 0))


def _parts(context: Context, value: Tensor, axis: int, fill: int) -> list[Tensor]:
    """The first, second, .. elements of each word along an axis."""
    axis %= len(value.shape)
    count = ceildiv(value.shape[axis], BYTES)
    rest = count * BYTES - value.shape[axis]
    if rest != 0:
        none = [0] * len(value.shape)
        value = pad(context, value, none, [*none[:axis], rest, *none[axis + 1 :]], fill)
    return [slice_axis(value, axis, start, BYTES, count) for start in range(BYTES)]


def _word(bytes_: Sequence[Expr], flip: bool) -> Expr:
    """Four elements as the bytes of an int32, the first one lowest."""
    unsigned = [cast(cast(byte, "uint8"), "int32") for byte in bytes_]
    word = unsigned[0]
    for number, byte in enumerate(unsigned[1:], 1):
        word = op("or", word, op("shl", byte, literal(8 * number, byte)))
    return op("xor", word, literal(FLIP, word)) if flip else word
