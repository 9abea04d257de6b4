"""MatMul, Gemm and Conv: sums of products of two operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ostinato.ops.builder import ROW_CHAINS, literal
from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import (
    Joined,
    Tensor,
    Value,
    advance,
    insert_ones,
    slice_axis,
    transpose,
)
from ostinato.ops.views import bounds, native
from ostinato.program.dims import Size, ceildiv, floordiv, maximum
from ostinato.program.expr import FLOATS, Access, Axis, Expr, Index, Load, constant, op

# Matrices of fewer columns than this leave most lanes idle: their sums run along lanes instead.
NARROW = 8


@lowers("MatMul")
def lower_matmul(context: Context) -> Value:
    """Matrix product of the last two axes, the others broadcast, vectors as in NumPy."""
    context.attributes.finish()
    left, right = (native(context, context.input(i)) for i in range(2))
    if left.dtype != right.dtype or left.dtype == "bool":
        raise context.refuse(f"types {left.dtype} and {right.dtype} have no native form")
    if not left.shape or not right.shape:
        raise context.refuse("a scalar operand")
    drop: list[int] = []
    if len(left.shape) == 1:
        left = insert_ones(left, (0,))
        drop.append(-2)
    if len(right.shape) == 1:
        right = insert_ones(right, (1,))
        drop.append(-1)
    result = matmul(context, left, right)
    kept = [i for i in range(len(result.shape)) if i - len(result.shape) not in drop]
    return Tensor(
        result.dtype,
        tuple(result.shape[i] for i in kept),
        result.base,
        tuple(result.strides[i] for i in kept),
    )


def matmul(context: Context, left: Value, right: Value) -> Tensor:
    """`left [.., m, k] @ right [.., k, n]`.

    Where the left operand is joined along `k`, the result is the sum of one product for each part,
    from left to right: a part that does not depend on a loop's state can then leave the loop.
    """
    builder = context.builder
    if isinstance(left, Joined) and left.axis == len(left.shape) - 1:
        return _matmul_parts(context, left, builder.strided(right))
    a, b = builder.strided(left), builder.strided(right)
    builder.require_equal(a.shape[-1], b.shape[-2], "contracted axes")
    batch = builder.broadcast(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    axes = builder.axes(shape)
    inner = builder.axis(a.shape[-1], "r")
    outer, row, column = axes[:-2], axes[-2], axes[-1]
    columns = b.shape[-1]
    narrow = isinstance(columns, int) and columns < NARROW
    return builder.contract(
        shape,
        axes,
        (inner,),
        builder.load(a, (*outer, row, inner)),
        builder.load(b, (*outer, inner, column)),
        ROW_CHAINS if narrow and a.dtype in FLOATS else 1,
    )


def _matmul_parts(context: Context, left: Joined, right: Tensor) -> Tensor:
    builder = context.builder
    builder.require_equal(left.shape[-1], right.shape[-2], "contracted axes")
    start: Size = 0
    total: Tensor | None = None
    for part in left.parts:
        extent = part.shape[-1]
        rows = slice_axis(right, len(right.shape) - 2, start, 1, extent)
        product = matmul(context, part, rows)
        start = start + extent
        total = (
            product
            if total is None
            else builder.pointwise(lambda a, b: op("add", a, b), total, product)
        )
    assert total is not None
    return total


@lowers("Gemm")
def lower_gemm(context: Context) -> Value:
    """alpha * A' @ B' + beta * C."""
    alpha = context.attributes.float("alpha", 1.0)
    beta = context.attributes.float("beta", 1.0)
    flips = [context.attributes.int(name, 0) for name in ("transA", "transB")]
    if context.since < 7:
        raise context.refuse("broadcasting by attribute (before opset 7) has no native form")
    context.attributes.finish()
    left, right = (
        transpose(value, (1, 0)) if flip else value
        for value, flip in zip((context.input(0), context.input(1)), flips, strict=True)
    )
    if left.dtype != right.dtype or left.dtype not in ("float32", "float64"):
        raise context.refuse(f"types {left.dtype} and {right.dtype} have no native form")
    builder = context.builder
    result = matmul(context, left, right)
    if alpha != 1.0:
        result = builder.pointwise(lambda x: op("mul", literal(alpha, x), x), result)
    bias = context.optional(2)
    if bias is None or beta == 0.0:
        return result
    if beta != 1.0:
        bias = builder.pointwise(lambda x: op("mul", literal(beta, x), x), bias)
    return builder.pointwise(lambda x, c: op("add", x, c), result, bias)


@dataclass(frozen=True)
class Window:
    """How a convolution or pooling window moves along one spatial axis, in elements."""

    kernel: int
    stride: int
    dilation: int
    before: Size
    after: Size

    @property
    def span(self) -> int:
        """The distance from the first to the last element of the window, plus one."""
        return (self.kernel - 1) * self.dilation + 1

    def outputs(self, extent: Size) -> Size:
        """The number of positions of the window over `extent` elements."""
        return floordiv(extent + self.before + self.after - self.span, self.stride) + 1


def read_windows(context: Context, spatial: Sequence[Size], kernel: Sequence[int]) -> list[Window]:
    """The windows that strides, dilations, pads and auto_pad describe, one per spatial axis."""
    rank = len(spatial)
    strides = context.attributes.ints("strides", (1,) * rank)
    dilations = context.attributes.ints("dilations", (1,) * rank)
    automatic = context.attributes.string("auto_pad", "NOTSET")
    pads: tuple[Size, ...] = context.attributes.ints("pads", (0,) * (2 * rank))
    if not len(strides) == len(dilations) == len(kernel) == rank or len(pads) != 2 * rank:
        raise context.refuse("strides, dilations, pads and kernel_shape differ in length")
    if automatic not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise context.refuse(f"attribute 'auto_pad' is {automatic!r}")
    windows = []
    for i, extent in enumerate(spatial):
        window = Window(kernel[i], strides[i], dilations[i], 0, 0)
        before, after = pads[i], pads[i + rank]
        if automatic == "VALID":
            before = after = 0
        elif automatic != "NOTSET":
            before, after = _same_pads(window, extent, upper=automatic == "SAME_UPPER")
        windows.append(Window(kernel[i], strides[i], dilations[i], before, after))
    return windows


def _same_pads(window: Window, extent: Size, upper: bool) -> tuple[Size, Size]:
    outputs = ceildiv(extent, window.stride)
    total = maximum((outputs - 1) * window.stride + window.span - extent, 0)
    half = floordiv(total, 2)
    return (half, total - half) if upper else (total - half, half)


@lowers("Conv")
def lower_conv(context: Context) -> Value:
    """Convolution over any number of spatial axes: strided, dilated, grouped, padded with zeros."""
    source, weight = (native(context, context.input(i)) for i in range(2))
    if source.dtype != weight.dtype or source.dtype not in ("float32", "float64"):
        raise context.refuse(f"types {source.dtype} and {weight.dtype} have no native form")
    kernel = [n for n in weight.shape[2:] if isinstance(n, int)]
    given = context.attributes.ints("kernel_shape", tuple(kernel))
    if tuple(given) != weight.shape[2:] or len(source.shape) != len(weight.shape):
        raise context.refuse(f"kernel_shape {list(given)} and weights {weight.shape} disagree")
    windows = read_windows(context, source.shape[2:], kernel)
    group = context.attributes.int("group", 1)
    context.attributes.finish()
    result = convolve(context, source, weight, windows, group)
    bias = context.optional(2)
    if bias is None:
        return result
    shaped = insert_ones(bias, tuple(range(1, len(kernel) + 1)))
    return context.builder.pointwise(lambda x, b: op("add", x, b), result, shaped)


def convolve(
    context: Context, source: Value, weight: Value, windows: Sequence[Window], group: int
) -> Tensor:
    """The sum over channels of a group and window positions, in that order."""
    builder = context.builder
    x, w = builder.strided(source), builder.strided(weight)
    filters, depth = w.shape[0], w.shape[1]
    if not isinstance(filters, int) or filters % group:
        raise context.refuse(f"{filters} filters in {group} groups")
    builder.require_equal(x.shape[1], depth * group, "channels of the input and the weights")
    spatial = [win.outputs(n) for win, n in zip(windows, x.shape[2:], strict=True)]
    for extent in spatial:
        builder.require_nonnegative(extent, "spatial size of the output")
    # Filters as (group, filter within the group); the output is viewed the same way.
    per_group = filters // group
    full = (x.shape[0], group, per_group, *spatial)
    outer = builder.axes(full)
    inner = [builder.axis(depth, "r"), *(builder.axis(win.kernel, "r") for win in windows)]
    left = _window_load(context, x, outer, inner, windows, depth)
    assert w.base is not None
    weight_terms = _terms(
        [
            (outer[1], w.strides[0] * per_group),
            (outer[2], w.strides[0]),
            *zip(inner, w.strides[1:], strict=True),
        ]
    )
    right = Load(Access(w.base.buffer, w.base.offset, w.base.terms + weight_terms), w.dtype)
    kept = tuple(axis for axis in inner if axis.extent != 1) or (inner[0],)
    result = builder.contract(full, outer, kept, left, right)
    stride = result.strides[2]
    return Tensor(
        result.dtype,
        (x.shape[0], filters, *spatial),
        result.base,
        (result.strides[0], stride, *result.strides[3:]),
    )


def _window_load(
    context: Context,
    x: Tensor,
    outer: Sequence[Axis | None],
    inner: Sequence[Axis],
    windows: Sequence[Window],
    depth: Size,
) -> Expr:
    """The input element below a window position; zero where it lies in the padding."""
    assert x.base is not None
    pairs: list[tuple[Axis | None, Size]] = [
        (outer[0], x.strides[0]),
        (outer[1], x.strides[1] * depth),
        (inner[0], x.strides[1]),
    ]
    offset: Size = 0
    inside: Expr | None = None
    for i, window in enumerate(windows):
        position, tap, stride = outer[3 + i], inner[1 + i], x.strides[2 + i]
        pairs += [(position, stride * window.stride), (tap, stride * window.dilation)]
        offset = offset - window.before * stride
        if window.before == 0 and window.after == 0:
            continue
        place: Expr = op("mul", Index(tap), constant(window.dilation, "int64"))
        if position is not None:
            moved = op("mul", Index(position), constant(window.stride, "int64"))
            place = op("add", moved, place)
        for condition in bounds(place, window.before, x.shape[2 + i], window.after):
            inside = condition if inside is None else op("and", inside, condition)
    base = advance(x, offset)
    assert base is not None
    access = Access(base.buffer, base.offset, base.terms + _terms(pairs))
    if inside is None:
        return Load(access, x.dtype)
    return Load(access, x.dtype, inside, constant(0, x.dtype))


def _terms(pairs: Sequence[tuple[Axis | None, Size]]) -> tuple[tuple[Axis, Size], ...]:
    return tuple((a, s) for a, s in pairs if a is not None and a.extent != 1 and s != 0)
