"""Order along an axis: running sums, positions of extremes, the largest and smallest elements."""

from __future__ import annotations

from ostinato.ops.builder import ROW_CHAINS, Builder, literal
from ostinato.ops.gather import normalized, require_all
from ostinato.ops.reductions import dropped
from ostinato.ops.registry import Context, lowers
from ostinato.ops.sizes import known_sizes
from ostinato.ops.tensor import (
    Shape,
    Tensor,
    Value,
    advance,
    slice_axis,
    transpose,
)
from ostinato.ops.views import axis_of
from ostinato.program.dims import Size, product
from ostinato.program.expr import (
    FLOATS,
    ITEM_BYTES,
    Access,
    Axis,
    Expr,
    Extent,
    Index,
    Load,
    cast,
    constant,
    dtype_of,
    op,
)
from ostinato.program.nodes import Branch, Carry, Store

# Up to this many elements are sorted by counting for each how many come before it.
COUNTED = 64
DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS


@lowers("CumSum", "CumProd")
def lower_cumulative(context: Context) -> Value:
    """Sums or products of the elements up to each, or before each, one after the other."""
    builder = context.builder
    value, axis = builder.strided(context.input(0)), context.input(1)
    exclusive = bool(context.attributes.int("exclusive", 0))
    reverse = bool(context.attributes.int("reverse", 0))
    rank = len(value.shape)
    if rank == 0 or axis.size != 1:
        raise context.invalid(f"axis of shape {axis.shape} for a value of shape {value.shape}")
    target = builder.empty(value.dtype, value.shape)
    combine = "add" if context.node.op_type == "CumSum" else "mul"
    if axis.known is not None:
        known = axis_of(context, int(axis.known.reshape(-1)[0]), rank)
        _accumulate(builder, value, target, known, combine, exclusive, reverse)
        return target
    chosen = builder.reshaped(axis, ())
    position = builder.pointwise(lambda a: normalized(a, rank)[0], chosen)
    within = builder.pointwise(lambda a: normalized(a, rank)[1], chosen)
    require_all(context, within, f"the axis is out of range for rank {rank}")
    for i in range(rank):
        here = builder.pointwise(lambda p, i=i: op("eq", p, literal(i, p)), position)
        with builder.block([]) as statements:
            _accumulate(builder, value, target, i, combine, exclusive, reverse)
        assert here.base is not None
        builder.append(Branch(here.base.buffer, tuple(statements), ()))
    return target


def _accumulate(
    builder: Builder,
    value: Tensor,
    target: Tensor,
    axis: int,
    combine: str,
    exclusive: bool,
    reverse: bool,
) -> None:
    extent = value.shape[axis]
    if reverse:
        value, target = (slice_axis(t, axis, extent - 1, -1, extent) for t in (value, target))
    axes: list[Axis | None] = list(builder.axes(value.shape))
    # The first element is known by its index, even if it is the only one.
    step = axes[axis] = builder.axis(extent)
    start = constant(0 if combine == "add" else 1, value.dtype)
    first = op("eq", Index(step), constant(0, "int64"))

    def before(tensor: Tensor) -> Expr:
        moved = Tensor(
            tensor.dtype, tensor.shape, advance(tensor, -tensor.strides[axis]), tensor.strides
        )
        return Load(builder.access(moved, axes), tensor.dtype, op("not", first), start)

    element = before(value) if exclusive else builder.load(value, axes)
    store = Store(builder.access(target, axes), op(combine, before(target), element))
    builder.kernel(axes, [store], ordered=[step])


@lowers("ArgMax", "ArgMin")
def lower_arg_extreme(context: Context) -> Value:
    """The position of the largest or smallest element along an axis: the first, or the last."""
    value = context.input(0)
    axis = axis_of(context, context.attributes.int("axis", 0), len(value.shape))
    keep = context.attributes.int("keepdims", 1)
    last = bool(context.attributes.int("select_last_index", 0))
    largest = context.node.op_type == "ArgMax"
    result = arg_extreme(context, value, axis, largest, last)
    return result if keep else dropped(result, (axis,))


def arg_extreme(context: Context, value: Value, axis: int, largest: bool, last: bool) -> Tensor:
    """int64 positions, with an axis of extent 1. A NaN counts as more extreme than any number."""
    builder = context.builder
    x = builder.strided(value)
    extent = x.shape[axis]
    builder.require_nonnegative(extent - 1, f"axis {axis} has {extent} elements, minus 1")
    extreme = builder.reduce(x, (axis,), "max" if largest else "min", lambda e: e)
    axes = builder.axes(extreme.shape)
    inner = builder.axis(extent, "r")
    element = builder.load(x, [*axes[:axis], inner, *axes[axis + 1 :]])
    found = op("eq", element, builder.load(extreme, axes))
    if x.dtype in FLOATS:
        # A NaN equals nothing, and where there is one the extreme is NaN.
        found = op("or", found, op("ne", element, element))
    none: Expr = constant(-1, "int64") if last else Extent(extent)
    position = op("select", found, Index(inner), none)
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
        if not -rank <= axis <= rank:
            raise context.invalid(f"axis {axis} is out of range for rank {rank}")
        axis = axis + rank if axis < 0 else axis
        matrix = (product(shape[:axis]), product(shape[axis:]))
        value, axis = builder.reshaped(value, matrix), 1
    axis = axis_of(context, axis, len(value.shape))
    largest = arg_extreme(context, value, axis, largest=True, last=False)
    axes: list[Axis | None] = list(builder.axes(value.shape))
    place = axes[axis] = builder.axis(value.shape[axis])
    here = op("eq", builder.load(largest, axes), Index(place))
    one, zero = (constant(n, value.dtype) for n in (1, 0))
    return builder.reshaped(builder.stored(value.shape, axes, op("select", here, one, zero)), shape)


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
        count = known_sizes(context, 1, "input 'K'")[0]
    largest = bool(context.attributes.int("largest", 1))
    # Sorted elements are right where any order is.
    context.attributes.int("sorted", 1)
    builder.require_nonnegative(count, "k")
    builder.require_nonnegative(value.shape[axis] - count, f"elements of axis {axis} beyond k")
    last = len(value.shape) - 1
    to_end = (*(i for i in range(last + 1) if i != axis), axis)
    rows = transpose(value, to_end)
    assert isinstance(rows, Tensor)
    keys = builder.pointwise(lambda x: sort_key(x, largest), rows)
    extent = rows.shape[-1]
    if isinstance(extent, int) and extent <= COUNTED:
        places = _sorted_by_counting(builder, keys)
    else:
        places = _sorted_by_digits(builder, keys)
    first = slice_axis(places, last, 0, 1, count)
    axes = list(builder.axes(first.shape))
    index = ((builder.load(first, axes), rows.strides[-1]),)
    element = Load(_row(builder, rows, axes), rows.dtype, None, None, index)
    values = builder.stored(first.shape, axes, element)
    back = tuple(to_end.index(i) for i in range(last + 1))
    return [transpose(values, back), transpose(first, back)]


def sort_key(x: Expr, descending: bool) -> Expr:
    """An unsigned integer of the size of x whose order is that of the numbers.

    Zeros of both signs are equal, NaN is larger than any number. Bits of floats are ordered like
    their magnitudes, so those of negative numbers are inverted.
    """
    dtype = dtype_of(x)
    bits = 8 * ITEM_BYTES[dtype]
    unsigned = f"uint{bits}"
    sign = constant(1 << (bits - 1), unsigned)
    if dtype in FLOATS:
        pattern = op("bitcast", op("add", x, constant(0, dtype)), dtype=unsigned)
        negative = op("ge", pattern, sign)
        key = op("select", negative, op("not", pattern), op("or", pattern, sign))
        key = op("select", op("ne", x, x), constant((1 << bits) - 1, unsigned), key)
    elif dtype.startswith("u"):
        key = x
    else:
        key = op("xor", op("bitcast", x, dtype=unsigned), sign)
    return op("not", key) if descending else key


def _sorted_by_counting(builder: Builder, keys: Tensor) -> Tensor:
    """int64 positions in order of the keys along the last axis; short rows only."""
    axes, own = _row_axes(builder, keys)
    other = builder.axis(keys.shape[-1], "r")
    mine, theirs = builder.load(keys, axes), builder.load(keys, [*axes[:-1], other])
    earlier = op("and", op("eq", theirs, mine), op("lt", Index(other), Index(own)))
    before = cast(op("or", op("lt", theirs, mine), earlier), "int64")
    ranks = builder.fold(keys.shape, axes, [other], "sum", before)
    places = builder.empty("int64", keys.shape)
    access = _row(builder, places, axes)
    store = Store(access, Index(own), None, ((builder.load(ranks, axes), 1),))
    builder.kernel(axes, [store])
    return places


def _sorted_by_digits(builder: Builder, keys: Tensor) -> Tensor:
    """int64 positions in order of the keys along the last axis: a radix sort, lowest digit first.

    Each pass counts how often each digit occurs, turns the counts into first places, and moves
    every element to the next place of its digit, which keeps the order of the passes before.
    """
    shape, dtype = keys.shape, keys.dtype
    table: Shape = (*shape[:-1], DIGITS)
    state, successor = ([builder.empty(kind, shape) for kind in (dtype, "int64")] for _ in range(2))
    builder.copy(keys, state[0])
    axes, own = _row_axes(builder, keys)
    builder.kernel(axes, [Store(builder.access(state[1], axes), Index(own))])
    with builder.loop(8 * ITEM_BYTES[dtype] // DIGIT_BITS) as loop:
        shift = cast(op("mul", Index(loop.axis), constant(DIGIT_BITS, "int64")), dtype)
        counts = builder.compute(table, lambda _: constant(0, "int64"))
        _count_digits(builder, state[0], counts, shift)
        starts = builder.empty("int64", table)
        _accumulate(builder, counts, starts, len(shape) - 1, "add", exclusive=True, reverse=False)
        _move_by_digit(builder, state, successor, starts, shift)
        for old, new in zip(state, successor, strict=True):
            assert old.base is not None and new.base is not None
            loop.carries.append(Carry(old.base.buffer, new.base.buffer))
    return state[1]


def _row_axes(builder: Builder, rows: Tensor) -> tuple[list[Axis | None], Axis]:
    """Axes of rows; the last one, along which places are computed, exists in any case."""
    last = builder.axis(rows.shape[-1])
    return [*builder.axes(rows.shape[:-1]), last], last


def _row(builder: Builder, rows: Tensor, axes: list[Axis | None]) -> Access:
    """Where the row begins."""
    first = slice_axis(rows, len(rows.shape) - 1, 0, 1, 1)
    return builder.access(first, [*axes[:-1], None])


def _digit_place(
    builder: Builder, keys: Tensor, table: Tensor, axes: list[Axis | None], shift: Expr
) -> tuple[Access, tuple[tuple[Expr, Size], ...]]:
    """Where the table holds the entry of an element's digit."""
    key = builder.load(keys, axes)
    digit = op("and", op("shr", key, shift), literal(DIGITS - 1, key))
    return _row(builder, table, axes), ((cast(digit, "int64"), 1),)


def _count_digits(builder: Builder, keys: Tensor, counts: Tensor, shift: Expr) -> None:
    axes, step = _row_axes(builder, keys)
    access, index = _digit_place(builder, keys, counts, axes, shift)
    count = op("add", Load(access, "int64", index=index), constant(1, "int64"))
    builder.kernel(axes, [Store(access, count, None, index)], ordered=[step])


def _move_by_digit(
    builder: Builder, state: list[Tensor], successor: list[Tensor], starts: Tensor, shift: Expr
) -> None:
    axes, step = _row_axes(builder, state[0])
    access, index = _digit_place(builder, state[0], starts, axes, shift)
    place = Load(access, "int64", index=index)
    stores = [Store(access, op("add", place, constant(1, "int64")), None, index)]
    for old, new in zip(state, successor, strict=True):
        target = _row(builder, new, axes)
        stores.append(Store(target, builder.load(old, axes), None, ((place, 1),)))
    builder.kernel(axes, stores, ordered=[step])
