"""Operators that treat each frame for itself: their axis map says where the time axis goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ostinato.errors import UnsupportedError
from ostinato.graph.axis_maps import AxisMap, Form
from ostinato.graph.facts import facts_of, sources
from ostinato.graph.writer import Operand
from ostinato.streaming import timing
from ostinato.streaming.context import Context
from ostinato.streaming.facts import Rows, Sizes, Stream


def keeps_frames(context: Context) -> bool:
    """Whether the time axes of the operands are one axis of the results."""
    found = _streams(context)
    axes = _axis_map(context) if found else None
    if axes is None:
        return False
    places = {row[s.axis] if (row := axes[i]) is not None else None for i, s in found.items()}
    return len(places) == 1 and isinstance(places.pop(), int)


def each_frame(context: Context) -> None:
    """Along an axis that becomes one of the results, operands in step; refused along others.

    In a model of one length, constants may have a row for each frame.
    """
    found = _streams(context)
    if not found:
        context.required_stream(0)
    axes = _axis_map(context)
    if axes is None:
        raise context.refuse("which axes it means is not constant, or is not known")
    places = {_place(context, axes, i, stream) for i, stream in found.items()}
    if len(places) > 1:
        raise context.refuse(
            "two of its inputs have their time axes at different places, so it would relate every "
            "frame to every other"
        )
    (axis,) = places
    tables = {}
    for i, row in enumerate(axes):
        if context.has(i) and i not in found:
            place = row.index(axis) if row and axis in row else None
            if _is_table(context, i, place) and place is not None:
                tables[i] = place
    stream = _in_step(context, list(found.values()))
    frames = {context.dims(context.given(i))[s.axis] for i, s in found.items()}
    for i, along in tables.items():
        if context.dims(context.given(i))[along] not in frames:
            raise _refusal(context, i)
        context.operand(i, _row_of_each_frame(context, i, along, stream))
        stream = replace(stream, steady=False)
    context.set_all(replace(stream, axis=axis))


def each_row(context: Context) -> None:
    """Along an axis that frames are among the rows of: the same for equal rows of all operands."""
    found = {
        i: fact
        for i, value in enumerate(context.node.inputs)
        if value is not None and isinstance(fact := context.fact(value), Rows)
    }
    axes = _axis_map(context) if found and not context.node.domain else None
    if axes is None:
        raise context.refuse("does more than treat each row of frames merged with the batch alone")
    first = in_step(context, list(found.values()))
    (axis, *others) = {_place(context, axes, i, rows.stream) for i, rows in found.items()}
    if others:
        raise context.refuse("two of its inputs have frames among the rows of different axes")
    for i, row in enumerate(axes):
        if not context.has(i) or i in found:
            continue
        if context.stream(i) is not None:
            raise context.refuse(f"input {i} has a time axis, and others have merged theirs")
        _check_fixed(context, i, row.index(axis) if row and axis in row else None)
    context.set_all(replace(first, stream=replace(first.stream, axis=axis)))


def in_step(context: Context, found: list[Rows]) -> Rows:
    """One of them that tells where frames are, refusing those that are at other rows."""
    first = min(found, key=lambda rows: (rows.stream.steady, rows.are_equal))
    if not all(first.meets(rows) for rows in found):
        raise context.refuse("has frames among its rows that are merged or delayed in two ways")
    return first


def _streams(context: Context) -> dict[int, Stream]:
    given = range(len(context.node.inputs))
    return {i: stream for i in given if (stream := context.stream(i)) is not None}


def _axis_map(context: Context) -> AxisMap | None:
    rule = facts_of(context.op_type).axes
    if rule is None:
        return None
    dims = [None if value is None else context.dims(value) for value in context.node.inputs]
    return rule(Form(context.node, dims, context.constant, context.converter.opset))


def _place(context: Context, axes: AxisMap, index: int, stream: Stream) -> int:
    """The axis of the results that is time."""
    row = axes[index]
    if row is None:
        raise context.refuse(f"input {index} changes with time")
    place = row[stream.axis]
    if not isinstance(place, int):
        raise context.refuse(
            f"{facts_of(context.op_type).verb} along time (axis {stream.axis} of input {index}), "
            "so it needs all frames of the sequence"
        )
    return place


def _check_fixed(context: Context, index: int, axis: int | None) -> None:
    """Refuse an operand that is the same in all steps, but not in all frames along `axis`."""
    if _is_table(context, index, axis):
        raise _refusal(context, index)


def _is_table(context: Context, index: int, axis: int | None) -> bool:
    """Whether an operand that is the same in all steps has a row for each frame, along `axis`.

    One whose rows are equal gets a single one, where that stands for all.
    """
    value, broadcasts = context.given(index), facts_of(context.op_type).broadcasts
    fact = context.fact(value)
    if isinstance(fact, Sizes) and fact.grows:
        raise context.refuse("computes with the length of the whole sequence")
    if axis is None or (broadcasts and context.dims(value)[axis] == 1):
        return False
    array = context.constant(index)
    if broadcasts and array is not None and array.size and _is_uniform(array, axis):
        one = np.take(array, [0], axis=axis)
        context.operand(index, context.writer.value(one, "frame"))
        return False
    return True


def _refusal(context: Context, index: int) -> UnsupportedError:
    broadcasts = facts_of(context.op_type).broadcasts
    return context.refuse(
        f"input {index} ({context.given(index).name!r}) has values of its own for each frame of "
        "the whole sequence"
        + ("" if broadcasts else ": let Expand make it, or add it for each frame")
    )


def _row_of_each_frame(context: Context, index: int, axis: int, stream: Stream) -> ir.Value:
    """The rows of a constant for the frames of `stream`, in place of input `index`.

    Evenly spaced integers continue behind the last one, unless they are places of elements that the
    node moves: those behind may not exist. Other constants have no more rows than they have.
    """
    value, writer, integer = context.given(index), context.writer, ir.DataType.INT64
    lengths, name, length = context.converter.lengths, str(value.name), context.dims(value)[axis]
    array = context.constant(index)
    if array is None and not lengths.decides(name):
        raise _refusal(context, index)
    if not isinstance(length, int) or length < 2 or stream.delay < 0:
        raise _refusal(context, index)
    timing.need_moves(context, value)
    if array is not None and _is_uniform(array, axis):
        sizes: list[Operand] = [np.ones(axis, np.int64)]
        sizes += [context.converter.frames(writer, stream.rate)]
        sizes += [np.ones(array.ndim - axis - 1, np.int64)]
        one = np.take(array, [0], axis)
        operands: list[Operand] = [one, writer.concat(sizes, 0, "sizes")]
        return writer.op("Expand", operands, "rows", dtype=value.dtype)
    positions = context.converter.positions(writer, stream.rate)
    if stream.delay:
        late: list[Operand] = [positions, np.array(stream.delay, np.int64)]
        positions = writer.op("Sub", late, "numbers", dtype=integer)
        first: list[Operand] = [positions, np.array(0, np.int64)]
        positions = writer.op("Max", first, "numbers", dtype=integer)
    if array is None:
        array = lengths.compute(name, length, context.converter.facts_by_name())
    goes_on = not facts_of(context.op_type).moves or value in sources(context.node)
    step = _whole_step(array, axis) if array is not None and goes_on else None
    if array is None or step is None:
        return timing.rows_of_table(context, value, axis, positions, stream)
    counted: list[Operand] = [positions, np.array(step, np.int64)]
    numbers, dtype = writer.op("Mul", counted, "numbers", dtype=integer), ir.tensor(array).dtype
    numbers = writer.op("Cast", [numbers], "numbers", {"to": int(dtype)}, dtype)
    behind = range(1, array.ndim - axis)
    placed = writer.unsqueeze(numbers, behind, "numbers") if behind else numbers
    return writer.op("Add", [placed, np.take(array, [0], axis)], "rows", dtype=dtype)


def _whole_step(array: np.ndarray, axis: int) -> int | None:
    """The difference between neighbours along `axis`, if it is the same whole number for all.

    Sums of whole numbers are exact, so they are the elements of a range of any length.
    """
    if array.dtype.kind not in "iuf" or array.dtype.itemsize < 4:
        return None
    steps = np.diff(array, axis=axis)
    step, first = steps.flat[0], np.take(array, [0], axis)
    is_whole = np.isfinite(array).all() and not step % 1 and not (first % 1).any()
    return int(step) if is_whole and (steps == step).all() else None


def _is_uniform(array: np.ndarray, axis: int) -> bool:
    return bool((array == np.take(array, [0], axis=axis)).all())


def _in_step(context: Context, streams: list[Stream]) -> Stream:
    """Align the operands in time; values that are only moved may keep their first frames unsent."""
    first, facts = streams[0], facts_of(context.op_type)
    moved = [context.fact(value) for value in sources(context.node) if value is not None]
    are_alike = bool(moved) and all(fact == first for fact in [*streams, *moved])
    if are_alike and not facts.fills and not isinstance(first.fill, ir.Value):
        return first
    aligned = timing.align(context, range(len(context.node.inputs)))
    return replace(aligned, steady=all(stream.steady for stream in streams), fill=None)
