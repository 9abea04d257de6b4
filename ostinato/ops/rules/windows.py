"""Ops that move a window over the spatial axes: convolution and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ostinato.graph.windows import Moves, Window, placed, read_moves
from ostinato.limits import MOST_WINDOW
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, Value, advance, insert_ones
from ostinato.ops.rules.padding import pad, within
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Const, Expr, Index, Load, constant
from ostinato.sizes.dims import Size
from ostinato.sizes.strides import Shape

# (shape, axes, inner axes, left element, right element) -> sums; see `Builder.contract`.
Contract: TypeAlias = Callable[[Shape, Sequence["Axis | None"], Sequence[Axis], Expr, Expr], Tensor]

# 32 channels of rows so far apart, in the order of `schedule.layout`, take 1.35 times as long in a
# convolution of 3 x 3 taps.
_PAGE_BYTES = 4096


def checked_moves(
    context: Context, rank: int, kernel: Sequence[int], dilated: bool = True
) -> Moves:
    """strides, dilations, auto_pad and pads, checked."""
    moves = read_moves(context.attributes, rank, dilated)
    strides, dilations, pads = moves.strides, moves.dilations, moves.pads
    given = f"strides {strides}, dilations {dilations}, kernel_shape {tuple(kernel)}, pads {pads}"
    if not len(strides) == len(dilations) == len(kernel) == rank or len(pads) != 2 * rank:
        raise context.invalid(f"{given}: expected {rank} of each, and {2 * rank} pads")
    if min((*strides, *dilations, *kernel), default=1) < 1 or min(pads, default=0) < 0:
        raise context.invalid(f"{given}: expected 1 or more, and pads of 0 or more")
    if max(kernel, default=0) > MOST_WINDOW:
        raise context.invalid(f"kernel_shape {list(kernel)}: no window has so many elements")
    if moves.automatic not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise context.invalid(f"attribute 'auto_pad' is {moves.automatic!r}")
    if moves.automatic != "NOTSET" and any(pads):
        raise context.invalid("attributes 'auto_pad' and 'pads' exclude each other")
    return moves


def given_kernel(context: Context, source: Value, weight: Value) -> list[int]:
    """The spatial extents of the weights, which `kernel_shape` must repeat if it is there."""
    kernel = [n for n in weight.shape[2:] if isinstance(n, int)]
    if len(kernel) != len(weight.shape) - 2 or not isinstance(weight.shape[0], int):
        raise context.refuse("weights of a run-time shape have no native form")
    given = context.attributes.ints("kernel_shape", tuple(kernel))
    if list(given) != kernel or len(source.shape) != len(weight.shape) or len(weight.shape) < 3:
        raise context.invalid(
            f"kernel_shape {list(given)}, input {source.shape} and weights {weight.shape} disagree"
        )
    return kernel


def read_windows(
    context: Context,
    spatial: Shape,
    kernel: Sequence[int],
    dilated: bool = True,
    ceil: bool = False,
) -> list[Window[Size]]:
    """The windows that strides, dilations, pads and auto_pad describe, one per spatial axis."""
    moves = checked_moves(context, len(spatial), kernel, dilated)
    return [placed(moves, i, kernel[i], extent, ceil) for i, extent in enumerate(spatial)]


def biased(context: Context, result: Value, bias: Value | None) -> Value:
    """Sums of a convolution, with the bias of each filter added if there is one."""
    if bias is None:
        return result
    if len(bias.shape) != 1:
        raise context.invalid(f"the bias has {len(bias.shape)} axes, expected 1")
    context.builder.require.equal(bias.shape[0], result.shape[1], "biases and filters")
    shaped = insert_ones(bias, tuple(range(1, len(result.shape) - 1)))
    return context.builder.pointwise(lambda x, b: x + b, result, shaped)


def convolve(
    context: Context,
    source: Value,
    weight: Value,
    windows: Sequence[Window[Size]],
    group: int,
    contract: Contract | None = None,
) -> Tensor:
    """The sum over channels of a group and window positions, in that order.

    contract: sums products of elements, by default `Builder.contract`.
    """
    builder = context.builder
    x, w = builder.strided(source), builder.strided(weight)
    filters, depth = w.shape[0], w.shape[1]
    if not isinstance(filters, int) or group < 1 or filters % group:
        raise context.invalid(f"{filters} filters in {group} groups")
    builder.require.equal(x.shape[1], depth * group, "channels of the input and the weights")
    spatial = output_sizes(context, windows)
    x, windows = without_padding(context, x, _rows_apart(x, windows))
    # Filters as (group, filter within the group); the output is viewed the same way.
    per_group = filters // group
    full = (x.shape[0], group, per_group, *spatial)
    outer = builder.axes(full)
    inner = [builder.axis(depth, "r"), *(builder.axis(win.kernel, "r") for win in windows)]
    channel = [(outer[1], x.strides[1] * depth), (inner[0], x.strides[1])]
    zero = constant(0, x.dtype)
    left = window_load(x, outer[0], channel, outer[3:], inner[1:], windows, zero)
    weight_terms = terms_of(
        [
            (outer[1], w.strides[0] * per_group),
            (outer[2], w.strides[0]),
            *zip(inner, w.strides[1:], strict=True),
        ]
    )
    right = Load(Access(w.buffer, w.address.offset, w.address.terms + weight_terms), w.dtype)
    kept = tuple(axis for axis in inner if axis.extent != 1) or (inner[0],)
    result = (contract or builder.contract)(full, outer, kept, left, right)
    stride = result.strides[2]
    return Tensor(
        result.dtype,
        (x.shape[0], filters, *spatial),
        result.base,
        (result.strides[0], stride, *result.strides[3:]),
    )


def _rows_apart(x: Tensor, windows: Sequence[Window[Size]]) -> Sequence[Window[Size]]:
    """The windows, with one more column of padding where rows of a padded image evict each other.

    Those whose distance is a multiple of `_PAGE_BYTES` share lines of a first-level cache.
    """
    if len(windows) < 2 or windows[-2].kernel == 1 or not any(map(is_padded, windows)):
        return windows
    *others, last = windows
    pixels = x.shape[-1] + last.before + last.after + last.beyond
    row = pixels * x.shape[1] * ITEM_BYTES[x.dtype]
    crowded = isinstance(row, int) and row % _PAGE_BYTES == 0
    return [*others, replace(last, beyond=last.beyond + 1)] if crowded else windows


def is_padded(window: Window[Size]) -> bool:
    """Whether some of its places reach into padding."""
    return any(n != 0 for n in (window.before, window.after, window.beyond))


def without_padding(
    context: Context, x: Tensor, windows: Sequence[Window[Size]], fill: float = 0
) -> tuple[Tensor, list[Window[Size]]]:
    """The input with its padding in memory: written once, instead of tested at every tap."""
    if any(map(is_padded, windows)):
        before = [window.before for window in windows]
        after = [window.after + window.beyond for window in windows]
        x = pad(context, x, [0, 0, *before], [0, 0, *after], fill)
    return x, [replace(window, before=0, after=0, beyond=0) for window in windows]


def output_sizes(context: Context, windows: Sequence[Window[Size]]) -> list[Size]:
    """The number of positions along each spatial axis."""
    for window in windows:
        context.builder.require.nonnegative(window.outputs, "spatial size of the output")
    return [window.outputs for window in windows]


def window_load(
    x: Tensor,
    row: Axis | None,
    channel: Sequence[tuple[Axis | None, Size]],
    positions: Sequence[Axis | None],
    taps: Sequence[Axis],
    windows: Sequence[Window[Size]],
    padding: Const,
) -> Expr:
    """The input element below a tap of the window; `padding` where it lies outside the data."""
    pairs = [(row, x.strides[0]), *channel]
    offset: Size = 0
    for position, tap, window, stride in zip(positions, taps, windows, x.strides[2:], strict=True):
        pairs += [(position, stride * window.stride), (tap, stride * window.dilation)]
        offset = offset - window.before * stride
    inside = inside_data(x.shape[2:], positions, taps, windows)
    base = advance(x, offset)
    assert base is not None
    access = Access(base.buffer, base.offset, base.terms + terms_of(pairs))
    if inside is None:
        return Load(access, x.dtype)
    return Load(access, x.dtype, inside, padding)


def inside_data(
    spatial: Shape,
    positions: Sequence[Axis | None],
    taps: Sequence[Axis],
    windows: Sequence[Window[Size]],
    padded: bool = False,
) -> Expr | None:
    """Whether a tap lies on data, or with `padded` on data or padding; None if it always does."""
    inside: Expr | None = None
    for position, tap, window, extent in zip(positions, taps, windows, spatial, strict=True):
        # An extent of 1 makes no axis.
        place: Expr = constant(0, "int64")
        if tap.extent != 1:
            place = Index(tap) * window.dilation
        if position is not None:
            moved = Index(position) * window.stride
            place = moved + place
        before, after = window.before, window.after + window.beyond
        if padded:
            before, extent, after = 0, window.before + extent + window.after, window.beyond
        for condition in within(place, before, extent, after):
            inside = condition if inside is None else inside & condition
    return inside


def terms_of(pairs: Sequence[tuple[Axis | None, Size]]) -> tuple[tuple[Axis, Size], ...]:
    """The terms of an address, without axes of one point and steps of 0."""
    return tuple((a, s) for a, s in pairs if a is not None and a.extent != 1 and s != 0)
