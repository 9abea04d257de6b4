"""Gradients of convolutions and pooling.

Where a window lies below is a view: a Gather along each spatial axis at places that are known, or
evenly spaced, takes `[.., taps, positions, ..]` out of `[.., extent, ..]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Factor, Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates
from ostinato.graph.windows import Window, placed, read_moves, spread
from ostinato.graph.writer import Operand
from ostinato.sizes.dims import Dim, Size, symbol


def _windows(context: Context, kernel: Sequence[int], ceil: bool = False) -> list[Window[int]]:
    """The windows over input 0."""
    moves = read_moves(context.attributes, len(kernel))
    found = []
    for i, extent in enumerate(_extents(context)):
        strided = moves.strides[i] > 1
        window = placed(moves, i, kernel[i], extent, ceil and strided)
        if ceil and strided and not moves.automatic.startswith("SAME"):
            if not isinstance(extent, int):
                raise context.refuse("with ceil_mode has no gradient for a run-time size")
            if context.dims(context.node.outputs[0])[i + 2] != window.outputs:
                raise context.refuse("has no gradient where a window lies in the padding")
        found.append(_fixed(context, window, "auto_pad has no gradient for strides over"))
    return found


def _extents(context: Context) -> list[Size]:
    """The spatial sizes of input 0."""
    dims = context.dims(context.given(0))[2:]
    return [n if isinstance(n, int) else symbol(n or f"axis {i}") for i, n in enumerate(dims)]


def _fixed(context: Context, window: Window[Size], what: str) -> Window[int]:
    """The window, refused where its padding follows from a run-time size."""
    before, after, beyond = window.before, window.after, window.beyond
    if isinstance(before, Dim) or isinstance(after, Dim) or isinstance(beyond, Dim):
        raise context.refuse(f"with {what} a run-time size")
    outputs = -1 if isinstance(window.outputs, Dim) else window.outputs
    return Window(window.kernel, window.stride, window.dilation, before, after, outputs, beyond)


def _known(context: Context, value: ir.Value, what: str) -> list[int]:
    sizes = [size for size in context.dims(value) if isinstance(size, int)]
    if len(sizes) < context.rank(value):
        raise context.refuse(f"has no gradient for {what} of a run-time shape")
    return sizes


# Convolution


@differentiates("Conv")
def _conv(context: Context) -> None:
    """The image's gradient is a transposed convolution, the weights' a sum over all positions."""
    weight = _known(context, context.given(1), "weights")
    context.attributes.ints("kernel_shape", None)
    group = context.attributes.int("group", 1)
    windows, given = _windows(context, weight[2:]), context.gradient()
    result = context.node.outputs[0]
    if context.wants(0):
        context.give(0, _transposed(context, given, context.input(1), windows, group))
    if context.wants(1):
        image = _padded(context.x, windows, 0.0)
        context.give(1, _of_weights(context, image, (given, result), windows, group))
    if context.wants(2):
        _give_bias(context, given, len(windows))


def _give_bias(context: Context, given: Term, rank: int) -> None:
    context.give(2, given.sum([0, *range(2, rank + 2)], keepdims=False))


def _transposed(
    context: Context, maps: Term, weight: Factor, windows: Sequence[Window[int]], group: int
) -> Term:
    """Each map element times the weights, added to the image of input 0 below its window."""
    image, result = context.given(0), context.node.outputs[0]
    attributes = _moves(windows, group)
    extents = zip(windows, context.dims(image)[2:], context.dims(result)[2:], strict=True)
    rests = [_rest(window, extent, outputs) for window, extent, outputs in extents]
    known = [rest for rest in rests if rest is not None]
    if len(known) == len(rests):
        attributes["pads"] = [*(w.before for w in windows), *(w.after + w.beyond for w in windows)]
        attributes["output_padding"] = known
        return maps.op("ConvTranspose", weight, **attributes)
    whole = maps.op("ConvTranspose", weight, **attributes)
    cut: list[Operand] = []
    for i, window in enumerate(windows, 2):
        full = context.ops.integers("Mul", context.size(result, i), np.array([window.stride]))
        beyond = np.array([window.before + window.stride - window.span])
        end = context.ops.integers("Add", context.size(image, i), beyond)
        cut.append(context.ops.integers("Sub", end, full))
    lead = np.array([-window.before for window in windows])
    pads = context.writer.concat([lead, *cut], 0, "pads")
    return whole.op("Pad", pads, 0.0, np.arange(2, len(windows) + 2))


def _moves(windows: Sequence[Window[int]], group: int) -> dict[str, Any]:
    return {
        "strides": [window.stride for window in windows],
        "dilations": [window.dilation for window in windows],
        "group": group,
    }


def _rest(window: Window[int], extent: int | str | None, outputs: int | str | None) -> int | None:
    """Count elements at the end of an axis that no window reaches; None if a run decides that."""
    if window.stride == 1:
        return 0
    if not isinstance(extent, int) or not isinstance(outputs, int):
        return None
    reached = (outputs - 1) * window.stride + window.span
    return extent + window.before + window.after + window.beyond - reached


def _padded(image: Term, windows: Sequence[Window[int]], fill: float) -> Term:
    pads = np.array(
        [*(w.before for w in windows), *(w.after + w.beyond for w in windows)], np.int64
    )
    if not pads.any():
        return image
    return image.op("Pad", pads, fill, np.arange(2, len(windows) + 2))


def _positions(context: Context, maps: ir.Value) -> list[Operand]:
    """The number of positions along each spatial axis; maps: a value of the node, `[N, M, ..]`."""
    return [context.size(maps, axis) for axis in range(2, context.rank(maps))]


def _below(
    context: Context,
    image: Term,
    positions: Sequence[Operand],
    windows: Sequence[Window[int]],
    first: int = 2,
) -> Term:
    """Unfold windows: elements below each position, `[.., taps, positions, taps, positions, ..]`.

    image: padded, its spatial axes begin at `first`.
    """
    for i, (number, window) in enumerate(zip(positions, windows, strict=True)):
        places = _places(context, number, window)
        image = image.op("Gather", places, role="below", axis=first + 2 * i)
    return image


def _places(context: Context, number: Operand, window: Window[int]) -> Operand:
    """The place of each tap at each position: `[taps, positions]`."""
    taps = np.arange(window.kernel)[:, np.newaxis] * window.dilation
    steps: Operand
    if isinstance(number, ir.Value):
        start, step = np.array(0, np.int64), np.array(1, np.int64)
        limit = context.ops.index("Squeeze", number)
        steps = context.ops.index("Range", start, limit, step)
    else:
        steps = np.arange(number.item())
    return context.ops.integers(
        "Add", taps, context.ops.integers("Mul", steps, np.array([window.stride]))
    )


def _of_weights(
    context: Context,
    image: Term,
    maps: tuple[Term, ir.Value],
    windows: Sequence[Window[int]],
    group: int,
) -> Term:
    """The sum over rows and positions of each map times each tap of each image: as input 1.

    image: padded. maps: the elements, and a value of the node with their shape.
    """
    weight = _known(context, context.given(1), "weights")
    values, numbers = maps[0], _positions(context, maps[1])
    positions, taps = "opqrstuv"[: len(windows)], "abcdefgh"[: len(windows)]
    pairs = "".join(tap + position for position, tap in zip(positions, taps, strict=True))
    if group == 1:
        image = _below(context, image, numbers, windows)
        equation = f"nm{positions},nx{pairs}->mx{taps}"
        return _einsum(context, equation, values, image)
    values, image = (
        _in_groups(x, n, group) for x, n in ((values, weight[0]), (image, weight[1] * group))
    )
    image = _below(context, image, numbers, windows, first=3)
    equation = f"nym{positions},nyx{pairs}->ymx{taps}"
    product = _einsum(context, equation, values, image)
    return product.reshape(np.array(weight, np.int64))


def _einsum(context: Context, equation: str, *operands: Term) -> Term:
    """The sum of products, in float32 for bfloat16, which Einsum does not have."""
    dtype = context.writer.dtype
    if dtype != ir.DataType.BFLOAT16:
        return operands[0].op("Einsum", *operands[1:], equation=equation)
    single = ir.DataType.FLOAT
    wide = [x.cast(single) for x in operands]
    product = context.ops.op("Einsum", wide, "", {"equation": equation}, single)
    return product.cast(dtype)


def _in_groups(x: Term, channels: int, group: int) -> Term:
    """`[N, channels, ..]` as `[N, group, channels / group, ..]`."""
    places = np.arange(channels).reshape(group, -1)
    return x.op("Gather", places, role="groups", axis=1)


@differentiates("ConvTranspose")
def _conv_transpose(context: Context) -> None:
    """The input's gradient is a convolution; the weights' is one's whose image is the output."""
    weight = _known(context, context.given(1), "weights")
    rank = len(weight) - 2
    context.attributes.ints("kernel_shape", None)
    group = context.attributes.int("group", 1)
    windows = _spread(context, weight[2:])
    given, source = context.gradient(), context.given(0)
    image = _padded(given, windows, 0.0)
    if context.wants(0):
        product = image.op("Conv", context.input(1), **_moves(windows, group))
        # Elements that only output_padding reaches would make more positions.
        axes = np.arange(2, rank + 2)
        ends = context.writer.concat([context.size(source, i) for i in axes.tolist()], 0, "ends")
        first = np.zeros(rank, np.int64)
        context.give(0, product.op("Slice", first, ends, axes))
    if context.wants(1):
        maps = context.x, source
        context.give(1, _of_weights(context, image, maps, windows, group))
    if context.wants(2):
        _give_bias(context, given, rank)


def _spread(context: Context, kernel: Sequence[int]) -> list[Window[int]]:
    """The windows over output 0 that a transposed convolution fills."""
    rank = len(kernel)
    moves = read_moves(context.attributes, rank)
    extra = context.attributes.ints("output_padding", (0,) * rank)
    asked = context.attributes.ints("output_shape", None)
    found = []
    for i, extent in enumerate(_extents(context)):
        outputs = asked[i - rank] if asked else None
        window = spread(moves, i, kernel[i], extent, extra[i], outputs)
        found.append(_fixed(context, window, "output_shape or auto_pad:"))
    return found


@differentiates("Col2Im")
def _col2im(context: Context) -> None:
    """Each column's gradient is what the image's has below its window."""
    kernel, extents = context.constant(2), context.constant(1)
    if kernel is None or extents is None:
        raise context.refuse("has no gradient for sizes that are known at run time only")
    rank, moves = kernel.size, read_moves(context.attributes, kernel.size)
    windows, positions = [], []
    for i, (taps, extent) in enumerate(zip(kernel.tolist(), extents.tolist(), strict=True)):
        window = _fixed(context, placed(moves, i, taps, extent), "sizes of")
        windows.append(window)
        positions.append(np.array([window.outputs]))
    image = _padded(context.gradient(), windows, 0.0)
    below = _below(context, image, positions, windows)
    taps_first = [0, 1, *range(2, 2 * rank + 2, 2), *range(3, 2 * rank + 3, 2)]
    columns = below.transpose(taps_first)
    context.give(0, columns.reshape(context.sizes(context.given(0))))


# Pooling


@differentiates("AveragePool")
def _average_pool(context: Context) -> None:
    """Each element below a window gets its share."""
    kernel = context.attributes.ints("kernel_shape")
    ceil = bool(context.attributes.int("ceil_mode", 0))
    counts_pads = bool(context.attributes.int("count_include_pad", 0))
    windows = _windows(context, kernel, ceil)
    given = context.gradient()
    for i, window in enumerate(windows):
        given = given / _count(context, window, i, counts_pads, len(windows))
    context.give(0, _summed(context, given, windows))


def _channels(context: Context) -> int:
    channels = context.dims(context.given(0))[1]
    if not isinstance(channels, int):
        raise context.refuse("has no gradient for channels of a run-time size")
    return channels


def _summed(context: Context, shares: Term, windows: Sequence[Window[int]]) -> Term:
    """For each element of the image, sum over the positions in whose window it lies."""
    kernel = [window.kernel for window in windows]
    ones = np.ones((_channels(context), 1, *kernel), context.writer.dtype.numpy())
    return _transposed(context, shares, ones, windows, _channels(context))


@differentiates("LpPool")
def _lp_pool(context: Context) -> None:
    """dX = sign(X) |X|^(p - 1) times the sum of dY Y^(1 - p), 0 where Y is 0."""
    kernel = context.attributes.ints("kernel_shape")
    ceil = bool(context.attributes.int("ceil_mode", 0))
    power = float(context.attributes.int("p", 2) - 1)
    windows, x, norm = _windows(context, kernel, ceil), context.x, context.y
    share = context.gradient() / norm.op("Pow", power)
    share = norm.equals(0.0).where(0.0, share)
    slope = x.op("Sign") * x.op("Abs").op("Pow", power)
    context.give(0, slope * _summed(context, share, windows))


def _count(
    context: Context, window: Window[int], i: int, counts_pads: bool, rank: int
) -> Term | float:
    """Count the elements along one axis below each position of a window."""
    pads = window.before + window.after + window.beyond
    if not pads or (counts_pads and not window.beyond):
        return float(window.kernel)
    number = context.size(context.node.outputs[0], i + 2)
    extent = context.size(context.given(0), i + 2)
    low, high = (
        np.array([window.before]),
        context.ops.integers("Add", extent, np.array([window.before])),
    )
    if counts_pads:
        low = np.array([0])
        high = context.ops.integers("Add", high, np.array([window.after]))
    places = _places(context, number, window)
    inside = context.ops.truth("GreaterOrEqual", places, low)
    inside &= context.ops.truth("Less", places, high)
    ones = inside.cast(context.writer.dtype)
    return ones.sum([0], keepdims=False).reshape(np.array([-1] + [1] * (rank - 1 - i)))


@differentiates("MaxPool")
def _max_pool(context: Context) -> None:
    """The gradient goes to the maximum below the window, in equal parts to several."""
    kernel = context.attributes.ints("kernel_shape")
    ceil = bool(context.attributes.int("ceil_mode", 0))
    context.attributes.int("storage_order", 0)
    windows, result = _windows(context, kernel, ceil), context.node.outputs[0]
    rank, channels = len(windows), _channels(context)
    image = _padded(context.x, windows, -np.inf)
    taps = list(range(2, 2 * rank + 2, 2))
    below = _below(context, image, _positions(context, result), windows)
    share = _shares(context, below, context.y.unsqueeze(taps), taps)
    parts = share * context.gradient().unsqueeze(taps)
    # A channel for each tap, which the transposed convolution puts where the tap is.
    parts = parts.transpose([0, 1, *taps, *range(3, 2 * rank + 3, 2)])
    count = int(np.prod(kernel))
    sizes = [context.size(result, i) for i in range(rank + 2)]
    sizes[1] = np.array([channels * count])
    parts = parts.reshape(context.writer.concat(sizes, 0, "sizes"))
    places = np.eye(count, dtype=context.writer.dtype.numpy()).reshape(count, 1, *kernel)
    weight = np.tile(places, (channels, *[1] * (rank + 1)))
    context.give(0, _transposed(context, parts, weight, windows, channels))


def _shares(context: Context, x: Term, largest: Term, axes: Sequence[int]) -> Term:
    """1 where `x` is the largest element along these axes, 1 / n where n of them are, else 0."""
    same = x.equals(largest)
    ones = same.cast(context.writer.dtype)
    return ones / ones.sum(axes)
