"""How a state of a loop grows: findings of an attempt to lower the loop's body."""

from __future__ import annotations

from collections.abc import Sequence

from ostinato.ops.core.growing_states import State
from ostinato.ops.core.growth import Growth
from ostinato.ops.core.run_sizes import FAR
from ostinato.ops.core.tensor import Value
from ostinato.program.expr import ITEM_BYTES
from ostinato.sizes.dims import (
    SPARE,
    Size,
    computed,
    floordiv,
    is_nonnegative,
    maximum,
    product,
    symbols,
)
from ostinato.sizes.strides import Shape
from ostinato.sizes.substitution import largest

# A number in the file may bound a state by this many bytes: a machine may have no more to reserve.
_MOST_KEPT = 2**30
# A bound of the rows that steps compute is raised this often before there seems to be none.
_MOST_RAISED = 4


def growth_of(state: State, old: Value, new: Value, joins_last: bool) -> Growth | None:
    """Find how a state changes its extent in a step; None where there is no form for it.

    The simplest kinds come first; the expected kind has been refuted. joins_last: whether the next
    state is a Concat of which this one is the last operand.
    """
    if len(old.shape) != len(new.shape) or old.dtype != new.dtype:
        return None
    pairs = enumerate(zip(old.shape, new.shape, strict=True))
    changed = [axis for axis, (a, b) in pairs if a != b]
    before, builder = state.growth, state.builder
    if before is not None:
        changed = sorted({*changed, *before.axes})
    if len(changed) > 1:
        return _growth_of_axes(state, old.shape, new.shape, changed)
    if not changed:
        return None
    axis, limits = changed[0], builder.limits
    rows = new.shape[axis] - old.shape[axis]
    if before is None and is_nonnegative(rows) and not computed(rows):
        return Growth(axis, rows, in_front=joins_last)
    first, size = limits.most(state.initial.shape[axis]), new.shape[axis]
    if before is None:
        lost = builder.sizes.lost(size, old.shape[axis])
        if lost is not None and lost > 0 and is_nonnegative(old.shape[axis] - lost * state.steps):
            return Growth(axis, -lost)
        most = limits.most(size)
        if set(symbols(most)) == {SPARE}:
            return _growth_to_spare(state, axis)
        return Growth(axis, maximum(first, most), "total")
    if before.kind == "exact":
        return Growth(axis, first + before.rows, "total")
    most = builder.sizes.most_added(size, old.shape[axis])
    if before.kind == "total" and before.raised < _MOST_RAISED:
        fixed, added = builder.sizes.most_apart(size, old.shape[axis]), largest(most)
        if fixed is None and added is not None:
            return Growth(axis, max(added, 0), "most")
        bound = limits.most(size) if fixed is None else fixed
        if not _is_far(state, axis, bound):
            rows = maximum(before.rows, bound) if fixed is None else bound
            return Growth(axis, maximum(first, rows), "total", before.raised + 1)
    elif before.kind == "total" and SPARE not in symbols(most):
        return Growth(axis, most, "most")
    return _growth_to_spare(state, axis)


def _is_far(state: State, axis: int, rows: Size) -> bool:
    """Whether a number in the file, such as the end of a slice, allows too many rows to keep."""
    shape = Growth(axis, 0).with_rows(state.initial.shape, rows)
    size = product(tuple(n for n in shape if isinstance(n, int))) * ITEM_BYTES[state.initial.dtype]
    return isinstance(size, int) and size > _MOST_KEPT


def _growth_to_spare(state: State, axis: int) -> Growth:
    """Growth of a state whose rows only memory bounds, half of which is for its twin."""
    shape = Growth(axis, 0).with_rows(state.initial.shape, 1)
    row = product(shape) * ITEM_BYTES[state.initial.dtype]
    spare = state.builder.limits.of_machine(SPARE)
    return Growth(axis, floordiv(spare, 2 * maximum(row, 1)), "spare")


def _growth_of_axes(state: State, old: Shape, new: Shape, axes: Sequence[int]) -> Growth:
    """Find how a state changes the extents of several axes.

    Where nothing tells how many steps there are, or how much they add, it gets all that is to
    spare.
    """
    raised = 0 if state.growth is None else state.growth.raised + 1
    is_open = state.steps >= FAR if isinstance(state.steps, int) else SPARE in symbols(state.steps)
    sizes, limits = state.builder.sizes, state.builder.limits
    added = [(axis, maximum(sizes.most_added(new[axis], old[axis]), 0)) for axis in axes]
    if is_open or raised > _MOST_RAISED or any(SPARE in symbols(rows) for _, rows in added):
        elements = floordiv(limits.of_machine(SPARE), 2 * ITEM_BYTES[state.whole.dtype])
        return Growth(axes[0], elements, "spare", others=tuple((axis, 0) for axis in axes[1:]))
    (axis, rows), *others = added
    return Growth(axis, rows, "most", raised, others=tuple(others))
