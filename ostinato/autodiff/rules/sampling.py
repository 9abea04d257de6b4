"""The gradient of GridSample, to the image and to the places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add, mul

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Arithmetic, Term
from ostinato.autodiff.context import Context
from ostinato.autodiff.contributions import zeros
from ostinato.autodiff.registry import differentiates
from ostinato.graph.writer import Operand

_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2}


@dataclass(frozen=True)
class _Tap:
    """One of the elements along an axis that a place reads; values are [batch, 1, places].

    position: int64, moved inside. weight: 0 where there is no element. slope: of the weight, by the
    place as the grid has it; None where that is 0.
    """

    position: ir.Value
    weight: Term
    slope: Term | None


@differentiates("GridSample")
def _grid_sample(context: Context) -> None:
    """What was read gets its weight's share, places the slopes of weights; not of cubic ones.

    Where an end of the image holds a place fast, its slope is 0, as in PyTorch.
    """
    ops, image, grid = context.ops, context.given(0), context.given(1)
    rank = context.rank(image) - 2
    mode = context.attributes.string("mode", "linear")
    padding = context.attributes.string("padding_mode", "zeros")
    has_corners = bool(context.attributes.int("align_corners", 0))
    if mode not in _TAPS:
        raise context.refuse(f"has no gradient with mode {mode!r}")
    sizes = [context.size(image, axis) for axis in range(rank + 2)]
    planes = context.writer.concat([*sizes[:2], np.array([-1])], 0, "sizes")
    given = context.gradient().reshape(planes)
    vectors = context.writer.concat([sizes[0], np.array([1, -1, rank])], 0, "sizes")
    rows = context.input(1).reshape(vectors)
    if grid.dtype != context.writer.dtype:
        rows = rows.cast(context.writer.dtype)
    axes = []
    for axis, extent in enumerate(sizes[2:]):
        place = rows.op("Gather", np.array(rank - 1 - axis), axis=3)
        axes.append(_Axis(ops, extent).taps(place, _TAPS[mode], padding, has_corners))
    ways = [*product(*axes)]
    shape = ops.shape(given, "sizes")
    at = [ops.index("Expand", _flat(ops, way, sizes[2:]), shape) for way in ways]
    if context.wants(0):
        shares = [(given * reduce(mul, (tap.weight for tap in way))).value for way in ways]
        rest = reduce(lambda a, b: ops.integers("Mul", a, b), sizes[2:])
        room = zeros(context.writer, context.writer.concat([*sizes[:2], rest], 0, "sizes"))
        pieces = [context.writer.concat(parts, 2, "pieces") for parts in (at, shares)]
        adds = {"axis": 2, "reduction": "add"}
        added = ops.op("ScatterElements", [room, *pieces], attributes=adds)
        context.give(0, added.reshape(context.sizes(image)))
    if context.wants(1):
        flat = context.x.reshape(planes)
        # How much each of the elements would add, if its weight grew.
        gains = [(given * flat.op("GatherElements", one, axis=2)).sum([1]) for one in at]
        slopes = [_slope(gains, ways, axis) for axis in reversed(range(rank))]
        columns = [slope.unsqueeze([3]) for slope in slopes]
        whole = columns[0] if rank == 1 else ops.op("Concat", columns, attributes={"axis": 3})
        if grid.dtype is not None and grid.dtype != context.writer.dtype:
            whole = whole.cast(grid.dtype)
        context.give(1, whole.reshape(context.sizes(grid)))


def _flat(ops: Arithmetic, way: Sequence[_Tap], extents: Sequence[Operand]) -> Operand:
    """The number of an element among all of its plane."""
    found: Operand = way[0].position
    for tap, extent in zip(way[1:], extents[1:], strict=True):
        found = ops.integers("Add", ops.integers("Mul", found, extent), tap.position)
    return found


def _slope(gains: Sequence[Term], ways: Sequence[Sequence[_Tap]], axis: int) -> Term:
    """The gradient of places along one axis."""
    terms = []
    for gain, way in zip(gains, ways, strict=True):
        slope = way[axis].slope
        if slope is None:
            return gain * 0.0
        others = [tap.weight for i, tap in enumerate(way) if i != axis]
        terms.append(reduce(mul, [gain, slope, *others]))
    return reduce(add, terms)


class _Axis:
    """Places along one axis of an image, of a size that may be known at run time only."""

    def __init__(self, ops: Arithmetic, extent: Operand) -> None:
        self.ops = ops
        self.size = ops.op("Cast", [extent], attributes={"to": int(ops.writer.dtype)})
        self.last = self.size - 1.0

    def taps(self, given: Term, count: int, padding: str, has_corners: bool) -> list[_Tap]:
        """The elements that a place reads, one or two."""
        scale = (self.last if has_corners else self.size) * 0.5
        middle = self.last * 0.5
        place = given * scale + middle
        place = place if count > 1 else place.op("Round")
        slope = scale.op("Expand", self.ops.shape(place))
        if padding == "reflection":
            place, sign = self._reflected(place, has_corners)
            slope = slope * sign
        if padding != "zeros":
            within = (place > 0.0) & (place < self.last)
            slope = within.where(slope, 0.0)
            place = place.op("Max", 0.0).op("Min", self.last)
        first = place.op("Floor")
        share = place - first
        if count == 1:
            return [self._tap(first, share * 0.0 + 1.0, None)]
        return [
            self._tap(first, 1.0 - share, -slope),
            self._tap(first + 1.0, share, slope),
        ]

    def _reflected(self, place: Term, has_corners: bool) -> tuple[Term, Term]:
        """Places thrown back at both ends until they lie between them, and the sign of that."""
        low = 0.0 if has_corners else -0.5
        span = self.last if has_corners else self.size
        beyond = place - low
        room = (span > 0.0).where(span, 1.0)
        distance = beyond.op("Abs")
        times = (distance / room).op("Floor")
        rest = distance - times * room
        half = times * 0.5
        even = half.op("Floor").equals(half)
        moved = even.where(rest, room - rest) + low
        sign = (beyond < 0.0).where(-1.0, 1.0)
        return moved, even.where(sign, -sign)

    def _tap(self, position: Term, weight: Term, slope: Term | None) -> _Tap:
        """An element that may be outside, where nothing is read."""
        moved = position.op("Max", 0.0).op("Min", self.last)
        is_there = moved.equals(position)
        return _Tap(
            moved.cast(ir.DataType.INT64).value,
            is_there.where(weight, 0.0),
            None if slope is None else is_there.where(slope, 0.0),
        )
