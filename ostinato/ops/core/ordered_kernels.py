"""Sorting rows of integer keys, and running sums: kernels whose points have an order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ostinato.numerics import ROW_CHAINS
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.tensor import Tensor, advance, slice_axis
from ostinato.program.expr import (
    FLOATS,
    ITEM_BYTES,
    Access,
    Axis,
    Expr,
    Index,
    Load,
    cast,
    constant,
    dtype_of,
    op,
    select,
)
from ostinato.program.kernel import Store
from ostinato.sizes.dims import Size
from ostinato.sizes.strides import Shape

# Up to this many elements are sorted by counting for each how many come before it, which takes 0.5
# to 0.7 of the time that digits take for 96, 0.75 to 1.03 for 128 and 1.2 to 1.7 for 192 (all of
# one row and of 64 rows sorted, by turns).
_COUNTED = 128
_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
# Up to this many elements are taken one by one from longer rows. Beyond, other ways take 0.3 to 0.9
# of the time for 40 to 64 of 200 to 30,000 elements, 0.8 to 1.1 for 32, and 1.0 to 2.5 for 20.
_CHOSEN = 32
# Taking elements one by one may look at this many; beyond, groups take less time if they pay: 0.7
# to 1.2 of it for 4 of 300 or 2 of 1,000, 0.4 to 0.9 for 4 of 1,000 and 0.2 to 0.8 for 1 to 4 of
# 4,000 (AVX2 and AVX-512; `benchmarks.bench_micro`, rows `topk`).
_LEAST_LOOKS = 1024
# Bits of a number that holds a key and a place, which is less than 2**31.
_PLACE_BITS = 31
# A threshold pays where there are this many times as many elements as are needed: 300 of 450, 600
# and 1,200 take 1.05, 0.93 and 0.63 of the time so, 1,000 of 2,000 0.84 (by turns). At most as many
# as are needed remain to be sorted, so one threshold is enough.
_LEAST_BEYOND = 2
# Lengths of groups whose smallest elements are looked at first, and how many times as many elements
# there must be as are looked at then: looking at 0.25 of 1,000 to 4,000 elements takes 0.4 to 0.7
# of the time of the other ways, at 0.38 of them 0.6 to 0.9, and at 0.55 and 0.64 0.8 to 1.6.
GROUPS = (8, 16, 32, 64, 128, 256)
_LEAST_SPARED = 2


def accumulate(
    builder: Builder,
    value: Tensor,
    target: Tensor,
    axis: int,
    combine: str,
    exclusive: bool,
    reverse: bool,
) -> None:
    """Write to `target` what the elements of `value` up to each add up or multiply to.

    combine: "add" or "mul". exclusive: of the elements before each; reverse: from the last one on.
    """
    extent = value.shape[axis]
    if reverse:
        value, target = (slice_axis(t, axis, extent - 1, -1, extent) for t in (value, target))
    axes: list[Axis | None] = list(builder.axes(value.shape))
    # The first element is known by its index, even if it is the only one.
    step = axes[axis] = builder.axis(extent)
    start = constant(0 if combine == "add" else 1, value.dtype)
    first = Index(step).equals(0)

    def before(tensor: Tensor) -> Expr:
        moved = Tensor(
            tensor.dtype, tensor.shape, advance(tensor, -tensor.strides[axis]), tensor.strides
        )
        return Load(builder.access(moved, axes), tensor.dtype, ~first, start)

    element = before(value) if exclusive else builder.load(value, axes)
    store = Store(builder.access(target, axes), op(combine, before(target), element))
    builder.emit.kernel(axes, [store], ordered=[step])


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
        pattern = op("bitcast", x + 0, dtype=unsigned)
        negative = pattern >= sign
        key = select(negative, ~pattern, pattern | sign)
        key = select(x.differs(x), (1 << bits) - 1, key)
    elif dtype.startswith("u"):
        key = x
    else:
        key = op("bitcast", x, dtype=unsigned) ^ sign
    return ~key if descending else key


def smallest(builder: Builder, keys: Tensor, count: Size) -> Tensor:
    """int64 positions of the `count` smallest keys along the last axis, in order.

    Of equal keys the first comes first. The order is total, so that all ways give the same.
    """
    last, extent = len(keys.shape) - 1, keys.shape[-1]
    if _is_chosen(builder, keys, count):
        assert isinstance(count, int)
        return _smallest_by_choosing(builder, keys, count)
    if isinstance(extent, int) and extent <= _COUNTED:
        return slice_axis(_sorted_by_counting(builder, keys), last, 0, 1, count)
    group = _group(extent, count)
    if group:
        assert isinstance(count, int)
        return _smallest_by_groups(builder, keys, count, group)
    if _has_threshold(keys, count):
        assert isinstance(count, int)
        return _smallest_by_threshold(builder, keys, count)
    return slice_axis(_sorted_by_digits(builder, keys), last, 0, 1, count)


def _is_chosen(builder: Builder, keys: Tensor, count: Size) -> bool:
    """Whether `count` looks at all elements take less time than the other ways."""
    extent = keys.shape[-1]
    if not isinstance(count, int) or count == 0 or ITEM_BYTES[keys.dtype] > 4:
        return False
    if isinstance(extent, int) and extent <= _COUNTED:
        return 2 * count <= extent
    if count > _CHOSEN:
        return False
    if not isinstance(extent, int):
        builder.require.nonnegative((1 << _PLACE_BITS) - 1 - extent, "elements of 2**31 - 1")
        return True
    if extent >= 1 << _PLACE_BITS:
        return False
    return count * extent < _LEAST_LOOKS or not _group(extent, count)


def _group(extent: Size, count: Size) -> int:
    """The length of groups with which the fewest elements are looked at, or 0: too many are."""
    if not isinstance(extent, int) or not isinstance(count, int) or count == 0:
        return 0
    seen = {-(-extent // group) + count * group: group for group in GROUPS}
    return seen[min(seen)] if _LEAST_SPARED * min(seen) <= extent else 0


def _has_threshold(keys: Tensor, count: Size) -> bool:
    """Whether looking for the last key that is needed takes less time than sorting all."""
    extent = keys.shape[-1]
    if not isinstance(count, int) or count == 0 or ITEM_BYTES[keys.dtype] < 4:
        return False
    return not isinstance(extent, int) or _LEAST_BEYOND * count <= extent


def _smallest_by_threshold(builder: Builder, keys: Tensor, count: int) -> Tensor:
    """Finds the last key that is needed, bit by bit, and sorts it and those before it alone.

    It is the largest number that fewer than `count` keys are below. Keys before it come first, in
    their order, and then as many of its equals as are needed, the first of them.
    """
    rows, dtype = keys.shape[:-1], keys.dtype
    bits = 8 * ITEM_BYTES[dtype]

    def number_below(limit: Tensor) -> Tensor:
        outer, other = list(builder.axes(rows)), builder.axis(keys.shape[-1], "r")
        below = builder.load(keys, [*outer, other]) < builder.load(limit, outer)
        return builder.fold(rows, outer, [other], "sum", cast(below, "int32"), ROW_CHAINS)

    limit = builder.compute(rows, lambda _: constant(0, dtype))
    with builder.emit.loop(bits) as loop:
        shift = cast(bits - 1 - Index(loop.axis), dtype)
        bit = constant(1, dtype) << shift
        tried = builder.pointwise(lambda t: t | bit, limit)
        few = builder.pointwise(
            lambda n, new, old: select(n < count, new, old),
            number_below(tried),
            tried,
            limit,
        )
        loop.carry(limit, few)
    chosen, places = _up_to(builder, keys, limit, number_below(limit), count)
    order = smallest(builder, chosen, count)
    axes = list(builder.axes(order.shape))
    index = ((builder.load(order, axes), 1),)
    place = Load(row_start(builder, places, axes), "int64", index=index)
    return builder.stored(order.shape, axes, place)


def _up_to(
    builder: Builder, keys: Tensor, limit: Tensor, below: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """The first `count` keys of each row up to a limit, its equals last, and their places.

    below: how many are below the limit.
    """
    rows, last = keys.shape[:-1], len(keys.shape) - 1
    chosen, places = (builder.empty(kind, keys.shape) for kind in (keys.dtype, "int64"))
    less = builder.compute(rows, lambda _: constant(0, "int64"))
    equal = builder.pointwise(lambda n: cast(n, "int64"), below)
    axes, own = row_axes(builder, keys)
    key, most = builder.load(keys, axes), builder.load(limit, axes[:-1])
    is_less = key < most
    next_less, next_equal = (builder.load(n, axes[:-1]) for n in (less, equal))
    index = ((select(is_less, next_less, next_equal), 1),)
    stores = [
        Store(row_start(builder, target, axes), value, key <= most, index)
        for target, value in ((chosen, key), (places, Index(own)))
    ]
    for counter, here, chosen_here in (
        (less, next_less, is_less),
        (equal, next_equal, key.equals(most)),
    ):
        following = here + cast(chosen_here, "int64")
        stores.append(Store(builder.access(counter, axes[:-1]), following))
    builder.emit.kernel(axes, stores, ordered=[own])
    return slice_axis(chosen, last, 0, 1, count), slice_axis(places, last, 0, 1, count)


def _smallest_by_groups(builder: Builder, keys: Tensor, count: int, group: int) -> Tensor:
    """Looks only at the groups of neighbours whose smallest keys are the `count` smallest.

    An element of another group has `count` smaller ones before it, one in each of these groups.
    """
    rows, extent = keys.shape[:-1], keys.shape[-1]
    assert isinstance(extent, int)
    groups = -(-extent // group)

    def key(axes: list[Axis | None], number: Expr, place: Axis) -> Expr:
        # An address in two parts: neighbours of a group are loaded at once.
        start = row_start(builder, keys, [*axes, None])
        index: tuple[tuple[Expr, Size], ...] = ((number, group),)
        if isinstance(number, Index):
            start, index = (
                Access(start.buffer, start.offset, (*start.terms, (number.axis, group))),
                (),
            )
        access = Access(start.buffer, start.offset, (*start.terms, (place, 1)))
        if extent % group == 0:
            return Load(access, keys.dtype, index=index)
        # Behind the end of a row lies what is never needed: all keys of the row come first.
        beyond = constant((1 << 8 * ITEM_BYTES[keys.dtype]) - 1, keys.dtype)
        inside = within(number, Index(place)) < extent
        return Load(access, keys.dtype, inside, beyond, index)

    def within(number: Expr, place: Expr) -> Expr:
        return number * group + place

    outer = list(builder.axes(rows))
    number, place = builder.axis(groups), builder.axis(group, "r")
    element = key(outer, Index(number), place)
    chains = min(group, ROW_CHAINS)
    lowest = builder.fold((*rows, groups), [*outer, number], [place], "min", element, chains)
    chosen = smallest(builder, lowest, count)
    # In order of their places, so that of equal keys the first comes first.
    narrow = "uint16" if groups <= 1 << 16 else "uint32"
    order = smallest(builder, builder.pointwise(lambda n: cast(n, narrow), chosen), count)
    axes = list(builder.axes(order.shape))
    index = ((builder.load(order, axes), 1),)
    sorted_ = Load(row_start(builder, chosen, axes), "int64", index=index)
    picked = builder.stored(order.shape, axes, sorted_)
    outer = list(builder.axes(rows))
    choice, inner = builder.axis(count), builder.axis(group)
    number_of = builder.load(picked, [*outer, choice])
    candidates = builder.stored(
        (*rows, count, group), [*outer, choice, inner], key(outer, number_of, inner)
    )
    found = smallest(builder, builder.reshaped(candidates, (*rows, count * group)), count)
    axes = list(builder.axes(found.shape))
    where = builder.load(found, axes)
    which = where / group
    number_there = Load(row_start(builder, picked, axes), "int64", index=((which, 1),))
    rest = op("mod", where, constant(group, "int64"))
    return builder.stored(found.shape, axes, within(number_there, rest))


def _smallest_by_choosing(builder: Builder, keys: Tensor, count: int) -> Tensor:
    """Takes the smallest element beyond the one before, `count` times.

    The place behind the bits of its key makes each element another number, in order of both.
    """
    rows, extent = keys.shape[:-1], keys.shape[-1]
    axes, own = row_axes(builder, keys)
    key = cast(builder.load(keys, axes), "int64") << _PLACE_BITS
    numbered = builder.stored(keys.shape, axes, key | Index(own))
    chosen = builder.empty("int64", (*rows, count))
    before = builder.compute(rows, lambda _: constant(-1, "int64"))
    with builder.emit.loop(count) as loop:
        outer, other = builder.axes(rows), builder.axis(extent, "r")
        element = builder.load(numbered, [*outer, other])
        beyond = element > builder.load(before, outer)
        candidate = select(beyond, element, (1 << 63) - 1)
        least = builder.fold(rows, outer, [other], "min", candidate, ROW_CHAINS)
        axes = list(builder.axes(rows))
        place = builder.load(least, axes) & ((1 << _PLACE_BITS) - 1)
        builder.emit.kernel(axes, [Store(builder.access(chosen, [*axes, loop.axis]), place)])
        loop.carry(before, least)
    return chosen


def _sorted_by_counting(builder: Builder, keys: Tensor) -> Tensor:
    """int64 positions in order of the keys along the last axis; for short rows of known length."""
    extent = keys.shape[-1]
    assert isinstance(extent, int)
    axes, own = row_axes(builder, keys)
    other = builder.axis(extent, "r")
    # In memory they are as narrow as the keys; an index has 64 bits.
    numbers = builder.constants.placed(builder.constant(np.arange(extent, dtype=np.int32)))
    mine, theirs = builder.load(keys, axes), builder.load(keys, [*axes[:-1], other])
    earlier = builder.load(numbers, [other]) < builder.load(numbers, [own])
    before = (theirs < mine) | (theirs.equals(mine) & earlier)
    ranks = builder.fold(keys.shape, axes, [other], "sum", cast(before, "int32"))
    places = builder.empty("int64", keys.shape)
    rank = cast(builder.load(ranks, axes), "int64")
    store = Store(row_start(builder, places, axes), Index(own), None, ((rank, 1),))
    builder.emit.kernel(axes, [store])
    return places


def _sorted_by_digits(builder: Builder, keys: Tensor) -> Tensor:
    """int64 positions in order of the keys along the last axis: a radix sort, lowest digit first.

    Each pass counts how often each digit occurs, turns the counts into first places, and moves
    every element to the next place of its digit, which keeps the order of the passes before.
    """
    shape, dtype = keys.shape, keys.dtype
    table: Shape = (*shape[:-1], _DIGITS)
    state, successor = ([builder.empty(kind, shape) for kind in (dtype, "int64")] for _ in range(2))
    builder.copy(keys, state[0])
    axes, own = row_axes(builder, keys)
    builder.emit.kernel(axes, [Store(builder.access(state[1], axes), Index(own))])
    with builder.emit.loop(8 * ITEM_BYTES[dtype] // _DIGIT_BITS) as loop:
        shift = cast(Index(loop.axis) * _DIGIT_BITS, dtype)
        counts = builder.compute(table, lambda _: constant(0, "int64"))
        _count_digits(builder, state[0], counts, shift)
        starts = builder.empty("int64", table)
        accumulate(builder, counts, starts, len(shape) - 1, "add", exclusive=True, reverse=False)
        _move_by_digit(builder, state, successor, starts, shift)
        for old, new in zip(state, successor, strict=True):
            loop.carry(old, new)
    return state[1]


def row_axes(builder: Builder, rows: Tensor) -> tuple[list[Axis | None], Axis]:
    """Axes of rows; the last one, along which places are computed, exists in any case."""
    last = builder.axis(rows.shape[-1])
    return [*builder.axes(rows.shape[:-1]), last], last


def row_start(builder: Builder, rows: Tensor, axes: list[Axis | None]) -> Access:
    """The address of the first element of the row."""
    # Rows may be empty: then nothing is read, and there is no element to be known.
    first = slice_axis(replace(rows, known=None), len(rows.shape) - 1, 0, 1, 1)
    return builder.access(first, [*axes[:-1], None])


def _digit_place(
    builder: Builder, keys: Tensor, table: Tensor, axes: list[Axis | None], shift: Expr
) -> tuple[Access, tuple[tuple[Expr, Size], ...]]:
    """The address of the entry in `table` for an element's digit."""
    key = builder.load(keys, axes)
    digit = op("shr", key, shift) & (_DIGITS - 1)
    return row_start(builder, table, axes), ((cast(digit, "int64"), 1),)


def _count_digits(builder: Builder, keys: Tensor, counts: Tensor, shift: Expr) -> None:
    axes, step = row_axes(builder, keys)
    access, index = _digit_place(builder, keys, counts, axes, shift)
    count = Load(access, "int64", index=index) + 1
    builder.emit.kernel(axes, [Store(access, count, None, index)], ordered=[step])


def _move_by_digit(
    builder: Builder, state: list[Tensor], successor: list[Tensor], starts: Tensor, shift: Expr
) -> None:
    axes, step = row_axes(builder, state[0])
    access, index = _digit_place(builder, state[0], starts, axes, shift)
    place = Load(access, "int64", index=index)
    stores = [Store(access, place + 1, None, index)]
    for old, new in zip(state, successor, strict=True):
        target = row_start(builder, new, axes)
        stores.append(Store(target, builder.load(old, axes), None, ((place, 1),)))
    builder.emit.kernel(axes, stores, ordered=[step])
