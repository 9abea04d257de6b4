"""Evenly spaced indices: their positions are known as sizes, so what they pick is a view.

Range, arithmetic, Expand and constants make such indices (`Tensor.progression`). All are in range
if the least and the largest are, and where all count from the same end of an axis, the elements
they name are evenly spaced in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ostinato.graph.evenly_spaced import ARITHMETIC
from ostinato.graph.facts import facts_of
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, Value, advance, progression_of, restepped
from ostinato.records import dataclass
from ostinato.sizes.conditions import is_different, is_less
from ostinato.sizes.dims import Dim, Size, is_nonnegative, minimum
from ostinato.sizes.progressions import Progression, bounds, progression, repeated
from ostinato.sizes.strides import Shape, Steps

# Positions that take more terms to express are left to kernels.
_MOST_TERMS = 16
_INT32 = 2**31
_INDEX_DTYPES = frozenset(("int32", "int64"))
# Floats between these and their negatives hold every integer. They are a quarter of the largest for
# which that is so (24 and 53 bits): then no quotient of two differences, as Range divides them,
# rounds to an integer that it is not.
_WHOLE = {"float32": 2**22, "float64": 2**51}


# Arithmetic


def computed(context: Context, operands: Sequence[Value], result: Tensor) -> Tensor:
    """The result of the node, with its progression where arithmetic on progressions gives one."""
    lines = [progression_of(value) for value in operands]
    known = [
        repeated(line, value.shape, result.shape)
        for value, line in zip(operands, lines, strict=True)
        if line is not None
    ]
    dtypes = {result.dtype, *(value.dtype for value in operands)}
    combine = ARITHMETIC.get(context.node.op_type)
    if combine is None or len(known) < len(lines):
        return result
    if not dtypes <= _INDEX_DTYPES:
        return _converted(context, operands[0], known[0], result)
    # A value that has wrapped around in 32 bits is another number in 64.
    if result.dtype == "int64" and any(line.wraps for line in known):
        return result
    line = combine(*known)
    if line is None or any(_is_long(n) for n in (line.start, *line.steps)):
        return result
    low, high = bounds(line, result.shape)
    wraps = result.dtype == "int32" and not _is_int32(low, high)
    if wraps and _is_number(low, high):
        return result
    return replace(result, progression=replace(line, wraps=wraps))


def _converted(context: Context, value: Value, line: Progression, result: Tensor) -> Tensor:
    """The result of a Cast between integers and floats, with its progression where it has one."""
    if not facts_of(context.node.op_type).casts or line.wraps:
        return result
    if value.dtype in _WHOLE and result.dtype == "int64":
        return replace(result, progression=line)
    if value.dtype not in _INDEX_DTYPES or result.dtype not in _WHOLE:
        return result
    low, high = bounds(line, result.shape)
    given = line.given
    for room in (_WHOLE[result.dtype] - high, _WHOLE[result.dtype] + low):
        given = given * (1 if is_nonnegative(room) else 1 - is_less(room, 0))
    return replace(result, progression=None if given == 0 else replace(line, given=given))


def whole(value: Value) -> Progression | None:
    """As `progression_of`, but also for floats that are known to be whole numbers."""
    known = value.known
    if known is None or value.dtype not in _WHOLE:
        return progression_of(value)
    if np.isfinite(known).all() and (abs(known) <= _WHOLE[value.dtype]).all():
        numbers = known.astype(np.int64)
        return progression(numbers) if (numbers == known).all() else None
    return None


def _is_long(size: Size) -> bool:
    return isinstance(size, Dim) and len(size.terms) > _MOST_TERMS


def _is_int32(low: Size, high: Size) -> bool:
    """Whether all numbers between are sure to be int32."""
    return is_nonnegative(low + _INT32) and is_nonnegative(_INT32 - 1 - high)


# Views


@dataclass(frozen=True)
class Picks:
    """Evenly spaced positions in some axes of a value, for every point of a result.

    shape: of the result. own: for each of its axes the axis of the data that it runs along besides,
    if any. lines: positions along axes of the data, at the points of the result. count: the number
    of indices.
    """

    shape: Shape
    own: tuple[int | None, ...]
    lines: Mapping[int, Progression]
    count: Size


def line_along(indices: Value, extent: Size) -> Progression | None:
    """Indices for an axis as a progression; known ones counted from the start if that gives one."""
    known = indices.known
    if known is not None and known.dtype != object and isinstance(extent, int):
        places = known.astype(np.int64)
        places = np.where(places < 0, places + extent, places)
        if known.size and places.min() >= 0 and places.max() < extent:
            line = progression(places)
            if line is not None:
                return line
    return progression_of(indices)


def aligned(line: Progression, lead: int, rank: int) -> Progression:
    """The progression at the points of a result of that rank, of which its axes follow `lead`."""
    trail = rank - lead - len(line.steps)
    return replace(line, steps=((0,) * lead + line.steps + (0,) * trail))


def injective(picks: Picks) -> Size:
    """1 where different points are sure to be at different positions, 0 where nothing says so."""
    left = {i for i, n in enumerate(picks.shape) if n != 1 and picks.own[i] is None}
    condition: Size = 1
    while left:
        told: Size = 0
        for line in picks.lines.values():
            moving = {i for i in left if line.steps[i] != 0}
            if moving and told == 0:
                told = _told([(line.steps[i], picks.shape[i]) for i in moving])
                left -= moving if told != 0 else set()
        condition = condition * told
        if condition == 0:
            return 0
    return condition


def _told(axes: Sequence[tuple[Size, Size]]) -> Size:
    """Whether a sum of these steps, each with a number of times, tells how often each was taken."""
    if len(axes) == 1:
        ((step, _),) = axes
        return is_different(step, 0)
    reach = 0
    numbers = [(abs(a), n) for a, n in axes if isinstance(a, int) and isinstance(n, int)]
    for step, extent in sorted(numbers):
        if step <= reach:
            return 0
        reach += step * (extent - 1)
    return int(len(numbers) == len(axes))


def view(context: Context, data: Tensor, picks: Picks) -> Tensor | None:
    """The picked elements as a view of the data; None as `firsts` says."""
    places = firsts(context, data.shape, picks)
    return None if places is None else view_at(data, picks, places)


def firsts(context: Context, shape: Shape, picks: Picks) -> Mapping[int, Size] | None:
    """Require all picks to be in range, and give the first position of each line.

    None where indices count from both ends of an axis. Where only a run tells that, a program for
    those that do not is made, if programs may be for some sizes only.
    """
    places: dict[int, Size] = {}
    for axis, line in picks.lines.items():
        first = _first(context, line, picks, axis, shape[axis])
        if first is None:
            return None
        places[axis] = first
    return places


def view_at(data: Tensor, picks: Picks, places: Mapping[int, Size]) -> Tensor:
    """The view of the data whose picks begin at these places."""

    def moved(strides: Steps) -> Steps:
        return tuple(
            (0 if own is None else strides[own])
            + sum((line.steps[i] * strides[axis] for axis, line in picks.lines.items()), 0)
            for i, own in enumerate(picks.own)
        )

    def start(strides: Steps) -> Size:
        return sum((place * strides[axis] for axis, place in places.items()), 0)

    progression = restepped(data, None, moved, start)
    base = advance(data, start(data.strides))
    return Tensor(data.dtype, picks.shape, base, moved(data.strides), progression=progression)


def _first(
    context: Context, line: Progression, picks: Picks, axis: int, extent: Size
) -> Size | None:
    """The position of the first index, counted from the start of the axis; see `firsts`."""
    builder = context.builder
    if picks.count == 0:
        return 0
    low, high = bounds(line, picks.shape)
    sure = _is_negative(low, high)
    is_sure = sure is not None and line.given == 1 and not line.wraps
    if (sure is None and _is_number(low, high)) or not (is_sure or builder.guarded):
        return None
    guard(builder, line.given, "indices none of which is repeated")
    present = 1 if is_nonnegative(picks.count - 1) else minimum(picks.count, 1)
    spare = [low + extent, extent - 1 - high]
    # Right only where there are no indices, which no view of the data can say.
    if present != 1 and any(is_nonnegative(-1 - room) for room in spare):
        return None
    for room in (present * room for room in spare):
        if line.wraps:
            guard(builder, 1 - is_less(room, 0), "indices in range")
        else:
            what = f"an index is out of range for axis {axis} of {extent} elements"
            builder.require.that(0 if is_nonnegative(room) else room, what)
    if line.wraps:
        guard(builder, 1 - is_less(_INT32, extent), "indices in range")
    if sure is None:
        both = present * is_less(low, 0) * is_less(-1, high)
        guard(builder, 1 - both, "indices that count from one end of an axis")
    negative = is_less(low, 0) if sure is None else sure
    return builder.sizes.defined(line.start + negative * extent, "first index", signed=True)


def _is_negative(low: Size, high: Size) -> Size | None:
    """1 where all numbers from `low` to `high` are negative, 0 where none is; None if unsure."""
    if low == high or is_nonnegative(low):
        return is_less(low, 0)
    return 1 if is_nonnegative(-1 - high) else None


def _is_number(*sizes: Size) -> bool:
    return all(isinstance(size, int) for size in sizes)


def guard(builder: Builder, condition: Size, what: str) -> None:
    """Specialise the program for the sizes where the condition is 1, unless it always is."""
    if condition != 1:
        builder.require.guard_now(condition - 1, what)


def by_sign(line: Progression, count: int) -> list[tuple[Progression, int]]:
    """Indices that begin at one end of an axis and go on at the other one, as two pieces."""
    start, (step,) = line.start, line.steps
    assert isinstance(start, int) and isinstance(step, int)
    first = -(start // step) if step > 0 else start // -step + 1
    rest = Progression(start + first * step, line.steps)
    return [(line, first), (rest, count - first)]
