"""Causal attention: keys and values of earlier frames are states, a ring of a fixed length.

A table of frames by frames, `Q K'`, becomes one of the frames of a step by the places of the ring.
What the model makes of it until it is a stream again is in `tables`.

Frame `n` is at place `n mod size`, and the size is a multiple of 32. So until the ring is full each
weight is where it is in the whole model, and the sums over weights, which keep 32 partial results,
have the same bits. After that the order in which they are added turns around the ring.

Where rows may see all frames so far, there is no ring: keys and values are states that grow, by a
Concat of what came before and the frames of this step. Their bits are those of the whole model.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ostinato.model.values import filled
from ostinato.numerics import ROW_CHAINS
from ostinato.streaming import timing
from ostinato.streaming.added_states import add_state
from ostinato.streaming.context import Context
from ostinato.streaming.facts import Everything, Ring, Stream, Table
from ostinato.streaming.registry import streams
from ostinato.streaming.rules.frames import each_frame

NO_MASK = (
    "attends to all frames of the sequence: attention has to be causal, by a mask that follows "
    "from the length alone, or by is_causal of the operator Attention"
)


@streams("MatMul")
def matmul(context: Context) -> None:
    """Frames by weights, or matrices in step; frames by frames are a table."""
    left, right = context.stream(0), context.stream(1)
    if left is not None and right is not None:
        places = [s.axis - context.rank(context.given(i)) for i, s in enumerate((left, right))]
        if places == [-2, -1]:
            _scores(context)
            return
    each_frame(context)


def _scores(context: Context) -> None:
    """`Q K'`: rows of the first operand's frames, columns of the second one's."""
    if context.converter.context is None:
        raise context.refuse(
            f"{NO_MASK}; then say how far it can look back with context=, a number or 'all'"
        )
    left, right = context.stream(0), context.stream(1)
    assert left is not None and right is not None
    stream = timing.align(context, [0, 1])
    keys = kept(context, context.given(1), replace(right, delay=stream.delay, fill=None))
    context.operand(1, keys)
    context.set(Table(stream.rate, stream.delay, stream.extra))


def kept(context: Context, value: ir.Value, stream: Stream) -> ir.Value:
    """The frames of `value` in the ring, along its time axis, with those of this step."""
    if context.converter.grows:
        return _appended(context, value, stream)
    ring = ring_of(context, stream.rate)
    dims = list(context.dims(value))
    dims[stream.axis] = ring.size
    initial = filled(value, [n if isinstance(n, int) else 1 for n in dims])
    purpose = f"a ring of {ring.size} frames"
    old, give = add_state(context, "ring", dims, initial, purpose)
    axis, frames = stream.axis, timing.filled_up(context, value, stream.axis)
    new = context.writer.op(
        "Gather", [frames, ring.source], "ring_new", {"axis": axis}, value.dtype
    )
    behind = list(range(1, len(dims) - axis))
    is_new = context.writer.unsqueeze(ring.is_new, behind, "is_new") if behind else ring.is_new
    ring_next = context.writer.op("Where", [is_new, new, old], "ring", dtype=value.dtype)
    give(ring_next)
    return ring_next


def _appended(context: Context, value: ir.Value, stream: Stream) -> ir.Value:
    """The frames of `value` behind those of earlier steps, which are a state that grows."""
    converter, writer = context.converter, context.writer
    dims = list(context.dims(value))
    dims[stream.axis] = past = converter.past(stream.rate)
    sizes = [0 if n == past else n if isinstance(n, int) else 1 for n in dims]
    initial, purpose = filled(value, sizes), "all frames so far"
    whole: ir.Value
    old, give = add_state(context, "past", dims, initial, purpose, stream.axis)
    whole = writer.op("Concat", [old, value], "so_far", {"axis": stream.axis}, value.dtype)
    give(whole)
    if stream.rate not in converter.everything:
        numbers = writer.numbers(writer.size(whole, stream.axis), "numbers")
        converter.everything[stream.rate] = Everything(numbers)
        context.note("sees all frames so far, in states that grow")
    return whole


def places(context: Context, table: Table) -> ir.Value:
    """The numbers of the frames that columns of a table are."""
    if context.converter.grows:
        return context.converter.everything[table.rate].numbers
    return ring_of(context, table.rate).numbers


def ring_of(context: Context, rate: Fraction) -> Ring:
    """The ring of a rate, which all tables of the rate share."""
    converter, writer = context.converter, context.writer
    if rate in converter.rings:
        return converter.rings[rate]
    assert converter.context is not None
    reach, chunk = converter.context, converter.chunk
    frames = reach if chunk is None else int(chunk * rate)
    size = -(-(reach + frames - 1) // ROW_CHAINS) * ROW_CHAINS
    integer, boolean = ir.DataType.INT64, ir.DataType.BOOL
    first, one = converter.first(writer, rate), np.array([1], np.int64)
    before_last = writer.op("Sub", [converter.frames(writer, rate), one], "place", dtype=integer)
    last = writer.op("Add", [first, before_last], "last", dtype=integer)
    if chunk is None:
        last = _checked(context, last, before_last, size - reach + 1)
    behind = writer.op("Sub", [last, np.arange(size)], "behind", dtype=integer)
    turned = writer.op("Mod", [behind, np.array(size, np.int64)], "behind", dtype=integer)
    numbers = writer.op("Sub", [last, turned], "frame_at_place", dtype=integer)
    index = writer.op("Sub", [numbers, first], "index", dtype=integer)
    zero = np.array(0, np.int64)
    is_old = writer.op("Less", [index, zero], "is_old", dtype=boolean)
    is_new = writer.op("Not", [is_old], "is_new", dtype=boolean)
    source = writer.op("Where", [is_old, zero, index], "source", dtype=integer)
    converter.rings[rate] = ring = Ring(size, numbers, is_new, source)
    context.note(f"looks back {reach} frames, in a ring of {size}")
    return ring


def _checked(context: Context, last: ir.Value, place: ir.Value, most: int) -> ir.Value:
    """`last`, picked from a table so that a step of more than `most` frames is an error."""
    writer, integer = context.writer, ir.DataType.INT64
    table = np.zeros(most, np.int64)
    zero = writer.op("Gather", [table, place], "chunk_that_fits", dtype=integer)
    context.converter.expect(writer, f"{most} at most")
    context.note(f"a step may have {most} frames at most")
    return writer.op("Add", [last, zero], "last", dtype=integer)
