"""Operators that move elements or choose among them: they move the time axis along."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.pieces import piece_lengths
from ostinato.model.graphs import is_standard
from ostinato.streaming import timing
from ostinato.streaming.context import END, UNBOUNDED, Context
from ostinato.streaming.facts import Element, Fixed, Length, Stream
from ostinato.streaming.fixed import uniform
from ostinato.streaming.registry import streams
from ostinato.streaming.rules.frames import each_frame
from ostinato.streaming.rules.framing import framed
from ostinato.streaming.rules.windows import decimated

# The end of a slice that grows with the sequence, where its distance from the end is not known.
_OPEN_END = END - 1


@streams("Unsqueeze")
def unsqueeze(context: Context) -> None:
    """New axes push the time axis back."""
    each_frame(context)


@streams("Squeeze")
def squeeze(context: Context) -> None:
    """Never the time axis, even in steps of one frame."""
    stream = context.only_stream()
    if context.axes(1) is None:
        sizes = context.dims(context.given(0))
        if None in sizes or sizes[stream.axis] == 1:
            raise context.refuse("without axes it could drop the time axis: name the axes")
        # A chunk of one frame must keep its time axis.
        axes = np.array([axis for axis, size in enumerate(sizes) if size == 1], np.int64)
        context.operand(1, context.writer.value(axes, "axes"))
    each_frame(context)


@streams("Slice", lengths=True, first_frames=True)
def slice_(context: Context) -> None:
    """From a frame on, every n-th frame, or the last ones; any part of other axes."""
    if context.stream(0) is None:
        _rows_of_table(context)
        return
    stream = context.only_stream()
    starts, ends, axes, steps = _slice_operands(context, stream)
    if not axes:
        context.set(stream)
        return
    if isinstance(stream.fill, ir.Value) and axes != [stream.axis]:
        _, stream = timing.settled(context, 0)
    i = axes.index(stream.axis)
    start, end, step = starts[i], ends[i], steps[i]
    start = 0 if start <= -UNBOUNDED and step > 0 else start
    length = context.dims(context.given(0))[stream.axis]
    if isinstance(length, int):
        start = start - length if start >= length - 1 > 0 and step > 0 else start
        # Most frames are those from one on, and not the last few.
        start = max(start + length, 0) if 2 * start < -length and step > 0 else start
        # Of a sequence of known length the end of a part is where one of any length has it.
        end = END if end >= length else end - length if end > 1 else end
    if (start, end) == (0, 1) and step > 0:
        context.operand(0, timing.first_frame(context))
        context.set(Fixed())
        return
    _check_slice(context, start, end, step)
    if start < 0:
        starts[i], ends[i] = start, END
        _write_operands(context, [starts, ends, axes, steps])
        _last_frames(context, stream, -start)
        return
    _write_operands(context, [[*n[:i], *n[i + 1 :]] for n in (starts, ends, axes, steps)])
    value, extra = context.given(0), stream.extra
    if end == _OPEN_END:
        extra = None
    elif extra is not None:
        extra += min(end, 0) - start
    stream = replace(stream, delay=stream.delay + start, extra=extra)
    if step > 1:
        value, stream = decimated(context, value, stream, step)
    elif stream.delay >= 0:
        stream = replace(stream, fill=None)
    context.operand(0, value)
    context.set(stream)


def _rows_of_table(context: Context) -> None:
    """The rows of a fixed value up to the length of the sequence: a row for each frame."""
    operands = [context.elements(index) for index in (1, 2)]
    axes = context.constant(3) if context.has(3) else np.array([0])
    steps = context.constant(4) if context.has(4) else np.array([1])
    if len(operands[0]) != 1 or axes is None or steps is None or steps.item() != 1:
        raise context.refuse("takes another part of a fixed value than a row for each frame")
    ((start,), (end,)) = operands
    if not isinstance(start, int) or not isinstance(end, Length) or start < 0:
        raise context.refuse("takes another part of a fixed value than a row for each frame")
    if end.extra is None or end.scale is None or end.scale <= 0:
        raise context.refuse("takes another part of a fixed value than a row for each frame")
    axis = int(axes.item()) % context.rank(context.given(0))
    timing.need_multiple(context, end.scale)
    writer = context.writer
    numbers = context.converter.positions(writer, end.scale)
    if start:
        operand = np.array(start, np.int64)
        numbers = writer.op("Add", [numbers, operand], "row", dtype=ir.DataType.INT64)
    table = context.given(0)
    stream = Stream(axis, end.scale, extra=end.extra - start)
    context.replace(timing.rows_of_table(context, table, axis, numbers, stream), stream)


@streams("Split")
def split(context: Context) -> None:
    """Along time: a Slice for each part."""
    stream = context.only_stream()
    lengths = piece_lengths(context.node, context.dims(context.given(0))[stream.axis])
    if lengths is None:
        raise context.refuse("splits along time into parts of unknown length")
    ends = np.cumsum(lengths)
    for index, part in enumerate(tuple(context.node.outputs)):
        if not part.uses() and not part.is_graph_output():
            continue
        bounds = [np.array([n], np.int64) for n in (ends[index] - lengths[index], ends[index])]
        axis = np.array([stream.axis], np.int64)
        writer = context.writer
        piece = writer.op("Slice", [context.given(0), *bounds, axis], "part", dtype=part.dtype)
        (node,), dims = writer.nodes[-1:], context.dims(part)
        context.flush()
        replace_value(part, piece)
        context.converter.sizes[str(piece.name)] = dims
        inner = Context(context.converter, node)
        slice_(inner)
        if node.graph is not None:
            inner.flush()
    discard(context.node)


def _slice_operands(context: Context, stream: Stream) -> list[list[int]]:
    """Starts, ends, axes and steps as numbers, those along time as `_counted_back` says."""
    found: list[list[Element]] = []
    if context.converter.opset < 10:
        raise context.refuse("has an old form: raise the model to opset 13 or later")
    for index in (1, 2, 3, 4):
        if context.has(index):
            found.append(list(context.elements(index)))
        else:
            found.append([1] * len(found[0]) if index == 4 else list(range(len(found[0]))))
    rank = context.rank(context.given(0))
    axes = [axis % rank for axis in found[2] if isinstance(axis, int)]
    for bounds, unknown in ((found[0], None), (found[1], _OPEN_END)):
        for i, (bound, axis) in enumerate(zip(bounds, axes, strict=False)):
            if isinstance(bound, Length) and axis == stream.axis:
                bounds[i] = _counted_back(context, bound, stream, unknown)
    starts, ends, _, steps = ([e for e in part if isinstance(e, int)] for part in found)
    operands = [starts, ends, axes, steps]
    if any(len(numbers) < len(found[0]) for numbers in operands):
        raise context.refuse("its starts, ends, axes or steps are not constant")
    return operands


def _counted_back(
    context: Context, bound: Length, stream: Stream, unknown: int | None
) -> int | None:
    """A bound that grows with the sequence as one from its end; `unknown` where it is not known.

    One that is counted from the end is as far from the beginning, whatever the length.
    """
    if bound.scale == -stream.rate and bound.extra is not None and stream.extra is not None:
        return max(0, stream.extra + bound.extra)
    if bound.scale != stream.rate:
        raise context.refuse("takes a part of the sequence only, which a stream has long passed")
    if bound.extra is None or stream.extra is None:
        return unknown
    return bound.extra - stream.extra if bound.extra < stream.extra else END


def _check_slice(context: Context, start: int, end: int, step: int) -> None:
    if step < 0:
        raise context.refuse("turns the sequence around: its first frame needs the last one")
    if 0 <= end < UNBOUNDED:
        raise context.refuse(
            f"takes frames {start} to {end} of the sequence only, which a stream has long passed"
        )
    if start == END:
        raise context.refuse("takes what is behind the end of the sequence: no frames")
    if start < 0 and (end < 0 or step > 1):
        raise context.refuse("counts frames from the end of the sequence")


def _write_operands(context: Context, operands: list[list[int]]) -> None:
    for index, numbers in enumerate(operands, 1):
        context.operand(index, context.writer.value(np.array(numbers, np.int64), "slice"))


def _last_frames(context: Context, stream: Stream, count: int) -> None:
    timing.need_end(context, stream)
    made = timing.so_far(stream, last=count)
    value, earlier = context.given(0), max(count - 1, -stream.delay)
    joined = timing.history(context, value, stream, earlier, "last", f"the last {earlier} frames")
    context.operand(0, joined)
    context.set(made)


@streams("Gather", lengths=True, first_frames=True)
def gather(context: Context) -> None:
    """Elements by index: of each frame, from a table for each frame, or the last one."""
    whole = context.stream(0)
    is_table = context.stream(1) is not None or context.constant(1) is not None
    if whole is not None and is_table and framed(context, whole):
        return
    if whole is not None and isinstance(whole.fill, ir.Value):
        timing.settled(context, 0)
    data = context.only_stream()
    numbers = context.constant(1)
    if numbers is None or numbers.size != 1:
        raise context.refuse("picks frames of the sequence by number")
    number = int(numbers.reshape(-1)[0])
    if number == -1 or number + 1 == context.dims(context.given(0))[data.axis]:
        context.operand(1, context.writer.value(np.full_like(numbers, -1), "last"))
        timing.need_end(context, data)
        context.set(timing.so_far(data, last=1))
    elif number >= 0 and _are_read_by_shape(context):
        # Every frame has the shape of the first one of a step.
        context.operand(1, context.writer.value(np.zeros_like(numbers), "any"))
        context.set(Fixed())
    elif number == 0:
        context.operand(0, timing.first_frame(context))
        context.set(Fixed())
    else:
        raise context.refuse(
            f"picks frame {number} of the sequence by number, which a stream has long passed or "
            "does not have yet: let a loop over all frames do the same for each of them"
        )


def _are_read_by_shape(context: Context) -> bool:
    """Whether only the shape of the result matters, as of a frame that zeros are made like."""
    (result,) = context.node.outputs
    return not result.is_graph_output() and all(
        is_standard(use.node, "Shape") for use in result.uses()
    )


@streams("Concat", first_frames=True)
def concat(context: Context) -> None:
    """Features side by side, or known frames in front of the sequence."""
    count = len(context.node.inputs)
    found = [context.stream(i) for i in range(count)]
    axis = context.axis()
    if any(stream is not None and stream.axis == axis for stream in found):
        _concat_in_time(context, axis, found)
        return
    each_frame(context)


def _concat_in_time(context: Context, axis: int, found: list[Stream | None]) -> None:
    """Keep values joined before the first frame as padding, or send them first."""
    moving = [i for i, stream in enumerate(found) if stream is not None]
    if len(moving) > 1:
        raise context.refuse("joins two sequences one after another")
    index = moving[0]
    stream = found[index]
    assert stream is not None
    if index + 1 < len(found):
        stream = timing.placed(stream)
    value = context.given(index)
    for i in reversed(range(index)):
        fact, frames = context.fact(context.given(i)), context.dims(context.given(i))[axis]
        if not isinstance(frames, int):
            raise context.refuse(f"input {i} has an unknown number of frames")
        if not isinstance(fact, Fixed):
            raise context.refuse(f"input {i} belongs to the end of the sequence")
        if frames == 0:
            continue
        fill = uniform(fact.contents)
        known = context.given(i) if fill is None else fill
        if stream.delay < 0 and stream.fill != fill:
            value, stream = timing.delayed(context, value, stream, -stream.delay)
        if isinstance(known, ir.Value) and stream.delay > 0:
            value, known = timing.preceded(context, value, stream, known)
        value = timing.masked(context, value, stream, fill)
        delay = stream.delay - frames
        extra = None if stream.extra is None else stream.extra + frames
        first = known if delay < 0 else None
        stream = replace(stream, delay=delay, fill=first, extra=extra, steady=False)
    for i in range(index + 1, len(found)):
        behind, extra = (
            context.dims(context.given(i))[axis],
            timing.padded_behind(context, stream).extra,
        )
        if extra is not None:
            extra = extra + behind if isinstance(behind, int) else None
        stream = replace(stream, extra=extra, steady=False)
    context.replace(context.writer.copy(value), stream)
