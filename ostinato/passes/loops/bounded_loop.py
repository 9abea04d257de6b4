"""A Loop that counts its steps in a state gets the trip count that its condition allows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant
from ostinato.graph.loop_form import LoopForm, read_loop
from ostinato.model.graphs import graphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_scalar


def bounded_loop(model: ir.Model) -> int:
    """Lower trip counts to what conditions allow anyway; returns the number of Loops changed.

    Matches a Loop with a constant trip count or none, in the body of which a step is followed by
    another only if `count + 1 < limit`, and perhaps more conditions hold, where `count` is a state
    that begins with a constant and becomes `count + 1`; the limit is a constant. Then
    `max(limit - start, 1)` steps run at most: the first one is not asked. `torch.jit.script` writes
    a `for` with a `break` like this. How much memory grows in the loop is known by its trip count.
    Where there is no other condition, the body returns the one that it is given, which stays true.
    """
    opset, names, bounded = opset_of(model), Names(model), 0
    for graph in graphs(model):
        for node in graph:
            form = read_loop(node, opset) if node.op_type == "Loop" else None
            if form is None or form.head is None:
                continue
            trips, bound = form.head.trips, _most_steps(form, form.head.proceed)
            known = constant_scalar(trips)
            if bound is None or (trips is not None and known is None):
                continue
            maker = form.head.proceed.producer()
            counts_alone = maker is not None and maker.op_type in ("Less", "Greater")
            lower = known is None or known > bound
            bounded += counts_alone or lower
            if counts_alone:
                # No other condition: the count of steps says the same.
                stays = ir.Value(name=names.fresh("stays"), type=ir.TensorType(ir.DataType.BOOL))
                form.body.append(ir.Node("", "Identity", [form.head.going], outputs=[stays]))
                form.body.outputs[0] = stays
            if not lower:
                continue
            name = names.fresh(f"{node.outputs[0].name}_trips")
            node.replace_input_with(0, add_constant(model, name, np.array(bound, np.int64)))
    return bounded


def _most_steps(form: LoopForm, proceed: ir.Value) -> int | None:
    """Find the trip count that the condition allows, None where no counter is part of it."""
    found = [
        max(limit - start, 1)
        for count, limit in _limits(proceed)
        for state in form.states
        if state.after is count
        and (start := _counts_from(state.before, count, state.initial)) is not None
    ]
    return min(found, default=None)


def _limits(condition: ir.Value) -> Iterator[tuple[ir.Value, int]]:
    """Values that are less than a constant if the condition holds."""
    node = condition.producer()
    if node is None:
        return
    if node.op_type == "And":
        for part in node.inputs:
            if part is not None:
                yield from _limits(part)
    elif node.op_type in ("Less", "Greater"):
        count, limit = node.inputs if node.op_type == "Less" else reversed(node.inputs)
        known = _integer(limit)
        if count is not None and known is not None:
            yield count, known


def _counts_from(before: ir.Value, after: ir.Value, initial: ir.Value) -> int | None:
    """Find the initial value of a state that is one more after each step."""
    node = after.producer()
    if node is None or node.op_type != "Add" or before not in node.inputs:
        return None
    step = next((value for value in node.inputs if value is not before), None)
    return _integer(initial) if _integer(step) == 1 else None


def _integer(value: ir.Value | None) -> int | None:
    """The only element of a constant of integers."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    number = constant_scalar(value)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
