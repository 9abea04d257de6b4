"""Progressions: integers evenly spaced along every axis of a value; sizes may be symbolic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ostinato.records import dataclass
from ostinato.sizes.conditions import is_equal
from ostinato.sizes.dims import Apply, Dim, Size, is_nonnegative, linear, maximum, minimum
from ostinato.sizes.strides import Shape, Steps


@dataclass(frozen=True)
class Progression:
    """Integers evenly spaced along every axis: element `i` is `start + sum(i * steps)`.

    wraps: whether this holds modulo 2 ** 32 only, since elements of int32 may have wrapped around.
    given: a condition, 1 in runs where it holds; others may repeat a single element instead.
    """

    start: Size
    steps: Steps
    wraps: bool = False
    given: Size = 1


# Larger numbers are no positions.
_FAR = 2**40


def progression(known: np.ndarray) -> Progression | None:
    """The numbers or sizes of an array if they are evenly spaced along every axis, else None."""
    if known.size == 0:
        return Progression(0, (0,) * known.ndim)
    is_far = known.dtype != object and (known.max() > _FAR or known.min() < -_FAR)
    if is_far:
        return None
    # Object arrays hold numbers and sizes, whose differences are either.
    elements = known if known.dtype == object else known.astype(np.int64)
    first = elements.flat[0]
    expected, steps = np.array(first, elements.dtype), list[Size]()
    for axis, extent in enumerate(known.shape):
        corner = tuple(int(i == axis and extent > 1) for i in range(known.ndim))
        step = elements[corner] - first
        along = np.expand_dims(
            np.arange(extent).astype(elements.dtype) * step,
            [i for i in range(known.ndim) if i != axis],
        )
        expected = expected + along
        steps.append(_plain(step))
    if not np.array_equal(elements, expected):
        return None
    return Progression(_plain(first), tuple(steps))


def _plain(number: Any) -> Size:
    return number if isinstance(number, Dim) else int(number)


def added(left: Progression, right: Progression) -> Progression:
    """The sums of the elements of two progressions of one shape."""
    steps = tuple(a + b for a, b in zip(left.steps, right.steps, strict=True))
    return Progression(left.start + right.start, steps, given=left.given * right.given)


def scaled(line: Progression, factor: Size) -> Progression:
    """The elements, each times a factor."""
    steps = tuple(step * factor for step in line.steps)
    return replace(line, start=line.start * factor, steps=steps)


def multiplied(left: Progression, right: Progression) -> Progression | None:
    """The products of the elements, None unless those of one progression are all equal."""
    for line, other in ((left, right), (right, left)):
        if all(step == 0 for step in other.steps):
            return replace(scaled(line, other.start), given=line.given * other.given)
    return None


def repeated(line: Progression, shape: Shape, wanted: Shape) -> Progression:
    """The progression of a value of that shape, broadcast to the wanted one."""
    lead = len(wanted) - len(shape)
    own = (0 if n == 1 else step for n, step in zip(shape, line.steps, strict=True))
    given = line.given
    for n, extent in zip(shape, wanted[lead:], strict=True):
        given = given * (1 if n == 1 else is_equal(n, extent))
    return replace(line, steps=((0,) * lead + tuple(own)), given=given)


def bounds(line: Progression, shape: Shape) -> tuple[Size, Size]:
    """The least and the largest element of a progression that has any."""
    low = high = line.start
    for step, extent in zip(line.steps, shape, strict=True):
        if step == 0:
            continue
        span = step * (unclamped(extent) - 1)
        if is_nonnegative(step):
            high = high + span
        elif is_nonnegative(-step):
            low = low + span
        else:
            low, high = low + minimum(span, 0), high + maximum(span, 0)
    return low, high


def unrounded(step: int, count: Size) -> Size:
    """`step * count` for a count that was rounded up from a limit: that limit where it is seen."""
    count = unclamped(count)
    factor, quotient, number = linear(count) or (1, None, 0)
    if isinstance(quotient, Apply) and quotient.function == "floordiv":
        numerator, denominator = quotient.args
        if isinstance(denominator, int) and step % denominator == 0:
            return step // denominator * factor * (numerator - denominator + 1) + step * number
    return step * count


def unclamped(extent: Size) -> Size:
    """The extent without its lower bound of 0, which changes nothing where there are elements."""
    factor, function, number = linear(extent) or (1, None, 0)
    if isinstance(function, Apply) and function.function == "max" and not number:
        rest = [n for n in function.args if n != 0]
        return rest[0] * factor if len(rest) == 1 else extent
    return extent
