"""Order along an axis: running sums, positions of extremes, the largest and smallest elements."""

from __future__ import annotations

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.known_sizes import known_size
from ostinato.ops.core.ordered_kernels import accumulate, row_start, smallest, sort_key
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.singles import scalar
from ostinato.ops.core.tensor import Tensor, Value, transpose
from ostinato.ops.rules.gather import normalized, require_all
from ostinato.ops.rules.reductions import dropped
from ostinato.ops.rules.views import axis_of, border_of
from ostinato.program.expr import FLOATS, Axis, Expr, Extent, Index, Load, constant, select
from ostinato.program.nodes import Branch
from ostinato.sizes.dims import Size, product


@lowers("CumSum", "CumProd")
def lower_cumulative(context: Context) -> Value:
    """Sums or products of the elements up to each, or before each, one after the other."""
    builder = context.builder
    value, axis = builder.strided(context.input(0)), scalar(context, 1, "axis")
    exclusive = bool(context.attributes.int("exclusive", 0))
    reverse = bool(context.attributes.int("reverse", 0))
    rank = len(value.shape)
    if rank == 0 or axis is None:
        raise context.invalid(f"no axis, or a value of shape {value.shape}")
    target = builder.empty(value.dtype, value.shape)
    combine = "add" if context.node.op_type == "CumSum" else "mul"
    if axis.known is not None:
        known = axis_of(context, int(axis.known.reshape(-1)[0]), rank)
        accumulate(builder, value, target, known, combine, exclusive, reverse)
        return target
    position = builder.pointwise(lambda a: normalized(a, rank)[0], axis)
    within = builder.pointwise(lambda a: normalized(a, rank)[1], axis)
    require_all(context, within, f"the axis is out of range for rank {rank}")
    for i in range(rank):
        here = builder.pointwise(lambda p, i=i: p.equals(i), position)
        with builder.emit.block([]) as statements:
            accumulate(builder, value, target, i, combine, exclusive, reverse)
        builder.emit.append(Branch(here.buffer, tuple(statements), ()))
    return target


@lowers("ArgMax", "ArgMin")
def lower_arg_extreme(context: Context) -> Value:
    """The position of the largest or smallest element along an axis: the first, or the last."""
    value = context.input(0)
    axis = axis_of(context, context.attributes.int("axis", 0), len(value.shape))
    keep = context.attributes.int("keepdims", 1)
    last = bool(context.attributes.int("select_last_index", 0))
    largest = context.node.op_type == "ArgMax"
    extent = value.shape[axis]
    context.builder.require.nonnegative(extent - 1, f"axis {axis} has {extent} elements, minus 1")
    result = arg_extreme(context, value, axis, largest, last)
    return result if keep else dropped(result, (axis,))


def arg_extreme(context: Context, value: Value, axis: int, largest: bool, last: bool) -> Tensor:
    """int64 positions, with an axis of extent 1; no element's where the axis has none.

    A NaN counts as more extreme than any number.
    """
    builder = context.builder
    x = builder.strided(value)
    extent = x.shape[axis]
    extreme = builder.reduce(x, (axis,), "max" if largest else "min", lambda e: e)
    axes = builder.axes(extreme.shape)
    inner = builder.axis(extent, "r")
    element = builder.load(x, [*axes[:axis], inner, *axes[axis + 1 :]])
    found = element.equals(builder.load(extreme, axes))
    if x.dtype in FLOATS:
        # A NaN equals nothing, and where there is one the extreme is NaN.
        found = found | element.differs(element)
    none: Expr = constant(-1, "int64") if last else Extent(extent)
    position = select(found, Index(inner), none)
    # The order of integers does not matter: lanes run along rows that lie in one piece.
    chains = ROW_CHAINS if axis == len(x.shape) - 1 else 1
    combine = "max" if last else "min"
    return builder.fold(extreme.shape, axes, [inner], combine, position, chains)


@lowers("Hardmax")
def lower_hardmax(context: Context) -> Value:
    """1 at the first largest element along an axis, else 0."""
    value, builder = context.input(0), context.builder
    rank = len(value.shape)
    axis = context.attributes.int("axis", -1 if context.since >= 13 else 1)
    shape = value.shape
    if context.since < 13:
        # The value counts as a matrix: everything from `axis` on is one axis.
        axis = border_of(context, axis, rank)
        matrix = (product(shape[:axis]), product(shape[axis:]))
        value, axis = builder.reshaped(value, matrix), 1
    axis = axis_of(context, axis, len(value.shape))
    largest = arg_extreme(context, value, axis, largest=True, last=False)
    axes: list[Axis | None] = list(builder.axes(value.shape))
    place = axes[axis] = builder.axis(value.shape[axis])
    here = builder.load(largest, axes).equals(Index(place))
    one, zero = (constant(n, value.dtype) for n in (1, 0))
    return builder.reshaped(builder.stored(value.shape, axes, select(here, one, zero)), shape)


@lowers("TopK")
def lower_top_k(context: Context) -> list[Value]:
    """The k largest or smallest elements along an axis in order, and their positions.

    NaN counts as larger than any number, as NumPy sorts it. Of equal elements the first is first.
    """
    builder = context.builder
    value = builder.strided(context.input(0))
    axis = axis_of(context, context.attributes.int("axis", -1), len(value.shape))
    if context.since < 10:
        count: Size = context.attributes.int("k")
    else:
        count = known_size(context, 1, "input 'K'")
    largest = bool(context.attributes.int("largest", 1))
    # Sorted elements are right where any order is.
    context.attributes.int("sorted", 1)
    builder.require.nonnegative(count, "k")
    builder.require.nonnegative(value.shape[axis] - count, f"elements of axis {axis} beyond k")
    count = builder.sizes.defined(count, "k", bound=value.shape[axis])
    last = len(value.shape) - 1
    to_end = (*(i for i in range(last + 1) if i != axis), axis)
    rows = transpose(value, to_end)
    assert isinstance(rows, Tensor)
    keys = builder.pointwise(lambda x: sort_key(x, largest), rows)
    first = smallest(builder, keys, count)
    axes = list(builder.axes(first.shape))
    index = ((builder.load(first, axes), rows.strides[-1]),)
    element = Load(row_start(builder, rows, axes), rows.dtype, None, None, index)
    values = builder.stored(first.shape, axes, element)
    back = tuple(to_end.index(i) for i in range(last + 1))
    return [transpose(values, back), transpose(first, back)]
