"""Sums of products of small integers: exact in int32, so no order matters and sums come apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ostinato.graph.windows import Window
from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, Value, slice_axis, transpose
from ostinato.ops.rules.contractions import columns_in_a_piece, is_tall_and_narrow
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.windows import Contract, convolve, without_padding
from ostinato.program.expr import Axis, Expr, Extent, Load, cast, constant, op
from ostinato.program.words import BYTES, FEW_BITS, FLIP, ONES, word
from ostinato.sizes.dims import Size, ceildiv, product
from ostinato.sizes.strides import Shape

# Every sum of this many products of two differences of bytes is a float32.
MOST_TERMS = 2**24 // 255**2
# Constant columns that are fewer than this leave lanes idle that gather words of rows: their sums
# run along lanes instead. 64 rows of 512 bytes by one column take 0.3 of the time, by two 0.8,
# by four 1.3 (`benchmarks.versions --onnx`, DynamicQuantizeLinear and MatMulInteger, AVX-512).
_NARROW = 3


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

    Products are of unsigned and signed bytes, in either order. Where both are of a kind, one of
    them is moved, values and zero points. The sum of products of a and b with zero points p and q
    is

        sum(a b) - p sum(b) - q sum(a) + k p q

    where sums over constants are constants. int32 wraps, which changes none of it.
    """
    builder = context.builder
    a, b = builder.strided(left), builder.strided(right)
    builder.require.equal(a.shape[-1], b.shape[-2], "contracted axes")
    moved = _moves(a, b)
    zeros = [_moved(context, z, by) for z, by in zip((left_zero, right_zero), moved, strict=True)]
    total = _products(context, a, b, moved)
    sums = (
        None if is_zero(zeros[0]) else _sums_of_columns(context, b, moved[1]),
        None if is_zero(zeros[1]) else _sums(context, a, (len(a.shape) - 1,), moved[0]),
    )
    return _corrected(context, total, zeros, sums, a.shape[-1])


def _moves(a: Tensor, b: Tensor) -> tuple[int, int]:
    """By how much the elements of two operands are moved, so that one is unsigned, one signed.

    Constants of few bits become unsigned numbers as small, which share words.
    """
    if a.dtype != b.dtype:
        return 0, 0
    if a.dtype == "uint8":
        return 0, -128
    numbers = known_numbers(b)
    if numbers is not None and numbers.size and np.ptp(numbers.astype(np.int16)) < 1 << FEW_BITS:
        return 0, -int(numbers.min())
    return 128, 0


def integer_convolve(
    context: Context,
    source: Value,
    weight: Value,
    source_zero: Value | None,
    weight_zero: Value | None,
    windows: Sequence[Window[Size]],
    group: int,
) -> Tensor:
    """Convolution of `source - source_zero` with `weight - weight_zero` in int32; padding is 0.

    source `[n, c, ..]`, weight `[m, c / group, ..]`, of int8 or uint8; the zero points are a scalar
    and a scalar or `[m, 1, ..]`. Channels are taken four at a time, as in `integer_matmul`, unless
    there are so few that most of a word would be empty. Sums of so few terms that float32 holds
    them are those of floats then, which machines multiply and add at once.
    """
    channels = weight.shape[1]
    if isinstance(channels, int) and _has_words(channels, weight, weight_zero, group):
        return _convolved_words(context, source, weight, source_zero, weight_zero, windows, group)
    terms, builder = product(weight.shape[1:]), context.builder
    if isinstance(terms, int) and terms <= MOST_TERMS:
        w = _centered(context, weight, weight_zero, "float32")
        numbers = known_numbers(w)
        if numbers is not None and any(window.stride > 1 for window in windows):
            return _convolved_bytes(context, source, w, numbers, source_zero, windows, group)
        x = _centered(context, source, source_zero, "float32")
        total = convolve(context, x, w, windows, group)
        return builder.pointwise(lambda sum_: cast(sum_, "int32"), total)
    x = _centered(context, source, source_zero, "int16")
    w = _centered(context, weight, weight_zero, "int16")
    return convolve(context, x, w, windows, group, _contract_in(context, "int32"))


def _contract_in(context: Context, dtype: str) -> Contract:
    """Sum products of elements in this type."""

    def contract(
        shape: Shape, axes: Sequence[Axis | None], inner: Sequence[Axis], left: Expr, right: Expr
    ) -> Tensor:
        factors = cast(left, dtype), cast(right, dtype)
        return context.builder.contract(shape, axes, inner, *factors)

    return contract


def _has_words(channels: int, weight: Value, weight_zero: Value | None, group: int) -> bool:
    """Whether this many channels of a group fill words, of which every sum has the same correction.

    With several groups no zero point of the weights is left to correct for.
    """
    if group == 1:
        return channels * 2 > BYTES
    numbers = np.zeros(()) if weight_zero is None else known_numbers(weight_zero)
    none = 128 if weight.dtype == "uint8" else 0
    return channels % BYTES == 0 and numbers is not None and bool(np.all(numbers == none))


def _convolved_bytes(
    context: Context,
    source: Value,
    weight: Value,
    numbers: np.ndarray,
    zero: Value | None,
    windows: Sequence[Window[Size]],
    group: int,
) -> Tensor:
    """Sums of few products of windows that move by more than one place.

    Most elements are in few windows: each becomes a float where it is multiplied, and the zero
    point is taken out of the sum. weight: less its zero point, as float32, whose numbers are known.
    """
    builder, known = context.builder, np.zeros(()) if zero is None else known_numbers(zero)
    x = builder.strided(source)
    if known is None or known.size != 1:
        x = builder.strided(_centered(context, source, zero, "int16"))
        known = np.zeros(())
    x, unpadded = _with_padding(context, x, windows, int(known.item()))
    total = convolve(context, x, weight, unpadded, group, _contract_in(context, "float32"))
    taps = tuple(range(1, numbers.ndim))
    sums = numbers.astype(np.int32).sum(taps, np.int32) * np.int32(known.item())
    by_filter = builder.constant(sums.reshape(-1, *[1] * len(windows)))
    return builder.pointwise(lambda sum_, term: cast(sum_, "int32") - term, total, by_filter)


def _centered(context: Context, value: Value, zero: Value | None, dtype: str) -> Value:
    """A value less its zero point."""
    numbers = known_numbers(value)
    zeros = np.zeros((), np.int16) if zero is None else known_numbers(zero)
    if numbers is not None and zeros is not None:
        return context.builder.constant((numbers.astype(np.int16) - zeros).astype(dtype))
    if zero is None or is_zero(zero):
        return context.builder.pointwise(lambda x: cast(x, dtype), value)
    return context.builder.pointwise(
        lambda x, z: cast(cast(x, "int16") - cast(z, "int16"), dtype), value, zero
    )


def _convolved_words(
    context: Context,
    source: Value,
    weight: Value,
    source_zero: Value | None,
    weight_zero: Value | None,
    windows: Sequence[Window[Size]],
    group: int,
) -> Tensor:
    builder = context.builder
    x, w = builder.strided(source), builder.strided(weight)
    builder.require.equal(x.shape[1], w.shape[1] * group, "channels of the input and the weights")
    flips = x.dtype == "int8", w.dtype == "uint8"
    moved = 128 if flips[0] else 0, -128 if flips[1] else 0
    zeros = [
        _moved(context, z, by) for z, by in zip((source_zero, weight_zero), moved, strict=True)
    ]
    rank, dot = len(w.shape), _dot_of_neighbours(context)
    words, windows = _channels_beside(context, x, source_zero, windows, flips[0])
    # Weights in the same order: taps and channels may then be one axis.
    last = builder.strided(transpose(w, (*range(2, rank), 1, 0)))
    packed = builder.strided(_words(context, last, rank - 2, moved[1]))
    weights = builder.strided(transpose(packed, (rank - 1, rank - 2, *range(rank - 2))))
    total = convolve(context, words, weights, windows, group, dot)
    taps = tuple(range(1, rank))
    spatial = (1,) * len(windows)
    by_filter = by_window = None
    if not is_zero(zeros[0]):
        sums = _sums(context, w, taps, moved[1])
        by_filter = builder.reshaped(sums, (w.shape[0], *spatial))
    if not is_zero(zeros[1]):
        ones = np.ones([1, *(n for n in w.shape[1:] if isinstance(n, int))], np.int8)
        counted = _words(context, builder.constant(ones), 1, 0)
        by_window = convolve(context, words, counted, windows, group, dot)
        if zeros[1].shape:
            zeros[1] = builder.reshaped(zeros[1], (zeros[1].shape[0], *spatial))
    return _corrected(context, total, zeros, (by_filter, by_window), product(w.shape[1:]))


def _corrected(
    context: Context,
    total: Tensor,
    zeros: Sequence[Value],
    sums: tuple[Value | None, Value | None],
    depth: Size,
) -> Tensor:
    """`total` less what zero points contribute to it.

    sums: of the other operand's elements, for each zero point; None where it is 0.
    """
    builder = context.builder
    pairs = [(zero, other) for zero, other in zip(zeros, sums, strict=True) if other is not None]
    if len(pairs) == 1:
        term = _term(context, *pairs[0])
        return builder.pointwise(lambda total, term: total - term, total, term)
    factors = [value for pair in pairs for value in pair]
    if not factors:
        return total
    count = cast(Extent(depth), "int32")

    def element(total: Expr, *factors: Expr) -> Expr:
        for zero, other in zip(factors[::2], factors[1::2], strict=True):
            total = total - zero * other
        return total + count * (factors[0] * factors[2])

    return builder.pointwise(element, total, *factors)


def _term(context: Context, zero: Value, other: Value) -> Tensor:
    """Zero point times sum, in int32, which wraps; a constant where both are."""
    builder, known = context.builder, [known_numbers(value) for value in (zero, other)]
    left, right = known
    if left is not None and right is not None:
        return builder.constant(np.multiply(left, right, dtype=np.int32))
    return builder.pointwise(lambda zero, other: zero * other, zero, other)


def _moved(context: Context, zero: Value | None, by: int) -> Value:
    """A zero point in int32, moved."""
    numbers = np.zeros((), np.int32) if zero is None else known_numbers(zero)
    if zero is None or numbers is not None:
        return context.builder.constant(np.asarray(numbers, np.int32) + np.int32(by))
    move = constant(by, "int32")
    return context.builder.pointwise(lambda z: cast(z, "int32") + move, zero)


def _sums(context: Context, value: Tensor, axes: tuple[int, ...], move: int) -> Tensor:
    """Sums along axes, which keep an extent of 1, of the elements moved, in int32."""
    numbers = known_numbers(value)
    if numbers is not None:
        return context.builder.constant(
            (numbers + np.int32(move)).sum(axes, np.int32, keepdims=True)
        )
    offset = constant(move, "int32")
    return context.builder.reduce(value, axes, "sum", lambda x: cast(x, "int32") + offset)


def _sums_of_columns(context: Context, b: Tensor, move: int) -> Tensor:
    """Sums along the last axis but one, which keeps an extent of 1, of the elements moved.

    Elements that are no constants are multiplied by ones, word by word, as a row of products has
    them.
    """
    if known_numbers(b) is not None:
        return _sums(context, b, (len(b.shape) - 2,), move)
    words = _words(context, b, len(b.shape) - 2, move)
    builder, shape = context.builder, (*b.shape[:-2], 1, b.shape[-1])
    axes, inner = builder.axes(shape), builder.axis(words.shape[-2], "r")
    right = builder.load(words, (*axes[:-2], inner, axes[-1]))
    ones: Expr = constant(ONES, "int32")
    unsigned, signed = (right, ones) if b.dtype == "uint8" and not move else (ones, right)
    return builder.dot(shape, axes, (inner,), unsigned, signed)


def _products(context: Context, a: Tensor, b: Tensor, moved: tuple[int, int]) -> Tensor:
    """The sums of products of bytes, four of them at a time: words along the contracted axis.

    Where it does not fill the last word, the right operand is filled with bytes that are 0. moved:
    by how much the elements of each operand are.
    """
    builder = context.builder
    batch = builder.broadcasting.shape(a.shape[:-2], b.shape[:-2])
    shape: tuple[Size, ...] = (*batch, a.shape[-2], b.shape[-1])
    axes = builder.axes(shape)
    inner = builder.axis(ceildiv(a.shape[-1], BYTES), "r")
    outer, row, column = axes[:-2], axes[-2], axes[-1]
    parts = _parts(context, a, len(a.shape) - 1, 0)
    # Not stored as words: bytes side by side are read as one.
    left = _word([builder.load(part, (*outer, row, inner)) for part in parts], moved[0] != 0)
    words = _words(context, b, len(b.shape) - 2, moved[1])
    narrow = known_numbers(words) is not None and is_tall_and_narrow(words.shape[-2:], _NARROW)
    if narrow:
        words = columns_in_a_piece(context, words)
    operands = left, builder.load(words, (*outer, inner, column))
    is_left = a.dtype == "uint8" or moved[0] != 0
    unsigned, signed = operands if is_left else operands[::-1]
    return builder.dot(shape, axes, (inner,), unsigned, signed, ROW_CHAINS if narrow else 1)


def _channels_beside(
    context: Context, x: Tensor, zero: Value | None, windows: Sequence[Window[Size]], flip: bool
) -> tuple[Tensor, list[Window[Size]]]:
    """The first bytes of words along the channels, which are neighbours; what is left to move.

    Whoever computes the input writes it so: unsigned, padded with its zero point, and with
    channels that fill the last word.
    """
    builder, rank = context.builder, len(x.shape)
    rest = ceildiv(x.shape[1], BYTES) * BYTES - x.shape[1]
    before = [0, *(window.before for window in windows), 0]
    after = [0, *(window.after + window.beyond for window in windows), rest]
    last, numbers = transpose(x, (0, *range(2, rank), 1)), np.zeros((), x.dtype)
    if zero is not None and any(n != 0 for n in (*before, *after)):
        known = known_numbers(zero)
        if known is None:
            # Bytes wrap: less the zero point, padded with 0, and back.
            zero = builder.reshaped(zero, ())
            last = builder.pointwise(lambda v, z: v - z, last, zero)
            last = pad(context, builder.strided(last), before, after, 0)
            last = builder.pointwise(lambda v, z: v + z, last, zero)
            before, after = [0] * rank, [0] * rank
        else:
            numbers = known.reshape(())
    if flip:
        last = builder.pointwise(_flipped, last)
        numbers = numbers.view(np.uint8) ^ np.uint8(0x80)
    last = builder.strided(last)
    if any(n != 0 for n in (*before, *after)) or last.strides[-1] != 1:
        last = pad(context, last, before, after, int(numbers))
    x = builder.strided(transpose(last, (0, rank - 1, *range(1, rank - 1))))
    unpadded = [replace(window, before=0, after=0, beyond=0) for window in windows]
    return slice_axis(x, 1, 0, BYTES, ceildiv(x.shape[1], BYTES)), unpadded


def _flipped(byte: Expr) -> Expr:
    """A signed byte as an unsigned one, moved by 128."""
    return op("bitcast", byte, dtype="uint8") ^ 0x80


def _with_padding(
    context: Context, x: Tensor, windows: Sequence[Window[Size]], fill: int
) -> tuple[Tensor, list[Window[Size]]]:
    """`without_padding`; channels that are neighbours in memory stay so."""
    rank = len(x.shape)
    if x.strides[1] != 1:
        return without_padding(context, x, windows, fill)
    before = [0, *(window.before for window in windows), 0]
    after = [0, *(window.after + window.beyond for window in windows), 0]
    if any(n != 0 for n in (*before, *after)):
        last = context.builder.strided(transpose(x, (0, *range(2, rank), 1)))
        padded = pad(context, last, before, after, fill)
        x = context.builder.strided(transpose(padded, (0, rank - 1, *range(1, rank - 1))))
    return x, [replace(window, before=0, after=0, beyond=0) for window in windows]


def _dot_of_neighbours(context: Context) -> Contract:
    """Sum products of words whose first bytes are given on the left; channels innermost."""

    def contract(
        shape: Shape, axes: Sequence[Axis | None], inner: Sequence[Axis], left: Expr, right: Expr
    ) -> Tensor:
        assert isinstance(left, Load)
        access = left.access
        bytes_ = [replace(access, offset=access.offset + number) for number in range(BYTES)]
        words = word([replace(left, access=one) for one in bytes_])
        taps = sorted(inner, key=lambda axis: access.stride(axis) == BYTES)
        return context.builder.dot(shape, axes, taps, words, right)

    return contract


def _words(context: Context, b: Tensor, axis: int, move: int) -> Tensor:
    """Words along an axis of the elements moved, the last one filled with bytes that are 0.

    Elements that are no constants are moved by 128, either way, or not.
    """
    numbers, flip = known_numbers(b), move != 0
    if numbers is None:
        parts = _parts(context, b, axis, 128 if flip else 0)
        return context.builder.pointwise(lambda *bytes_: _word(bytes_, flip), *parts)
    last = np.moveaxis(numbers, axis, -1)
    *others, depth = last.shape
    data = np.zeros((*others, -(-depth // BYTES) * BYTES), np.uint8)
    data[..., :depth] = last.view(np.uint8) + np.uint8(move % 256)
    words = data.view("<i4")
    return context.builder.constant(np.ascontiguousarray(np.moveaxis(words, -1, axis)))


def _parts(context: Context, value: Tensor, axis: int, fill: int) -> list[Tensor]:
    """The first, second, .. elements of each word along an axis."""
    count = ceildiv(value.shape[axis], BYTES)
    rest = count * BYTES - value.shape[axis]
    if rest != 0:
        none = [0] * len(value.shape)
        value = pad(context, value, none, [*none[:axis], rest, *none[axis + 1 :]], fill)
    return [slice_axis(value, axis, start, BYTES, count) for start in range(BYTES)]


def _word(bytes_: Sequence[Expr], flip: bool) -> Expr:
    """Four elements as the bytes of an int32, moved by 128 if they flip."""
    whole = word(bytes_)
    return whole ^ FLIP if flip else whole
