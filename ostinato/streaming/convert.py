"""A model of whole sequences becomes one that takes them chunk by chunk, with explicit states."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from typing import Literal, TypeAlias

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
import onnx_ir as ir

from ostinato.definitions.recurrent_node import is_recurrent
from ostinato.errors import InputError, OptionError, UnsupportedError
from ostinato.graph.edit import can_return
from ostinato.graph.loop_form import reads
from ostinato.graph.raise_opset import converted
from ostinato.graph.random import may_draw
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import graphs, is_standard, subgraphs
from ostinato.model.load import ModelLike, load_model
from ostinato.optimization import run_all_passes
from ostinato.passes.loops.loop_to_scan import scan_obstacle
from ostinato.passes.normalise.portable import portable
from ostinato.passes.normalise.recurrent_to_scan import recurrent_to_scan
from ostinato.streaming import rules  # noqa: F401 (its import registers the rules)
from ostinato.streaming.context import Context, poison
from ostinato.streaming.converter import Converter
from ostinato.streaming.dims import decide_branches, name_sizes
from ostinato.streaming.facts import (
    Fact,
    Fixed,
    Kind,
    OfLength,
    Rows,
    Sizes,
    SoFar,
    Stream,
    Table,
    kind_of,
    mixed,
)
from ostinato.streaming.fixed import contents_of
from ostinato.streaming.registry import ROW_RULES, RULES, TAKE_FIRST_FRAMES, TAKE_LENGTHS, Rule
from ostinato.streaming.result import Conversion, ConversionError, Note, OutputTiming
from ostinato.streaming.rules.fixed_weights import weighs_frames, weights_of_length
from ostinato.streaming.rules.frames import each_frame, each_row, keeps_frames
from ostinato.streaming.rules.sizes import moved_sizes, moves_sizes
from ostinato.streaming.rules.tables import table_rule
from ostinato.streaming.timing import delayed, settled

Time: TypeAlias = "str | Mapping[str, int]"
Reach: TypeAlias = int | Literal["all"] | None

# Operators of recurrences are kept: other runtimes run them faster than Scan.
_KEEP = ("recurrent_to_scan",)
_LONG = "takes the way of long sequences, which their sizes decide"
# The first version that has all the operators that rules write.
_OLDEST_OPSET = 11
# Products of more frames and channels are no sizes that a file can hold.
_MOST_FRAMES = 2**40


def convert(
    model: ModelLike, time: Time, chunk: int | None = 1, *, context: Reach = None
) -> Conversion:
    """Convert a model of whole sequences into one that takes them `chunk` frames at a time.

    time: the time axis of each input that has one, `{"x": 1}`, or the name that the model gives to
    the size of that axis, "T". All these inputs have as many frames as each other. Inputs that are
    not named are the same in all steps.
    chunk: frames of a step; None leaves it open, so that each step may have another number.

    context: frames that causal attention sees at most, the present one among them, or "all" so far,
    with states that grow; models with attention need it.

    The model that comes out takes states beside its inputs and returns them beside its outputs,
    uses standard operators only, and gives the bits of the whole model when both are compiled
    here. docs/streaming_conversion.md has the rules.

    Raises `ConversionError`, an `UnsupportedError` that lists all nodes that need the whole
    sequence; `InputError` for an input, axis or size that is not there; `OptionError` for a chunk
    that is not positive or no multiple of what the strides need; `UnsupportedError` for an old
    model that the onnx package cannot convert to opset 11; what `load_model` raises.
    """
    chunk = None if chunk is None else _frames("chunk", chunk)
    if context is not None and not (isinstance(context, str) and context == "all"):
        context = _frames("context", context)
    expanded: set[str] = set()
    kept: tuple[str, ...] = _KEEP
    while True:
        converter, axes = _prepare(model, time, chunk, context, expanded, kept)
        for node in tuple(converter.model.graph):
            _visit(converter, node)
        if converter.refusals and converter.hands_on_frames and kept == _KEEP:
            # Layers that share their weights, as they were written out.
            kept = (*_KEEP, "reroll")
            continue
        late = set(converter.late_recurrences)
        if not late or converter.refusals:
            break
        assert not late <= expanded, "a recurrence is left that has to be a Scan"
        expanded |= late
    if converter.refusals:
        raise ConversionError(tuple(converter.refusals))
    if chunk is not None and chunk % converter.multiple:
        raise OptionError(
            f"chunk is {chunk}, expected a multiple of {converter.multiple}: the strides of the "
            "model turn that many frames into one"
        )
    return _finish(converter, axes, chunk)


def _frames(name: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise OptionError(f"{name} is {number!r}, expected a number of frames")
    if number < 1:
        raise OptionError(f"{name} is {number}, expected 1 frame or more, or None")
    if number > _MOST_FRAMES:
        raise OptionError(f"{name} is {number}, expected {_MOST_FRAMES} frames at most, or None")
    return int(number)


def _prepare(
    model: ModelLike,
    time: Time,
    chunk: int | None,
    context: Reach,
    expanded: set[str],
    kept: tuple[str, ...],
) -> tuple[Converter, dict[str, int]]:
    loaded = converted(load_model(model), _OLDEST_OPSET)
    run_all_passes(loaded, kept)
    recurrences = [node for node in loaded.graph if is_recurrent(node)]
    for node in recurrences:
        # The first of its outputs may be dropped before it is asked for by name.
        node.name = describe(node)
    chosen = [node for node in recurrences if node.name in expanded]
    if chosen:
        recurrent_to_scan(loaded, chosen)
        run_all_passes(loaded, kept)
    axes = _time_axes(loaded.graph, time)
    name_sizes(loaded)
    notes = []
    while decided := decide_branches(loaded, axes):
        notes += [Note(describe(node), node.op_type, _LONG) for node in decided]
        run_all_passes(loaded, kept)
    converter = Converter(loaded, axes, chunk, context)
    converter.notes += notes
    return converter, axes


def _time_axes(graph: ir.Graph, time: Time) -> dict[str, int]:
    """The time axis of each input with one, counted from the front."""
    shapes = {str(value.name): value.shape for value in graph.inputs}
    if isinstance(time, str):
        found = _axes_named(shapes, time)
        if not found:
            names = {str(d) for s in shapes.values() for d in s or () if not isinstance(d, int)}
            raise InputError(
                f"no input has a size named {time!r}; there are {sorted(names) or 'none'}"
            )
        return found
    if not isinstance(time, Mapping):
        raise InputError(f"time={time!r}: expected {{input: axis}} or the name of a size")
    if not time:
        raise InputError("time is empty: name the time axis of an input")
    found = {}
    for name, axis in time.items():
        if name not in shapes:
            raise InputError(f"the model has no input {name!r}, it has {sorted(shapes)}")
        if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
            raise InputError(f"input {name!r}: its time axis is {axis!r}, expected a number")
        shape = shapes[name]
        if shape is None or not -len(shape) <= axis < len(shape):
            rank = "unknown rank" if shape is None else f"rank {len(shape)}"
            raise InputError(f"input {name!r} has {rank}, so no axis {axis}")
        found[name] = int(axis) % len(shape)
    return found


def _axes_named(shapes: Mapping[str, ir.Shape | None], wanted: str) -> dict[str, int]:
    found = {}
    for name, shape in shapes.items():
        axes = [i for i, d in enumerate(shape or ()) if not isinstance(d, int) and d == wanted]
        if len(axes) > 1:
            raise InputError(f"input {name!r} has the size {wanted!r} at axes {axes}")
        if axes:
            found[name] = axes[0]
    return found


def _visit(converter: Converter, node: ir.Node) -> None:
    """Convert one node; all nodes that it reads were converted before."""
    values = list(dict.fromkeys(reads(node)))
    facts = [converter.fact(value) for value in values]
    kinds = [kind_of(fact) for fact in facts]
    refusal = _refusal(node, dict(zip(values, kinds, strict=True)))
    if refusal is not None:
        converter.refusals.append(refusal)
    if refusal is not None or Kind.EVERYTHING in kinds:
        poison(converter, node)
        return
    so_far = [fact for fact in facts if isinstance(fact, SoFar)]
    if so_far:
        _set_all(converter, node, reduce(SoFar.joined, so_far))
        return
    blocked = next((fact for fact in facts if isinstance(fact, OfLength)), None)
    if blocked is not None and _follows_from_length(converter, node):
        _set_all(converter, node, blocked)
        return
    moving = Kind.ALONG_TIME in kinds or Kind.LENGTH in kinds
    if moving or node.op_type == "Shape" or any(isinstance(fact, Sizes) for fact in facts):
        _apply(converter, node, moving, blocked)
    if any(output not in converter.facts for output in node.outputs if output.name):
        fact = Fixed(contents_of(converter, node))
        for output in node.outputs:
            converter.facts.setdefault(output, fact)


def _refusal(node: ir.Node, kinds: Mapping[ir.Value, Kind]) -> UnsupportedError | None:
    """Why no rule can convert `node`, whatever its operator does with values of these kinds."""
    reason = None
    if mixed(kinds.values()):
        listed = [
            f"{value.name!r} {kind.value}"
            for value, kind in kinds.items()
            if kind is not Kind.CONSTANT
        ]
        reason = (
            "applies the end of the sequence to all its frames, which a stream has passed by then "
            f"({', '.join(listed)}): make the value an output and run the nodes behind it on whole "
            "sequences, as a model of their own"
        )
    elif may_draw(node) and Kind.EVERYTHING not in kinds.values():
        reason = (
            "draws random numbers, or may do so: anew in each step, and the whole model only once"
        )
    return None if reason is None else UnsupportedError(describe(node), node.op_type, reason)


def _set_all(converter: Converter, node: ir.Node, fact: Fact) -> None:
    for output in node.outputs:
        converter.facts[output] = fact


def _apply(converter: Converter, node: ir.Node, moving: bool, blocked: OfLength | None) -> None:
    """Let the rule of the operator convert `node`; sizes that stay the same need none."""
    context = Context(converter, node)
    try:
        _rule(context, blocked)(context)
        if node.graph is not None:
            context.flush()
    except UnsupportedError as error:
        if moving and _follows_from_length(converter, node):
            _set_all(converter, node, OfLength(str(error)))
        elif moving:
            converter.refusals.append(error)
            poison(converter, node)


def _rule(context: Context, blocked: OfLength | None) -> Rule:
    """The rule for a node, when it can take what the node reads."""
    node, read = context.node, list(reads(context.node))
    if any(isinstance(context.fact(value), Table) for value in read):
        return table_rule
    if any(isinstance(context.fact(value), Rows) for value in read):
        return ROW_RULES.get(node.op_type, each_row) if node.domain == "" else each_row
    if weighs_frames(context):
        return weights_of_length
    if blocked is not None:
        raise context.refuse(f"computes with the length of the whole sequence: {blocked.reason}")
    if moves_sizes(context):
        return moved_sizes
    rule = RULES.get(node.op_type) if node.domain == "" else None
    if rule is None and is_standard(node, "Loop"):
        why = scan_obstacle(context.converter.model, node)
        raise context.refuse(f"is not known to do the same for each frame: {why}")
    if rule is None:
        raise context.refuse("has no rule for streams, so it may need the whole sequence")
    facts = [context.fact(value) for value in read]
    if any(isinstance(f, Sizes) and f.grows for f in facts) and node.op_type not in TAKE_LENGTHS:
        raise context.refuse("computes with the length of the whole sequence")
    captured = set(read) - set(node.inputs)
    if any(isinstance(context.fact(value), Stream) for value in captured):
        raise context.refuse("its body reads the whole sequence")
    for index in range(len(node.inputs)):
        stream = context.stream(index)
        fill = None if stream is None else stream.fill
        if isinstance(fill, ir.Value) and node.op_type not in TAKE_FIRST_FRAMES:
            settled(context, index)
    return each_frame if keeps_frames(context) else rule


def _follows_from_length(converter: Converter, node: ir.Node) -> bool:
    return all(converter.lengths.decides(str(output.name)) for output in node.outputs)


def _finish(converter: Converter, axes: Mapping[str, int], chunk: int | None) -> Conversion:
    graph = converter.model.graph
    timing = {
        str(output.name): _settle_output(converter, index)
        for index, output in enumerate(tuple(graph.outputs))
    }
    if converter.refusals:
        raise ConversionError(tuple(converter.refusals))
    if chunk is None and converter.multiple > 1:
        writer = Writer(graph, converter.names, converter.opset, ir.DataType.INT64, "chunk")
        converter.guard_chunks(writer)
        graph.insert_before(graph[0], writer.nodes)
    name = _length_name(converter)
    for value in graph.inputs:
        if str(value.name) in axes and value.shape is not None:
            axis, dims = axes[str(value.name)], list(value.shape)
            if chunk is not None or isinstance(dims[axis], int):
                dims[axis] = ir.SymbolicDim(name) if chunk is None else chunk
            value.shape = ir.Shape(dims)
    states = _write_states(converter)
    _forget_shapes(converter, timing, name)
    run_all_passes(converter.model, _KEEP)
    for state, value in zip(states, graph.outputs[len(timing) :], strict=True):
        sizes = zip(state.shape, state.initial.shape, strict=True)
        value.shape = ir.Shape([size if first else None for size, first in sizes])
    proto = portable(converter.model)
    onnx.checker.check_model(proto)
    return Conversion(
        proto, tuple(states), timing, dict(axes), chunk, converter.multiple, tuple(converter.notes)
    )


def _settle_output(converter: Converter, index: int) -> OutputTiming:
    """Send the known first frames of an output too, and say how it lies in time."""
    output = converter.model.graph.outputs[index]
    fact = converter.fact(output)
    if isinstance(fact, (Table, Rows)) or kind_of(fact) is Kind.LENGTH:
        reason = "is as large as the whole sequence is long"
        if isinstance(fact, Rows):
            reason = "has its frames merged with another axis: let a Reshape take them apart"
        converter.refusals.append(UnsupportedError(str(output.name), "output", reason))
    if isinstance(fact, SoFar):
        return OutputTiming(None, Fraction(1), 0, fact.first)
    if not isinstance(fact, Stream):
        return OutputTiming(None, Fraction(1), 0)
    if fact.delay < 0:
        maker = output.producer()
        assert maker is not None
        context = Context(converter, maker)
        try:
            value, fact = delayed(context, output, fact, -fact.delay)
        except UnsupportedError as error:
            converter.refusals.append(error)
            return OutputTiming(fact.axis, fact.rate, 0)
        converter.model.graph.extend(context.writer.nodes)
        name, output.name = output.name, converter.names.fresh(f"{output.name}_ahead")
        value.name, value.type = name, output.type
        converter.model.graph.outputs[index] = value
        converter.sizes[str(name)] = converter.dims(output) or converter.sizes.get(str(name))
    return OutputTiming(fact.axis, fact.rate, fact.delay)


def _write_states(converter: Converter) -> list:  # type: ignore[type-arg]
    graph = converter.model.graph
    writer = Writer(graph, converter.names, converter.opset, ir.DataType.FLOAT, "state")
    graph.extend(converter.behind.nodes)
    states = []
    for state, before, after in converter.states:
        graph.inputs.append(before)
        returned = after
        if not can_return(graph, after) or after.is_graph_input():
            returned = writer.op("Identity", [after], "next", dtype=before.dtype)
        returned.name, returned.type = state.output, before.type
        graph.outputs.append(returned)
        states.append(state)
    graph.extend(writer.nodes)
    return states


def _length_name(converter: Converter) -> str:
    """The name of the number of frames of a step, where it is open."""
    value, axis = converter.source
    size = None if value.shape is None else value.shape[axis]
    return str(size.value) if isinstance(size, ir.SymbolicDim) and size.value else "frames"


def _forget_shapes(converter: Converter, timing: Mapping[str, OutputTiming], name: str) -> None:
    """Drop the shapes of whole sequences; say those of the outputs of a step."""
    given = {*converter.model.graph.inputs, *converter.model.graph.outputs}
    for graph in graphs(converter.model):
        for node in graph:
            for value in node.outputs:
                if value not in given:
                    value.shape = None
            # Runtimes ask for the rank of these, which the operator's document gives.
            for body in subgraphs(node) if node.op_type == "Loop" else ():
                for scalar in body.inputs[:2]:
                    scalar.shape = ir.Shape([])
    for output in converter.model.graph.outputs[: len(timing)]:
        when, dims = timing[str(output.name)], converter.sizes.get(str(output.name))
        if dims is None or when.axis is None:
            continue
        frames: int | str | None = name if when.rate == 1 else None
        if converter.chunk is not None:
            frames = int(converter.chunk * when.rate)
        output.shape = ir.Shape([*dims[: when.axis], frames, *dims[when.axis + 1 :]])
