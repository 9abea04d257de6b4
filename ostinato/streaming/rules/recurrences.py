"""RNN, GRU, LSTM, Scan along time, and running sums: what they carry becomes a state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ostinato.definitions.recurrent_node import Recurrent, read_recurrent
from ostinato.graph.loop_form import read_loop
from ostinato.model.values import filled
from ostinato.streaming import timing
from ostinato.streaming.added_states import add_state
from ostinato.streaming.context import END, Context
from ostinato.streaming.facts import Fact, Fixed, Rows, Stream
from ostinato.streaming.fixed import uniform
from ostinato.streaming.registry import streams, streams_rows
from ostinato.streaming.rules.frames import each_row, in_step

# The operand of RNN, GRU and LSTM that tells where sequences end.
_LENGTHS = 4
_SHORT = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@streams_rows("RNN", "GRU", "LSTM")
@streams("RNN", "GRU", "LSTM")
def recurrent(context: Context) -> None:
    """Initial states come from the step before; the last ones go to the next."""
    node = read_recurrent(context.node, context.converter.opset)
    if node.sequence_lens is None and context.has(_LENGTHS):
        # The length of the whole sequence, which no step has.
        context.operand(_LENGTHS, None)
    if _time_axis(context.fact(context.given(0))) == node.batch_axis:
        _each_frame(context, node)
        return
    stream = context.only_stream()
    if stream.axis != node.time_axis:
        raise context.refuse(f"time is axis {stream.axis} of X, expected {node.time_axis}")
    if node.directions != ("forward",):
        direction = context.attributes.string("direction", "forward")
        raise context.refuse(
            f"direction {direction!r} starts at the last frame, before which a stream has no "
            "output: run such a model on whole sequences, or train one with direction 'forward'"
        )
    if node.sequence_lens is not None:
        raise context.refuse("sequence_lens says where sequences end, which a stream does not know")
    _, stream = timing.settled(context, 0)
    finals = context.node.outputs[1:]
    if any(value.uses() or value.is_graph_output() for value in finals):
        timing.need_end(context, stream)
    if stream.delay > 0:
        # Frames that mean nothing must not reach the state: a Scan can pass over them.
        context.converter.expand(context.node)
    else:
        _carry(context, node, stream)
    context.set(replace(stream, axis=1 if node.layout else 0, steady=False))


def _each_frame(context: Context, node: Recurrent) -> None:
    """Along another axis than time: frames are rows of the batch, with states of their own."""
    moving = [0]
    for letter in node.kind.states:
        index = node.kind.inputs.index(f"initial_{letter}")
        fact = context.fact(context.given(index)) if context.has(index) else None
        if isinstance(fact, Fixed) and uniform(fact.contents) == 0:
            # Zeros as many as the whole sequence has rows; without them it starts from zeros too.
            context.operand(index, None)
        elif fact is not None:
            moving.append(index)
    facts = [context.fact(context.given(index)) for index in moving]
    if any(_time_axis(fact) != node.batch_axis for fact in facts):
        raise context.refuse("has an initial state that has not a row for each frame, as X has")
    for index in range(1, len(context.node.inputs)):
        fact = context.fact(context.given(index)) if context.has(index) else Fixed()
        if index not in moving and _time_axis(fact) is not None:
            raise context.refuse(f"input {index} changes with time")
    if node.sequence_lens is not None:
        raise context.refuse("sequence_lens says where rows end, and there is one for each frame")
    rows = [fact for fact in facts if isinstance(fact, Rows)]
    if rows and len(rows) < len(facts):
        raise context.refuse("some of its inputs have a time axis, and others have merged theirs")
    merged = in_step(context, rows) if rows else None
    stream = timing.align(context, moving) if merged is None else merged.stream
    for index, axis in enumerate(
        (0 if node.layout else 2, *[node.batch_axis] * len(node.kind.states))
    ):
        placed = replace(stream, axis=axis)
        context.set(placed if merged is None else replace(merged, stream=placed), index)


def _time_axis(fact: Fact) -> int | None:
    """The axis along which there are frames, alone or merged with others."""
    stream = fact.stream if isinstance(fact, Rows) else fact
    return stream.axis if isinstance(stream, Stream) else None


def _carry(context: Context, node: Recurrent, stream: Stream) -> None:
    """Let initial_h and initial_c be state inputs, Y_h and Y_c their next values."""
    dims: list[int | str | None] = [context.dims(node.x)[node.batch_axis], node.hidden_size]
    dims.insert(node.direction_axis, 1)
    for letter in node.kind.states:
        position = node.kind.inputs.index(f"initial_{letter}")
        initial = node.input(f"initial_{letter}") or zeros(context, 3, node.dtype)
        old, give = timing.seeded(context, initial, letter, dims, "state of the recurrence")
        context.operand(position, old)
        last = context.output(node.kind.outputs.index(f"Y_{letter}"), f"Y_{letter}", node.dtype)
        give(last)
        context.converter.facts[last] = timing.so_far(stream)


def zeros(context: Context, rank: int, dtype: ir.DataType) -> ir.Value:
    """A constant 0 that is broadcast."""
    return context.writer.value(np.zeros([1] * rank, dtype.numpy()), "zeros")


@streams("Scan")
def scan(context: Context) -> None:
    """Along time, forward: what it carries becomes states."""
    form = read_loop(context.node, context.converter.opset)
    if form is None:
        raise context.refuse("has the form of opset 8")
    count = len(form.states)
    for i in range(count):
        if context.stream(i) is not None:
            context.converter.hands_on_frames = True
            raise context.refuse(f"input {i}, an initial state, changes with time")
    backward = [part.backward for part in form.scanned] + [part.backward for part in form.stacked]
    if any(backward):
        raise context.refuse("runs backward, from the last frame on")
    for i, part in enumerate(form.scanned, count):
        fact = context.stream(i)
        if fact is None:
            raise context.refuse(f"input {i} has values of its own for each frame of the sequence")
        if part.axis % context.rank(part.source) != fact.axis:
            raise context.refuse("runs over another axis than time")
    stream = timing.align(context, range(count, len(context.node.inputs)))
    valid = timing.valid(context, replace(stream, axis=0), 1) if stream.delay else None
    for i, state in enumerate(form.states):
        if state.final.uses() or state.final.is_graph_output():
            timing.need_end(context, stream)
        assert state.initial.dtype is not None
        dims = context.dims(state.initial)
        old, give = timing.seeded(
            context, state.initial, f"carry_{i}", dims, "state of the recurrence"
        )
        context.operand(i, old)
        give(context.output(i, f"final_{i}", state.initial.dtype))
        context.set(timing.so_far(stream), i)
    if valid is not None:
        context.operand(len(context.node.inputs), valid)
        _pass_over(context, form.body, count)
        _count_input(context, len(form.scanned))
    for i, stacked in enumerate(form.stacked, count):
        axis = stacked.axis
        if axis < 0:
            axis += context.rank(stacked.result)
        context.set(replace(stream, axis=axis, steady=False), i)


@streams_rows("Scan")
def scan_of_rows(context: Context) -> None:
    """Refused; where layers that share a body hand rows of frames on, they are written out."""
    context.converter.hands_on_frames = True
    each_row(context)


def _pass_over(context: Context, body: ir.Graph, count: int) -> None:
    """Let a new last scan input say of each step whether the states change."""
    writer = context.writer.within("step")
    valid = writer.declare("valid", [], ir.DataType.BOOL)
    body.inputs.append(valid)
    for i in range(count):
        new, old = body.outputs[i], body.inputs[i]
        body.outputs[i] = writer.op("Where", [valid, new, old], "kept", dtype=new.dtype)
        body.outputs[i].shape = new.shape
    body.extend(writer.nodes)


def _count_input(context: Context, count: int) -> None:
    attributes = context.node.attributes
    attributes["num_scan_inputs"] = ir.AttrInt64("num_scan_inputs", count + 1)
    for name in ("scan_input_axes", "scan_input_directions"):
        if name in attributes:
            attributes[name] = ir.AttrInt64s(name, [*attributes[name].as_ints(), 0])


@streams("CumSum", "CumProd")
def running(context: Context) -> None:
    """The last result goes in front of the chunk, so that sums are added in the same order.

    Sums of short floats are float32 until they are stored, and so is what is carried.
    """
    stream = context.only_stream()
    if context.constant(1) is None:
        raise context.refuse("its axis is not constant")
    if context.attributes.int("reverse", 0):
        raise context.refuse("adds up from the last frame on")
    value, stream = timing.settled(context, 0)
    neutral = 0 if context.op_type == "CumSum" else 1
    value = timing.masked(context, value, stream, neutral)
    dims = list(context.dims(value))
    dims[stream.axis] = 1
    given = value.dtype
    if given in _SHORT:
        value = _cast(context, value, ir.DataType.FLOAT)
    known = [size if isinstance(size, int) else 1 for size in dims]
    initial = filled(value, known, neutral)
    old, give = add_state(context, "sum", dims, initial, "running sum")
    joined = context.writer.op("Concat", [old, value], "joined", {"axis": stream.axis}, value.dtype)
    sums = context.writer.op(
        context.op_type, [joined, np.array(stream.axis, np.int64)], "sums", dtype=value.dtype
    )
    give(context.writer.slice(sums, stream.axis, -1, END, "last"))
    exclusive = context.attributes.int("exclusive", 0)
    first, end = (0, -1) if exclusive else (1, END)
    result = context.writer.slice(sums, stream.axis, first, end, "running")
    if given in _SHORT:
        result = _cast(context, result, given)
    context.replace(result, replace(stream, steady=False))


def _cast(context: Context, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    return context.writer.op("Cast", [value], "cast", {"to": int(dtype)}, dtype)
