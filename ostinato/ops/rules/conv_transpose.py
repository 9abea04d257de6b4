"""Transposed convolution, by output element: every one is a small dense sum, nothing is scattered.

Along an axis with stride `s`, output position `o = s * j + r` (`0 <= r < s`) meets tap `k` where
`o + before - k * dilation` is a multiple of `s`. So all positions of one phase `r` meet the same
taps, which are evenly spaced, at neighbouring input elements: a convolution with a part of the
kernel. Phases that follow each other evenly are one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from ostinato.graph.windows import Window, spread
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, advance
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.windows import biased, checked_moves, given_kernel, terms_of
from ostinato.ops.rules.winograd import convolve_together
from ostinato.ops.rules.winograd_transposed import winograd_transposed
from ostinato.program.expr import FLOATS, Access, Axis, Expr, Load, Reduced, constant
from ostinato.program.kernel import Reduce, Store
from ostinato.records import dataclass
from ostinato.sizes.dims import Dim, Size, ceildiv, exact_quotient, maximum
from ostinato.sizes.strides import Shape

# Every phase of a stride may become a kernel.
_MOST_PHASES = 2**10
# Elements of larger strides lie further apart than anything is long.
_MOST_STRIDE = 2**20


@dataclass(frozen=True)
class Phases:
    """Output positions `stride * j + first + r` for `j < rows` and `r < count` along one axis.

    Each meets taps `tap + tap_step * r + spacing * t` for `t < taps`, at the input elements
    `j + shift + shift_step * r - reach * t`.
    """

    first: int
    count: int
    rows: Size
    taps: int
    tap: int
    tap_step: int
    spacing: int
    shift: int
    shift_step: int
    reach: int

    def elements(self) -> tuple[int, Size]:
        """The smallest and the largest input element read."""
        ends = self.shift, self.shift + self.shift_step * (self.count - 1)
        return min(ends) - self.reach * (self.taps - 1), self.rows - 1 + max(ends)


@lowers("ConvTranspose")
def lower_conv_transpose(context: Context) -> Value:
    """Transposed convolution: every input element adds a scaled kernel to the output.

    Any number of spatial axes: strided, dilated, grouped, cropped (`pads`), extended
    (`output_padding`).
    """
    source, weight, bias = context.input(0), context.input(1), context.optional(2)
    kernel = given_kernel(context, source, weight)
    spread = _read(context, source.shape[2:], kernel)
    builder = context.builder
    x, w = builder.strided(source), builder.strided(weight)
    group = context.attributes.int("group", 1)
    channels, per_group = w.shape[0], w.shape[1]
    if not isinstance(channels, int) or not isinstance(per_group, int):
        raise context.refuse("weights of a run-time shape have no native form")
    if group < 1 or channels % group:
        raise context.invalid(f"{channels} channels in {group} groups")
    builder.require.equal(x.shape[1], channels, "channels of the input and the weights")
    if bias is not None:
        if len(bias.shape) != 1:
            raise context.invalid(f"the bias has {len(bias.shape)} axes, expected 1")
        builder.require.equal(bias.shape[0], per_group * group, "biases and filters")
    for axis in spread:
        builder.require.nonnegative(axis.outputs, "spatial size of the output")
    sizes = (x.shape[0], per_group * group, *(axis.outputs for axis in spread))
    met = [_met(axis) for axis in spread if axis.stride <= axis.kernel]
    way = winograd_transposed(context, weight, spread, met, x.shape[2:], group)
    if way is not None:
        result = replace(convolve_together(context, x, way), shape=sizes)
        return biased(context, result, bias)
    spread = [_of_one(axis, extent) for axis, extent in zip(spread, x.shape[2:], strict=True)]
    if any(axis.stride > _MOST_PHASES for axis in spread):
        raise context.refuse(f"strides above {_MOST_PHASES} have no native form")
    target = builder.empty(x.dtype, sizes)
    phases = [_phases(axis) for axis in spread]
    x = _with_margins(context, x, phases)
    for chosen in product(*phases):
        _convolve(context, x, w, bias, target, group, [axis.stride for axis in spread], chosen)
    return target


def _read(context: Context, spatial: Shape, kernel: Sequence[int]) -> list[Window[Size]]:
    """The spread along each axis, from the attributes as their documents put it."""
    rank = len(spatial)
    moves = checked_moves(context, rank, kernel)
    extra = context.attributes.ints("output_padding", (0,) * rank)
    asked = context.attributes.ints("output_shape", None)
    if asked is not None and len(asked) == rank + 2:
        asked = asked[2:]
    if len(extra) != rank or min(extra, default=0) < 0 or (asked and len(asked) != rank):
        raise context.invalid(
            f"output_padding {list(extra)}, output_shape {asked and list(asked)}: "
            f"expected {rank} elements of 0 or more"
        )
    result = []
    for i, extent in enumerate(spatial):
        window = spread(moves, i, kernel[i], extent, extra[i], asked[i] if asked else None)
        if isinstance(window.before, Dim):
            raise context.refuse("an output_shape for inputs of a run-time size has no native form")
        if window.stride > _MOST_STRIDE:
            raise context.invalid(f"strides {list(moves.strides)}: no image is spread so far")
        result.append(window)
    return result


def _of_one(window: Window[Size], extent: Size) -> Window[Size]:
    """The spread of a single element, whose stride makes no difference, without taps in common."""
    if extent != 1:
        return window
    assert isinstance(window.outputs, int) and isinstance(window.before, int)
    farthest = max(window.outputs - 1 + window.before, window.span)
    stride = (farthest // window.dilation + 1) * window.dilation
    return replace(window, stride=stride) if stride <= _MOST_PHASES else window


def _phases(axis: Window[Size]) -> list[Phases]:
    """All phases along an axis, joined where they follow each other evenly."""
    found: list[Phases] = []
    for first in range(axis.stride):
        if isinstance(axis.outputs, int) and first >= axis.outputs:
            break
        phase = _phase(axis, first)
        joined = _joined(found[-1], phase) if found else None
        if joined is None:
            found.append(phase)
        else:
            found[-1] = joined
    return found


def _met(axis: Window[Size]) -> list[dict[int, int]]:
    """The taps that each phase meets, by how far the element lies behind the position."""
    phases = [_phase(axis, first) for first in range(axis.stride)]
    return [{p.shift - p.reach * t: p.tap + p.spacing * t for t in range(p.taps)} for p in phases]


def _phase(axis: Window[Size], first: int) -> Phases:
    common = math.gcd(axis.dilation, axis.stride)
    spacing = axis.stride // common
    assert isinstance(axis.before, int)
    start = first + axis.before
    rows = _rows(axis.outputs - first, axis.stride)
    # The first tap with `start - tap * dilation` a multiple of the stride.
    inverse = pow(axis.dilation // common, -1, spacing)
    tap = start // common * inverse % spacing
    if start % common == 0 and tap < axis.kernel:
        shift = (start - tap * axis.dilation) // axis.stride
        taps = ceildiv(axis.kernel - tap, spacing)
        assert isinstance(taps, int)
        reach = axis.dilation // common
        return Phases(first, 1, rows, taps, tap, 0, spacing, shift, 0, reach)
    return Phases(first, 1, rows, 0, 0, 0, spacing, 0, 0, 0)


def _rows(left: Size, stride: int) -> Size:
    """ceil(left / stride), as a polynomial where it is one."""
    fixed = left if isinstance(left, int) else next((c for m, c in left.terms if not m), 0)
    whole = exact_quotient(left - fixed, stride)
    return ceildiv(left, stride) if whole is None else whole + -(-fixed // stride)


def _joined(before: Phases, after: Phases) -> Phases | None:
    """Both as one, if `after` continues `before` with the same steps."""
    tap_step, shift_step = after.tap - before.tap, after.shift - before.shift
    if before.count > 1:
        tap_step, shift_step = before.tap_step, before.shift_step
    follows = (
        (before.rows, before.taps) == (after.rows, after.taps)
        and after.tap == before.tap + before.count * tap_step
        and after.shift == before.shift + before.count * shift_step
    )
    if not follows:
        return None
    return replace(before, count=before.count + 1, tap_step=tap_step, shift_step=shift_step)


def _with_margins(context: Context, x: Tensor, phases: Sequence[Sequence[Phases]]) -> Tensor:
    """The input with zeros on both sides as far as any tap reaches; `base` is still element 0."""
    before: list[Size] = [0, 0]
    after: list[Size] = [0, 0]
    for extent, along in zip(x.shape[2:], phases, strict=True):
        ends = [phase.elements() for phase in along if phase.taps]
        before.append(max((-low for low, _ in ends if low < 0), default=0))
        most: Size = 0
        for _, high in ends:
            most = maximum(most, high + 1 - extent)
        after.append(most)
    if all(n == 0 for n in (*before, *after)):
        return x
    padded = pad(context, x, before, after, 0)
    start: Size = 0
    for amount, stride in zip(before, padded.strides, strict=True):
        start = start + amount * stride
    return Tensor(x.dtype, x.shape, advance(padded, start), padded.strides)


class _Walk:
    """Where a kernel reads or writes a tensor: a start, and a stride along each of its axes."""

    def __init__(self, tensor: Tensor, *pairs: tuple[Axis | None, Size]) -> None:
        self._tensor, self._pairs = tensor, [*pairs]
        self._start: Size = 0

    def along(self, start: Size, *pairs: tuple[Axis | None, Size]) -> None:
        """Begin `start` elements later, and walk along more axes."""
        self._start += start
        self._pairs += pairs

    def access(self) -> Access:
        base = advance(self._tensor, self._start)
        assert base is not None
        return Access(base.buffer, base.offset, base.terms + terms_of(self._pairs))


def _convolve(
    context: Context,
    x: Tensor,
    w: Tensor,
    bias: Value | None,
    target: Tensor,
    group: int,
    strides: Sequence[int],
    phases: Sequence[Phases],
) -> None:
    """One kernel: the sums over channels of a group and taps, in that order, for some phases."""
    builder = context.builder
    depth, per_group = w.shape[0] // group, w.shape[1]
    row, block, filter_ = builder.axes((x.shape[0], group, per_group))
    places = [(builder.axes((phase.rows, phase.count))) for phase in phases]
    channel = builder.axis(depth, "r")
    taps = [builder.axis(phase.taps, "r") for phase in phases]

    left = _Walk(x, (row, x.strides[0]), (block, x.strides[1] * depth), (channel, x.strides[1]))
    right = _Walk(
        w, (block, w.strides[0] * depth), (channel, w.strides[0]), (filter_, w.strides[1])
    )
    size, plane = target.strides[:2]
    out = _Walk(target, (row, size), (block, plane * per_group), (filter_, plane))
    for i, (phase, (j, r), tap) in enumerate(zip(phases, places, taps, strict=True), 2):
        x_step, w_step, step = x.strides[i], w.strides[i], target.strides[i]
        reach = -phase.reach * x_step
        left.along(phase.shift * x_step, (j, x_step), (r, phase.shift_step * x_step), (tap, reach))
        right.along(phase.tap * w_step, (r, phase.tap_step * w_step), (tap, phase.spacing * w_step))
        out.along(phase.first * step, (j, strides[i - 2] * step), (r, step))

    total: Expr = constant(0, x.dtype)
    reductions: list[Reduce] = []
    if all(phase.taps for phase in phases) and depth:
        a, b = Load(left.access(), x.dtype), Load(right.access(), x.dtype)
        inner = tuple(axis for axis in (channel, *taps) if axis.extent != 1) or (channel,)
        fused = x.dtype in FLOATS
        reductions = [Reduce(inner, "sum", a, b) if fused else Reduce(inner, "sum", a * b)]
        total = Reduced(0, x.dtype)
    if bias is not None:
        vector = builder.strided(bias)
        step = vector.strides[0]
        place = _Walk(vector, (block, step * per_group), (filter_, step))
        total = total + Load(place.access(), x.dtype)
    axes = [row, block, filter_, *(axis for pair in places for axis in pair)]
    builder.emit.kernel(axes, [Store(out.access(), total)], reductions)
