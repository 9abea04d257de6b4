"""The growth of a loop's state per step, and the memory for it."""

from __future__ import annotations

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.limits import SPARE_VALUES
from ostinato.ops.core.run_sizes import FAR
from ostinato.ops.core.tensor import Value
from ostinato.program.expr import ITEM_BYTES
from ostinato.records import dataclass
from ostinato.sizes.dims import SPARE, Size, floordiv, is_nonnegative, maximum, minimum, product
from ostinato.sizes.strides import Shape
from ostinato.sizes.substitution import largest

NO_SPARE = "a carried value needs more memory than there is to spare; bound its size"
# For fewer steps than this it is not worth reserving less memory.
_FEW_STEPS = 2**16


@dataclass(frozen=True)
class Growth:
    """Growth of the extent of an axis of a state from step to step.

    rows: of kind "exact", every step adds this many, or takes this many away where it is less than
        0, and there are enough for all steps; "total", there never are more; "most", a step
        adds at most this many, or takes some away; "spare", there is room for no more, which is
        checked in every step.
    others: further axes and an upper bound of what every step adds to them; then the elements of a
        step are dense in memory, and rows of kind "spare" are elements.
    raised: how often the total turned out to be too low.
    in_front: whether new rows come before the present ones.
    is_last: whether rows are neighbours in memory, whatever other axes there are.
    """

    axis: int
    rows: Size
    kind: str = "exact"
    raised: int = 0
    in_front: bool = False
    is_last: bool = False
    others: tuple[tuple[int, Size], ...] = ()

    @property
    def axes(self) -> tuple[int, ...]:
        """All axes whose extents change."""
        return (self.axis, *(axis for axis, _ in self.others))

    def keeps(self, old: Shape, new: Shape) -> bool:
        """Whether shapes before and after a step differ in these axes only."""
        return all(
            a == b for i, (a, b) in enumerate(zip(old, new, strict=True)) if i not in self.axes
        )

    def with_rows(self, shape: Shape, rows: Size) -> Shape:
        """The shape with another number of rows."""
        return (*shape[: self.axis], rows, *shape[self.axis + 1 :])

    def room(self, first: Size, steps: Size) -> Size:
        """The capacity in rows, if there are `first` at the beginning."""
        if self.kind in ("total", "spare"):
            return self.rows
        return first if self.shrinks else first + self.rows * steps

    @property
    def shrinks(self) -> bool:
        """Whether every step takes the same number of rows away."""
        return self.kind == "exact" and isinstance(self.rows, int) and self.rows < 0

    def holds(self, builder: Builder, first: Size, old: Size, new: Size) -> bool:
        """Whether a step changes the extent, `first` before all steps, in this way."""
        if self.kind == "exact":
            return old + self.rows == new
        if self.kind == "spare":
            self.require_room(builder, new)
            return True
        if self.kind == "most":
            return _is_bounded(builder.sizes.most_added(new, old), self.rows)
        fixed, begins = builder.sizes.most_apart(new, old), builder.limits.most(first)
        if fixed is not None and self.rows == maximum(begins, fixed):
            return True
        # The rows that an earlier attempt at an outer loop found may be too few to begin with by
        # now.
        rooms = (self.rows - begins, self.rows - builder.limits.most(new))
        return all(map(is_nonnegative, rooms))

    def holds_all(self, builder: Builder, old: Shape, new: Shape) -> bool:
        """As `holds`, for all axes."""
        if self.kind == "spare":
            builder.limits.fits(new, self.rows, NO_SPARE)
            return True
        return all(
            is_nonnegative(rows - builder.sizes.most_added(new[axis], old[axis]))
            for axis, rows in ((self.axis, self.rows), *self.others)
        )

    def require_room(self, builder: Builder, extent: Size) -> None:
        """Check in a run that there is room for this many rows."""
        if self.kind == "spare":
            builder.require.that(self.rows - extent, NO_SPARE)


def _is_bounded(size: Size, bound: Size) -> bool:
    """Whether a size cannot exceed another, as far as is easily seen."""
    if isinstance(bound, int) and not isinstance(size, int):
        most = largest(size)
        return most is not None and most <= bound
    return is_nonnegative(bound - size)


def row_bytes(growth: Growth, state: Value) -> Size:
    """Upper bound of the bytes that each step adds."""
    if growth.kind in ("total", "spare") or growth.others or growth.shrinks:
        return 0
    shape = growth.with_rows(state.shape, growth.rows)
    return product(shape) * ITEM_BYTES[state.dtype]


def steps_with_room(builder: Builder, steps: Size, bytes_per_step: Size, is_part: bool) -> Size:
    """The steps for which there is memory, in a loop that a condition may end before `steps`.

    is_part: whether the memory is that of one value whose size nothing bounds; half of it is for
    the rows before the first step.
    """
    if isinstance(steps, int) and steps <= _FEW_STEPS:
        return steps
    shares = 2 * SPARE_VALUES if is_part else 1
    room = floordiv(builder.limits.of_machine(SPARE), shares * maximum(bytes_per_step, 1))
    return room if isinstance(steps, int) and steps >= FAR else minimum(steps, room)
