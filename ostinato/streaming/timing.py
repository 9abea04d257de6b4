"""Frames of streams in time: delays that align streams, and frames kept from earlier steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ostinato.model.schema import schema_of
from ostinato.model.values import filled
from ostinato.streaming.added_states import add_state
from ostinato.streaming.context import END, Context
from ostinato.streaming.facts import MIRRORED, Fixed, SoFar, Stream

CUT_AND_PADDED = (
    "the whole model cuts frames off the end, or may do so, and pads there: its last frames differ"
)


def need_end(context: Context, stream: Stream) -> None:
    """Refuse what belongs to the last frame of a stream that is not the last one sent."""
    if not stream.ends_with_step:
        raise context.refuse(
            "belongs to the last frame of the whole sequence, which is not the last one of a "
            "step: padding, or what was cut off, lies between"
        )


def need_moves(context: Context, value: ir.Value) -> None:
    """Refuse to keep or pick frames of types that no operator moves: those of 4 bits, float8."""
    schema = schema_of("Gather", "", context.converter.opset)
    name = None if value.dtype is None else value.dtype.name.lower()
    if schema is not None and f"tensor({name})" not in schema.inputs[0].types:
        raise context.refuse(
            f"frames of {value.name!r} have to be moved, and no operator moves those of type "
            f"{name}: convert them behind this node"
        )


def nothing(dtype: ir.DataType | None) -> float | str:
    """The fill for an element that means nothing, and the default of Pad: 0."""
    return "" if dtype is ir.DataType.STRING else 0.0


def placed(stream: Stream) -> Stream:
    """A steady stream as one with a delay, whose last frame is the last one of a step."""
    if not stream.steady or stream.extra is None:
        return stream
    return replace(stream, steady=False, delay=max(0, -stream.extra))


def padded_behind(context: Context, stream: Stream) -> Stream:
    """The fact of what is to be padded at its end.

    Frames that the whole model has cut off there are sent all the same, in place of the
    padding: then nothing is known of the last frames any more.
    """
    if stream.extra is not None and stream.extra + stream.delay >= 0:
        return stream
    context.note(CUT_AND_PADDED)
    return replace(stream, extra=None)


def so_far(stream: Stream, last: int | None = None) -> SoFar:
    """Describe the frames of `stream` that a result depends on: those so far, or the `last`.

    The whole model has `rate * frames - delay` frames of it.
    """
    frames = math.ceil(((last or 1) + stream.delay) / stream.rate)
    return SoFar(last is not None, max(frames, 1))


def delayed(
    context: Context, value: ir.Value, stream: Stream, frames: int
) -> tuple[ir.Value, Stream]:
    """`value`, `frames` frames later."""
    if frames and stream.fill is MIRRORED:
        raise context.refuse(
            "frames that mirror those behind the first one are not there in time: only windows "
            "(Conv, STFT, pools) wait for them"
        )
    result = replace(stream, delay=stream.delay + frames, fill=None)
    if result.delay < 0:
        result = replace(result, fill=stream.fill)
    if frames == 0 or stream.steady:
        return value, replace(result, delay=0) if stream.steady else result
    joined = history(context, value, stream, frames, "delay", f"{frames} frames that wait")
    late = context.writer.slice(joined, stream.axis, 0, -frames, "delayed")
    context.know(late, result, context.converter.dims(value))
    return late, result


def settled(context: Context, index: int) -> tuple[ir.Value, Stream]:
    """Input `index` with all its frames sent: its delay is not negative."""
    stream = context.required_stream(index)
    value, stream = delayed(context, context.given(index), stream, max(0, -stream.delay))
    context.operand(index, value)
    return value, stream


def align(context: Context, indices: Sequence[int]) -> Stream:
    """Delay the streams at the inputs `indices` until their frames align; return one of them.

    The axis of the result is that of the first stream.
    """
    found = [stream for i in indices if (stream := context.stream(i)) is not None]
    moving = [stream for stream in found if not stream.steady]
    if not moving:
        return found[0]
    rates = {stream.rate for stream in found}
    if len(rates) > 1:
        rates_text = " and ".join(map(str, sorted(rates, reverse=True)))
        raise context.refuse(f"its inputs have {rates_text} frames for each frame of the input")
    target = max(0, *(stream.delay for stream in moving))
    for i in indices:
        stream = context.stream(i)
        if stream is not None and not stream.steady and stream.delay < target:
            value, _ = delayed(context, context.given(i), stream, target - stream.delay)
            context.operand(i, value)
            if stream.delay >= 0:
                context.note(f"input {i} waits {target - stream.delay} frames for the other inputs")
    extra = next((stream.extra for stream in moving if stream.extra is not None), None)
    return replace(found[0], delay=target, fill=None, steady=False, extra=extra)


def history(
    context: Context,
    value: ir.Value,
    stream: Stream,
    frames: int,
    role: str,
    purpose: str,
    before: float | str | None = None,
) -> ir.Value:
    """The last `frames` frames of earlier steps, and behind them those of this one.

    before: what is in place of the frames before the first, where that matters.
    """
    # Readers may see other frames than 0 before the first.
    key = (value, frames, before, stream.delay, stream.fill)
    if key in context.converter.histories:
        return context.converter.histories[key]
    value = masked(context, value, stream, before)
    if frames == 0:
        return value
    need_moves(context, value)
    dims = list(context.dims(value))
    dims[stream.axis] = frames
    if stream.delay < 0 and isinstance(stream.fill, ir.Value):
        first = _first_frames(context, stream.fill, stream, frames, before or nothing(value.dtype))
        old, give = seeded(context, first, role, dims, purpose)
    else:
        representative = [size if isinstance(size, int) else 1 for size in dims]
        assert value.dtype is not None
        initial = np.full(representative, before or nothing(value.dtype), value.dtype.numpy())
        if stream.delay < 0 and stream.fill is not MIRRORED:
            known = [slice(None)] * len(dims)
            known[stream.axis] = slice(max(0, frames + stream.delay), None)
            initial[tuple(known)] = stream.fill
        old, give = add_state(context, role, dims, initial, purpose)
    at = {"axis": stream.axis}
    joined = context.writer.op("Concat", [old, value], f"{role}_joined", at, value.dtype)
    give(context.writer.slice(joined, stream.axis, -frames, END, f"{role}_next"))
    if stream.fill is MIRRORED:
        joined = _mirrored(context, joined, stream, frames)
    context.converter.histories[key] = joined
    return joined


def _mirrored(context: Context, joined: ir.Value, stream: Stream, frames: int) -> ir.Value:
    """`joined`, whose first `frames` are of earlier steps, with mirrored ones before frame 0."""
    converter, writer, integer = context.converter, context.writer, ir.DataType.INT64
    earlier = np.array(frames, np.int64)
    places = writer.positions(joined, stream.axis)
    first = writer.op(
        "Sub", [converter.first(writer, stream.rate), earlier], "first", dtype=integer
    )
    numbers = writer.op("Add", [places, first], "numbers", dtype=integer)
    distance = writer.op("Abs", [numbers], "distance", dtype=integer)
    mirrored = writer.op("Sub", [distance, first], "mirrored", dtype=integer)
    last = writer.op(
        "Sub", [writer.size(joined, stream.axis), np.array(1, np.int64)], "last", dtype=integer
    )
    # Frames that have not come yet lie in windows that nobody waits for.
    within = writer.op("Min", [mirrored, last], "mirrored", dtype=integer)
    axis = {"axis": stream.axis}
    return writer.op("Gather", [joined, within], "with_mirrored", axis, joined.dtype)


def _first_frames(
    context: Context, fill: ir.Value, stream: Stream, frames: int, before: float | str
) -> ir.Value:
    """Values in place of `frames` frames before the first that is sent."""
    dims, known = context.dims(fill), min(frames, -stream.delay)
    if dims[stream.axis] != known:
        fill = context.writer.slice(fill, stream.axis, -known, END, "first")
    if frames == known:
        return fill
    widths = np.zeros(2 * len(dims), np.int64)
    widths[stream.axis] = frames - known
    number = filled(fill, number=before)
    return context.writer.op("Pad", [fill, widths, number], "first", dtype=fill.dtype)


def seeded(
    context: Context, initial: ir.Value, role: str, dims: Sequence[int | str | None], purpose: str
) -> tuple[ir.Value, Callable[[ir.Value], None]]:
    """A state that starts as `initial`: a known value, or one that the first step computes."""
    assert initial.dtype is not None
    shape = [size if isinstance(size, int) else 1 for size in dims]
    fact = context.fact(initial)
    contents = fact.contents if isinstance(fact, Fixed) else None
    if contents is not None:
        # A known value has its own size along an axis of run-time size.
        array = np.broadcast_to(contents, np.broadcast_shapes(contents.shape, shape))
        return add_state(context, role, dims, array, purpose)
    zeros = np.full(shape, nothing(initial.dtype), initial.dtype.numpy())
    old, give = add_state(context, role, dims, zeros, purpose)
    before, boolean = context.converter.before(context.writer), ir.DataType.BOOL
    first = context.writer.op("Equal", [before, np.zeros(1, np.int64)], "is_first", dtype=boolean)
    first = first if dims else context.writer.squeeze(first, 0, "is_first")
    context.note(f"the first step takes {initial.name!r} as its {role}")
    start = context.writer.op("Where", [first, initial, old], f"{role}_start", dtype=initial.dtype)
    return start, give


def preceded(
    context: Context, value: ir.Value, stream: Stream, known: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """`value` with the last of the frames `known` in place of those that mean nothing.

    known: frames that come before the first of `stream`, which is late. Returns what is to be known
    besides: the ones that do not find place there, or all where none is left.
    """
    frames = context.dims(known)[stream.axis]
    assert isinstance(frames, int)
    axis, writer = stream.axis, context.writer
    mask = valid(context, stream, context.rank(value))
    last = writer.slice(known, axis, -stream.delay, END, "first")
    count = min(frames, stream.delay)
    if count > 1:
        # Position p has known[p - delay + count] of these, if it is one of the places before.
        positions = context.converter.positions(writer, stream.rate)
        offset, size = np.array(count - stream.delay, np.int64), np.array(count, np.int64)
        moved = writer.op("Add", [positions, offset], "place", dtype=ir.DataType.INT64)
        places = writer.op("Mod", [moved, size], "place", dtype=ir.DataType.INT64)
        last = writer.op("Gather", [last, places], "first", {"axis": axis}, known.dtype)
    joined = writer.op("Where", [mask, value, last], "preceded", dtype=value.dtype)
    context.know(joined, stream, context.converter.dims(value))
    if frames <= stream.delay:
        return joined, known
    rest = writer.slice(known, axis, 0, -stream.delay, "before")
    dims = list(context.dims(known))
    dims[axis] = frames - stream.delay
    fact = context.fact(known)
    contents = fact.contents if isinstance(fact, Fixed) else None
    if contents is not None and contents.shape[axis] == frames:
        contents = np.take(contents, range(frames - stream.delay), axis)
    context.know(rest, Fixed(contents), tuple(dims))
    return joined, rest


def first_frame(context: Context) -> ir.Value:
    """Frame 0 of input 0, with a time axis of size 1: the first step has it, others keep it.

    So it is the same in all steps. Refuses a stream whose first frame comes later.
    """
    value, stream = settled(context, 0)
    if stream.delay > 0:
        raise context.refuse(
            f"takes the first frame of the sequence, which comes {stream.delay} frames late "
            "because of what the nodes before it look ahead: let it take that of an earlier value"
        )
    dims = list(context.dims(value))
    dims[stream.axis] = 1
    # A step without frames leaves it to the next one.
    longer = filled_up(context, value, stream.axis)
    frame = context.writer.slice(longer, stream.axis, 0, 1, "first")
    context.know(frame, Fixed(), tuple(dims))
    kept, give = seeded(context, frame, "first", dims, "the first frame")
    give(kept)
    context.know(kept, Fixed(), tuple(dims))
    return kept


def filled_up(context: Context, value: ir.Value, axis: int) -> ir.Value:
    """`value` with one frame more where a step may have none: so there is one to pick."""
    if context.converter.chunk is not None:
        return value
    widths = np.zeros(2 * context.rank(value), np.int64)
    widths[context.rank(value) + axis] = 1
    return context.writer.op("Pad", [value, widths], "filled_up", dtype=value.dtype)


def rows_of_table(
    context: Context, table: ir.Value, axis: int, numbers: ir.Value, met: Stream
) -> ir.Value:
    """The rows of a fixed value with these numbers; behind the last one a step is an error.

    met: the frames that meet them. Those that the whole model has cut off its end meet copies of
    the last row.
    """
    need_moves(context, table)
    writer, behind = context.writer, -((met.extra or 0) + met.delay)
    given = table
    if behind > 0:
        widths = np.zeros(2 * context.rank(table), np.int64)
        widths[context.rank(table) + axis] = behind
        given = writer.op("Pad", [table, widths], "table", {"mode": "edge"}, table.dtype)
    rows = writer.op("Gather", [given, numbers], "rows", {"axis": axis}, table.dtype)
    writer.nodes[-1].name = context.converter.names.fresh(
        f"{context.name}: a row of {table.name!r} for each frame so far"
    )
    context.note(f"takes a row of {table.name!r} for each frame, as many as there are")
    return rows


def masked(
    context: Context, value: ir.Value, stream: Stream, before: float | str | None
) -> ir.Value:
    """`value` with the frames that mean nothing replaced by `before`."""
    if before is None or stream.delay <= 0 or stream.steady:
        return value
    mask, filler = valid(context, stream, context.rank(value)), filled(value, number=before)
    result = context.writer.op("Where", [mask, value, filler], "valid_frames", dtype=value.dtype)
    context.know(result, stream, context.converter.dims(value))
    return result


def valid(context: Context, stream: Stream, rank: int) -> ir.Value:
    """Mask of the valid frames of this step: bool, with the time axis of `stream`."""
    writer, boolean = context.writer, ir.DataType.BOOL
    positions = context.converter.positions(writer, stream.rate)
    delay = np.array(stream.delay, np.int64)
    late = writer.op("Less", [positions, delay], "is_early", dtype=boolean)
    mask = writer.op("Not", [late], "is_valid", dtype=boolean)
    axes = [axis for axis in range(rank) if axis != stream.axis]
    shaped = writer.unsqueeze(mask, axes, "is_valid") if axes else mask
    assert isinstance(shaped, ir.Value)
    return shaped


def need_multiple(context: Context, rate: Fraction) -> None:
    """Let chunks hold a whole number of frames of this rate."""
    context.converter.multiple = math.lcm(context.converter.multiple, rate.denominator)
