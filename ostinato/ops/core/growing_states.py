"""States of loops whose size changes, and where they lie.

A state that grows by the same every step has memory for the rows of all steps; what a step is given
is a view of the first of them, whose extent is affine in the number of the step. Where only a step
tells how many rows come or go, the extent is a size that each step computes for the next one, and
memory is laid out by what it is at most.

Where the body appends with a Concat, the new rows are stored in place and the result is a longer
view: nothing is copied. Whatever else makes the next state is copied to a second memory, and the
two swap, as for any other state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ostinato.machine.record import LINE_BYTES
from ostinato.ops.core.builder import Appending, Builder
from ostinato.ops.core.common_rows import CommonRows
from ostinato.ops.core.emitter import LoopFrame
from ostinato.ops.core.limits import SPARE_VALUES
from ostinato.ops.core.moved_rows import Moves, Moving
from ostinato.ops.core.run_sizes import FAR
from ostinato.ops.core.state_chains import chain_of, places_to_move
from ostinato.ops.core.tensor import (
    Tensor,
    Value,
    advance,
    dense,
    share_memory,
    slice_axis,
    transpose,
)
from ostinato.program.expr import ITEM_BYTES, Access, Axis, Extent, Load, cast, walk
from ostinato.program.kernel import Kernel
from ostinato.program.nodes import Carry, Stmt, statements
from ostinato.records import dataclass
from ostinato.sizes.dims import (
    SPARE,
    Size,
    computed,
    floordiv,
    is_nonnegative,
    maximum,
    minimum,
    product,
    symbols,
)
from ostinato.sizes.strides import Shape
from ostinato.sizes.substitution import largest

if TYPE_CHECKING:
    import onnx_ir as ir

# Operators with graphs in which one of them may be.
_CHOICES = frozenset(("If", "Loop"))
# Fewer steps than this are not worth to reserve less memory for.
_FEW_STEPS = 2**16
_NO_SPARE = "a carried value needs more memory than there is to spare; bound its size"
# Bytes that a number in the file may bound a state by: a machine may have no more to reserve.
_MOST_KEPT = 2**30
# A bound of the rows that steps compute is raised so often before it seems that there is none.
_MOST_RAISED = 4


@dataclass(frozen=True)
class Growth:
    """Growth of the extent of an axis of a state from step to step.

    rows: of kind "exact", every step adds so many, or takes so many away where that is less than
        0, and there are enough for all steps; "total", there never are more; "most", a step
        adds as many at most, or takes some away; "spare", there is room for no more, which is
        checked in every step.
    others: further axes and what every step adds to them at most; then the elements of a step are
        dense in memory, and rows of kind "spare" are elements.
    raised: how often the total turned out to be too low.
    in_front: whether rows come before those that are there.
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
        """The capacity in rows, of which `first` are there at the beginning."""
        if self.kind in ("total", "spare"):
            return self.rows
        return first if self.shrinks else first + self.rows * steps

    @property
    def shrinks(self) -> bool:
        """Whether every step takes the same number of rows away."""
        return self.kind == "exact" and isinstance(self.rows, int) and self.rows < 0

    def holds(self, builder: Builder, first: Size, old: Size, new: Size) -> bool:
        """Whether a step changes the extent, `first` before all steps, as this says."""
        if self.kind == "exact":
            return old + self.rows == new
        if self.kind == "spare":
            self.require_room(builder, new)
            return True
        if self.kind == "most":
            return is_at_most(builder.sizes.most_added(new, old), self.rows)
        fixed, begins = builder.sizes.most_apart(new, old), builder.limits.most(first)
        if fixed is not None and self.rows == maximum(begins, fixed):
            return True
        # What an earlier attempt at a loop around found may be too few to begin with by now.
        rooms = (self.rows - begins, self.rows - builder.limits.most(new))
        return all(map(is_nonnegative, rooms))

    def holds_all(self, builder: Builder, old: Shape, new: Shape) -> bool:
        """As `holds`, of all axes."""
        if self.kind == "spare":
            builder.limits.fits(new, self.rows, _NO_SPARE)
            return True
        return all(
            is_nonnegative(rows - builder.sizes.most_added(new[axis], old[axis]))
            for axis, rows in ((self.axis, self.rows), *self.others)
        )

    def require_room(self, builder: Builder, extent: Size) -> None:
        """Check in a run that there is room for so many rows."""
        if self.kind == "spare":
            builder.require.that(self.rows - extent, _NO_SPARE)


def is_at_most(size: Size, bound: Size) -> bool:
    """Whether a size cannot be larger than another, as far as is easily seen."""
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


def growth_of(state: State, old: Value, new: Value, joins_last: bool) -> Growth | None:
    """Find how a state changes its extent in a step; None where there is no form for it.

    The simplest kinds come first; what the state was expected to be does not hold. joins_last:
    whether the next state is a Concat of which this one is the last operand.
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
    """Whether a number in the file, such as the end of a slice, allows more rows than to keep."""
    shape = Growth(axis, 0).with_rows(state.initial.shape, rows)
    size = product(tuple(n for n in shape if isinstance(n, int))) * ITEM_BYTES[state.initial.dtype]
    return isinstance(size, int) and size > _MOST_KEPT


def _growth_to_spare(state: State, axis: int) -> Growth:
    """Growth of a state whose rows nothing bounds but memory, half of which is for its twin."""
    shape = Growth(axis, 0).with_rows(state.initial.shape, 1)
    row = product(shape) * ITEM_BYTES[state.initial.dtype]
    spare = state.builder.limits.of_machine(SPARE)
    return Growth(axis, floordiv(spare, 2 * maximum(row, 1)), "spare")


def _growth_of_axes(state: State, old: Shape, new: Shape, axes: Sequence[int]) -> Growth:
    """Find how a state changes the extents of several axes.

    Where nothing tells how many steps there are, or how much they add, all has what is to spare.
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


def steps_with_room(
    builder: Builder, steps: Size, bytes_per_step: Size, is_part: bool = False
) -> Size:
    """For how many steps there is memory in a loop that a condition may end before `steps`.

    is_part: whether the memory is that of one value whose size nothing bounds, half of which is
        for what is there before the first step.
    """
    if isinstance(steps, int) and steps <= _FEW_STEPS:
        return steps
    shares = 2 * SPARE_VALUES if is_part else 1
    room = floordiv(builder.limits.of_machine(SPARE), shares * maximum(bytes_per_step, 1))
    return room if isinstance(steps, int) and steps >= FAR else minimum(steps, room)


@dataclass(frozen=True)
class Beside:
    """A part of a state, or all of it, that a piece is joined to along `axis` of the part."""

    part: Tensor
    axis: int

    def takes(self, piece: Value) -> bool:
        """Whether a piece differs from the part in its number of rows alone."""
        rows = (piece.shape[self.axis],)
        shape = (*self.part.shape[: self.axis], *rows, *self.part.shape[self.axis + 1 :])
        return piece.shape == shape and piece.dtype == self.part.dtype

    def is_part(self, state: Tensor, growing: int) -> bool:
        """Whether the part lies in the memory of a state and has all of its rows."""
        own, base = self.part.base, state.base
        return (
            own is not None
            and base is not None
            and (own.buffer, own.terms) == (base.buffer, base.terms)
            and self.part.strides[self.axis] == state.strides[growing]
            and self.part.shape[self.axis] == state.shape[growing]
        )

    def within(self, rows: Tensor, state: Tensor, count: Size) -> Tensor:
        """The part of other rows of a state, so many, that it is of `state`."""
        part = self.part
        assert part.base is not None and state.base is not None
        shape = (*part.shape[: self.axis], count, *part.shape[self.axis + 1 :])
        base = advance(rows, part.base.offset - state.base.offset)
        return replace(part, shape=shape, base=base)


@dataclass(frozen=True)
class State:
    """A carried value and its memory: `whole` has room for what it grows to in the end.

    name: what errors call it. steps: how many steps there is room for. extent: of the axis that
    changes, where steps compute it for the next one. is_shared: whether the memory is that of a
    state of the loop around. extents: of the further axes that change. moved: the axis along which
    the body gives rows other places; `whole` then has a spare row behind the last.
    """

    builder: Builder
    name: str
    whole: Tensor
    initial: Value
    growth: Growth | None
    steps: Size
    extent: Size = 0
    is_shared: bool = False
    extents: tuple[Size, ...] = ()
    moved: int | None = None

    @staticmethod
    def of(
        builder: Builder,
        name: str,
        initial: Value,
        growth: Growth | None,
        steps: Size,
        memory: Tensor | None = None,
        moved: int | None = None,
    ) -> State:
        """The state in memory that holds the initial value: its own, or that of a state around."""
        if growth is not None and (memory is not None or moved in growth.axes or growth.others):
            moved = None
        if growth is None:
            whole = _with_spare(builder, initial.dtype, initial.shape, moved)
            builder.copy(initial, whole)
            return State(builder, name, whole, initial, None, steps, moved=moved)
        if growth.others:
            return State._of_any_shape(builder, name, initial, growth, steps)
        first = initial.shape[growth.axis]
        room = growth.room(first, steps)
        whole, extent = memory or _memory(builder, name, initial, growth, room, moved), first
        if growth.kind != "exact":
            # What is as large as there is room to spare is checked, not laid out for that.
            declare = builder.sizes.declared if SPARE in symbols(room) else builder.sizes.varying
            extent = declare(room, f"extent of axis {growth.axis}")
            builder.sizes.compute(extent, Extent(first))
        is_shared = memory is not None
        state = State(builder, name, whole, initial, growth, steps, extent, is_shared, moved=moved)
        if memory is None:
            growth.require_room(builder, first)
            builder.copy(initial, slice_axis(state.before(0), growth.axis, 0, 1, first))
        return state

    @staticmethod
    def _of_any_shape(
        builder: Builder, name: str, initial: Value, growth: Growth, steps: Size
    ) -> State:
        shape, extents = list(initial.shape), list[Size]()
        is_spare = growth.kind == "spare"
        for axis, rows in ((growth.axis, growth.rows), *growth.others):
            first, what = initial.shape[axis], f"extent of axis {axis}"
            shape[axis] = growth.rows if is_spare else builder.limits.most(first) + rows * steps
            declare = builder.sizes.declared if is_spare else builder.sizes.varying
            extents.append(declare(shape[axis], what))
            builder.sizes.compute(extents[-1], Extent(first))
        if is_spare:
            builder.limits.fits(initial.shape, growth.rows, _NO_SPARE)
            shape = [growth.rows]
        whole = builder.empty(initial.dtype, tuple(shape), f"{name}, which changes its shape")
        state = State(
            builder, name, whole, initial, growth, steps, extents[0], False, tuple(extents[1:])
        )
        builder.copy(initial, state._dense(whole, initial.shape))
        return state

    def _dense(self, memory: Tensor, shape: Shape) -> Tensor:
        assert memory.base is not None
        return dense(memory.dtype, shape, memory.base.buffer)

    def before(self, step: Size) -> Tensor:
        """The value of the state at the start of a step."""
        growth = self.growth
        if growth is None:
            return self.whole
        if growth.others:
            shape = list(self.initial.shape)
            for axis, extent in zip(growth.axes, (self.extent, *self.extents), strict=True):
                shape[axis] = extent
            return self._dense(self.whole, tuple(shape))
        if growth.kind != "exact":
            return self._view(0, self.extent)
        start = (self.steps - step) * growth.rows if growth.in_front else 0
        return self._view(start, self.initial.shape[growth.axis] + growth.rows * step)

    def _view(self, start: Size, extent: Size) -> Tensor:
        assert self.growth is not None
        return slice_axis(self.whole, self.growth.axis, start, 1, extent)

    def appended(
        self, given: Tensor, beside: Beside, piece: Value, step: Axis, after: Size
    ) -> Tensor | None:
        """A part of the state with a piece appended in place, where that is possible.

        given: the state of the step. after: the number of the next step.
        """
        growth = self.growth
        assert growth is not None and self.whole.base is not None
        rows = piece.shape[beside.axis]
        if not beside.takes(piece) or not beside.is_part(given, growth.axis):
            return None
        if growth.kind != "exact":
            self._require_room(self.extent + rows)
            self.builder.copy(piece, beside.within(self._view(self.extent, rows), given, rows))
            extent = self.extent + rows
            return beside.within(self._view(0, extent), given, extent)
        if rows != growth.rows:
            return None
        longer = self.before(after)
        self._require_room(longer.shape[growth.axis])
        base, stride = self.whole.base, self.whole.strides[growth.axis]
        start = (self.steps - 1) * rows if growth.in_front else self.initial.shape[growth.axis]
        moves = (step, (-rows if growth.in_front else rows) * stride)
        place = Access(base.buffer, base.offset + start * stride, (*base.terms, moves))
        target = beside.within(replace(self.whole, base=place), given, rows)
        self.builder.copy(piece, target)
        return beside.within(longer, given, longer.shape[growth.axis])

    def _require_room(self, extent: Size) -> None:
        """Check that so many rows fit where nothing, or a loop around, says how many do."""
        growth = self.growth
        assert growth is not None
        if self.is_shared:
            growth = replace(growth, kind="spare", rows=self.whole.shape[growth.axis])
        growth.require_room(self.builder, extent)

    def store(self, value: Value, after: Size, loop: LoopFrame) -> None:
        """Keep the value for the next step; one that is where it belongs already stays there.

        Nothing is kept where a step leaves no rows: a next state that is never written is illegal.
        """
        growth = self.growth
        if self.holds(value, after) or (growth is not None and 0 in value.shape):
            return
        builder, target = self.builder, self._twin()
        if growth is None:
            builder.copy(value, target)
        elif growth.others:
            builder.copy(value, self._dense(target, value.shape))
        else:
            axis = growth.axis
            first = (self.steps - after) * growth.rows if growth.in_front else 0
            builder.copy(value, slice_axis(target, axis, first, 1, value.shape[axis]))
        assert self.whole.base is not None and target.base is not None
        loop.carries.append(Carry(self.whole.base.buffer, target.base.buffer))

    def holds(self, value: Value, after: Size) -> bool:
        """Whether the value lies where the next step looks for a state that stays in place."""
        growth = self.growth
        stays = self.moved is not None if growth is None else not growth.others
        return stays and share_memory(value, self.before(after))

    def _twin(self) -> Tensor:
        """A second memory of the same form."""
        if self.growth is None or self.growth.others:
            return _with_spare(self.builder, self.whole.dtype, self.whole.shape, self.moved)
        room = self.whole.shape[self.growth.axis]
        return _memory(self.builder, self.name, self.initial, self.growth, room, self.moved)


def _with_spare(
    builder: Builder, dtype: str, shape: Shape, moved: int | None, what: str = ""
) -> Tensor:
    """Memory of a shape, with one more row along the axis whose rows change places."""
    if moved is None:
        return builder.empty(dtype, shape, what)
    count = shape[moved]
    larger = builder.empty(dtype, (*shape[:moved], count + 1, *shape[moved + 1 :]), what)
    return slice_axis(larger, moved, 0, 1, count)


def _memory(
    builder: Builder, name: str, initial: Value, growth: Growth, room: Size, moved: int | None
) -> Tensor:
    """Memory for so many rows; an error where there is none names the state."""
    axis, rank = growth.axis, len(initial.shape)
    others = tuple(i for i in range(rank) if i != axis)
    order, padded = tuple(range(rank)), room
    if growth.is_last and others:
        # An odd number of cache lines: neighbours along other axes are in different sets.
        line = LINE_BYTES // ITEM_BYTES[initial.dtype]
        order, padded = (*others, axis), (floordiv(room, 2 * line) * 2 + 3) * line
    sizes = growth.with_rows(initial.shape, padded)
    grows = f"grows by {row_bytes(growth, initial)} bytes a step, " * (growth.kind == "exact")
    what = f"{name}, which {grows or 'changes its size, '}of up to {room} rows"
    place = None if moved is None else order.index(moved)
    shape = tuple(sizes[i] for i in order)
    memory = _with_spare(builder, initial.dtype, shape, place, what)
    view = transpose(memory, tuple(order.index(i) for i in range(rank)))
    assert isinstance(view, Tensor)
    return slice_axis(view, axis, 0, 1, room)


def keep_extents(states: Sequence[State], updated: Sequence[Value]) -> None:
    """Let the sizes that steps compute have their values of the next step, all at once."""
    following: list[tuple[Size, Tensor]] = []
    for state, value in zip(states, updated, strict=True):
        if state.growth is not None and state.growth.kind != "exact":
            for axis, size in zip(state.growth.axes, (state.extent, *state.extents), strict=True):
                extent = cast(Extent(value.shape[axis]), "int64")
                following.append((size, state.builder.stored((), (), extent)))
    for size, value in following:
        assert value.base is not None
        states[0].builder.sizes.compute(size, Load(value.base, "int64"))


@dataclass(frozen=True)
class Part:
    """What a state is of the carried value at a position.

    is_whole: a tensor, or the rows of a sequence. is_borders: the borders between the elements of
    a sequence of pieces.
    """

    position: int
    is_whole: bool = True
    is_borders: bool = False


def announce(
    states: Sequence[State],
    given: Sequence[Tensor],
    parts: Sequence[Part | None],
    body: ir.Graph,
    step: Axis,
    after: Size,
    common: CommonRows,
) -> list[Moving]:
    """Tell the builder what nodes of the body do to a state in place instead of copying it.

    states: the loop's, of which `given` is what a step is given, and `parts` what each one is.
    after: the next step's number.
    common: what rows have in common.
    Returns what is left to do behind all else that reads the states of the step.
    """
    plans: dict[Value, Moves] = {}
    moving: list[Moving] = []
    for part, state, value in zip(parts, states, given, strict=True):
        if part is None:
            continue
        position = part.position
        made = body.outputs[position + 1]
        node, growth = made.producer(), state.growth
        in_front = growth is not None and growth.in_front
        chain = chain_of(body, position, in_front, value.shape)
        if state.moved is not None:
            # A table that one of two moves writes would not know of the other.
            alone = sum(each.op_type == "Gather" for each in chain.nodes) == 1
            grown = growth.axis if growth is not None and alone else None
            for gather, at_once in places_to_move(body, position, chain.nodes):
                one = Moving(state.whole, state.moved, plans, at_once, grown, in_front, common.of)
                state.builder.moving[gather.outputs[0].name or ""] = one
                moving.append(one)
        if growth is None or growth.others:
            continue
        names = [each.outputs[0].name or "" for each in chain.joins]
        if node is not None and node.op_type in _CHOICES and not in_front:
            names.append(made.name or "")
        for name in filter(None, names):

            def append(
                own: Value, axis: int, piece: Value, state: State = state, value: Tensor = value
            ) -> Tensor | None:
                if not isinstance(own, Tensor):
                    return None
                return state.appended(value, Beside(own, axis), piece, step, after)

            appending, found = (
                state.builder.appending,
                Appending(value, in_front, append, state.whole),
            )
            if not part.is_borders:
                appending[name] = found
            elif name in appending:
                appending[name] = replace(appending[name], borders=found)
    return moving


def layout_of(state: State, body: Iterable[Stmt]) -> Growth | None:
    """The growth with rows as neighbours in memory if most sums of products would read it so."""
    growth, base = state.growth, state.whole.base
    if (
        growth is None
        or growth.is_last
        or growth.others
        or growth.axis == len(state.whole.shape) - 1
    ):
        return growth
    assert base is not None
    stride = state.whole.strides[growth.axis]
    votes = 0
    for kernel in statements(tuple(body)):
        if not isinstance(kernel, Kernel):
            continue
        for reduce in kernel.reductions:
            for load in walk(*(reduce.operands if reduce.factor is not None else ())):
                if isinstance(load, Load) and load.access.buffer == base.buffer:
                    along = {axis for axis, by in load.access.terms if by == stride}
                    votes += bool(along & set(kernel.axes)) - bool(along & set(reduce.axes))
    return replace(growth, is_last=votes > 0)
