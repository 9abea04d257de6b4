"""The shape of a tile of sums, and how an axis of rows is divided into tiles."""

from __future__ import annotations

from ostinato.program.expr import Axis
from ostinato.program.kernel import Kernel
from ostinato.records import dataclass
from ostinato.schedule.operands import moves_windows, typical

# Heights of the tiles for the rows that full tiles leave, where only a run tells how many: at most
# two for any number below 8. Without 3, seven rows of 512 channels of 3 x 3 pixels take 1.3 of the
# time.
REST_ROWS = (4, 3, 2, 1)


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
