"""A Loop that runs at most once becomes its body, or nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant, discard, is_needed, replace_value, splice
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.loop_form import LoopForm, LoopHead, read_loop
from ostinato.graph.random import has_random
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import graphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_scalar


def fold_loop(model: ir.Model) -> int:
    """Replace each Loop that provably runs once or never; returns their number.

    Matches a Loop whose trip count is a constant of at most 1, or whose condition is the constant
    false; to run once, its condition must be absent or the constant true. One trip makes the
    body's nodes and `Unsqueeze(y, 0)` for each scan output, unless the body draws random numbers,
    which depend on the loops around them; no trip makes the initial values, and
    empty constants for scan outputs whose sizes are fixed (others keep the Loop). Valid because
    the condition that the body computes is only looked at before a next step.
    """
    opset, names, folded = opset_of(model), Names(model), 0
    for graph in reversed(graphs(model)):
        for node in graph:
            form = read_loop(node, opset) if node.op_type == "Loop" else None
            if form is None or form.head is None:
                continue
            trips = _trips(form.head)
            if trips == 1:
                if has_random(form.body):
                    continue
                _run_once(model, form, form.head, names, opset)
            elif trips != 0 or not _skip(model, form, names):
                continue
            folded += 1
    return folded


def _trips(head: LoopHead) -> int | None:
    """The number of steps, where that is known to be 0 or 1."""
    count, condition = constant_scalar(head.trips), constant_scalar(head.condition)
    begins = head.condition is None or bool(condition)
    if (condition is not None and not begins) or (count is not None and count <= 0):
        return 0
    return 1 if begins and count == 1 else None


def _run_once(model: ir.Model, form: LoopForm, head: LoopHead, names: Names, opset: int) -> None:
    writer = Writer(model.graph, names, opset, ir.DataType.INT64, describe(form.node))
    given = {state.before: state.initial for state in form.states}
    for value, constant in ((head.number, np.array(0, np.int64)), (head.going, np.array(True))):
        if is_needed(value):
            given[value] = writer.value(constant, value.name or "constant")
    results = splice(model, form.body, form.node, given)[1:]
    count = len(form.states)
    for state, result in zip(form.states, results[:count], strict=True):
        replace_value(state.final, result)
    for stacked, result in zip(form.stacked, results[count:], strict=True):
        whole = writer.unsqueeze(result, [0], f"{stacked.result.name}_stacked")
        form.node.prepend(writer.nodes)
        writer.nodes.clear()
        whole.type = result.type
        replace_value(stacked.result, whole)
    discard(form.node)


def _skip(model: ir.Model, form: LoopForm, names: Names) -> bool:
    """Remove a Loop without steps, unless the shape of a scan output is not known."""
    stacked = [part for part in form.stacked if is_needed(part.result)]
    sizes = infer_sizes(model) if stacked else {}
    empty = [c for part in stacked if (c := _no_elements(part.element, sizes)) is not None]
    if len(empty) < len(stacked):
        return False
    for part, contents in zip(stacked, empty, strict=True):
        name = names.fresh(f"{part.result.name}_empty")
        replace_value(part.result, add_constant(model, name, contents))
    for state in form.states:
        replace_value(state.final, state.initial)
    discard(form.node)
    return True


def _no_elements(element: ir.Value, sizes: Mapping[str, Sizes]) -> np.ndarray | None:
    """An empty stack of values like `element`, None when its sizes are not fixed."""
    dims, dtype = sizes.get(element.name or ""), element.dtype
    if dims is None or dtype is None:
        return None
    fixed = [size for size in dims if isinstance(size, int)]
    return np.zeros((0, *fixed), dtype.numpy()) if len(fixed) == len(dims) else None
