"""States of loops whose size changes, and their memory.

A state that grows by the same number of rows in every step has memory for the rows of all steps; a
step is given a view of the first of them, whose extent is affine in the number of the step. Where
only a step tells how many rows come or go, the extent is a size that each step computes for the
next one, and memory is laid out by its upper bound.

Where the body appends with a Concat, the new rows are stored in place and the result is a longer
view: nothing is copied. A next state that is made in any other way is copied to a second memory,
and the two swap, as for any other state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ostinato.machine.record import LINE_BYTES
from ostinato.ops.core.builder import Appending, Builder
from ostinato.ops.core.common_rows import CommonRows
from ostinato.ops.core.emitter import LoopFrame
from ostinato.ops.core.growth import NO_SPARE, Growth, row_bytes
from ostinato.ops.core.moved_rows import Moves, Moving
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
from ostinato.program.nodes import Stmt, statements
from ostinato.records import dataclass
from ostinato.sizes.dims import SPARE, Size, floordiv, symbols
from ostinato.sizes.strides import Shape

if TYPE_CHECKING:
    import onnx_ir as ir

# Operators with graphs in which one of them may be.
_CHOICES = frozenset(("If", "Loop"))


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
        """The part of `rows`, `count` of them, that corresponds to this part of `state`."""
        part = self.part
        shape = (*part.shape[: self.axis], count, *part.shape[self.axis + 1 :])
        base = advance(rows, part.address.offset - state.address.offset)
        return replace(part, shape=shape, base=base)


@dataclass(frozen=True)
class State:
    """A carried value and its memory: `whole` has room for its final size.

    name: the state in errors. steps: how many steps there is room for. extent: of the axis that
    changes, where steps compute it for the next one. is_shared: whether the memory is that of a
    state of the loop around. extents: of the further axes that change. moved: the axis along which
    the body moves rows; `whole` then has a spare row behind the last.
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
        """A state with the initial value, in memory of its own or of a state of the loop around."""
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
            # A value that takes all the room there is to spare is checked, not laid out in the
            # arena.
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
            builder.limits.fits(initial.shape, growth.rows, NO_SPARE)
            shape = [growth.rows]
        whole = builder.empty(initial.dtype, tuple(shape), f"{name}, which changes its shape")
        state = State(
            builder, name, whole, initial, growth, steps, extents[0], False, tuple(extents[1:])
        )
        builder.copy(initial, state._dense(whole, initial.shape))
        return state

    def _dense(self, memory: Tensor, shape: Shape) -> Tensor:
        return dense(memory.dtype, shape, memory.buffer)

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
        """Append a piece to a part of the state in place; None where that is not possible.

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
        """Check that there is room for this many rows, where nothing else bounds their number."""
        growth = self.growth
        assert growth is not None
        if self.is_shared:
            growth = replace(growth, kind="spare", rows=self.whole.shape[growth.axis])
        growth.require_room(self.builder, extent)

    def store(self, value: Value, after: Size, loop: LoopFrame) -> None:
        """Store the value for the next step; one that already is in its place stays there.

        Nothing is stored where a step leaves no rows: a next state that is never written is
        illegal.
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
        loop.carry(self.whole, target)

    def holds(self, value: Value, after: Size) -> bool:
        """Whether the value lies where the next step reads a state that stays in place."""
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
    """Memory of a shape, with one more row along the axis whose rows are moved."""
    if moved is None:
        return builder.empty(dtype, shape, what)
    count = shape[moved]
    larger = builder.empty(dtype, (*shape[:moved], count + 1, *shape[moved + 1 :]), what)
    return slice_axis(larger, moved, 0, 1, count)


def _memory(
    builder: Builder, name: str, initial: Value, growth: Growth, room: Size, moved: int | None
) -> Tensor:
    """Memory for this many rows; an error where there is none names the state."""
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
    """Let the sizes that steps compute take their values of the next step, all at once."""
    following: list[tuple[Size, Tensor]] = []
    for state, value in zip(states, updated, strict=True):
        if state.growth is not None and state.growth.kind != "exact":
            for axis, size in zip(state.growth.axes, (state.extent, *state.extents), strict=True):
                extent = cast(Extent(value.shape[axis]), "int64")
                following.append((size, state.builder.stored((), (), extent)))
    for size, value in following:
        states[0].builder.sizes.compute(size, Load(value.address, "int64"))


@dataclass(frozen=True)
class Part:
    """The part that a state has in the carried value at a position.

    is_whole: a tensor, or the rows of a sequence. is_borders: the borders between the elements of a
    sequence of pieces.
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
    """Tell the builder which nodes of the body work on a state in place instead of copying it.

    states: the loop's, of which `given` is what a step is given, and `parts` what each one is.
    after: the next step's number.
    common: what rows have in common.
    Returns moves to be finished behind all readers of the step's states.
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
            # A table written by one of two moves would not know of the other one.
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
    """Growth with rows as neighbours in memory, if most sums of products would read it so."""
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
