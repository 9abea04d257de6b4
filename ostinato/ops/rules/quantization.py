"""Linear quantisation: integers that stand for `(q - zero point) * scale`, and sums of them."""

from __future__ import annotations

import numpy as np

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.byte_floats import bits, narrowed_to_bytes, widened_bytes
from ostinato.ops.core.quantized import dequantized, quantized, quantized_by
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, insert_ones, slice_axis
from ostinato.ops.rules.contractions import as_matrices, without_added
from ostinato.ops.rules.gather import require_all
from ostinato.ops.rules.integers import integer_convolve, integer_matmul, is_zero, known_numbers
from ostinato.ops.rules.views import axis_of
from ostinato.ops.rules.windows import given_kernel, read_windows
from ostinato.program.expr import (
    BYTE_FLOATS,
    FLOATS,
    HALVES,
    Expr,
    Reduced,
    cast,
    constant,
    dtype_of,
    op,
    select,
)
from ostinato.program.kernel import Reduce, Store, identity
from ostinato.sizes.dims import Size, ceildiv, exact_quotient, product
from ostinato.sizes.strides import Shape

# Types that quantised values have; int32 holds sums of products.
_QUANTIZED = ("int8", "uint8", "int16", "uint16")
_QUANTIZED_BYTES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
# Scalars of QLinearConv, and operands with one number for each filter.
_OF_IMAGES = {1: "x_scale", 2: "x_zero_point", 6: "y_scale", 7: "y_zero_point"}
_OF_FILTERS = {4: "w_scale", 5: "w_zero_point"}
# Operands of products with one number for each row of the left one and the result, or column.
_OF_ROWS = {1: "a_scale", 2: "a_zero_point", 6: "y_scale", 7: "y_zero_point"}
_OF_COLUMNS = {4: "b_scale", 5: "b_zero_point"}


class Granularity:
    """Granularity of scales and zero points: per tensor, per axis, or blocked.

    `view` is `x` and `parameters` are scales and zero points, in shapes that broadcast.
    """

    def __init__(self, context: Context, x: Value, scale: Value) -> None:
        self._context, self._shape, self._scale = context, x.shape, scale.shape
        self._block = context.attributes.int("block_size", 0)
        axis = context.attributes.int("axis", 1)
        self._axis = 0
        if not self._is_single:
            self._axis = axis_of(context, axis, len(x.shape))
            self._check()
        quotient = exact_quotient(x.shape[self._axis], self._block) if self._block else None
        self._cut = quotient is not None
        self.view = x if not self._cut else context.builder.reshaped(x, self._in_blocks(x.shape))

    @property
    def _is_single(self) -> bool:
        return not self._block and self._scale in ((), (1,))

    def _check(self) -> None:
        builder, axis, extent = self._context.builder, self._axis, self._shape[self._axis]
        if not self._block:
            if len(self._scale) != 1:
                raise self._context.invalid(f"a scale of shape {self._scale} without a block_size")
            what = "scales and the quantised axis"
            builder.broadcasting.fit_size(self._scale[0], extent, what)
            return
        if self._block < 0 or len(self._scale) != len(self._shape):
            raise self._context.invalid(
                f"block_size {self._block} and a scale of shape {self._scale} "
                f"for an input of shape {self._shape}"
            )
        for i, (wanted, given) in enumerate(zip(self._shape, self._scale, strict=True)):
            wanted = ceildiv(extent, self._block) if i == axis else wanted
            builder.require.equal(given, wanted, f"axis {i} of the scale")

    def _in_blocks(self, shape: Shape) -> Shape:
        axis = self._axis
        return (*shape[:axis], ceildiv(shape[axis], self._block), self._block, *shape[axis + 1 :])

    def parameters(self, scale: Value, zero: Value | None) -> list[Value]:
        """Scales and zero points to broadcast against `view`; without points that are all 0."""
        given = [self._parameter(value) for value in (scale, zero) if value is not None]
        return given[:1] if is_zero(zero) else given

    def _parameter(self, value: Value) -> Value:
        builder, axis = self._context.builder, self._axis
        if self._is_single and value.shape in ((), (1,)):
            return builder.reshaped(value, ())
        if len(value.shape) != len(self._scale):
            raise self._context.invalid(
                f"zero points of shape {value.shape} for scales of shape {self._scale}"
            )
        for i, (n, wanted) in enumerate(zip(value.shape, self._scale, strict=True)):
            builder.require.equal(n, wanted, f"axis {i} of scale and zero point")
        if not self._block:
            return insert_ones(value, tuple(range(1, len(self._shape) - axis)))
        value = insert_ones(value, (axis + 1,))
        if self._cut:
            return value
        # The last block is not full: every block's value is repeated, the excess left out.
        blocks = self._in_blocks(self._shape)
        repeated = builder.reshaped(
            builder.expanded(value, blocks),
            (*blocks[:axis], blocks[axis] * self._block, *blocks[axis + 2 :]),
        )
        return slice_axis(repeated, axis, 0, 1, self._shape[axis])

    def restored(self, result: Value) -> Value:
        """A result computed in the shape of `view`, in that of `x`."""
        return result if not self._cut else self._context.builder.reshaped(result, self._shape)


@lowers("QuantizeLinear")
def lower_quantize_linear(context: Context) -> Value:
    """round(x / scale) + zero point, saturated; the quotient is rounded to the type of the scale.

    Attribute `precision` replaces that type.
    """
    x, scale, zero = context.input(0), context.input(1), context.optional(2)
    _require_usable(context, scale, "y_scale", divides=True)
    saturate = bool(context.attributes.int("saturate", 1))
    dtype = "uint8" if zero is None else zero.dtype
    code = context.attributes.int("output_dtype", 0)
    if code and zero is not None and context.native_dtype(code, with_bytes=True) != dtype:
        raise context.invalid(f"attribute 'output_dtype' is {code}, the zero point is {dtype}")
    dtype = context.native_dtype(code, with_bytes=True) if code else dtype
    code = context.attributes.int("precision", 0)
    precision = context.native_dtype(code) if code else scale.dtype
    if dtype not in (*_QUANTIZED, *_QUANTIZED_BYTES) or precision not in (*FLOATS, *HALVES):
        raise context.refuse(f"no native form for {dtype} by way of {precision}")
    wide = "float32" if precision in HALVES else precision

    def rounded(value: Expr) -> Expr:
        return cast(cast(value, precision), wide)

    def element(x: Expr, scale: Expr, zero: Expr | None = None) -> Expr:
        if precision == "float32" and dtype not in BYTE_FLOATS:
            return quantized_by(cast(x, precision), cast(scale, precision), zero, dtype)
        quotient = rounded(rounded(x) / rounded(scale))
        if dtype in BYTE_FLOATS:
            return narrowed_to_bytes(cast(quotient, "float32"), dtype, saturate)
        return quantized(quotient, zero, dtype)

    grains = Granularity(context, x, scale)
    operands = grains.parameters(scale, _without_bytes(context, zero))
    return grains.restored(context.builder.pointwise(element, grains.view, *operands))


@lowers("DequantizeLinear")
def lower_dequantize_linear(context: Context) -> Value:
    """(x - zero point) * scale, computed in float32 for 16-bit floats."""
    x, scale, zero = context.input(0), context.input(1), context.optional(2)
    _require_usable(context, scale, "x_scale")
    code = context.attributes.int("output_dtype", 0)
    dtype = context.native_dtype(code) if code else scale.dtype
    if scale.dtype in BYTE_FLOATS:
        raise context.refuse(f"a scale of type {scale.dtype} has no native form")

    def element(x: Expr, scale: Expr, zero: Expr | None = None) -> Expr:
        wide = cast(scale, "float32")
        if dtype_of(x) in BYTE_FLOATS:
            return cast(widened_bytes(x) * wide, dtype)
        return cast(dequantized(x, zero, wide), dtype)

    grains = Granularity(context, x, scale)
    operands = grains.parameters(scale, _without_bytes(context, zero))
    return grains.restored(context.builder.pointwise(element, grains.view, *operands))


def _without_bytes(context: Context, zero: Value | None) -> Value | None:
    """The zero point, unless it is one of 8-bit floats, which has to be 0."""
    if zero is None or zero.dtype not in BYTE_FLOATS:
        return zero
    is_zero = context.builder.pointwise(
        lambda z: (bits(z) & 0x7F).equals(0),
        zero,
    )
    require_all(context, is_zero, "the zero point of 8-bit floats must be 0")
    return None


@lowers("DynamicQuantizeLinear")
def lower_dynamic_quantize_linear(context: Context) -> list[Value]:
    """uint8 by the range of the elements and 0: (quantised, scale, zero point).

    The scale of zeros alone, for which the documents have 0 / 0, is 1 as in onnxruntime.
    """
    x, builder = context.input(0), context.builder
    scale, zero = builder.empty("float32", ()), builder.empty("uint8", ())
    extent = product(x.shape)
    flat = builder.reshaped(x, (extent,))
    axis = builder.axis(extent, "r")
    element = builder.load(flat, (axis,))
    extremes = [Reduce((axis,), name, element, None, ROW_CHAINS) for name in ("min", "max")]
    low: Expr = Reduced(0, "float32")
    high: Expr = Reduced(1, "float32")
    if extent == 0:
        low, high = (identity(one) for one in extremes)
    nothing = constant(0, "float32")
    low, high = op("min", low, nothing), op("max", high, nothing)
    span = (high - low) / 255
    step = select(low.equals(high), 1, span)
    center = quantized(-(low / step), None, "uint8")
    stores = [Store(builder.access(scale, ()), step), Store(builder.access(zero, ()), center)]
    builder.emit.kernel((), stores, [] if extent == 0 else extremes)

    def quantize(x: Expr, scale: Expr, zero: Expr) -> Expr:
        return quantized(x / scale, zero, "uint8")

    return [builder.pointwise(quantize, x, scale, zero), scale, zero]


@lowers("MatMulInteger")
def lower_matmul_integer(context: Context) -> Value:
    """Matrix product of int8 or uint8 less their zero points, in int32."""
    left, right, added = as_matrices(context, context.input(0), context.input(1))
    row_zero, zero = context.optional(2), context.optional(3)
    _require_one_for_each(context, row_zero, "a_zero_point", left.shape[-2], -2)
    _require_one_for_each(context, zero, "b_zero_point", right.shape[-1], -1)
    row_zero = None if row_zero is None else _by_row(row_zero)
    return without_added(integer_matmul(context, left, right, row_zero, zero), added)


def _by_row(value: Value) -> Value:
    """A vector with one element for each row of a matrix."""
    return insert_ones(value, (1,)) if len(value.shape) == 1 and value.shape != (1,) else value


@lowers("QLinearMatMul")
def lower_qlinear_matmul(context: Context) -> Value:
    """Matrix product of quantised matrices, quantised: exact in int32, scaled in float32."""
    left, right, added = as_matrices(context, context.input(0), context.input(3))
    for position, name in _OF_ROWS.items():
        _require_one_for_each(context, context.input(position), name, left.shape[-2], -2)
    for position, name in _OF_COLUMNS.items():
        _require_one_for_each(context, context.input(position), name, right.shape[-1], -1)
    for position, name in {1: "a_scale", 4: "b_scale", 6: "y_scale"}.items():
        _require_usable(context, context.input(position), name, divides=position == 6)
    row_scale, row_zero, scale, zero = (_by_row(context.input(i)) for i in (1, 2, 6, 7))
    total = integer_matmul(context, left, right, row_zero, context.input(5))
    result = requantized(context, total, row_scale, context.input(4), scale, zero)
    return without_added(result, added)


def _require_one_for_each(
    context: Context, value: Value | None, name: str, extent: Size, axis: int
) -> None:
    """Refuse scales or zero points that are neither one, nor one for each row or column.

    axis: that of the rows, -2, or of the columns, -1, of a matrix.
    """
    if value is None or product(value.shape) == 1:
        return
    what, require = "rows" if axis == -2 else "columns", context.builder.require
    if len(value.shape) == 1:
        place = f"elements of {name!r} and {what}"
        context.builder.broadcasting.fit_size(value.shape[0], extent, place)
        return
    require.equal(value.shape[axis], extent, f"axis {axis} of {name!r} and {what}")
    require.equal(value.shape[-3 - axis], 1, f"axis {-3 - axis} of {name!r} and a single one")


def _require_usable(context: Context, scale: Value, name: str, divides: bool = False) -> None:
    """Refuse known scales that are NaN or infinite, or 0 where values are divided by them."""
    numbers = known_numbers(scale)
    if numbers is None:
        return
    wide = numbers.astype(np.float64)
    wrong = wide[~np.isfinite(wide) | ((wide == 0) if divides else False)]
    if wrong.size:
        expected = "finite numbers other than 0" if divides else "finite numbers"
        raise context.invalid(f"input {name!r} has {wrong.flat[0]}, expected {expected}")


def requantized(
    context: Context,
    total: Value,
    left_scale: Value,
    right_scale: Value,
    scale: Value,
    zero: Value,
) -> Tensor:
    """Sums of products as quantised values: total * (left_scale * right_scale / scale) + zero."""
    builder, dtype = context.builder, zero.dtype
    scales = left_scale, right_scale, scale
    known = [number for number in map(known_numbers, scales) if number is not None]
    if len(known) == len(scales) and sum(number.size > 1 for number in known) <= 1:
        left, right, divisor = (number.astype(np.float32) for number in known)
        with np.errstate(all="ignore"):
            factor = builder.constant(left * right / divisor)
    else:
        factor = builder.pointwise(_factor, *scales)

    def element(total: Expr, factor: Expr, zero: Expr) -> Expr:
        return quantized(cast(total, "float32") * factor, zero, dtype)

    return builder.pointwise(element, total, factor, zero)


def _factor(left: Expr, right: Expr, scale: Expr) -> Expr:
    left, right, scale = (cast(one, "float32") for one in (left, right, scale))
    return left * right / scale


@lowers("ConvInteger")
def lower_conv_integer(context: Context) -> Value:
    """Convolution of int8 or uint8 less their zero points, in int32."""
    if context.optional(2) is not None:
        elements = product(context.input(2).shape)
        context.builder.require.equal(elements, 1, "elements of 'x_zero_point' and of a scalar")
    zero = None if context.optional(3) is None else _for_filters(context, 3, "w_zero_point")
    return _convolved(context, (0, 2), 1, zero)


@lowers("QLinearConv")
def lower_qlinear_conv(context: Context) -> Value:
    """Convolution of quantised values, quantised: exact in int32, scaled in float32."""
    builder = context.builder
    for position, name in _OF_IMAGES.items():
        # Several would be broadcast along the last axis of the images.
        elements = product(context.input(position).shape)
        builder.require.equal(elements, 1, f"elements of {name!r} and of a scalar")
    weight_scale, weight_zero = (_for_filters(context, *item) for item in _OF_FILTERS.items())
    for position, name in {1: "x_scale", 4: "w_scale", 6: "y_scale"}.items():
        _require_usable(context, context.input(position), name, divides=position == 6)
    total: Value = _convolved(context, (0, 2), 3, weight_zero)
    spatial = len(total.shape) - 2
    bias = context.optional(8)
    if bias is not None:
        builder.require.equal(bias.shape[0], total.shape[1], "biases and filters")
        total = builder.pointwise(lambda x, b: x + b, total, _by_filter(bias, spatial))
    by_filter = _by_filter(weight_scale, spatial)
    return requantized(
        context, total, context.input(1), by_filter, context.input(6), context.input(7)
    )


def _for_filters(context: Context, position: int, name: str) -> Value:
    """An operand that is a scalar, or has one number for each filter; others are refused.

    Where only a run tells how many it has, one number is repeated.
    """
    value, weight = context.input(position), context.input(3 if position > 3 else 1)
    if product(value.shape) == 1:
        return value
    if len(value.shape) != 1:
        raise context.invalid(f"input {name!r} has shape {value.shape}, expected one axis")
    what, filters = f"elements of {name!r} and filters", weight.shape[0]
    if isinstance(value.shape[0], int):
        context.builder.require.equal(value.shape[0], filters, what)
        return value
    context.builder.broadcasting.fit_size(value.shape[0], filters, what)
    return context.builder.expanded(value, (filters,), one_way=True)


def _by_filter(value: Value, spatial: int) -> Value:
    """A vector with one element for each filter, along the axis of channels."""
    return insert_ones(value, tuple(range(1, spatial + 1))) if len(value.shape) == 1 else value


def _convolved(
    context: Context, left: tuple[int, int], right: int, weight_zero: Value | None
) -> Tensor:
    """The convolution of two operands: the positions of (images, zero point) and of the weights."""
    source, weight = context.input(left[0]), context.input(right)
    kernel = given_kernel(context, source, weight)
    source_zero = context.optional(left[1])
    if weight_zero is not None and len(weight_zero.shape) == 1:
        weight_zero = insert_ones(weight_zero, tuple(range(1, len(weight.shape))))
    windows = read_windows(context, source.shape[2:], kernel)
    group = context.attributes.int("group", 1)
    return integer_convolve(context, source, weight, source_zero, weight_zero, windows, group)
