"""A Loop that counts its steps in a state gets the trip count that its condition allows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.loop_form import LoopForm, LoopHead, State, origin, read_loop
from ostinato.graph.writer import Operand, Writer
from ostinato.limits import MOST_STEPS
from ostinato.model.attributes import describe
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array
from ostinato.records import dataclass

# Max and Min take integers since this version.
_INTEGER_MAX = 12
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
# Types in which the number of steps of a run can be compared.
_COMPARED = (*_INTEGERS, ir.DataType.FLOAT, ir.DataType.DOUBLE)
# Each with the side on which the count is, and what it may exceed the other side by.
_COMPARISONS = {
    "Less": (0, 0),
    "LessOrEqual": (0, 1),
    "Greater": (1, 0),
    "GreaterOrEqual": (1, 1),
}


@dataclass(frozen=True)
class _Limit:
    """The condition `start < limit + more`; `start` is a count of steps."""

    start: ir.Value
    limit: ir.Value
    more: int

    @property
    def steps(self) -> int | None:
        """How often the count can grow by 1, None where only the run tells."""
        start, limit = _integer(self.start), _integer(self.limit)
        return None if start is None or limit is None else limit + self.more - start

    def says(self, other: _Limit | None) -> bool:
        """Whether another condition is the same."""
        return (
            other is not None
            and self.more == other.more
            and _is_same(self.start, other.start)
            and _is_same(self.limit, other.limit)
        )


def bounded_loop(model: ir.Model) -> int:
    """Lower trip counts to what conditions allow anyway; returns the number of Loops changed.

    Matches a Loop in the body of which a step is followed by another only if
    `count + 1 < limit`, and perhaps more conditions hold, where `count` is a state that becomes
    `count + 1`. Both are integers, which may have been converted for the comparison, and the limit
    does not depend on the steps. Then `max(limit - start, 1)` steps run at most: the first one is
    not asked. Converters write a `while` like this, and `torch.jit.script` a `for` with a `break`.
    How much memory grows in the loop is known by its trip count. Where there is no other condition,
    but perhaps that the number of the step is below the limit too, as tf2onnx has it, the body
    returns the one that it is given, which stays true; where that is the same before the first
    step, `limit - start` steps run.
    """
    opset, names, bounded = opset_of(model), Names(model), 0
    for node in nodes_of(model, "Loop"):
        form = read_loop(node, opset)
        limit = _lowest(form) if form is not None else None
        if form is not None and form.head is not None and limit is not None:
            writer = Writer(model.graph, names, opset, ir.DataType.INT64, describe(node))
            bounded += _bound(form, form.head, limit, writer)
    return bounded


def _bound(form: LoopForm, head: LoopHead, limit: _Limit, writer: Writer) -> bool:
    """Give the Loop the trip count that follows from a limit; returns whether that changes it."""
    node = form.node
    counts_alone = all(_follows(form, limit, part) for part in _parts(head.proceed))
    asked = [limit.says(_comparison(part)) for part in _parts(head.condition)]
    is_asked = counts_alone and asked != [] and all(asked)
    trips = _trips(writer, head, limit, 0 if is_asked else 1, counts_alone)
    if trips is None or (trips is head.trips and not counts_alone):
        return False
    if trips is not head.trips:
        node.replace_input_with(0, writer.value(trips, "trips"))
        node.prepend(writer.nodes)
    if counts_alone:
        # No other condition: the count of steps says the same.
        stays = ir.Value(name=writer.name("stays"), type=ir.TensorType(ir.DataType.BOOL))
        form.body.append(ir.Node("", "Identity", [head.going], outputs=[stays]))
        form.body.outputs[0] = stays
    if is_asked:
        node.replace_input_with(1, None)
    return True


def _trips(
    writer: Writer, head: LoopHead, limit: _Limit, least: int, counts_alone: bool
) -> Operand | None:
    """The lower one of the trip counts that the Loop has and that a limit allows.

    That of the Loop itself where it is lower, or may have been lowered before. None where the
    operator set cannot express it.
    """
    given = _integer(head.trips)
    # No run takes as many steps: such a trip count means "until the condition fails".
    is_open = head.trips is None or (given is not None and given >= MOST_STEPS)
    if limit.steps is not None and (is_open or given is not None):
        most = max(limit.steps, least)
        return head.trips if given is not None and given <= most else np.array(most, np.int64)
    is_given = head.trips is not None and _is_same(head.trips, limit.limit)
    if not (is_open or counts_alone) or (is_given and _integer(limit.start) == limit.more):
        return head.trips
    if writer.opset < _INTEGER_MAX and (least or not is_open):
        return None
    trips = _sum(writer, limit)
    if least:
        trips = writer.op("Max", [trips, np.array(least, np.int64)], "trips")
    if head.trips is None or is_open:
        return trips
    return writer.op("Min", [trips, _scalar(writer, head.trips, "given")], "trips")


def _sum(writer: Writer, limit: _Limit) -> ir.Value:
    """`limit + more - start`: int64, shape `[]`."""
    trips = _scalar(writer, limit.limit, "limit")
    if limit.more:
        trips = writer.op("Add", [trips, np.array(limit.more, np.int64)], "limit")
    return writer.op("Sub", [trips, _scalar(writer, limit.start, "start")], "trips")


def _scalar(writer: Writer, value: ir.Value, role: str) -> ir.Value:
    number = _integer(value)
    if number is not None:
        return writer.value(np.array(number, np.int64), role)
    wide = writer.op("Cast", [value], role, {"to": ir.DataType.INT64.value})
    return writer.op("Reshape", [wide, np.zeros(0, np.int64)], role)


def _lowest(form: LoopForm) -> _Limit | None:
    """Find the limit of a counter that allows the fewest steps, one that the run tells if need be.

    None where the condition has no counter.
    """
    assert form.head is not None
    limits = []
    for condition in _limits(form.head.proceed):
        limit = _outside(form, condition.limit)
        for state in form.states:
            if limit is not None and _whole(state.after) is condition.start and _counts(state):
                limits.append(_Limit(state.initial, limit, condition.more))
    return min(
        limits, key=lambda limit: np.inf if limit.steps is None else limit.steps, default=None
    )


def _follows(form: LoopForm, limit: _Limit, part: ir.Value) -> bool:
    """Whether a condition holds behind each step of as many as a limit allows but the last."""
    comparison, step = _comparison(part), form.body.inputs[0]
    outside = None if comparison is None else _outside(form, comparison.limit)
    if comparison is None or outside is None or not _is_same(outside, limit.limit):
        return False
    if comparison.start is step:
        # The last of `limit + more - start` steps has the number `limit + more - start - 1`.
        start = _integer(limit.start)
        return start is not None and limit.more - start <= comparison.more
    return comparison.more == limit.more and any(
        _whole(state.after) is comparison.start and _counts(state)
        for state in form.states
        if _is_same(state.initial, limit.start)
    )


def _limits(condition: ir.Value) -> Iterator[_Limit]:
    """Comparisons that are true if the condition is."""
    yield from filter(None, map(_comparison, _parts(condition)))


def _parts(condition: ir.Value | None) -> Iterator[ir.Value]:
    """Conditions that are all true where this one is."""
    node = maker_of(origin(condition), "And")
    if node is not None:
        for part in node.inputs:
            yield from _parts(part)
    elif condition is not None:
        yield condition


def _comparison(condition: ir.Value | None) -> _Limit | None:
    """A condition that compares two numbers, None for any other."""
    node = maker_of(origin(condition), *_COMPARISONS)
    if node is None:
        return None
    side, more = _COMPARISONS[node.op_type]
    count, limit = node.inputs[side], node.inputs[1 - side]
    if count is None or limit is None:
        return None
    return _Limit(_whole(count), _whole(limit), more)


def _whole(value: ir.Value) -> ir.Value:
    """The integers that a value is made of by other types, none of them narrower, and shapes."""
    node = value.producer()
    while node is not None and node.domain == "" and node.inputs:
        source = node.inputs[0]
        if source is None or source.dtype not in _INTEGERS or value.dtype not in _COMPARED:
            break
        narrows = source.dtype is ir.DataType.INT64 and value.dtype is ir.DataType.INT32
        if narrows or (node.op_type != "Cast" and not facts_of(node.op_type).in_order):
            break
        value, node = source, source.producer()
    return value


def _outside(form: LoopForm, value: ir.Value) -> ir.Value | None:
    """An integer that is the same in each step, as it is before the loop; None for any other."""
    for state in form.states:
        if state.before is value and state.after is value:
            value = _whole(state.initial)
    maker = value.producer()
    is_inside = value in form.body.inputs or (maker is not None and maker.graph is form.body)
    is_integer = _integer(value) is not None or value.dtype in _INTEGERS
    return value if is_integer and not is_inside else None


def _counts(state: State) -> bool:
    """Whether a state is an integer that is one more after each step."""
    node = maker_of(origin(state.after), "Add")
    if node is None or state.before not in node.inputs:
        return False
    step = next((value for value in node.inputs if value is not state.before), None)
    return state.initial.dtype in _INTEGERS and _integer(step) == 1


def _is_same(left: ir.Value, right: ir.Value) -> bool:
    number = _integer(left)
    return _whole(left) is _whole(right) or (number is not None and number == _integer(right))


def _integer(value: ir.Value | None) -> int | None:
    """The only element of a constant that is a whole number."""
    array = constant_array(value)
    if array is None or array.size != 1 or array.dtype.kind not in "if":
        return None
    number = array.item()
    return int(number) if float(number).is_integer() else None
