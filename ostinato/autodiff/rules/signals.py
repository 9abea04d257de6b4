"""Gradients of Fourier transforms: a transform in the other direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.autodiff.arithmetic import Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.registry import differentiates
from ostinato.autodiff.rules.layout import padded


@differentiates("DFT")
def _dft(context: Context) -> None:
    """The adjoint of the transform, where real and imaginary parts are numbers of their own.

    That of `sum(x[t] exp(-i w k t))` is `sum(y[k] exp(i w k t))`; bins that onesided leaves out are
    zero there. A onesided inverse reads each bin but the first and the middle one twice.
    """
    inverse = bool(context.attributes.int("inverse", 0))
    onesided = bool(context.attributes.int("onesided", 0))
    # The last axis holds real and imaginary parts.
    axis, *_ = context.mixed()
    parts = context.dims(context.given(0))[-1]
    n = _points(context, axis, inverse and onesided)
    given = context.gradient()
    if inverse and onesided:
        result = _transformed(context, given, axis, n, onesided=True)
        twice = np.full(n // 2 + 1, 2.0)
        twice[:: max(n // 2, 1) if n % 2 == 0 else n] = 1
        shape = [-1] + [1] * (context.rank(context.given(0)) - 1 - axis)
        share = (twice / n).reshape(shape).astype(context.writer.dtype.numpy())
        result, length = result * share, n // 2 + 1
    elif inverse:
        result, length = _transformed(context, given, axis, n) / float(n), n
    else:
        result, length = _adjoint(context, given, axis, n, onesided), n
    extent = context.size(context.given(0), axis)
    after = context.ops.integers("Sub", extent, np.array([length]))
    result = padded(context, result, np.zeros(1, np.int64), after, np.array([axis]))
    context.give(0, _real(result) if parts == 1 else result)


def _points(context: Context, axis: int, halved: bool) -> int:
    """The number of points of the transform."""
    length: object = context.dims(context.given(0))[axis]
    if isinstance(length, int) and halved:
        length = 2 * (length - 1)
    if context.has(1):
        known = context.constant(1)
        length = None if known is None else int(known.item())
    if not isinstance(length, int):
        raise context.refuse("has no gradient for a length that is known at run time only")
    return length


def _transformed(
    context: Context, x: Term, axis: int, n: int, inverse: bool = False, onesided: bool = False
) -> Term:
    how: dict[str, Any] = {"inverse": int(inverse), "onesided": int(onesided)}
    length = np.array(n, np.int64)
    if context.scope.opset >= 20:
        return x.op("DFT", length, np.array(axis, np.int64), **how)
    return x.op("DFT", length, **how, axis=axis)


def _adjoint(context: Context, given: Term, axis: int, n: int, onesided: bool) -> Term:
    """The sums over all bins of the gradient times `exp(i w k t)`, for `n` values of `t`."""
    if onesided:
        none, missing = np.zeros(1, np.int64), np.array([n - n // 2 - 1])
        given = padded(context, given, none, missing, np.array([axis]))
    return _transformed(context, given, axis, n, inverse=True) * float(n)


def _real(x: Term) -> Term:
    """The real part, which stays an axis of 1."""
    bounds = (np.array([number], np.int64) for number in (0, 1, -1))
    return x.op("Slice", *bounds, role="real")


@differentiates("STFT")
def _stft(context: Context) -> None:
    """The adjoint of each frame's transform, times the window, added up where frames overlap."""
    onesided = bool(context.attributes.int("onesided", 1))
    if context.wants(2):
        raise context.refuse("has no gradient of the window")
    step = context.constant(1)
    if step is None:
        raise context.refuse("has no gradient for a step that is known at run time only")
    n, hop = _frame_length(context), int(step.item())
    frames = _adjoint(context, context.gradient(), 2, n, onesided)
    dims = context.dims(context.given(0))
    parts = 1 if len(dims) == 2 else dims[-1]
    if parts == 1:
        frames = _real(frames)
    if context.has(2):
        frames = frames * context.input(2).unsqueeze([1])
    assert isinstance(parts, int)
    signal = _overlapped(context, frames, n, hop, parts)
    if len(dims) == 2:
        signal = signal.op("Squeeze", np.array([2]))
    begun = context.size(context.node.outputs[0], 1)
    made = context.ops.integers("Add", begun, np.array([-(-n // hop) - 1]))
    made = context.ops.integers("Mul", made, np.array([hop]))
    after = context.ops.integers("Sub", context.size(context.given(0), 1), made)
    context.give(0, padded(context, signal, np.zeros(1, np.int64), after, np.array([1])))


def _frame_length(context: Context) -> int:
    length: object = context.dims(context.given(2))[0] if context.has(2) else None
    if context.has(3):
        known = context.constant(3)
        length = None if known is None else int(known.item())
    if not isinstance(length, int):
        raise context.refuse("has no gradient for frames whose length a run decides")
    return length


def _overlapped(context: Context, frames: Term, n: int, hop: int, parts: int) -> Term:
    """`[B, F, n, parts]` added up in steps of `hop`: `[B, (F + overlap) * hop, parts]`.

    A frame is a few pieces of `hop` elements, and each piece belongs to one frame further on.
    """
    pieces = -(-n // hop)
    none = np.zeros(1, np.int64)
    frames = padded(context, frames, none, np.array([pieces * hop - n]), np.array([2]))
    split = frames.op("Reshape", np.array([0, 0, pieces, hop, parts]))
    total: Term | None = None
    for piece in range(pieces):
        chosen = split.op("Gather", np.array(piece), role="piece", axis=2)
        before, after = np.array([piece]), np.array([pieces - 1 - piece])
        moved = padded(context, chosen, before, after, np.array([1]))
        total = moved if total is None else total + moved
    assert total is not None
    batch = context.size(context.given(0), 0)
    begun = context.size(context.node.outputs[0], 1)
    steps = context.ops.integers("Add", begun, np.array([pieces - 1]))
    length = context.ops.integers("Mul", steps, np.array([hop]))
    sizes = context.writer.concat([batch, length, np.array([parts])], 0, "sizes")
    return total.reshape(sizes)
