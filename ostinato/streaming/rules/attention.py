"""Causal attention: keys and values of earlier frames are states, a ring of a fixed length.

A table of frames by frames, `Q K'`, becomes one of the frames of a step by the places of the ring.
The mask of the model is computed and looked at (`masks`), and one with the same meaning is written:
a row sees the last `reach` frames. Scores of places it does not see are minus infinity.

Frame `n` is at place `n mod size`, and the size is a multiple of 32. So until the ring is full each
weight is where it is in the whole model, and the sums over weights, which keep 32 partial results,
have the same bits. After that the order in which they are added turns around the ring.

Where rows may see all frames so far, there is no ring: keys and values are states that grow, by a
Concat of what came before and the frames of this step. Their bits are those of the whole model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.numerics import ROW_CHAINS
from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import Fixed, Length, OfLength, Stream, Table
from ostinato.streaming.masks import NEVER, reach_of
from ostinato.streaming.registry import streams
from ostinato.streaming.rules.frames import each_frame

_NO_MASK = (
    "attends to all frames of the sequence: attention has to be causal, by a mask that follows "
    "from the length alone, or by is_causal of the operator Attention"
)


@dataclass(frozen=True)
class Ring:
    """The places of a ring of `size` frames, at one rate.

    numbers: of the frame at each place, negative where there is none yet: int64, `[size]`.
    is_new: which come with this step. source: their places among the frames of the step.
    """

    size: int
    numbers: ir.Value
    is_new: ir.Value
    source: ir.Value


@dataclass(frozen=True)
class Everything:
    """The frames so far at one rate, in order. numbers: of each of them, from 0 on: int64."""

    numbers: ir.Value


@streams("MatMul")
def matmul(context: Context) -> None:
    """Frames by weights, or matrices in step; frames by frames are a table."""
    left, right = context.stream(0), context.stream(1)
    if left is not None and right is not None:
        places = [s.axis - context.rank(context.input(i)) for i, s in enumerate((left, right))]
        if places == [-2, -1]:
            _scores(context)
            return
    each_frame(context)


def _scores(context: Context) -> None:
    """`Q K'`: rows of the first operand's frames, columns of the second one's."""
    if context.converter.context is None:
        raise context.refuse(
            f"{_NO_MASK}; then say how far it can look back with context=, a number or 'all'"
        )
    left, right = context.stream(0), context.stream(1)
    assert left is not None and right is not None
    stream = timing.align(context, [0, 1])
    keys = _kept(context, context.input(1), replace(right, delay=stream.delay, fill=None))
    context.operand(1, keys)
    context.set(Table(stream.rate, stream.delay, stream.extra))


def _kept(context: Context, value: ir.Value, stream: Stream) -> ir.Value:
    """The frames of `value` in the ring, along its time axis, with those of this step."""
    if context.converter.grows:
        return _appended(context, value, stream)
    ring = ring_of(context, stream.rate)
    dims = list(context.dims(value))
    dims[stream.axis] = ring.size
    assert value.dtype is not None
    initial = np.zeros([n if isinstance(n, int) else 1 for n in dims], value.dtype.numpy())
    purpose = f"a ring of {ring.size} frames"
    old, give = context.converter.add_state(context, "ring", dims, initial, purpose)
    new = context.writer.op(
        "Gather", [value, ring.source], "ring_new", {"axis": stream.axis}, value.dtype
    )
    behind = list(range(1, len(dims) - stream.axis))
    is_new = context.writer.unsqueeze(ring.is_new, behind, "is_new") if behind else ring.is_new
    ring_next = context.writer.op("Where", [is_new, new, old], "ring", dtype=value.dtype)
    give(ring_next)
    return ring_next


def _appended(context: Context, value: ir.Value, stream: Stream) -> ir.Value:
    """The frames of `value` behind those of earlier steps, which are a state that grows."""
    converter, writer = context.converter, context.writer
    dims = list(context.dims(value))
    dims[stream.axis] = past = converter.past(stream.rate)
    assert value.dtype is not None
    sizes = [0 if n == past else n if isinstance(n, int) else 1 for n in dims]
    initial = np.zeros(sizes, value.dtype.numpy())
    purpose = "all frames so far"
    whole: ir.Value
    old, give = converter.add_state(context, "past", dims, initial, purpose, stream.axis)
    whole = writer.op("Concat", [old, value], "so_far", {"axis": stream.axis}, value.dtype)
    give(whole)
    if stream.rate not in converter.everything:
        count = writer.squeeze(writer.size(whole, stream.axis), 0, "count")
        bounds = [np.array(0, np.int64), count, np.array(1, np.int64)]
        numbers = writer.op("Range", bounds, "numbers", dtype=ir.DataType.INT64)
        converter.everything[stream.rate] = Everything(numbers)
        context.note("sees all frames so far, in states that grow")
    return whole


def _places(context: Context, table: Table) -> ir.Value:
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
    context.note(f"a step may have {most} frames at most")
    return writer.op("Add", [last, zero], "last", dtype=integer)


def table_rule(context: Context) -> None:
    """Convert a node that reads a table of frames by frames."""
    tables = [i for i in range(len(context.node.inputs)) if _table(context, i) is not None]
    facts = facts_of(context.op_type)
    if facts.elementwise and not facts.broadcasts:
        _alone(context)
    elif context.op_type in ("Softmax", "Reshape"):
        {"Softmax": _softmax, "Reshape": _reshape}[context.op_type](context)
    elif context.op_type == "MatMul" and tables == [0]:
        _weighted(context)
    elif facts.elementwise:
        _masked_or_scaled(context, tables)
    else:
        raise context.refuse("reads a table of frames by frames, as of attention")


def _table(context: Context, index: int) -> Table | None:
    fact = context.fact(context.input(index)) if context.has(index) else None
    return fact if isinstance(fact, Table) else None


def _first_table(context: Context) -> Table:
    table = _table(context, 0)
    if table is None:
        raise context.refuse("reads a table of frames by frames, as of attention")
    return table


def _alone(context: Context) -> None:
    table = _first_table(context)
    if context.op_type == "IsNaN" and table.form == "weights":
        # Every row sees itself, so none of them is empty.
        context.set(replace(table, form="nowhere"))
    elif table.form == "masked" and facts_of(context.op_type).computes:
        raise context.refuse("computes with scores that are masked")
    else:
        context.set_all(table)


def _softmax(context: Context) -> None:
    table = _first_table(context)
    if table.form != "masked":
        raise context.refuse(_NO_MASK)
    if context.axis(-1) != context.rank(context.input(0)) - 1:
        raise context.refuse("normalises over the rows of a table of frames by frames")
    context.set(replace(table, form="weights"))


def _reshape(context: Context) -> None:
    """Of the axes in front of rows and columns."""
    table, elements = _first_table(context), context.elements(1)
    growing = [i for i, element in enumerate(elements) if isinstance(element, Length)]
    if growing != [len(elements) - 2, len(elements) - 1]:
        raise context.refuse("changes a table of frames by frames")
    frames = context.converter.frames(context.writer, table.rate)
    # What is left is as many columns as there are frames.
    places = -1 if context.converter.grows else ring_of(context, table.rate).size
    context.write_sizes(1, (*elements[:-1], places), growing[0], frames)
    context.set(table)


def _weighted(context: Context) -> None:
    """The weights by the values."""
    table, stream = _first_table(context), context.stream(1)
    if table.form != "weights":
        raise context.refuse(_NO_MASK)
    if stream is None or stream.axis != context.rank(context.input(1)) - 2:
        raise context.refuse("weighs something else than frames")
    if stream.rate != table.rate or stream.delay > table.delay or stream.steady:
        raise context.refuse("its weights and values are out of step")
    value, stream = timing.delayed(context, context.input(1), stream, table.delay - stream.delay)
    # Frames that mean nothing have no weight, but may hold infinities.
    context.operand(1, _kept(context, timing.masked(context, value, stream, 0.0), stream))
    rank = context.rank(context.node.outputs[0])
    context.set(Stream(rank - 2, table.rate, table.delay, extra=table.extra))


def _masked_or_scaled(context: Context, tables: list[int]) -> None:
    others = [i for i in range(len(context.node.inputs)) if i not in tables]
    table = _table(context, tables[0])
    assert table is not None
    if context.op_type == "Where" and _is_mask(context, 0):
        _where(context)
        return
    masks = [i for i in others if _is_mask(context, i)]
    if context.op_type == "Add" and len(tables) == len(masks) == 1:
        _hide(context, tables[0], masks[0], turned=False)
        return
    nowhere = _table(context, 0)
    if context.op_type == "Where" and nowhere is not None and nowhere.form == "nowhere":
        weights = _table(context, 2)
        if weights is not None:
            context.replace(context.writer.copy(context.input(2)), weights)
            return
    for i in others:
        dims = context.dims(context.input(i))
        if not isinstance(context.fact(context.input(i)), Fixed) or any(n != 1 for n in dims[-2:]):
            raise context.refuse(f"input {i} has values of its own for rows or columns of scores")
    if table.form != "scores" or len(tables) > 1:
        raise context.refuse("computes with scores that are masked, or several of them")
    context.set(table)


def _is_mask(context: Context, index: int) -> bool:
    value = context.input(index)
    fact = context.fact(value)
    if isinstance(fact, OfLength):
        return True
    dims = context.dims(value)
    square = len(dims) >= 2 and 1 not in dims[-2:]
    return square and isinstance(fact, Fixed) and fact.contents is not None


def _where(context: Context) -> None:
    """Scores where the mask says so; weights where a row sees nothing, which no row does."""
    for index in (1, 2):
        table = _table(context, index)
        other = context.constant(3 - index)
        if table is None or other is None or other.size != 1:
            continue
        if table.form == "scores" and float(other.reshape(-1)[0]) <= NEVER:
            _hide(context, index, 0, turned=index == 2)
            return
        empty = _computed(context, 0, table)
        if table.form == "weights" and empty is not None and (empty == (index == 1)).all():
            context.replace(context.writer.copy(context.input(index)), table)
            return
    raise context.refuse("chooses among scores by a mask that is not understood")


def _computed(context: Context, index: int, table: Table) -> np.ndarray | None:
    """A mask of a sequence that is longer than what a row can see."""
    value, converter = context.input(index), context.converter
    fact = context.fact(value)
    if isinstance(fact, Fixed):
        return fact.contents
    assert converter.context is not None
    multiple = converter.multiple
    frames = -(-int((converter.context + 2) / table.rate) // multiple) * multiple
    return converter.lengths.compute(str(value.name), frames, converter.facts_by_name())


def _hide(context: Context, index: int, mask: int, *, turned: bool) -> None:
    """Give places that a row does not see the score minus infinity."""
    table, converter = _table(context, index), context.converter
    assert table is not None and converter.context is not None
    contents = _computed(context, mask, table)
    if contents is not None and turned:
        contents = ~contents
    reach = None if contents is None else reach_of(contents, converter.context)
    if reach is None:
        fact = context.fact(context.input(mask))
        why = f" ({fact.reason})" if isinstance(fact, OfLength) else ""
        raise context.refuse(f"its mask is not a causal one, or is not understood{why}")
    writer, boolean = context.writer, ir.DataType.BOOL
    numbers = _places(context, table)
    positions = converter.positions(writer, table.rate)
    rows = writer.unsqueeze(positions, [1], "rows")
    back = writer.op("Sub", [rows, numbers], "back", dtype=ir.DataType.INT64)
    hidden = writer.op("Less", [back, np.array(0, np.int64)], "is_ahead", dtype=boolean)
    tests = []
    if not converter.grows or reach < converter.context:
        most = np.array(reach - 1, np.int64)
        tests.append(writer.op("Greater", [back, most], "is_past", dtype=boolean))
    if not converter.grows or table.delay:
        first = np.array(table.delay, np.int64)
        tests.append(writer.op("Less", [numbers, first], "is_empty", dtype=boolean))
    for test in tests:
        hidden = writer.op("Or", [hidden, test], "is_hidden", dtype=boolean)
    scores_ = context.input(index)
    assert scores_.dtype is not None
    never = np.array(-np.inf, scores_.dtype.numpy())
    masked = writer.op("Where", [hidden, never, scores_], "masked", dtype=scores_.dtype)
    context.replace(masked, replace(table, form="masked"))
