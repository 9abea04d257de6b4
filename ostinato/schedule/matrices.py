"""Sums of products of bytes that a machine computes for 16 rows and 16 columns at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Load
from ostinato.program.nodes import Buffer, Kernel, Tile
from ostinato.program.words import first_byte
from ostinato.schedule.operands import is_packable, typical

# Rows, words of a row, and columns of a register; how many registers hold sums.
SIDE = 16
SUMS = 4


@dataclass(frozen=True)
class Matrices:
    """The operands of a sum: the first byte of a word of each row, and words by lanes."""

    left: Load
    right: Load
    axis: Axis


def matrices(kernel: Kernel, lane: Axis) -> Matrices | None:
    """The operands of a kernel whose only sum is a matrix product of bytes, columns along lanes."""
    if len(kernel.reductions) != 1:
        return None
    (reduce,) = kernel.reductions
    if (
        reduce.factor is None
        or reduce.step != "dot"
        or len(reduce.axes) != 1
        or reduce.chains != 1
        or kernel.ordered
    ):
        return None
    (axis,), (words, right) = reduce.axes, reduce.operands
    left = first_byte(words)
    if left is None or not isinstance(right, Load) or not isinstance(axis.extent, int):
        return None
    if any(load.mask is not None or load.index for load in (left, right)):
        return None
    strides = left.access.stride(axis), left.access.stride(lane), right.access.stride(lane)
    is_known = isinstance(right.access.stride(axis), int)
    return Matrices(left, right, axis) if strides == (4, 0, 1) and is_known else None


def matrix_tile(
    kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]
) -> Tile | None:
    """The tile of a product of bytes in registers of 16 rows; None where there are none, or few."""
    found = matrices(kernel, lane) if machine.byte_tiles else None
    if found is None or not isinstance(lane.extent, int) or lane.extent < SIDE:
        return None
    assert isinstance(found.axis.extent, int)
    if found.axis.extent < SIDE or not is_packable(kernel, found.right, buffers):
        return None
    rows = [
        axis
        for axis in kernel.axes
        if isinstance(axis.extent, int)
        and axis.extent >= SIDE
        and isinstance(found.left.access.stride(axis), int)
        and found.left.access.stride(axis) != 0
        and found.right.access.stride(axis) == 0
    ]
    if not rows:
        return None
    needed = -(-lane.extent // SIDE)
    vectors = min(range(SUMS, 0, -1), key=lambda count: -(-needed // count) * count)
    return Tile(
        lane, SIDE, vectors, row=max(rows, key=lambda axis: typical(axis.extent)), rows=SIDE
    )


def takes_tiles(kernel: Kernel) -> bool:
    """Whether a kernel has the tile of `matrix_tile`."""
    tile = kernel.tile
    if tile is None or tile.lane is None or (tile.rows, tile.width) != (SIDE, SIDE):
        return False
    return matrices(kernel, tile.lane) is not None
