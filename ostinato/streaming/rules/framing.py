"""Frames that overlap, taken by a table of positions, as `unfold` of PyTorch is written.

The positions follow from the length of the sequence alone. So they are not recognised by the nodes
that compute them: they are computed for two lengths, and looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ostinato.graph.writer import Operand
from ostinato.streaming.context import Context
from ostinato.streaming.facts import Stream
from ostinato.streaming.rules.windows import windowed

# Sequences of this many frames and of half as many more tell how positions depend on time.
_LOOKED_AT = 1024


@dataclass(frozen=True)
class _Frames:
    """Frame `t` takes the positions `first + t * hop`; t is axis `axis` of their table.

    extra: how many frames more than one for each `hop` there are.
    """

    axis: int
    hop: int
    first: np.ndarray
    extra: int


def framed(context: Context, data: Stream) -> bool:
    """Convert a Gather that takes overlapping frames of `data`, if its input 1 says so."""
    found = _frames(context, data)
    if found is None:
        return False
    begin = int(found.first.min())
    extent = int(found.first.max()) - begin + 1
    value, stream = windowed(context, context.given(0), data, extent, found.hop, -begin, None)
    writer = context.writer
    frames = context.converter.frames(writer, stream.rate)
    starts = writer.numbers(frames, "starts")
    behind = list(range(1, found.first.ndim - found.axis))
    if found.hop != 1:
        starts = writer.op("Mul", [starts, np.array(found.hop)], "starts", dtype=ir.DataType.INT64)
    if behind:
        starts = writer.unsqueeze(writer.value(starts, "starts"), behind, "starts")
    operands: list[Operand] = [starts, found.first - begin]
    positions = writer.op("Add", operands, "positions", dtype=ir.DataType.INT64)
    context.operand(0, value)
    context.operand(1, positions)
    context.set(replace(stream, axis=data.axis + found.axis, extra=found.extra))
    return True


def _frames(context: Context, data: Stream) -> _Frames | None:
    converter, name = context.converter, str(context.given(1).name)
    if data.extra is None:
        return None
    if context.attributes.int("axis", 0) % context.rank(context.given(0)) != data.axis:
        return None
    given, length = context.constant(1), converter.length
    if given is not None and length is not None:
        return _look(given, length, data)
    if not converter.lengths.decides(name):
        return None
    count = -(-_LOOKED_AT // converter.multiple) * converter.multiple
    facts = converter.facts_by_name()
    short = _look(converter.lengths.compute(name, 2 * count, facts), 2 * count, data)
    long = _look(converter.lengths.compute(name, 3 * count, facts), 3 * count, data)
    if short is None or long is None or not np.array_equal(short.first, long.first):
        return None
    return short if replace(short, first=long.first) == long else None


def _look(table: np.ndarray | None, length: int, data: Stream) -> _Frames | None:
    """The frames that positions in a sequence of `length` frames tell."""
    if table is None or not table.size or data.extra is None:
        return None
    for axis in range(table.ndim):
        rows = np.moveaxis(table, axis, 0)
        hop = int((rows[1] - rows[0]).flat[0]) if len(rows) > 1 else 0
        count = (length * data.rate / hop) if hop > 0 else Fraction(1, 2)
        steps = np.arange(len(rows)).reshape(-1, *[1] * (table.ndim - 1)) * hop
        # Another axis of the table is one of a few places in a frame.
        if count % 1 or abs(len(rows) - count) * hop > length // 2:
            continue
        within = table.min() >= 0 and table.max() < length * data.rate + data.extra
        if within and (rows == rows[:1] + steps).all():
            first = np.take(table, [0], axis).astype(np.int64)
            return _Frames(axis, hop, first, len(rows) - int(count))
    return None
