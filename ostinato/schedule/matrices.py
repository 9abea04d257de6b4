"""Sums of products of bytes that a machine computes for several rows and columns at once.

Tile registers have 16 rows and columns (AMX); an instruction of AArch64 multiplies two rows by two
columns (USMMLA).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ostinato.machine.record import Machine
from ostinato.program.expr import Axis, Load
from ostinato.program.kernel import Kernel, Tile
from ostinato.program.nodes import Buffer
from ostinato.program.words import BYTES, first_of_word
from ostinato.records import dataclass
from ostinato.schedule.operands import is_packable, typical
from ostinato.sizes.dims import product

# Rows, words of a row, and columns of a tile register; how many registers hold sums.
SIDE = 16
SUMS = 4
# From this many rows, and this many products in all, tile registers pay for fewer than 16 rows,
# although their sizes are set twice then: products of 4 by 512 by 512 take less time in them, those
# of 8 by 64 by 64 do not.
_FEWEST_TILED = 4
_LEAST_PRODUCTS = 2**18
# The same for tiles of two rows by two columns: sums fill half of 32 registers, beside them are
# four pairs of rows and the pairs of columns being made. Below four rows, pairing the columns takes
# as many instructions as it saves.
_PAIR_LANES = 4
_PAIR_VECTORS = 2
_PAIR_ROWS = 8
FEWEST_PAIRED = 4
# Where a run has a single row, this many groups of lanes hide the latency of its dots.
_GROUPS_OF_ONE_ROW = 4


@dataclass(frozen=True)
class Matrices:
    """The operands of a sum: words of each row, or the first byte of one, and words by lanes.

    axis: along which a row's words are neighbours. taps: the other axes of the sum, outermost
        first, such as those of a window. is_signed: rows are signed and lanes unsigned, such as
        filters and pixels; else the other way round.
    """

    left: Load
    right: Load
    axis: Axis
    taps: tuple[Axis, ...] = ()
    is_signed: bool = False


def matrices(kernel: Kernel, lane: Axis) -> Matrices | None:
    """The operands of a kernel whose only sum is a matrix product of bytes, columns along lanes."""
    if len(kernel.reductions) != 1:
        return None
    (reduce,) = kernel.reductions
    if (
        reduce.factor is None
        or reduce.step != "dot"
        or not reduce.axes
        or reduce.chains != 1
        or kernel.ordered
    ):
        return None
    words, signed = reduce.operands
    unsigned = first_of_word(words) or words
    if not isinstance(unsigned, Load) or not isinstance(signed, Load):
        return None
    if any(load.mask is not None or load.index for load in (unsigned, signed)):
        return None
    found = _placed(unsigned, signed, lane, reduce.axes, is_signed=False)
    return found or _placed(signed, unsigned, lane, reduce.axes, is_signed=True)


def _placed(
    left: Load, right: Load, lane: Axis, axes: Sequence[Axis], is_signed: bool
) -> Matrices | None:
    """The operands, if the left one has neighbouring words and the right one lanes; else None."""
    step = BYTES if left.dtype == "uint8" else 1
    if right.dtype != "int32" or left.access.stride(lane) != 0 or right.access.stride(lane) != 1:
        return None
    for axis in reversed(axes):
        is_known = isinstance(axis.extent, int) and isinstance(right.access.stride(axis), int)
        if left.access.stride(axis) == step and is_known:
            taps = tuple(one for one in axes if one != axis)
            return Matrices(left, right, axis, taps, is_signed)
    return None


def matrix_tile(
    kernel: Kernel, lane: Axis, machine: Machine, buffers: Mapping[str, Buffer]
) -> Tile | None:
    """The tile of a product of bytes for many rows at once; None where rows are too few."""
    if not machine.byte_tiles and not machine.byte_pairs:
        return None
    found = matrices(kernel, lane)
    side = SIDE if machine.byte_tiles else _PAIR_LANES
    fewest, most = (_FEWEST_TILED, SUMS) if machine.byte_tiles else (FEWEST_PAIRED, _PAIR_VECTORS)
    if found is None or not isinstance(lane.extent, int):
        return None
    # Unsigned lanes may be fewer: half of them fill narrower registers.
    if lane.extent < (side // 2 if found.is_signed else side):
        return None
    if (found.taps or found.is_signed or found.left.dtype != "uint8") and not machine.byte_tiles:
        return None
    assert isinstance(found.axis.extent, int)
    is_ready = found.is_signed or is_packable(kernel, found.right, buffers)
    if found.axis.extent < side or not is_ready:
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
        points = typical(product([axis.extent for axis in kernel.axes]))
        words = typical(product([axis.extent for axis in (found.axis, *found.taps)]))
        if typical(row.extent) < SIDE and points * words * BYTES < _LEAST_PRODUCTS:
            return None
        return Tile(lane, SIDE, vectors, row=row, rows=SIDE)
    is_wide = lane.extent >= _GROUPS_OF_ONE_ROW * vectors * _PAIR_LANES
    groups = _GROUPS_OF_ONE_ROW if is_wide and not isinstance(row.extent, int) else 1
    return Tile(lane, _PAIR_LANES, vectors, row=row, rows=_PAIR_ROWS, groups=groups)


def takes_tiles(kernel: Kernel) -> bool:
    """Whether a kernel has a tile of `matrix_tile` in tile registers."""
    return _tiled(kernel, SIDE, SIDE) is not None


def takes_pairs(kernel: Kernel) -> bool:
    """Whether a kernel has a tile of `matrix_tile` of two rows by two columns."""
    found = _tiled(kernel, _PAIR_ROWS, _PAIR_LANES)
    return found is not None and not found.taps and found.left.dtype == "uint8"


def _tiled(kernel: Kernel, rows: int, width: int) -> Matrices | None:
    """The operands of a product whose tile has this many rows and lanes."""
    tile = kernel.tile
    if tile is None or tile.lane is None or (tile.rows, tile.width) != (rows, width):
        return None
    return matrices(kernel, tile.lane)
