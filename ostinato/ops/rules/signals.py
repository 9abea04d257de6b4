"""Fourier transforms by plan, framing, and windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ostinato.guards import Guards
from ostinato.ops.core.builder import LONGEST_TABLE
from ostinato.ops.core.fourier_plans import Signal, real_inverse, real_transform, transform
from ostinato.ops.core.known_sizes import known_int, known_sizes
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, slice_axis, transpose
from ostinato.ops.rules.views import axis_of
from ostinato.program.evaluate import evaluate
from ostinato.program.expr import Expr, Extent, Index, Load, cast, constant, op
from ostinato.sizes.conditions import is_equal
from ostinato.sizes.dims import Size, floordiv
from ostinato.sizes.strides import Shape


@lowers("DFT")
def lower_dft(context: Context) -> Value:
    """The discrete Fourier transform along one axis; real and imaginary parts are the last axis."""
    value = context.builder.strided(context.input(0))
    rank = len(value.shape)
    inverse = bool(context.attributes.int("inverse", 0))
    onesided = bool(context.attributes.int("onesided", 0))
    axis = _dft_axis(context, rank)
    value = _with_parts(context, value, 2 if inverse else 1, is_open=not onesided)
    source = _signal(context, value, axis)
    if onesided and (source.im is None) == inverse:
        wanted = "complex" if inverse else "real"
        raise context.invalid(f"with onesided=1 and inverse={inverse:d} the input must be {wanted}")
    extent = source.some.shape[-1]
    n = _length(context, extent, inverse and onesided)
    kept = n // 2 + 1 if onesided else n
    source = _resized(context, source, kept if inverse else n)
    parts = 1 if inverse and onesided else 2
    bins = n if inverse else kept
    shape = (*value.shape[:axis], bins, *value.shape[axis + 1 : -1], parts)
    result = context.builder.empty(value.dtype, shape)
    target = _signal(context, result, axis)
    if inverse and onesided:
        assert target.re is not None
        real_inverse(context.builder, source, target.re)
    elif inverse:
        transform(context.builder, source.swapped(), target.swapped(), scale=1 / n)
    elif source.im is None:
        assert source.re is not None
        real_transform(context.builder, source.re, target)
    else:
        transform(context.builder, source, target)
    return result


def _dft_axis(context: Context, rank: int) -> int:
    if context.since < 20:
        axis = context.attributes.int("axis", 1)
    elif context.optional(2) is None:
        axis = -2
    else:
        axis = known_int(context, 2, "input 'axis'")
    position = axis_of(context, axis, rank)
    if position == rank - 1:
        raise context.invalid(f"axis {axis} holds the real and imaginary parts")
    return position


def _with_parts(context: Context, value: Tensor, likely: int, is_open: bool) -> Tensor:
    """The value with a known number of parts; where only a run tells, programs are for one of them.

    likely: the number of the first program. is_open: it may be the other one.
    """
    builder, extent = context.builder, value.shape[-1]
    if isinstance(extent, int):
        return value
    parts = next((n for n in (1, 2) if builder.require.is_required(extent, n)), None)
    if parts is None and not is_open:
        parts = likely
        builder.require.equal(extent, parts, "real and imaginary parts, the last axis")
    if parts is None:
        if not builder.guarded or not builder.sizes.is_given(extent):
            raise context.refuse("an input whose number of parts is only known at run time")
        parts = 3 - likely if builder.guarded is Guards.OTHERWISE else likely
        builder.require.guard(is_equal(extent, parts), f"the last axis has not the extent {parts}")
    return replace(value, shape=(*value.shape[:-1], parts))


def _signal(context: Context, value: Tensor, axis: int) -> Signal:
    """Both parts of a value whose last axis holds them, with `axis` moved to the end."""
    parts = value.shape[-1]
    if parts not in (1, 2):
        raise context.invalid(f"the last axis of {value.shape} must be of 1 or 2 elements")
    last = len(value.shape) - 1
    order = (*(i for i in range(last) if i != axis), axis)

    def part(number: int) -> Tensor:
        one = slice_axis(value, last, number, 1, 1)
        kept = Tensor(one.dtype, one.shape[:-1], one.base, one.strides[:-1])
        moved = transpose(kept, order)
        assert isinstance(moved, Tensor)
        return moved

    return Signal(part(0), part(1) if parts == 2 else None)


def _length(context: Context, extent: Size, halved: bool) -> int:
    """The number of points of the transform."""
    if context.optional(1) is not None:
        n: Size = known_int(context, 1, "input 'dft_length'")
    else:
        n = 2 * (extent - 1) if halved else extent
    if not isinstance(n, int):
        raise context.refuse("a transform whose length is only known at run time")
    if n < 1:
        raise context.invalid(f"a transform of {n} points")
    context.builder.limits.table(n, f"a transform of {n} points")
    return n


def _resized(context: Context, source: Signal, count: int) -> Signal:
    """The first `count` values, zeros where there are fewer."""
    extent = source.some.shape[-1]
    if isinstance(extent, int) and extent >= count:
        return source.every(0, 1, count)
    return Signal(
        source.re and _extended(context, source.re, count),
        source.im and _extended(context, source.im, count),
    )


def _extended(context: Context, part: Tensor, count: int) -> Tensor:
    builder = context.builder
    shape = (*part.shape[:-1], count)
    # An extent of 1 keeps its axis: the place is known by its index.
    axes = [*builder.axes(part.shape[:-1]), builder.axis(count)]
    position = axes[-1]
    assert position is not None
    inside = Index(position) < Extent(part.shape[-1])
    longer = Tensor(part.dtype, shape, part.base, part.strides)
    zero = constant(0, part.dtype)
    element = Load(builder.access(longer, axes), part.dtype, inside, zero)
    return builder.stored(shape, axes, element)


@lowers("STFT")
def lower_stft(context: Context) -> Value:
    """Transforms of overlapping frames, each times a window."""
    builder = context.builder
    signal, window = builder.strided(context.input(0)), context.optional(2)
    step = known_int(context, 1, "input 'frame_step'")
    if len(signal.shape) not in (2, 3) or step < 1:
        raise context.invalid(f"a signal of shape {signal.shape} in steps of {step}")
    # As PyTorch writes real signals, which onnxruntime runs: without the axis of parts.
    bare = len(signal.shape) == 2
    onesided = bool(context.attributes.int("onesided", 1))
    if not bare:
        signal = _with_parts(context, signal, 1, is_open=not onesided)
    source = Signal(signal, None) if bare else _signal(context, signal, 1)
    if onesided and source.im is not None:
        raise context.invalid("onesided=1 needs a real signal")
    n = _frame_length(context, signal.shape[1], window)
    frames = floordiv(signal.shape[1] - n, step) + 1
    builder.require.nonnegative(frames, "number of frames")
    result = builder.empty(
        signal.dtype, (signal.shape[0], frames, n // 2 + 1 if onesided else n, 2)
    )
    target = _signal(context, result, 2)
    weights = None if window is None else builder.strided(window)
    framed = Signal(_framed(source.re, frames, step, n), _framed(source.im, frames, step, n))
    if framed.im is None:
        assert framed.re is not None
        real_transform(builder, framed.re, target, weights)
    else:
        both = None if weights is None else Signal(weights, weights)
        transform(builder, framed, target, both)
    return result


def _frame_length(context: Context, extent: Size, window: Value | None) -> int:
    n = extent if window is None else window.shape[0]
    if window is not None and len(window.shape) != 1:
        raise context.invalid(f"a window of shape {window.shape}")
    if context.optional(3) is not None:
        given = known_int(context, 3, "input 'frame_length'")
        if window is not None:
            context.builder.require.equal(n, given, "window and frame_length")
        n = given
    if not isinstance(n, int):
        raise context.refuse("a frame whose length is only known at run time")
    if n < 1:
        raise context.invalid(f"frames of {n} elements")
    return n


def _framed(part: Tensor | None, frames: Size, step: int, n: int) -> Tensor | None:
    if part is None:
        return None
    batch, element = part.strides
    shape: Shape = (part.shape[0], frames, n)
    return Tensor(part.dtype, shape, part.base, (batch, step * element, element))


# Windows as functions of the angle, which runs from 0 to a full turn.
def _cosines(angle: Expr, mean: float, *factors: float) -> Expr:
    """The mean and multiples of the cosines of the angle, of twice the angle, .."""
    total: Expr = constant(mean, "float64")
    for multiple, factor in enumerate(factors, 1):
        cosine = op("cos", angle * multiple)
        total = op("fma", cosine, constant(factor, "float64"), total)
    return total


def _hann(angle: Expr) -> Expr:
    sine = op("sin", angle * 0.5)
    return sine * sine


_WINDOWS: dict[str, Callable[[Expr], Expr]] = {
    "HannWindow": _hann,
    "HammingWindow": lambda angle: _cosines(angle, 25 / 46, -21 / 46),
    "BlackmanWindow": lambda angle: _cosines(angle, 0.42, -0.5, 0.08),
}


@lowers(*_WINDOWS)
def lower_window(context: Context) -> Value:
    """A window of some size, computed in float64."""
    sizes = known_sizes(context, 0, "input 'size'")
    if len(sizes) != 1:
        raise context.invalid(f"input 'size' has {len(sizes)} elements, expected 1")
    (size,) = sizes
    dtype = context.native_dtype(context.attributes.int("output_datatype", 1))
    steps = size if context.attributes.int("periodic", 1) else size - 1
    context.builder.require.nonnegative(size, "size of a window")
    axis = context.builder.axis(size)
    turn = cast(Index(axis), "float64") * (2 * np.pi)
    angle = turn / cast(Extent(steps), "float64")
    element = cast(_WINDOWS[context.node.op_type](angle), dtype)
    if not isinstance(size, int) or size > LONGEST_TABLE:
        return context.builder.stored((size,), (axis,), element)

    def leaf(node: Expr) -> np.ndarray:
        return np.arange(size) if isinstance(node, Index) else np.asarray(steps)

    return context.builder.constant(np.broadcast_to(evaluate(element, leaf), (size,)))
