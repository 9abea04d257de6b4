"""The shape of a tile of sums, and how an axis of rows is divided into tiles."""

from __future__ import annotations

from collections.abc import Sequence, Set

from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.records import dataclass
from ostinato.schedule.operands import may_be_batch, moves_windows, rows_overlap, typical

# Heights of the tiles for the rows that full tiles leave, where only a run tells how many: at most
# two for any number below 8. Without 3, seven rows of 512 channels of 3 x 3 pixels take 1.3 of the
# time.
REST_ROWS = (4, 3, 2, 1)
# A known axis of this many rows fills the rows of a tile: the lanes' loads are then shared often
# enough that multiply-adds, not loads, take the time (two of each in a cycle).
FILLING_ROWS = 4
# Longer axes fill tiles by themselves: half of the registers of the largest file.
_MOST_ACROSS = 16


@dataclass(frozen=True)
class Rows:
    """The axis of a tile's rows, and the axis across; as in `Tile`."""

    row: Axis | None
    across: Axis | None = None

    @property
    def breadth(self) -> int:
        """Points of a row of the tile."""
        return 1 if self.across is None else typical(self.across.extent)


@dataclass(frozen=True)
class Shape:
    """Vectors along the lanes, height, and `held`, of a tile of sums; as in `Tile`."""

    vectors: int = 1
    rows: int = 1
    held: int | None = None

    @property
    def block(self) -> int:
        """Partial results of each sum."""
        return self.rows * self.vectors


def sums_at_once(sums: int, vectors: int, held: int | None) -> int:
    """Reductions per loop within the accumulator budget `held`; all of them if it is None."""
    if held is None:
        return sums
    loops = -(-sums // max(1, held // vectors))
    return -(-sums // loops)


def has_even_rows(kernel: Kernel, rows: Rows) -> bool:
    """Whether tiles of these rows, of a known number, are made even: rows that share no pixels.

    The cost of windows is that of full tiles: even tiles of 64 channels of 56 x 56 pixels, 5 or 4
    high and not 10, take 1.1 times as long.
    """
    if rows.row is None or rows.across is not None:
        return False
    return isinstance(rows.row.extent, int) and not moves_windows(kernel, rows.row)


def row_tiles(extent: int, rows: int, even: bool) -> list[tuple[int, int]]:
    """List numbers of tiles of at most `rows` rows, and their heights.

    even: as few and as even as possible: a tile of one or two rows waits for what its lanes load.
    Otherwise one tile has the rows that full ones leave.
    """
    count = -(-extent // rows)
    height = -(-extent // max(count, 1)) if even else rows
    lower = count * height - extent
    pairs = [(count - lower, height), (lower, height - 1)]
    if not even:
        pairs = [(extent // rows, rows), (1, extent % rows)]
    return [(number, high) for number, high in pairs if number and high]


def tiles_of_any(extent: int, rows: int) -> list[tuple[int, int]]:
    """List numbers of tiles and their heights, where only a run tells how many rows there are."""
    found: list[tuple[int, int]] = []
    for size in (rows, *(n for n in REST_ROWS if n < rows)):
        found.append((extent // size, size))
        extent %= size
    return found


def row_axes(
    kernel: Kernel, lane: Axis, shared: Sequence[Axis], beside: Set[Axis]
) -> tuple[Axis | None, Axis | None]:
    """Choose the longest of these axes, and the second longest if a run tells which is longer.

    Height and width of an image are about equal, and lines of it take less time than columns: one
        of two only counts where either may be a batch.
    beside: axes along which neighbours are read come first, then those along which they are stored
        where lanes are stored apart. Rows of windows that overlap share loads: they are the first
        choice in runs where they are longer than a known axis.
    """
    across = [s.access for s in kernel.stores if s.access.stride(lane) not in (0, 1)]

    # A known axis of a few rows fills tiles even where there is one point along the others.
    def preference(axis: Axis) -> tuple[bool, bool, bool, int]:
        known = isinstance(axis.extent, int) and axis.extent >= FILLING_ROWS
        stored = any(access.stride(axis) == 1 for access in across)
        return known, axis in beside, stored, typical(axis.extent)

    best = [*sorted(reversed(shared), key=preference, reverse=True), None, None]
    row, other = best[:2]
    if row is None or other is None:
        return row, None
    if isinstance(row.extent, int):
        moving = (a for a in shared if not isinstance(a.extent, int) and rows_overlap(kernel, a))
        first = None if rows_overlap(kernel, row) else next(moving, None)
        return (row, None) if first is None else (first, row)
    if isinstance(other.extent, int):
        return row, None
    return row, other if any(may_be_batch(kernel, axis) for axis in (row, other)) else None


def rows_across(row: Axis | None, shared: Sequence[Axis]) -> list[Rows]:
    """Rows of which each has all points along a second axis, where that is short."""
    if row is None or not isinstance(row.extent, int):
        return []
    others = [a for a in shared if a != row and isinstance(a.extent, int) and a.extent > 1]
    pairs = [pair for other in others for pair in ((other, row), (row, other))]
    return [Rows(a, across) for a, across in pairs if typical(across.extent) <= _MOST_ACROSS]
