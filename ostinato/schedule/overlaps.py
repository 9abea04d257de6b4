"""Windows that overlap from row to row, so that sums of neighbouring rows read the same lines."""

from __future__ import annotations

from ostinato.program.expr import Expr, Load
from ostinato.program.kernel import Kernel, Tile
from ostinato.records import dataclass

# Taps from line to line: a tile has code for each line that its rows meet.
_MOST_TAPS = 16


@dataclass(frozen=True)
class Overlap:
    """Two axes of taps, over lines and along them.

    image: what lanes load of a line. step: by how many lines the windows of two rows differ.
    taps: lines of a window.
    """

    image: Load
    step: int
    taps: int


def overlap(kernel: Kernel, tile: Tile) -> Overlap | None:
    """How the windows of rows overlap, of which a kernel has only these sums; None for others."""
    if len(kernel.reductions) != 1 or tile.row is None or tile.lane is None:
        return None
    (reduce,) = kernel.reductions
    is_plain = tile.across is None and tile.depth is None and not tile.turned
    if reduce.combine != "sum" or reduce.chains != 1 or len(reduce.axes) != 2 or not is_plain:
        return None
    over, taps = reduce.axes[0], reduce.axes[0].extent
    if not isinstance(taps, int) or not 1 < taps <= _MOST_TAPS:
        return None
    images = [e for e in reduce.operands if isinstance(e, Load) and e.access.stride(tile.lane) != 0]
    if len(images) != 1 or images[0].mask is not None or images[0].index:
        return None
    (image,) = images
    if not all(_is_weight(e, tile) for e in reduce.operands if e is not image):
        return None
    row, line = image.access.stride(tile.row), image.access.stride(over)
    if not isinstance(row, int) or not isinstance(line, int) or line == 0 or row % line != 0:
        return None
    return Overlap(image, row // line, taps) if 0 < row // line < taps else None


def _is_weight(expr: Expr, tile: Tile) -> bool:
    """Whether it is loaded for all lanes and rows at once."""
    if not isinstance(expr, Load) or expr.mask is not None or expr.index:
        return False
    return not any(axis in (tile.lane, tile.row) for axis, _ in expr.access.terms)
