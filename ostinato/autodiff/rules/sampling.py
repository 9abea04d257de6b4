"""The gradient of GridSample, to the image and to the places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.arithmetic import Arithmetic
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
    weight: ir.Value
    slope: ir.Value | None


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
    given = ops.reshape(context.gradient(), planes)
    vectors = context.writer.concat([sizes[0], np.array([1, -1, rank])], 0, "sizes")
    rows = ops.reshape(context.input(1), vectors)
    if grid.dtype != context.writer.dtype:
        rows = ops.op("Cast", [rows], attributes={"to": int(context.writer.dtype)})
    axes = []
    for axis, extent in enumerate(sizes[2:]):
        place = ops.op("Gather", [rows, np.array(rank - 1 - axis)], attributes={"axis": 3})
        axes.append(_Axis(ops, extent).taps(place, _TAPS[mode], padding, has_corners))
    ways = [*product(*axes)]
    shape = ops.op("Shape", [given], "sizes", dtype=ir.DataType.INT64)
    at = [
        ops.op("Expand", [_flat(ops, way, sizes[2:]), shape], dtype=ir.DataType.INT64)
        for way in ways
    ]
    if context.wants(0):
        shares = [ops.mul(given, _product(ops, [tap.weight for tap in way])) for way in ways]
        rest = reduce(lambda a, b: ops.integers("Mul", a, b), sizes[2:])
        room = zeros(context.writer, context.writer.concat([*sizes[:2], rest], 0, "sizes"))
        pieces = [context.writer.concat(parts, 2, "pieces") for parts in (at, shares)]
        adds = {"axis": 2, "reduction": "add"}
        added = ops.op("ScatterElements", [room, *pieces], attributes=adds)
        context.give(0, ops.reshape(added, context.sizes(image)))
    if context.wants(1):
        flat = ops.reshape(context.input(0), planes)
        # What each of the elements would add, if its weight grew.
        gains = [
            ops.sum(
                ops.mul(given, ops.op("GatherElements", [flat, one], attributes={"axis": 2})), [1]
            )
            for one in at
        ]
        slopes = [_slope(ops, gains, ways, axis) for axis in reversed(range(rank))]
        columns = [ops.unsqueeze(slope, [3]) for slope in slopes]
        whole = columns[0] if rank == 1 else ops.op("Concat", columns, attributes={"axis": 3})
        if grid.dtype is not None and grid.dtype != context.writer.dtype:
            attributes = {"to": int(grid.dtype)}
            whole = ops.op("Cast", [whole], attributes=attributes, dtype=grid.dtype)
        context.give(1, ops.reshape(whole, context.sizes(grid)))


def _product(ops: Arithmetic, factors: Sequence[ir.Value]) -> ir.Value:
    return reduce(ops.mul, factors)


def _flat(ops: Arithmetic, way: Sequence[_Tap], extents: Sequence[Operand]) -> Operand:
    """The number of an element among all of its plane."""
    found: Operand = way[0].position
    for tap, extent in zip(way[1:], extents[1:], strict=True):
        found = ops.integers("Add", ops.integers("Mul", found, extent), tap.position)
    return found


def _slope(
    ops: Arithmetic, gains: Sequence[ir.Value], ways: Sequence[Sequence[_Tap]], axis: int
) -> ir.Value:
    """The gradient of places along one axis."""
    terms = []
    for gain, way in zip(gains, ways, strict=True):
        slope = way[axis].slope
        if slope is None:
            return ops.mul(gain, 0.0)
        others = [tap.weight for i, tap in enumerate(way) if i != axis]
        terms.append(_product(ops, [gain, slope, *others]))
    return reduce(ops.add, terms)


class _Axis:
    """Places along one axis of an image, of a size that may be known at run time only."""

    def __init__(self, ops: Arithmetic, extent: Operand) -> None:
        self.ops = ops
        self.size = ops.op("Cast", [extent], attributes={"to": int(ops.writer.dtype)})
        self.last = ops.sub(self.size, 1.0)

    def taps(self, given: ir.Value, count: int, padding: str, has_corners: bool) -> list[_Tap]:
        """The elements that a place reads, one or two."""
        ops = self.ops
        scale = ops.mul(self.last if has_corners else self.size, 0.5)
        middle = ops.mul(self.last, 0.5)
        place = ops.add(ops.mul(given, scale), middle)
        place = place if count > 1 else ops.op("Round", [place])
        slope = ops.op("Expand", [scale, ops.op("Shape", [place], dtype=ir.DataType.INT64)])
        if padding == "reflection":
            place, sign = self._reflected(place, has_corners)
            slope = ops.mul(slope, sign)
        if padding != "zeros":
            within = ops.op(
                "And",
                [ops.compare("Greater", place, 0.0), ops.compare("Less", place, self.last)],
                dtype=ir.DataType.BOOL,
            )
            slope = ops.where(within, slope, 0.0)
            place = ops.op("Min", [ops.op("Max", [place, 0.0]), self.last])
        first = ops.op("Floor", [place])
        share = ops.sub(place, first)
        if count == 1:
            return [self._tap(first, ops.add(ops.mul(share, 0.0), 1.0), None)]
        return [
            self._tap(first, ops.sub(1.0, share), ops.neg(slope)),
            self._tap(ops.add(first, 1.0), share, slope),
        ]

    def _reflected(self, place: ir.Value, has_corners: bool) -> tuple[ir.Value, ir.Value]:
        """Places thrown back at both ends until they lie between them, and the sign of that."""
        ops = self.ops
        low = 0.0 if has_corners else -0.5
        span = self.last if has_corners else self.size
        beyond = ops.sub(place, low)
        room = ops.where(ops.compare("Greater", span, 0.0), span, 1.0)
        distance = ops.op("Abs", [beyond])
        times = ops.op("Floor", [ops.div(distance, room)])
        rest = ops.sub(distance, ops.mul(times, room))
        half = ops.mul(times, 0.5)
        even = ops.compare("Equal", ops.op("Floor", [half]), half)
        moved = ops.add(ops.where(even, rest, ops.sub(room, rest)), low)
        sign = ops.where(ops.compare("Less", beyond, 0.0), -1.0, 1.0)
        return moved, ops.where(even, sign, ops.neg(sign))

    def _tap(self, position: ir.Value, weight: ir.Value, slope: ir.Value | None) -> _Tap:
        """An element that may be outside, where nothing is read."""
        ops = self.ops
        moved = ops.op("Min", [ops.op("Max", [position, 0.0]), self.last])
        is_there = ops.compare("Equal", moved, position)
        index = ops.op(
            "Cast", [moved], attributes={"to": int(ir.DataType.INT64)}, dtype=ir.DataType.INT64
        )
        return _Tap(
            index,
            ops.where(is_there, weight, 0.0),
            None if slope is None else ops.where(is_there, slope, 0.0),
        )
