"""Find what rows of a growing state have in common, so that only the rest is copied.

Beams that continue one beam have its past in common. A table says for each two rows how far they
are equal: a row that takes the place of the other copies only what comes behind.

    common[i, j]                     of the rows before the step
    common'[i, j] = extent           if both continue one row
                    common[rows[i], rows[j]]    otherwise

Before the first step nothing is known to be equal.
"""

from __future__ import annotations

from dataclasses import field

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.moved_rows import Moves, store_at
from ostinato.ops.core.tensor import Tensor, Value
from ostinato.program.expr import Access, Axis, Expr, Index, Load, constant, op, select, sized
from ostinato.program.kernel import Store
from ostinato.program.nodes import Carry, Stmt
from ostinato.records import dataclass
from ostinato.sizes.dims import Size

# Positions among the values carried from copy to copy: the row in the spare place, and the number
# of the copy that put it there.
_SAVED_ROW, _SAVED_BY = range(2)


@dataclass
class CommonRows:
    """The tables of a loop: one for all states whose rows move alike.

    before: the statements before the loop. carries: the tables, of this step and of the next one.
    """

    builder: Builder
    before: list[Stmt]
    carries: list[Carry] = field(default_factory=list)
    starts: dict[tuple[Value, Size], Tensor] = field(default_factory=dict)

    def of(self, indices: Value, planned: Moves, extent: Size) -> Tensor:
        """Where each of the copies has to begin: int64[..], one for each of `planned`.

        indices: decide the copies. extent: how long the rows are.
        """
        key = indices, extent
        if key not in self.starts:
            count = planned.rows.shape[0]
            builder = self.builder
            table, following = (builder.empty("int64", (count, count)) for _ in range(2))
            with builder.emit.block([]) as statements:
                axes = builder.axes(table.shape)
                nothing = Store(builder.access(table, axes), constant(0, "int64"))
                builder.emit.kernel(axes, [nothing])
            self.before += statements
            self.starts[key] = starts_of(builder, planned, table, extent)
            builder.copy(common_after(builder, planned.rows, table, extent), following)
            self.carries.append(Carry(table.buffer, following.buffer))
        return self.starts[key]


def starts_of(builder: Builder, planned: Moves, table: Tensor, extent: Size) -> Tensor:
    """How much each copy finds in place already, by what rows have in common.

    The spare place gets what is read from there.
    """
    (count,), (most,) = planned.rows.shape, planned.sources.shape
    starts, saved = builder.empty("int64", (most,)), builder.empty("int64", (2,))
    buffer = saved.buffer

    def kept(place: int, value: Expr) -> Store:
        return Store(Access(buffer, place, ()), value)

    def known(place: int) -> Load:
        return Load(Access(buffer, place, ()), "int64")

    none = constant(0, "int64")
    builder.emit.kernel((), [kept(_SAVED_ROW, none), kept(_SAVED_BY, none)])
    step = builder.axis(planned.count)
    source, target = (builder.load(t, [step]) for t in (planned.sources, planned.targets))
    saves, restores = (place.equals(sized(count)) for place in (target, source))
    row = select(restores, known(_SAVED_ROW), source)
    other = op("min", target, sized(count - 1))
    common = Load(table.address, "int64", index=((row, count), (other, 1)))
    start = op("min", common, sized(extent))
    stores = [
        store_at(starts, Index(step), start, ~saves),
        store_at(starts, known(_SAVED_BY), start, restores),
        kept(_SAVED_ROW, select(saves, source, known(_SAVED_ROW))),
        kept(_SAVED_BY, select(saves, Index(step), known(_SAVED_BY))),
    ]
    builder.emit.kernel([step], stores, ordered=[step])
    return starts


def common_after(builder: Builder, rows: Tensor, table: Tensor, extent: Size) -> Tensor:
    """The table after each row has got the contents of row `rows[i]`, which are `extent` long."""
    base, (count,) = table.address, rows.shape

    def common(axes: tuple[Axis | None, ...]) -> Expr:
        left, right = (builder.load(rows, [axis]) for axis in axes)
        before = Load(base, "int64", index=((left, count), (right, 1)))
        whole = sized(extent)
        return select(left.equals(right), whole, op("min", before, whole))

    return builder.compute(table.shape, common)
