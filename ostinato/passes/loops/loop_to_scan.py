"""A Loop that counts becomes a Scan."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant, is_needed
from ostinato.graph.inferred_sizes import InferredSizes, Sizes
from ostinato.graph.linear_index import Indices
from ostinato.graph.loop_form import (
    SCAN_WITHOUT_BATCH,
    LoopForm,
    LoopHead,
    Scanned,
    State,
    origin,
    read_loop,
    sweep,
)
from ostinato.graph.writer import Writer
from ostinato.model.attributes import describe
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_scalar

# Range exists since this version; before it only the numbers of a fixed count can be listed.
_RANGE = 11
# A list of step numbers up to this length is stored in the model.
_STORED_STEPS = 8192
# A fixed trip count above this is no length of anything, but "until the condition fails".
_MOST_TRIPS = 1 << 20

_logger = logging.getLogger(__name__)


def loop_to_scan(model: ir.Model) -> int:
    """Replace each counting Loop by a Scan over the numbers of its steps; returns their number.

    Matches a Loop whose trip count is constant or computed from sizes, whose condition is true
    and stays so, and whose carried values are tensors that provably keep their type and shape.
    Makes `Scan(initial values, Range(0, trips))` with the same body, in which the scan element is
    the step's number. Scan outputs of both are stacked on axis 0, forward. Valid because such a
    Loop runs its body exactly `max(trips, 0)` times, once for each element of the Range.
    """
    opset = opset_of(model)
    if opset < SCAN_WITHOUT_BATCH:
        return 0
    nodes = [
        node
        for node in nodes_of(model, "Loop")
        if (form := counting(node, opset)) is not None and not any(map(_grows, form.states))
    ]
    if not nodes:
        return 0
    sizes = InferredSizes(model)
    names, indices, replaced = Names(model), Indices(sizes), 0
    for node in nodes:
        form = counting(node, opset)
        if form is None or form.head is None:
            continue
        reason = obstacle(form, form.head, sizes, indices, opset)
        if reason is None:
            _replace(model, form, form.head, names, opset)
            replaced += 1
        else:
            _logger.debug("Loop %s stays a Loop: %s", describe(node), reason)
    return replaced


def scan_obstacle(model: ir.Model, node: ir.Node) -> str:
    """Why a Loop of `model` is no Scan."""
    opset, sizes = opset_of(model), InferredSizes(model)
    form = counting(node, opset)
    if form is None or form.head is None:
        return "a condition that is computed while it runs ends it"
    return obstacle(form, form.head, sizes, Indices(sizes), opset) or "its steps are not numbered"


def counting(node: ir.Node, opset: int) -> LoopForm | None:
    """The parts of a Loop that only its trip count ends, None for any other node."""
    form = read_loop(node, opset) if node.op_type == "Loop" else None
    head = form.head if form is not None else None
    return None if head is None or head.trips is None or head.may_end_early else form


def obstacle(
    form: LoopForm, head: LoopHead, sizes: Mapping[str, Sizes], indices: Indices, opset: int
) -> str | None:
    """Why a counting Loop cannot be a Scan, None when it can."""
    trips = indices.single(head.trips)
    if trips is None:
        return "its trip count is computed from data"
    if not isinstance(trips, int) and opset < _RANGE:
        return f"operator set {opset} has no Range"
    if isinstance(trips, int) and trips > _MOST_TRIPS:
        return f"its trip count is {trips}"
    for number, state in enumerate(form.states):
        if not _keeps_type(state):
            return f"carried value {number} is no tensor, or changes its element type"
        before = sizes.get(state.before.name or "")
        if before is None or sizes.get(state.after.name or "") != before:
            return f"carried value {number} may change its shape"
    return None


def _grows(state: State) -> bool:
    """Whether a step joins something to a state; to infer sizes takes longer than to see that."""
    join = maker_of(origin(state.after), "Concat")
    if join is None or len(join.inputs) < 2:
        return False
    return any(value is state.before for value in join.inputs)


def _keeps_type(state: State) -> bool:
    types = {value.type for value in (state.initial, state.after)}
    return len(types) == 1 and isinstance(types.pop(), ir.TensorType)


def _replace(model: ir.Model, form: LoopForm, head: LoopHead, names: Names, opset: int) -> None:
    writer = Writer(model.graph, names, opset, ir.DataType.INT64, describe(form.node))
    source = _step_numbers(writer, head)
    form.node.prepend(writer.nodes)
    # The condition itself is often the only reader of the condition.
    form.body.outputs.pop(0)
    sweep(form.body)
    if is_needed(head.going):
        form.substitute(head.going, add_constant(model, writer.name("true"), np.array(True)))
    for state in form.states:
        state.before.type, state.before.shape = state.initial.type, state.initial.shape
    head.number.type, head.number.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([])
    form.scanned.append(Scanned(source, head.number))
    form.head = None
    form.write(names)


def _step_numbers(writer: Writer, head: LoopHead) -> ir.Value:
    """0, 1, ... for each step: int64, shape `[max(trips, 0)]`."""
    assert head.trips is not None
    trips = constant_scalar(head.trips)
    if trips is not None and (writer.opset < _RANGE or trips <= _STORED_STEPS):
        return writer.value(np.arange(max(trips, 0), dtype=np.int64), "steps")
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    # Range takes scalars, a trip count may have the shape [1].
    limit = writer.op("Reshape", [head.trips, np.zeros(0, np.int64)], "trips")
    return writer.op("Range", [zero, limit, one], "steps")
