"""Loops of a few steps, whose values change their shape as no rule knows, become their steps.

The gradient of such a loop is that of its steps, in each of which values have a shape of their own.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.autodiff.copies import copy_node, like
from ostinato.autodiff.growing import obstacle
from ostinato.graph.edit import discard, replace_value
from ostinato.graph.loop_form import LoopForm, read_loop, scopes_within
from ostinato.graph.writer import Writer
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array

# Loops of this many steps, and nodes in all of these, are unrolled, as when a loop is lowered.
MOST_STEPS, MOST_NODES = 64, 1024


def unroll(model: ir.Model) -> int:
    """Write out the loops that are left in the main graph, if they are short; returns how many."""
    count, names, opset = 0, Names(model), opset_of(model)
    while (found := _next(model.graph, opset)) is not None:
        _write_steps(*found, names, opset)
        count += 1
    return count


def _next(graph: ir.Graph, opset: int) -> tuple[LoopForm, int] | None:
    for node in graph:
        form = read_loop(node, opset) if node.op_type == "Loop" else None
        if form is not None and obstacle(form) and (trips := _trip_count(form)):
            nodes = sum(len(scope) for scope in scopes_within(form.body))
            if trips <= MOST_STEPS and trips * nodes <= MOST_NODES:
                return form, trips
    return None


def _trip_count(form: LoopForm) -> int | None:
    """The number of steps where the file says it, and no condition ends the loop before."""
    trips = None if form.head is None else constant_array(form.head.trips)
    if form.head is None or form.head.may_end_early or trips is None or trips.size != 1:
        return None
    return int(trips.reshape(-1)[0])


def _write_steps(form: LoopForm, trips: int, names: Names, opset: int) -> None:
    node, head = form.node, form.head
    assert node.graph is not None and head is not None
    writer = Writer(node.graph, names, opset, ir.DataType.INT64, node.name or "loop")
    values = [state.initial for state in form.states]
    rows: list[list[ir.Value]] = [[] for _ in form.stacked]
    for step in range(trips):
        made = {state.before: value for state, value in zip(form.states, values, strict=True)}
        made[head.number] = writer.value(np.array(step, np.int64), "step")
        made[head.going] = writer.value(np.array(True), "going")
        for inner in form.body:
            for value in inner.outputs:
                made[value] = like(value, names, str(value.name))
                made[value].shape = None
            writer.nodes.append(copy_node(inner, names, lambda value: value, made))
        values = [made.get(state.after, state.after) for state in form.states]
        for parts, stack in zip(rows, form.stacked, strict=True):
            element = made.get(stack.element, stack.element)
            row = writer.unsqueeze(element, [0], "row")
            row.type = element.type
            parts.append(row)
    collected = [writer.op("Concat", parts, "rows", {"axis": 0}, parts[0].dtype) for parts in rows]
    node.prepend(writer.nodes)
    finals = [*(state.final for state in form.states), *(stack.result for stack in form.stacked)]
    for final, value in zip(finals, [*values, *collected], strict=True):
        value.type = value.type or final.type
        replace_value(final, value)
    discard(node)
