"""Unique: equal elements, or equal slices of an axis, become one."""

from __future__ import annotations

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.ordered_kernels import accumulate, smallest, sort_key
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.tensor import Tensor, Value, at, slice_axis, transpose
from ostinato.ops.rules.compaction import chosen_positions, count_chosen, taken
from ostinato.ops.rules.views import axis_of
from ostinato.program.expr import Axis, Expr, Extent, Index, Load, cast, constant, dtype_of, select
from ostinato.program.kernel import Store
from ostinato.records import dataclass
from ostinato.sizes.dims import Size, product


@dataclass(frozen=True)
class _Groups:
    """Equal rows, in order of their keys.

    order: int64[rows], the rows sorted; of equal rows the first comes first.
    is_first: bool[rows], for each place of this order whether a group begins there.
    number: int64[rows], the group there.
    count: how many groups there are.
    starts: int64[count], the places where they begin.
    """

    order: Tensor
    is_first: Tensor
    number: Tensor
    count: Size
    starts: Tensor


@lowers("Unique")
def lower_unique(context: Context) -> list[Value]:
    """Unique elements, their first positions, the inverse indices and the counts.

    Zeros of both signs are equal, and so are all NaN, which come last in order.
    """
    builder = context.builder
    x = builder.strided(context.input(0))
    in_order = context.attributes.int("sorted", 1)
    if in_order not in (0, 1):
        raise context.invalid(f"attribute 'sorted' is {in_order}, neither 0 nor 1")
    axis = context.attributes.int("axis", None)
    if axis is None:
        x, axis = builder.reshaped(x, (x.size,)), 0
    axis = axis_of(context, axis, len(x.shape))
    others = tuple(i for i in range(len(x.shape)) if i != axis)
    front = transpose(x, (axis, *others))
    rows = builder.reshaped(front, (x.shape[axis], product(front.shape[1:])))
    groups = _groups(builder, builder.pointwise(_key, rows))
    first = _at(builder, groups.order, groups.starts)
    counts = _lengths(builder, groups)
    numbers = groups.number
    if not in_order:
        first, renumbered = _by_occurrence(builder, groups, first)
        numbers = _at(builder, renumbered, numbers)
        counts = _scattered(builder, counts, renumbered)
    inverse = _scattered(builder, numbers, groups.order)
    return [taken(builder, x, first, axis), first, inverse, counts]


def _key(x: Expr) -> Expr:
    return sort_key(cast(x, "uint8") if dtype_of(x) == "bool" else x, descending=False)


def _at(builder: Builder, vector: Tensor, positions: Tensor) -> Tensor:
    """Elements of a vector at positions that exist."""
    return taken(builder, vector, positions, 0)


def _scattered(builder: Builder, values: Tensor, places: Tensor) -> Tensor:
    """The values of a vector at places, each of which occurs once."""
    target = builder.empty(values.dtype, values.shape)
    axes = [builder.axis(values.shape[0])]
    access = builder.access(slice_axis(target, 0, 0, 1, 1), [None])
    index = ((builder.load(places, axes), target.strides[0]),)
    builder.emit.kernel(axes, [Store(access, builder.load(values, axes), None, index)])
    return target


def _groups(builder: Builder, keys: Tensor) -> _Groups:
    order = _sorted_rows(builder, keys)
    is_first = _first_of_group(builder, keys, order)
    count = count_chosen(builder, is_first, "different elements")
    sums = builder.empty("int64", is_first.shape)
    ones = builder.pointwise(lambda f: cast(f, "int64"), is_first)
    accumulate(builder, ones, sums, 0, "add", exclusive=False, reverse=False)
    number = builder.pointwise(lambda n: n - 1, sums)
    return _Groups(order, is_first, number, count, chosen_positions(builder, is_first, count))


def _sorted_rows(builder: Builder, keys: Tensor) -> Tensor:
    """int64 positions of the rows in lexicographic order: sorted by the last column first."""
    rows, columns = keys.shape
    if columns == 1:
        return smallest(builder, builder.reshaped(keys, (rows,)), rows)
    state, successor = (builder.empty("int64", (rows,)) for _ in range(2))
    axes = [builder.axis(rows)]
    builder.emit.kernel(axes, [Store(builder.access(state, axes), Index(axes[0]))])
    with builder.emit.loop(columns) as loop:
        column = at(keys, 1, loop.axis, columns - 1, -1)
        order = smallest(builder, _at(builder, column, state), rows)
        builder.copy(_at(builder, state, order), successor)
        loop.carry(state, successor)
    return state


def _first_of_group(builder: Builder, keys: Tensor, order: Tensor) -> Tensor:
    """For each place of the order whether its row differs from the one before."""
    rows, columns = keys.shape
    place, column = builder.axis(rows), builder.axis(columns, "r")
    zero = constant(0, "int64")
    is_start = Index(place).equals(zero)
    before = builder.access(slice_axis(order, 0, -1, 1, rows), [place])
    positions = (
        builder.load(order, [place]),
        Load(before, "int64", ~is_start, constant(0, "int64")),
    )
    start = builder.access(slice_axis(keys, 0, 0, 1, 1), [None, column])
    mine, other = (
        Load(start, keys.dtype, None, None, ((position, keys.strides[0]),))
        for position in positions
    )
    differs = builder.fold(
        (rows,), [place], [column], "max", cast(mine.differs(other), "int32"), ROW_CHAINS
    )
    return builder.pointwise(
        lambda d, i: i.equals(zero) | (d > 0),
        differs,
        _numbers(builder, rows),
    )


def _numbers(builder: Builder, count: Size) -> Tensor:
    axis = builder.axis(count)
    return builder.stored((count,), [axis], Index(axis))


def _lengths(builder: Builder, groups: _Groups) -> Tensor:
    """Count the rows of each group."""
    axis: Axis = builder.axis(groups.count)
    starts = groups.starts
    following = builder.access(slice_axis(starts, 0, 1, 1, groups.count), [axis])
    next_ = Index(axis) + 1
    has_next = next_ < Extent(groups.count)
    end = select(
        has_next,
        Load(following, "int64", has_next, constant(0, "int64")),
        Extent(groups.order.shape[0]),
    )
    length = end - builder.load(starts, [axis])
    return builder.stored((groups.count,), [axis], length)


def _by_occurrence(builder: Builder, groups: _Groups, first: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each group in order of these rows, and the new number of each group."""
    chosen = _scattered(builder, groups.is_first, groups.order)
    sums = builder.empty("int64", chosen.shape)
    ones = builder.pointwise(lambda c: cast(c, "int64"), chosen)
    accumulate(builder, ones, sums, 0, "add", exclusive=False, reverse=False)
    numbers = builder.pointwise(lambda n: n - 1, _at(builder, sums, first))
    return chosen_positions(builder, chosen, groups.count), numbers
