"""Reorder rows of a state within its memory, as beams do that continue others.

`state' = Gather(state, indices)` gives every row the contents of some row. A row that stays where
it is costs nothing; each other one is copied once, before its new place is overwritten by another
copy that still needs it, and a cycle of rows takes one copy more, through a spare row behind the
last:

    indices = [0, 0, 1, 3]: row 1 to row 2, row 0 to row 1
    indices = [1, 2, 0, 0]: row 0 to row 3, row 0 to the spare one, 1 to 0, 2 to 1, the spare to 2

This is the parallel assignment of register allocators (Rideau, Serpette and Leroy, "Tilting at
windmills with Coq", 2008). The order of the copies is found in a time that is linear in the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.tensor import Tensor, Value, slice_axis
from ostinato.program.expr import Access, Axis, Expr, Index, Load, constant, op, select, sized
from ostinato.program.kernel import Store
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, floordiv

# Positions among the numbers carried from step to step of the search for an order.
_CURRENT, _NEXT, _FIRST, _COUNT = range(4)
_NOBODY = -1


@dataclass(frozen=True)
class Moves:
    """Copies of rows, one after the other: from which row to which, and how many there are.

    rows: for each row the one that it continues.
    """

    rows: Tensor
    sources: Tensor
    targets: Tensor
    count: Size


@dataclass
class Moving:
    """A Gather that moves rows of a loop's state within the memory of the state.

    memory: that of the state, with a spare row behind the last along `axis`. plans: the copies by
    their indices, which states share. at_once: whether nothing reads the rows as they were;
    otherwise `finish` moves them.

    grown: the axis along which the state grows, in front or behind, if `starts` tells how much of
    it each copy finds in place already, from the indices, the copies and the extent.
    """

    memory: Tensor
    axis: int
    plans: dict[Value, Moves]
    at_once: bool
    grown: int | None = None
    in_front: bool = False
    starts: Callable[[Value, Moves, Size], Tensor] | None = None
    waiting: Callable[[], None] | None = None

    def fits(self, rows: Value, indices: Value) -> bool:
        """Whether these are rows of the state, with as many indices."""
        return (
            isinstance(rows, Tensor)
            and rows.base is not None
            and self.memory.base is not None
            and (rows.base.buffer, rows.strides) == (self.memory.base.buffer, self.memory.strides)
            and indices.shape == (rows.shape[self.axis],)
        )

    def move(self, builder: Builder, rows: Tensor, indices: Value) -> Tensor:
        """Move the rows now or later, by a plan made before; return them in the state's memory."""
        planned = self.plans[indices]
        if self.grown is None or self.starts is None:
            moved = partial(_move, builder, rows, self.axis, planned)
        else:
            starts = self.starts(indices, planned, rows.shape[self.grown])
            place = self.grown, self.in_front
            moved = partial(_move_ends, builder, rows, self.axis, planned, starts, *place)
        if self.at_once:
            moved()
        else:
            self.waiting = moved
        return rows

    def finish(self) -> None:
        """Move the rows that had to wait for their last readers."""
        if self.waiting is not None:
            self.waiting()


def moves(builder: Builder, rows: Tensor) -> Moves:
    """Find the copies after which each row holds what row `rows[i]` held; row `extent` is spare.

    rows: int64[extent], all of them in range.
    """
    (extent,) = rows.shape
    most = extent + floordiv(extent, 2)
    search = _Search(builder, rows, extent, most)
    search.open_chains()
    search.cycles()
    count = builder.sizes.computed(search.number(_COUNT), most, "number of rows that move")
    return Moves(rows, search.sources, search.targets, count)


def _move(builder: Builder, memory: Tensor, axis: int, planned: Moves) -> None:
    """Copy rows along an axis of memory that has a spare row behind the last."""
    kept = tuple(i for i in range(len(memory.shape)) if i != axis)
    shape = tuple(memory.shape[i] for i in kept)
    row = Tensor(memory.dtype, shape, memory.address, tuple(memory.strides[i] for i in kept))
    number, axes = builder.axis(planned.count), builder.axes(shape)
    source, target = (builder.load(t, [number]) for t in (planned.sources, planned.targets))
    access, stride = builder.access(row, axes), memory.strides[axis]
    value = Load(access, memory.dtype, index=((source, stride),))
    store = Store(access, value, None, ((target, stride),))
    builder.emit.kernel([number, *axes], [store], ordered=[number])


def _move_ends(
    builder: Builder,
    memory: Tensor,
    axis: int,
    planned: Moves,
    starts: Tensor,
    grown: int,
    in_front: bool,
) -> None:
    """As `_move`, but rows share nothing along the axis that grows."""
    count, extent = memory.shape[axis], memory.shape[grown]
    with builder.emit.loop(planned.count) as loop:
        number, sizes = [loop.axis], builder.sizes
        source, target = (
            sizes.computed(builder.load(each, number), count, "row that moves")
            for each in (planned.sources, planned.targets)
        )
        rest = sized(extent) - builder.load(starts, number)
        left = sizes.computed(op("max", rest, constant(0, "int64")), extent, "rows to copy")
        end = slice_axis(memory, grown, 0 if in_front else extent - left, 1, left)
        row, place = (slice_axis(end, axis, each, 1, 1) for each in (source, target))
        builder.copy(row, place)


class _Search:
    """The search for an order of the copies: rows that nothing needs are overwritten first.

    `rows` of a row that is done, or stays, is itself. `uses` counts the rows that still need one.
    """

    def __init__(self, builder: Builder, rows: Tensor, extent: Size, most: Size) -> None:
        self._builder, self._extent = builder, extent
        self._rows, self._uses = (builder.empty("int64", (extent,)) for _ in range(2))
        self.sources, self.targets = (builder.empty("int64", (most,)) for _ in range(2))
        self._numbers = builder.empty("int64", (4,))
        builder.copy(rows, self._rows)
        axis = builder.axis(extent)
        none = Store(builder.access(self._uses, [axis]), constant(0, "int64"))
        builder.emit.kernel([axis], [none])
        builder.emit.kernel((), [self._keep(_COUNT, constant(0, "int64"))])
        step = builder.axis(extent)
        row = builder.load(self._rows, [step])
        moved = row.differs(Index(step))
        more = self._at(self._uses, row) + 1
        self._run(step, [store_at(self._uses, row, more, moved)])

    def open_chains(self) -> None:
        """Copy to rows that nothing needs, then to those that nothing needs any more.

        Each point either continues such a chain or begins at the next row.
        """
        step = self._begin(2 * self._extent)
        row, source = self._current()
        free = self._at(self._uses, row).equals(0)
        goes = source.differs(row) & free
        fewer = self._at(self._uses, source) - 1
        self._run(
            step,
            [
                *self._copied(goes, source, row),
                store_at(self._uses, source, fewer, goes),
                store_at(self._rows, row, row, goes),
                *self._following(goes, source),
            ],
        )

    def cycles(self) -> None:
        """Copy the rest, cycles: a row to the spare one, others to their places, and it back."""
        step = self._begin(2 * self._extent + floordiv(self._extent, 2))
        row, source = self._current()
        first = self.number(_FIRST)
        is_open = first.differs(_NOBODY)
        begins = ~is_open & source.differs(row)
        ends = is_open & source.equals(first)
        spare = sized(self._extent)
        self._run(
            step,
            [
                *self._copied(
                    begins | is_open,
                    select(begins, row, select(ends, spare, source)),
                    select(begins, spare, row),
                ),
                store_at(self._rows, row, row, is_open),
                *self._following(begins | is_open, select(begins | ends, row, source)),
                self._keep(
                    _FIRST,
                    select(begins, row, select(ends, _NOBODY, first)),
                ),
            ],
        )

    def number(self, place: int) -> Expr:
        """One of the numbers carried."""
        return self._at(self._numbers, constant(place, "int64"))

    def _begin(self, steps: Size) -> Axis:
        """An axis of this many steps, which begin at the first row."""
        at_first = [(_CURRENT, 0), (_NEXT, 0), (_FIRST, _NOBODY)]
        stores = [self._keep(place, constant(value, "int64")) for place, value in at_first]
        self._builder.emit.kernel((), stores)
        return self._builder.axis(steps)

    def _current(self) -> tuple[Expr, Expr]:
        """The current row, and the row that it gets."""
        row = self.number(_CURRENT)
        return row, self._at(self._rows, row)

    def _copied(self, holds: Expr, source: Expr, target: Expr) -> list[Store]:
        """Add one more copy, if the condition holds."""
        count = self.number(_COUNT)
        more = select(holds, count + 1, count)
        return [
            store_at(self.sources, count, source, holds),
            store_at(self.targets, count, target, holds),
            self._keep(_COUNT, more),
        ]

    def _following(self, goes_on: Expr, row: Expr) -> list[Store]:
        """The row of the next step: this one, or the next one where nothing has begun."""
        following = self.number(_NEXT) + 1
        inside = op("min", following, sized(self._extent - 1))
        return [
            self._keep(_CURRENT, select(goes_on, row, inside)),
            self._keep(_NEXT, select(goes_on, self.number(_NEXT), inside)),
        ]

    def _keep(self, place: int, value: Expr) -> Store:
        return Store(Access(self._numbers.buffer, place, ()), value)

    def _at(self, numbers: Tensor, place: Expr) -> Load:
        return Load(numbers.address, "int64", index=((place, 1),))

    def _run(self, step: Axis, stores: Sequence[Store]) -> None:
        self._builder.emit.kernel([step], stores, ordered=[step])


def store_at(numbers: Tensor, place: Expr, value: Expr, holds: Expr) -> Store:
    """Store a number at a computed place, if the condition holds."""
    return Store(numbers.address, value, holds, ((place, 1),))
