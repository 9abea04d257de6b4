"""Sums of products of bytes that a machine computes for several rows and columns at once.

Registers of tiles have 16 of each (AMX), an instruction of AArch64 multiplies two by two (USMMLA).
"""

from __future__ import annotations

from collections.abc import Mapping

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Load
from ostinato.program.nodes import Buffer, Kernel, Tile
from ostinato.program.words import first_byte
from ostinato.records import dataclass
from ostinato.schedule.operands import is_packable, typical

# Rows, words of a row, and columns of a register; how many registers hold sums.
SIDE = 16
SUMS = 4
# The same of tiles that are multiplied two rows by two columns: sums fill half of 32 registers,
# beside them are four pairs of rows and what becomes pairs of columns. Below four rows, pairing the
# columns takes as many instructions as it saves.
PAIR_LANES = 4
PAIR_VECTORS = 2
PAIR_ROWS = 8
FEWEST_PAIRED = 4
# Where a run has a single row, so many groups of lanes hide the latency of its dots.
GROUPS_OF_ONE_ROW = 4


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
    """The tile of a product of bytes of many rows at once; None without such rows, or for few."""
    if not machine.byte_tiles and not machine.byte_pairs:
        return None
    found = matrices(kernel, lane)
    side = SIDE if machine.byte_tiles else PAIR_LANES
    fewest, most = (SIDE, SUMS) if machine.byte_tiles else (FEWEST_PAIRED, PAIR_VECTORS)
    if found is None or not isinstance(lane.extent, int) or lane.extent < side:
        return None
    assert isinstance(found.axis.extent, int)
    if found.axis.extent < side or not is_packable(kernel, found.right, buffers):
        return None
    rows = [
        axis
        for axis in kernel.axes
        if (axis.extent >= fewest if isinstance(axis.extent, int) else machine.byte_pairs)
        and isinstance(found.left.access.stride(axis), int)
        and found.left.access.stride(axis) != 0
        and found.right.access.stride(axis) == 0
    ]
    if not rows:
        return None
    needed = -(-lane.extent // side)
    vectors = min(range(most, 0, -1), key=lambda count: -(-needed // count) * count)
    row = max(rows, key=lambda axis: typical(axis.extent))
    if machine.byte_tiles:
        return Tile(lane, SIDE, vectors, row=row, rows=SIDE)
    is_wide = lane.extent >= GROUPS_OF_ONE_ROW * vectors * PAIR_LANES
    groups = GROUPS_OF_ONE_ROW if is_wide and not isinstance(row.extent, int) else 1
    return Tile(lane, PAIR_LANES, vectors, row=row, rows=PAIR_ROWS, groups=groups)


def takes_tiles(kernel: Kernel) -> bool:
    """Whether a kernel has the tile of `matrix_tile` for registers of tiles."""
    return _has(kernel, SIDE, SIDE)


def takes_pairs(kernel: Kernel) -> bool:
    """Whether a kernel has the tile of `matrix_tile` for two rows by two columns."""
    return _has(kernel, PAIR_ROWS, PAIR_LANES)


def _has(kernel: Kernel, rows: int, width: int) -> bool:
    tile = kernel.tile
    if tile is None or tile.lane is None or (tile.rows, tile.width) != (rows, width):
        return False
    return matrices(kernel, tile.lane) is not None
