"""Find windows that overlap from row to row, so that sums of neighbouring rows share lines."""

from __future__ import annotations

from ostinato.program.expr import Axis, Expr, Load
from ostinato.program.kernel import Kernel
from ostinato.records import dataclass
from ostinato.sizes.dims import exact_quotient

# Lines of a window, at most: a tile has code for each line that its rows read.
_MOST_TAPS = 16


@dataclass(frozen=True)
class Overlap:
    """Two axes of taps: across the lines of a window, and along them.

    image: the load of a line. step: by how many lines the windows of two rows differ. taps: lines
    of a window.
    """

    image: Load
    step: int
    taps: int


def overlap(kernel: Kernel, row: Axis, lane: Axis) -> Overlap | None:
    """Find how windows overlap from row to row in a kernel that only sums them up, or None."""
    if len(kernel.reductions) != 1:
        return None
    (reduce,) = kernel.reductions
    if reduce.combine != "sum" or reduce.chains != 1 or len(reduce.axes) != 2:
        return None
    over, taps = reduce.axes[0], reduce.axes[0].extent
    if not isinstance(taps, int) or not 1 < taps <= _MOST_TAPS:
        return None
    images = [e for e in reduce.operands if isinstance(e, Load) and e.access.stride(lane) != 0]
    if len(images) != 1 or images[0].mask is not None or images[0].index:
        return None
    (image,) = images
    if not all(_is_weight(e, row, lane) for e in reduce.operands if e is not image):
        return None
    apart, line = image.access.stride(row), image.access.stride(over)
    step = exact_quotient(apart, line)
    return Overlap(image, step, taps) if isinstance(step, int) and 0 < step < taps else None


def _is_weight(expr: Expr, row: Axis, lane: Axis) -> bool:
    """Whether an operand is loaded once for all lanes and rows."""
    if not isinstance(expr, Load) or expr.mask is not None or expr.index:
        return False
    return not any(axis in (row, lane) for axis, _ in expr.access.terms)
