"""The places that rows of a table of frames by frames do not see, and the table's values there."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.writer import Operand
from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import Fixed, OfLength, Stream, Table
from ostinato.streaming.masks import Band
from ostinato.streaming.rules.attention import places


def rows_of(context: Context, table: Table) -> Stream:
    """The stream of a table that has a row for each frame, and no frames along its last axis."""
    rank = context.rank(context.node.outputs[0])
    return Stream(rank - 2, table.rate, table.delay, extra=table.extra)


def not_understood(context: Context, index: int) -> Exception:
    """The error for a table at input `index` that is not causal, or cannot be computed."""
    fact = context.fact(context.given(index))
    why = f" ({fact.reason})" if isinstance(fact, OfLength) else ""
    return context.refuse(f"its mask is not a causal one, or is not understood{why}")


def computed(context: Context, index: int, table: Table, more: int = 2) -> np.ndarray | None:
    """A mask of a sequence that is longer than what a row can see."""
    value, converter = context.given(index), context.converter
    fact = context.fact(value)
    if isinstance(fact, Fixed):
        return fact.contents
    assert converter.context is not None
    multiple = converter.multiple
    frames = -(-int((converter.context + more) / table.rate) // multiple) * multiple
    return converter.lengths.compute(str(value.name), frames, converter.facts_by_name())


def frames_of(context: Context, table: Table) -> tuple[ir.Value, ir.Value]:
    """The numbers of the frames that rows and columns are, 0 for those that mean nothing."""
    writer, integer = context.writer, ir.DataType.INT64
    numbers = [context.converter.positions(writer, table.rate), places(context, table)]
    found = []
    for number in numbers:
        if table.delay:
            delay = np.array(table.delay, np.int64)
            number = writer.op("Sub", [number, delay], "frame", dtype=integer)
        zero = np.array(0, np.int64)
        found.append(writer.op("Max", [number, zero], "frame", dtype=integer))
    return found[0], found[1]


def hidden_from(context: Context, table: Table, band: Band) -> ir.Value:
    """The places that rows do not see: bool, frames of the step by places."""
    converter = context.converter
    assert converter.context is not None
    writer, boolean, integer = context.writer, ir.DataType.BOOL, ir.DataType.INT64
    if table.delay % band.chunk:
        raise context.refuse(
            f"its mask lets chunks of {band.chunk} frames see each other, and they come "
            f"{table.delay} frames late because of what the nodes before it look ahead: pad or "
            f"look ahead by a multiple of {band.chunk} frames there"
        )
    timing.need_multiple(context, table.rate / band.chunk)
    numbers = places(context, table)
    rows = writer.unsqueeze(converter.positions(writer, table.rate), [1], "rows")
    back = writer.op("Sub", [rows, numbers], "back", dtype=integer)
    ahead, reach = _bounds(context, rows, band)
    hidden = writer.op("Less", [back, ahead], "is_ahead", dtype=boolean)
    tests = []
    if not converter.grows or min(band.back) < converter.context - 1:
        tests.append(writer.op("Greater", [back, reach], "is_past", dtype=boolean))
    if not converter.grows or table.delay:
        first = np.array(table.delay, np.int64)
        tests.append(writer.op("Less", [numbers, first], "is_empty", dtype=boolean))
    for test in tests:
        hidden = writer.op("Or", [hidden, test], "is_hidden", dtype=boolean)
    return hidden


def _bounds(context: Context, rows: Operand, band: Band) -> tuple[Operand, Operand]:
    """How far rows look ahead, as a number that is not positive, and how far back."""
    if band.chunk == 1:
        return np.array(0, np.int64), np.array(band.back[0], np.int64)
    writer, integer = context.writer, ir.DataType.INT64
    chunk = np.array(band.chunk, np.int64)
    phase = writer.op("Mod", [rows, chunk], "phase", dtype=integer)
    ahead = writer.op("Sub", [phase, chunk - 1], "ahead", dtype=integer)
    reach = writer.op("Gather", [np.array(band.back, np.int64), phase], "reach", dtype=integer)
    return ahead, reach
