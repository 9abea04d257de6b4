"""Scan: the one form that every recurrence takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ostinato.errors import UnsupportedError
from ostinato.ops.core.builder import Builder
from ostinato.ops.core.ranges import Range, Trial, of_value, union
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.size_sources import told_by_steps
from ostinato.ops.core.tensor import Tensor, Value, at, drop_ones, insert_ones
from ostinato.ops.rules.collected import told_shape
from ostinato.ops.rules.views import axis_of
from ostinato.program.expr import Axis, constant
from ostinato.program.nodes import Carry
from ostinato.records import dataclass
from ostinato.sizes.dims import Size

if TYPE_CHECKING:
    import onnx_ir as ir


# By state.
Ranges: TypeAlias = "tuple[Range | None, ...]"


@dataclass(frozen=True)
class ScanAttributes:
    """Axis and direction of each scanned value (1: from the last element)."""

    input_axes: tuple[int, ...]
    input_directions: tuple[int, ...]
    output_axes: tuple[int, ...]
    output_directions: tuple[int, ...]


@lowers("Scan")
def lower_scan(context: Context) -> list[Value]:
    """A loop over slices of the scan inputs, with states carried from step to step (opset 9 on)."""
    if context.since < 9:
        raise context.refuse("the batched form of opset 8 has no native form")
    body = context.attributes.graph("body")
    count = context.attributes.int("num_scan_inputs")
    values = context.all_inputs()
    states = len(values) - count
    if count < 1 or not 0 <= states <= len(body.outputs) or len(body.inputs) != len(values):
        raise context.invalid(
            f"num_scan_inputs {count} of {len(values)} inputs does not fit a body "
            f"with {len(body.inputs)} inputs and {len(body.outputs)} outputs"
        )
    initial, scanned = values[:states], values[states:]
    attributes = _read(context, len(scanned), len(body.outputs) - len(initial))
    axes = [
        axis_of(context, axis, len(value.shape))
        for axis, value in zip(attributes.input_axes, scanned, strict=True)
    ]
    trip = scanned[0].shape[axes[0]]
    for axis, value in zip(axes, scanned, strict=True):
        context.builder.require.equal(value.shape[axis], trip, "lengths of the scan inputs")
    sequences = [context.builder.strided(value) for value in scanned]
    builder = context.builder
    mark = builder.checkpoint()
    nothing: Ranges = (None,) * states
    between: Ranges | None = None
    while True:
        try:
            if trip == 1:
                return _single_step(context, body, initial, sequences, axes, attributes)
            loop = partial(_loop, context, body, initial, sequences, axes, attributes, trip)
            if builder.trial is not None:
                results, found = loop(nothing)
                builder.trial.has_found |= any(found)
                return results
            if between is not None:
                return loop(between)[0]
            with _trial(builder) as trial:
                results, found = loop(nothing)
            if not any(found) and not trial.has_found:
                return results
            # What is proven without assumptions holds in every step, and is what steps begin with.
            between = found
            builder.rollback(mark)
        except UnsupportedError as refusal:
            sources = told_by_steps(context, body, refusal) - builder.measured
            if not sources:
                raise
            builder.measured |= sources
            builder.rollback(mark)


@contextmanager
def _trial(builder: Builder) -> Iterator[Trial]:
    """Loops inside are lowered once: were each tried, each level would double the work."""
    builder.trial = Trial()
    try:
        yield builder.trial
    finally:
        builder.trial = None


def _read(context: Context, scans: int, outputs: int) -> ScanAttributes:
    reader = context.attributes
    attributes = ScanAttributes(
        reader.ints("scan_input_axes", (0,) * scans),
        reader.ints("scan_input_directions", (0,) * scans),
        reader.ints("scan_output_axes", (0,) * outputs),
        reader.ints("scan_output_directions", (0,) * outputs),
    )
    expected = {"scan_input": scans, "scan_output": outputs}
    for kind, number in expected.items():
        for aspect in ("axes", "directions"):
            given = getattr(attributes, f"{kind.removeprefix('scan_')}_{aspect}")
            if len(given) != number:
                raise context.invalid(
                    f"attribute '{kind}_{aspect}' has {len(given)} entries for {number} values"
                )
            if aspect == "directions" and not set(given) <= {0, 1}:
                raise context.invalid(
                    f"attribute '{kind}_{aspect}' is {list(given)}, not of 0 or 1"
                )
    return attributes


def _single_step(
    context: Context,
    body: ir.Graph,
    initial: Sequence[Value],
    sequences: Sequence[Tensor],
    axes: Sequence[int],
    attributes: ScanAttributes,
) -> list[Value]:
    """One step needs no loop: the body between views of its operands."""
    slices = []
    for sequence, axis in zip(sequences, axes, strict=True):
        element = drop_ones(sequence, (axis,))
        assert element is not None
        slices.append(element)
    with context.builder.emit.step(constant(0, "int64")):
        results = context.lower_graph(body, [*initial, *slices])
    states, elements = results[: len(initial)], results[len(initial) :]
    check_states(context, initial, states)
    outputs = [
        insert_ones(element, (axis_of(context, axis, len(element.shape) + 1),))
        for element, axis in zip(elements, attributes.output_axes, strict=True)
    ]
    return [*states, *outputs]


def _loop(
    context: Context,
    body: ir.Graph,
    initial: Sequence[Value],
    sequences: Sequence[Tensor],
    axes: Sequence[int],
    attributes: ScanAttributes,
    trip: Size,
    between: Ranges,
) -> tuple[list[Value], Ranges]:
    """The loop's results, and between which numbers each state lies in all steps.

    between: what is known of that when steps are lowered.
    """
    builder = context.builder
    states = [builder.empty(value.dtype, value.shape) for value in initial]
    successors = [builder.empty(value.dtype, value.shape) for value in initial]
    for value, state, known in zip(initial, states, between, strict=True):
        builder.copy(value, state)
        if known is not None:
            builder.ranges[state] = known
    outputs: list[Value] = []
    before = builder.draft.body
    with builder.emit.loop(trip) as loop:
        step, carries = loop.axis, loop.carries
        slices = [
            _element(sequence, axis, step, reverse, trip)
            for sequence, axis, reverse in zip(
                sequences, axes, attributes.input_directions, strict=True
            )
        ]
        results = context.lower_graph(body, [*states, *slices])
        updated, elements = results[: len(states)], results[len(states) :]
        check_states(context, states, updated)
        for element, axis, reverse in zip(
            elements, attributes.output_axes, attributes.output_directions, strict=True
        ):
            position = axis_of(context, axis, len(element.shape) + 1)
            shape = told_shape(builder, element, loop, before)
            sequence = builder.empty(element.dtype, (*shape[:position], trip, *shape[position:]))
            place = _element(sequence, position, step, reverse, trip)
            builder.copy(element, replace(place, shape=element.shape))
            outputs.append(sequence)
        for state, successor, value in zip(states, successors, updated, strict=True):
            builder.copy(value, successor)
            carries.append(Carry(state.buffer, successor.buffer))
    found = tuple(
        union([of_value(builder.ranges, old), builder.ranges.get(new)])
        for old, new in zip(initial, updated, strict=True)
    )
    builder.ranges |= {state: known for state, known in zip(states, found, strict=True) if known}
    return [*states, *outputs], found


def _element(sequence: Tensor, axis: int, step: Axis, reverse: int, trip: Size) -> Tensor:
    """The slice of a sequence that one step reads."""
    return at(sequence, axis, step, trip - 1 if reverse else 0, -1 if reverse else 1)


def check_states(context: Context, before: Sequence[Value], after: Sequence[Value]) -> None:
    """States keep their type and shape from step to step."""
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if len(old.shape) != len(new.shape) or old.dtype != new.dtype:
            raise context.refuse(
                f"state {number} changes from {old.dtype}{list(old.shape)} "
                f"to {new.dtype}{list(new.shape)}"
            )
        for a, b in zip(old.shape, new.shape, strict=True):
            context.builder.require.equal(a, b, f"shape of state {number} after a step")
