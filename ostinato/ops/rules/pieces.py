"""Operators of sequences whose elements differ along one axis, which lie one behind the other."""

from __future__ import annotations

from dataclasses import replace

from ostinato.ops.core.builder import Appending
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Pieces, Stack, Tensor, Value, slice_axis, transpose
from ostinato.ops.rules.gather import gather
from ostinato.ops.rules.parts import concatenated
from ostinato.ops.rules.sequence_forms import agree, in_front, order_back, put_back
from ostinato.program.expr import Expr, Extent, Index, cast
from ostinato.sizes.dims import Size


def element(context: Context, sequence: Pieces, position: Value) -> Value:
    """The element at a position that a run computes."""
    builder, borders = context.builder, context.builder.strided(sequence.borders)
    place, count = builder.reshaped(position, ()), sequence.length
    start, end = (
        builder.load(gather(context, slice_axis(borders, 0, first, 1, count), place, 0), ())
        for first in (0, 1)
    )
    begins = _as_size(context, sequence, start)
    rows = _as_size(context, sequence, end - start)
    return put_back(slice_axis(builder.strided(sequence.rows), 0, begins, 1, rows), sequence.axis)


def _as_size(context: Context, sequence: Pieces, number: Expr) -> Size:
    """A number of rows, which is no more than there are."""
    return context.builder.sizes.computed(number, sequence.rows.shape[0], "rows of an element")


def border(context: Context, sequence: Pieces, position: Size) -> Size:
    """The row at which the element at a position begins."""
    builder = context.builder
    found = slice_axis(builder.strided(sequence.borders), 0, position, 1, 1)
    return _as_size(context, sequence, builder.load(builder.reshaped(found, ()), ()))


def appended(context: Context, sequence: Pieces, value: Value) -> Pieces:
    """The sequence with one more tensor behind it, in place where that is possible."""
    piece = _piece(context, sequence, value)
    end = Extent(sequence.rows.shape[0] + piece.shape[0])
    ends = context.builder.compute((1,), lambda _: end)
    appending = context.builder.appending.get(context.node.outputs[0].name or "")
    rows = behind(context, sequence.rows, piece, appending)
    borders = behind(context, sequence.borders, ends, appending and appending.borders)
    return Pieces(sequence.dtype, rows, borders, sequence.axis)


def _piece(context: Context, sequence: Pieces, value: Value) -> Value:
    """A tensor as rows of a sequence."""
    axis, rest = sequence.axis, sequence.rows.shape[1:]
    others = (*value.shape[:axis], *value.shape[axis + 1 :])
    if len(value.shape) <= axis or not agree(context.builder, others, rest):
        raise context.refuse(
            f"a tensor of shape {list(map(str, value.shape))} joins a sequence of such that differ "
            f"along axis {axis} alone, which has no native form in a loop"
        )
    return in_front(value, axis)


def behind(context: Context, rows: Value, more: Value, appending: Appending | None) -> Value:
    """More rows behind those of a sequence, in place where that is possible."""
    longer = None if appending is None else appending.append(rows, 0, more)
    return concatenated(context, [rows, more], 0) if longer is None else longer


def inserted(context: Context, sequence: Pieces, value: Value, position: Size) -> Pieces:
    """The sequence with one more tensor before that at a position, which is valid."""
    piece = _piece(context, sequence, value)
    cut = border(context, sequence, position)
    first, last = parts(context, sequence.rows, cut, cut)
    before, after = parts(context, sequence.borders, position + 1, position)
    return replace(
        sequence,
        rows=concatenated(context, [first, piece, last], 0),
        borders=concatenated(context, [before, _moved(context, after, piece.shape[0])], 0),
    )


def erased(context: Context, sequence: Pieces, position: Size) -> Pieces:
    """The sequence without the tensor at a position, which is valid."""
    start, end = (border(context, sequence, position + i) for i in (0, 1))
    rows = parts(context, sequence.rows, start, end)
    before, after = parts(context, sequence.borders, position + 1, position + 2)
    return replace(
        sequence,
        rows=concatenated(context, rows, 0),
        borders=concatenated(context, [before, _moved(context, after, start - end)], 0),
    )


def without_last(context: Context, sequence: Pieces) -> Pieces:
    """The sequence without its last tensor; there is one."""
    builder, length = context.builder, sequence.length
    left = border(context, sequence, length - 1)
    return replace(
        sequence,
        rows=slice_axis(builder.strided(sequence.rows), 0, 0, 1, left),
        borders=slice_axis(builder.strided(sequence.borders), 0, 0, 1, length),
    )


def parts(context: Context, value: Value, end: Size, start: Size) -> list[Tensor]:
    """The rows of a value before `end`, and those from `start` on."""
    rows = context.builder.strided(value)
    return [
        slice_axis(rows, 0, 0, 1, end),
        slice_axis(rows, 0, start, 1, rows.shape[0] - start),
    ]


def _moved(context: Context, borders: Value, rows: Size) -> Value:
    """Borders that lie this many rows further."""
    by = Extent(rows)
    return context.builder.pointwise(lambda border: border + by, borders)


def alike(context: Context, sequence: Pieces) -> Stack:
    """The elements, of which there are some, as rows: an error in a run where they differ."""
    builder, axis, count = context.builder, sequence.axis, sequence.length
    size, number = border(context, sequence, 1), builder.axis(count + 1)
    place = cast(Index(number), "int64") * Extent(size)
    moved = builder.load(builder.strided(sequence.borders), (number,)).differs(place)
    flags = builder.stored((count + 1,), (number,), cast(moved, "int64"))
    differ = builder.load(builder.reduce(flags, (0,), "max", lambda flag: flag), (None,))
    builder.require.that(
        0 - builder.sizes.computed(differ, 1, "whether elements differ"),
        f"elements of a sequence differ along axis {axis}, so that they cannot be joined",
    )
    rows = builder.strided(sequence.rows)
    shape, strides = (count, size, *rows.shape[1:]), (size * rows.strides[0], *rows.strides)
    apart = Tensor(rows.dtype, shape, rows.base, strides)
    order = (0, *(1 + i for i in order_back(len(rows.shape), axis)))
    return Stack(sequence.dtype, transpose(apart, order))
