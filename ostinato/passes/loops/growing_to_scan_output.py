"""A tensor that a Loop adds a row to in each step becomes a scan output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import replace_value
from ostinato.graph.inferred_sizes import InferredSizes, Sizes
from ostinato.graph.linear_index import Indices
from ostinato.graph.loop_form import LoopForm, Stacked, State, origin
from ostinato.graph.writer import Writer
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import static_dims
from ostinato.passes.loops.loop_to_scan import counting, obstacle

# Squeeze takes its axes as an input since this version.
_OPSET = 13


def growing_to_scan_output(model: ir.Model) -> int:
    """Let a Loop stack rows instead of carrying all of them; returns how many values.

    Matches a carried value of a Loop that the body only joins one row to, behind it along one axis:
    `after = Concat(before, row)`, where the Loop is a Scan but for such values. Makes a scan output
    of the row, and behind the loop a Concat of the initial value, if it has rows, and of the stack.
    Valid because that is what the steps make, row by row.
    """
    opset, replaced = opset_of(model), 0
    nodes = [*nodes_of(model, "Loop")]
    if opset < _OPSET or not nodes:
        return 0
    sizes, names = InferredSizes(model), Names(model)
    for node in nodes:
        form = counting(node, opset)
        growing = [] if form is None else _growing(form, sizes)
        if form is None or form.head is None or not growing:
            continue
        changing = [state for state, *_ in growing]
        others = replace(form, states=[state for state in form.states if state not in changing])
        if obstacle(others, form.head, sizes, Indices(sizes), opset) is None:
            _stack(model, form, *growing[0], names)
            replaced += 1
    return replaced


_Growing = tuple[State, ir.Value, int, int]


def _growing(form: LoopForm, sizes: Mapping[str, Sizes]) -> list[_Growing]:
    """Values that grow by a row in each step, with the row, the axis and the rank."""
    found: list[_Growing] = []
    for state in form.states:
        join = maker_of(origin(state.after), "Concat")
        if join is None or len(join.inputs) != 2:
            continue
        before, row = join.inputs
        if before is not state.before or row is None or row.producer() is None:
            continue
        readers = len(join.outputs[0].uses()) + join.outputs[0].is_graph_output()
        is_read = len(state.before.uses()) > 1 or readers > 1
        if is_read or row.graph is not form.body:
            continue
        # Asked last: to infer sizes takes longer than most passes.
        dims = sizes.get(str(row.name))
        if dims is None:
            continue
        axis = join.attributes["axis"].as_int() % len(dims)
        if dims[axis] == 1:
            found.append((state, row, axis, len(dims)))
    return found


def _stack(
    model: ir.Model,
    form: LoopForm,
    state: State,
    row: ir.Value,
    axis: int,
    rank: int,
    names: Names,
) -> None:
    dtype = row.dtype or ir.DataType.FLOAT
    writer = Writer(model.graph, names, opset_of(model), dtype, str(state.final.name or "rows"))
    form.states.remove(state)
    form.stacked.append(Stacked(row, ir.Value(name=writer.name("stacked"), type=row.type)))
    form.write(names)
    result = form.stacked[-1].result
    loop = result.producer()
    assert loop is not None
    if axis:
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        result = writer.op("Transpose", [result], "moved", {"perm": order})
    result = writer.op("Squeeze", [result, np.array([axis + 1])], "rows")
    dims = static_dims(state.initial)
    if dims is None or dims[axis] != 0:
        result = writer.op("Concat", [state.initial, result], "all", {"axis": axis})
    loop.append(writer.nodes)
    replace_value(state.final, result)
