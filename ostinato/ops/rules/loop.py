"""Loop: one body for all steps, or one for each of a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ostinato.errors import UnsupportedError
from ostinato.limits import ENDLESS
from ostinato.ops.core.registry import Context, UnknownOperandError, lowers
from ostinato.ops.core.singles import known_element, single
from ostinato.ops.core.size_sources import depends_on
from ostinato.ops.core.tensor import AnyValue, Tensor, Value, insert_ones
from ostinato.ops.rules.elements import returns_condition
from ostinato.ops.rules.parts import concatenated
from ostinato.ops.rules.rolled_loop import ChangingError, RolledLoop
from ostinato.ops.rules.sequence_forms import flattened
from ostinato.program.expr import constant
from ostinato.sizes.dims import Dim, Size, computed, maximum

if TYPE_CHECKING:
    import onnx_ir as ir

# Loops that have no other native form are repeated this many times, and to this many nodes.
MOST_STEPS = 64
_MOST_NODES = 1024


@lowers("Loop")
def lower_loop(context: Context) -> list[AnyValue]:
    """Steps counted by a trip count, ended by a condition, or both.

    Where steps differ in more than the elements of their states, a few of them become their nodes.
    """
    body = context.attributes.graph("body")
    trips = single(context, context.optional(0), "M", "int64")
    condition = single(context, context.optional(1), "cond", "bool")
    returns_condition(context.builder, body, 0)
    initial: list[AnyValue] = []
    for position in range(2, len(context.inputs)):
        value = context.any_input(position)
        initial.append(context.input(position) if value is None else value)
    never = known_element(trips) == 0 or known_element(condition) is False
    if never and len(body.outputs) == 1 + len(initial):
        # Steps over the elements of an empty sequence have none to be lowered with.
        return initial
    mark = context.builder.checkpoint()
    try:
        return _rolled(context, body, trips, condition, initial)
    except UnsupportedError as refusal:
        if not _is_of_steps(refusal, body):
            raise
        context.builder.rollback(mark)
        return _unrolled(context, body, trips, condition, initial, refusal)


def _is_of_steps(refusal: UnsupportedError, body: ir.Graph) -> bool:
    """Whether the reason to refuse a loop may not hold for a single step of known number."""
    if isinstance(refusal, UnknownOperandError):
        return depends_on(refusal, body.inputs)
    return isinstance(refusal, ChangingError)


def _unrolled(
    context: Context,
    body: ir.Graph,
    trips: Value | None,
    condition: Value | None,
    initial: Sequence[AnyValue],
    refusal: UnsupportedError,
) -> list[AnyValue]:
    """The body once for each step, which must be few; raises `refusal` where they are not."""
    builder = context.builder
    count, going = known_element(trips), True if condition is None else known_element(condition)
    open_ = [
        position
        for position, value, known in ((0, trips, count), (1, condition, going))
        if value is not None and not isinstance(known, int)
    ]
    if open_ or isinstance(count, Dim):
        raise context.unknown(refusal.reason, *open_, needs_constants=True)
    most = min(MOST_STEPS, _MOST_NODES // max(1, sum(1 for _ in body.all_nodes())))
    states, rows = list(initial), list[list[Value]]()
    yes, step = builder.constant(np.array(True)), 0
    while going and (count is None or step < count):
        if step == most:
            raise refusal
        number = builder.constant(np.array(step, np.int64))
        with builder.emit.step(constant(step, "int64")):
            proceed, *made = context.lower_body(body, [number, yes, *states])
        states = made[: len(states)]
        rows.append(flattened(made[len(states) :]))
        going = known_element(proceed) if isinstance(proceed, Tensor) else None
        if not isinstance(going, bool):
            raise refusal
        step += 1
    if not rows and len(body.outputs) > 1 + len(states):
        raise refusal
    stacked = [
        concatenated(context, [insert_ones(row, (0,)) for row in column], 0)
        for column in zip(*rows, strict=True)
    ]
    return [*states, *stacked]


def _rolled(
    context: Context,
    body: ir.Graph,
    trips: Value | None,
    initial_condition: Value | None,
    initial: Sequence[AnyValue],
) -> list[AnyValue]:
    """A loop whose steps share the memory of their states."""
    collects = len(body.outputs) > 1 + len(initial)
    if collects and trips is not None and trips.known is None:
        raise context.unknown("the number of steps is only known at run time", 0)
    count = known_element(trips)
    extent: Size = ENDLESS if count is None else maximum(count, 0)
    begins = initial_condition.known if initial_condition is not None else None
    if collects and count is not None and begins is not None:
        begin = begins.reshape(-1)[0]
        extent = extent * (begin if isinstance(begin, Dim) else int(begin))
        initial_condition = None
    if computed(extent) or (collects and count is not None):
        extent = context.builder.sizes.defined(extent, "number of steps")
    return RolledLoop(context, body, initial, extent, trips if count is None else None).run(
        initial_condition
    )
