"""Padding in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import MIRRORED, Fixed, Stream
from ostinato.streaming.registry import streams


@streams("Pad")
def pad(context: Context) -> None:
    """Padding before the first frame is what a state begins with; behind the last, nothing."""
    stream = context.only_stream()
    rank = context.rank(context.given(0))
    if context.converter.opset < 11:
        raise context.refuse("has an old form: raise the model to opset 13 or later")
    pads, axes = context.constant(1), context.axes(3)
    if pads is None:
        raise context.refuse("its pads are not constant")
    if any(isinstance(n, int) and n < 0 for n in context.dims(context.node.outputs[0])):
        raise context.refuse("takes more elements away than there are")
    chosen = [axis % rank for axis in axes] if axes is not None else list(range(rank))
    at, widths = chosen.index(stream.axis), [int(width) for width in pads]
    count, mode = widths[at], context.attributes.string("mode", "constant")
    behind = widths[at + len(chosen)]
    if behind > 0:
        stream = timing.placed(stream)
    if count > 0 and mode == "edge" and not any(_others(widths, at, len(chosen))):
        _repeat_first(context, stream, count, behind)
        return
    if count > 0 and mode == "reflect" and not any(_others(widths, at, len(chosen))):
        _mirror_first(context, stream, count, behind)
        return
    extra = _padded(context, stream, count, behind)
    value = context.constant(2)
    if context.has(2) and (value is None or value.size != 1):
        raise context.refuse("its padding value is not constant")
    if count > 0 and mode != "constant":
        raise context.refuse(f"mode {mode!r} puts copies of frames before the first one")
    number: float | str = timing.nothing(context.given(0).dtype)
    if value is not None:
        number = value.reshape(-1).tolist()[0]
    if stream.delay < 0 and (stream.fill != number or any(_others(widths, at, len(chosen)))):
        _, stream = timing.settled(context, 0)
    widths[at] = widths[at + len(chosen)] = 0
    context.operand(1, context.writer.value(np.array(widths, np.int64), "pads"))
    delay = stream.delay
    if delay > 0 and count > 0:
        context.operand(0, timing.masked(context, context.given(0), stream, number))
    delay -= count
    fill = number if delay < 0 else None
    steady = stream.steady and count <= 0 and behind <= 0
    context.set(replace(stream, delay=delay, fill=fill, extra=extra, steady=steady))


def _repeat_first(context: Context, stream: Stream, count: int, behind: int) -> None:
    """Put copies of the first frame, which are known once it is there, in front of it."""
    frame = timing.first_frame(context)
    # Only frames that are all alike are late here: copies of the first one, too.
    stream = replace(stream, delay=max(0, stream.delay))
    value, delay = context.given(0), stream.delay - count
    known, dims = frame, list(context.dims(value))
    dims[stream.axis] = count
    if count > 1:
        at = {"axis": stream.axis}
        known = context.writer.op("Concat", [frame] * count, "copies", at, frame.dtype)
        context.know(known, Fixed(), tuple(dims))
    extra = _padded(context, stream, count, behind)
    context.replace(
        context.writer.copy(value),
        replace(stream, delay=delay, fill=known if delay < 0 else None, extra=extra, steady=False),
    )


def _mirror_first(context: Context, stream: Stream, count: int, behind: int) -> None:
    """Mirror the frames behind the first one in front of it."""
    if stream.delay:
        raise context.refuse(
            "mirrors frames in front of the first one, which is late because of what the nodes "
            "before it look ahead or pad: let it mirror those of an earlier value"
        )
    extra = _padded(context, stream, count, behind)
    mirrored = replace(stream, delay=-count, fill=MIRRORED, extra=extra, steady=False)
    context.replace(context.writer.copy(context.given(0)), mirrored)


def _padded(context: Context, stream: Stream, before: int, behind: int) -> int | None:
    """`extra` of a padded stream; frames that are cropped in front go first."""
    if before < 0:
        extra = None if stream.extra is None else stream.extra + before
        stream = replace(stream, delay=stream.delay - before, extra=extra)
    if behind > 0:
        stream = timing.padded_behind(context, stream)
    return None if stream.extra is None else stream.extra + max(before, 0) + behind


def _others(widths: list[int], at: int, count: int) -> list[int]:
    return [width for i, width in enumerate(widths) if i % count != at]
