"""Dilated convolutions: by parts of an image that have the same taps on data, or phase by phase.

Taps far apart leave an image that is not much larger. Where they all lie in padding, their products
are zeros, and the sum of the others has the same bits. Phases are images like others, of which
several positions may be computed together (`ops.rules.winograd`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ostinato.graph.dilation import Span, count_of_phases, parts, phases, share_on_data
from ostinato.graph.windows import Window
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Joined, Tensor, Value, slice_axis
from ostinato.ops.rules.padding import pad
from ostinato.ops.rules.windows import convolve
from ostinato.ops.rules.winograd import apart, channels_last
from ostinato.sizes.dims import Size
from ostinato.sizes.strides import Shape

# The share of the time that may be left: each part of an image loads weights of its own. With
# 0.77, 0.84 and 0.92 left (256 channels of 33 x 33 pixels, taps 6, 4 and 2 apart) parts take 0.70,
# 0.84 and 0.98 of the time.
_MOST_LEFT = 0.9


def convolve_on_data(
    context: Context, source: Value, weight: Value, windows: Sequence[Window[Size]]
) -> Value | None:
    """The convolution of one group, without products of padding; None where that saves too little.

    Products of zeros are zeros if the weights are finite.
    """
    extents, known = source.shape[2:], weight.known
    is_dilated = any(window.dilation > 1 for window in windows)
    if not is_dilated or share_on_data(windows, extents) > _MOST_LEFT:
        return None
    along = parts(windows, extents) or []
    has_none = any(span.taps == 0 for axis in along for span in axis)
    if has_none or known is None:
        return None
    builder = context.builder
    builder.constants.read(known)
    if not np.isfinite(known).all():
        return None
    margins = [_margins(*axis) for axis in zip(along, windows, extents, strict=True)]
    w, x = builder.strided(weight), _padded(context, source, margins)
    by_place: dict[tuple[int, ...], Value] = {}
    for places in itertools.product(*(range(len(axis)) for axis in along)):
        inside, image, taps = [], x, w
        for axis, (place, window) in enumerate(zip(places, windows, strict=True)):
            span = along[axis][place]
            cut = replace(window, kernel=span.taps, before=0, after=0, beyond=0, outputs=span.count)
            start = _start(span, window) + margins[axis][0]
            image = slice_axis(image, 2 + axis, start, 1, (span.count - 1) * cut.stride + cut.span)
            taps = slice_axis(taps, 2 + axis, span.tap, 1, span.taps)
            inside.append(cut)
        by_place[places] = convolve(context, image, taps, inside, 1)
    for axis in reversed(range(len(along))):
        lines: dict[tuple[int, ...], list[Value]] = {}
        for places, part in by_place.items():
            lines.setdefault(places[:axis], []).append(part)
        by_place = {places: _side_by_side(line, 2 + axis) for places, line in lines.items()}
    return by_place[()]


def _start(span: Span, window: Window[Size]) -> int:
    """The element below the first tap of the first place; it may lie in the padding."""
    assert isinstance(window.before, int)
    return span.first * window.stride + span.tap * window.dilation - window.before


def _margins(spans: Sequence[Span], window: Window[Size], extent: Size) -> tuple[int, int]:
    """The padding before and behind an axis that taps of its parts read."""
    assert isinstance(extent, int)
    starts = [_start(span, window) for span in spans]
    ends = [
        start + (span.count - 1) * window.stride + (span.taps - 1) * window.dilation + 1
        for start, span in zip(starts, spans, strict=True)
    ]
    return max(0, -min(starts)), max(0, max(ends) - extent)


def _padded(context: Context, source: Value, margins: Sequence[tuple[int, int]]) -> Tensor:
    """A copy whose channels are neighbours, with so much padding along each axis."""
    builder, step = context.builder, apart(source.shape[1])

    def empty(dtype: str, shape: Shape) -> Tensor:
        x = channels_last(builder, dtype, shape, step)
        builder.draft.keep_layout(x.buffer)
        return x

    if any(map(any, margins)):
        before, after = zip((0, 0), (0, 0), *margins, strict=True)
        return pad(context, builder.strided(source), before, after, 0, empty)
    x = empty(source.dtype, source.shape)
    builder.copy(source, x)
    return x


def _side_by_side(line: list[Value], axis: int) -> Value:
    first = line[0]
    if len(line) == 1:
        return first
    extent = sum((part.shape[axis] for part in line), 0)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    return Joined(first.dtype, shape, axis, tuple(line))


def split_phases(context: Context, x: Tensor, windows: Sequence[Window[Size]]) -> Tensor:
    """[phases.. * rows, channels, sizes..] of [rows, channels, sizes..], padded with zeros."""
    builder, (rows, depth, *extents) = context.builder, x.shape
    sizes = [window.outputs + window.kernel - 1 for window in phases(windows)]
    before: list[Size] = [0, 0, *(window.before for window in windows)]
    after: list[Size] = [0, 0]
    for window, size, extent in zip(windows, sizes, extents, strict=True):
        after.append(size * window.dilation - window.before - extent)
    padded = pad(
        context, x, before, after, 0, lambda dtype, shape: channels_last(builder, dtype, shape)
    )
    images = rows * count_of_phases(windows)
    target = channels_last(builder, x.dtype, (images, depth, *sizes))
    builder.copy(_by_phases(padded, windows, sizes), _by_images(target, windows, rows))
    return target


def join_phases(builder: Builder, y: Tensor, windows: Sequence[Window[Size]], rows: Size) -> Tensor:
    """[rows, channels, places..] of [phases.. * rows, channels, places..]."""
    _, depth, *sizes = y.shape
    whole = [size * window.dilation for size, window in zip(sizes, windows, strict=True)]
    target = channels_last(builder, y.dtype, (rows, depth, *whole))
    builder.copy(_by_images(y, windows, rows), _by_phases(target, windows, sizes))
    return replace(target, shape=(rows, depth, *(window.outputs for window in windows)))


def _by_phases(x: Tensor, windows: Sequence[Window[Size]], sizes: Sequence[Size]) -> Tensor:
    """[phases.., rows, channels, sizes..] of an image."""
    numbers = [window.dilation for window in windows]
    steps = [n * stride for n, stride in zip(numbers, x.strides[2:], strict=True)]
    return replace(
        x,
        shape=(*numbers, *x.shape[:2], *sizes),
        strides=(*x.strides[2:], *x.strides[:2], *steps),
    )


def _by_images(x: Tensor, windows: Sequence[Window[Size]], rows: Size) -> Tensor:
    """[phases.., rows, channels, sizes..] of the images of all phases."""
    steps: list[Size] = []
    step = rows * x.strides[0]
    for window in reversed(windows):
        steps.insert(0, step)
        step = step * window.dilation
    numbers = [window.dilation for window in windows]
    return replace(x, shape=(*numbers, rows, *x.shape[1:]), strides=(*steps, *x.strides))
