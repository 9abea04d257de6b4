"""Sizes: shapes that are read, and values that are made to be as long as the sequence."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.writer import Operand
from ostinato.reference.direct import direct_kernel
from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import ONE, Element, Fixed, Length, Rows, Sizes, Stream
from ostinato.streaming.fixed import contents_of
from ostinato.streaming.registry import streams, streams_rows


@streams("Expand", lengths=True)
def expand(context: Context) -> None:
    """Along the time axis a stream has its length already; a fixed value gets it."""
    elements = list(context.elements(1))
    stream = context.stream(0)
    grown = [i for i, element in enumerate(elements) if isinstance(element, Length)]
    rank = max(len(elements), context.rank(context.given(0)))
    if stream is not None:
        stream = context.only_stream()
        at = stream.axis - context.rank(context.given(0))
        if any(i - len(elements) != at for i in grown):
            raise context.refuse("makes a second axis as long as the sequence")
        if len(elements) >= -at:
            context.write_sizes(1, elements, len(elements) + at, np.array([1], np.int64))
        context.set(replace(stream, axis=rank + at))
        return
    _to_length(context, elements, grown, rank)


def _to_length(context: Context, elements: list[Element], grown: list[int], rank: int) -> None:
    if len(grown) != 1:
        raise context.refuse("makes a table of frames by frames")
    length = elements[grown[0]]
    assert isinstance(length, Length)
    axis = rank - len(elements) + grown[0]
    if length.scale is None and _is_alike(context, axis - rank):
        # The shapes of a step say how many rows it has.
        context.set(Rows(Stream(axis, Fraction(1), steady=True), ONE, ONE, ONE))
        return
    if length.scale is None or length.scale < 0:
        raise context.refuse("makes an axis of a length that is no multiple of the sequence's")
    timing.need_multiple(context, length.scale)
    frames = context.converter.frames(context.writer, length.scale)
    target = 0 if context.op_type == "ConstantOfShape" else 1
    context.write_sizes(target, elements, grown[0], frames)
    context.set(Stream(axis, length.scale, steady=True, extra=length.extra))


def _is_alike(context: Context, axis: int) -> bool:
    """Whether the node repeats one element along an axis, counted from the end."""
    if context.op_type == "ConstantOfShape":
        return True
    dims = context.dims(context.given(0))
    return -axis > len(dims) or dims[axis] == 1


@streams("ConstantOfShape", lengths=True)
def constant_of_shape(context: Context) -> None:
    """The same in all frames, so as many as a step has; or a fixed value."""
    elements = list(context.elements(0))
    grown = [i for i, element in enumerate(elements) if isinstance(element, Length)]
    if not grown:
        context.set(Fixed(contents_of(context.converter, context.node)))
        return
    _to_length(context, elements, grown, len(elements))


@streams_rows("Shape")
@streams("Shape", "Size")
def shape(context: Context) -> None:
    """Sizes, of which that of the time axis grows."""
    if context.op_type == "Size":
        raise context.refuse("computes with the length of the whole sequence")
    fact, dims = context.fact(context.given(0)), context.dims(context.given(0))
    elements: list[int | str | Length | None] = list(dims)
    if isinstance(fact, Stream):
        elements[fact.axis] = Length(fact.rate, fact.extra)
    elif isinstance(fact, Rows):
        elements[fact.stream.axis] = Length(None)
    start, end = context.attributes.int("start", 0), context.attributes.int("end", len(dims))
    context.set(Sizes(tuple(elements[start:end])))


@streams("Range", lengths=True)
def range_(context: Context) -> None:
    """Numbers of frames: a stream of one element for each frame, from its position on."""
    start, step = _whole(context, 0), _whole(context, 2)
    (limit,) = context.elements(1)
    if not isinstance(limit, Length) or limit.scale is None or limit.scale < 0:
        raise context.refuse("counts to something else than the length of the sequence")
    if start is None or step is None or step < 1:
        raise context.refuse("does not count from a whole number upward, in whole steps")
    rate = limit.scale / step
    timing.need_multiple(context, rate)
    writer, dtype = context.writer, context.node.outputs[0].dtype
    numbers = context.converter.positions(writer, rate)
    for op_type, number in (("Mul", step), ("Add", start)):
        operands: list[Operand] = [numbers, np.array(number, np.int64)]
        numbers = writer.op(op_type, operands, "numbers", dtype=ir.DataType.INT64)
    if dtype not in (None, ir.DataType.INT64):
        numbers = writer.op("Cast", [numbers], "numbers", {"to": int(dtype)}, dtype)
    extra = None if limit.extra is None else -((start - limit.extra) // step)
    context.replace(numbers, Stream(0, rate, extra=extra))


def moves_sizes(context: Context) -> bool:
    """Whether a node only moves sizes to other places."""
    facts = facts_of(context.op_type, context.node.domain)
    if not facts.moves or facts.fills or facts.elementwise:
        return False
    given = [context.fact(value) for value in facts.copied(context.node.inputs) if value]
    is_stream = any(isinstance(fact, Stream) for fact in given)
    return not is_stream and any(isinstance(fact, Sizes) for fact in given)


def moved_sizes(context: Context) -> None:
    """The sizes at their places in the result, found by moving their numbers."""
    inputs, elements = context.node.inputs, list[Element]()
    copied = facts_of(context.op_type).copied(range(len(inputs)))
    arrays: list[np.ndarray | None] = []
    for index in range(len(inputs)):
        if index not in copied:
            arrays.append(context.constant(index))
            continue
        fact, more = context.fact(context.given(index)), context.elements(index)
        scalar = fact.scalar if isinstance(fact, Sizes) else not context.rank(context.given(index))
        places = np.arange(len(elements), len(elements) + len(more))
        arrays.append(places.reshape(()) if scalar else places)
        elements += more
    is_known = all(a is not None or not context.has(i) for i, a in enumerate(arrays))
    try:
        found = direct_kernel(context.node, arrays) if is_known else None
    except (IndexError, ValueError):
        found = None
    if found is None:
        raise context.refuse("takes sizes from places, or puts them in a shape, not known here")
    if np.ndim(found) > 1:
        raise context.refuse("makes a table of sizes")
    chosen = tuple(elements[place] for place in np.ravel(found))
    context.set(Sizes(chosen, scalar=np.ndim(found) == 0))


def _whole(context: Context, index: int) -> int | None:
    """An operand that is a whole number, of whatever type."""
    array = context.constant(index)
    if array is None or array.size != 1 or array.item() % 1:
        return None
    return int(array.item())
