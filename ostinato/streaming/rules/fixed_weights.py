"""Products of frames and of weights that follow from the length of the sequence alone."""

from __future__ import annotations

import numpy as np

from ostinato.graph.writer import Operand
from ostinato.model.values import filled
from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import OfLength, Table
from ostinato.streaming.indexed import Indexed
from ostinato.streaming.masks import band_of, seen_by_rows
from ostinato.streaming.rules.attention import NO_MASK, kept
from ostinato.streaming.rules.hiding import (
    computed,
    frames_of,
    hidden_from,
    not_understood,
    rows_of,
)


def weighs_frames(context: Context) -> bool:
    """Whether a node is the product of a table that follows from the length and of frames."""
    if context.op_type != "MatMul" or context.node.domain:
        return False
    stream = context.stream(1)
    is_table = isinstance(context.fact(context.given(0)), OfLength)
    return is_table and stream is not None and stream.axis == context.rank(context.given(1)) - 2


def weights_of_length(context: Context) -> None:
    """Weights that follow from the numbers of frames alone, such as a decay, by the frames."""
    limit = context.converter.context
    if limit is None:
        raise context.refuse(f"{NO_MASK}; then say how far with context=, a number or 'all'")
    value, stream = timing.settled(context, 1)
    table = Table(stream.rate, stream.delay, stream.extra, "weights")
    contents = computed(context, 0, table)
    seen = None if contents is None else seen_by_rows(contents != 0)
    band = None if seen is None else band_of(seen | np.eye(seen.shape[-1], dtype=bool), limit)
    if band is None:
        raise not_understood(context, 0)
    frames = kept(context, timing.masked(context, value, stream, 0.0), stream)
    given = context.given(0)
    made = Indexed(context, *frames_of(context, table)).table(str(given.name), context.rank(given))
    operands: list[Operand] = [
        hidden_from(context, table, band),
        filled(given),
        made,
    ]
    context.operand(0, context.writer.op("Where", operands, "weights", dtype=given.dtype))
    context.operand(1, frames)
    context.set(rows_of(context, table))
