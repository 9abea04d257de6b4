"""Remove unused states, inputs and outputs of Scan and Loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import onnx_ir as ir

from ostinato.graph.edit import discard, is_needed, replace_value
from ostinato.graph.loop_form import LoopForm, origin, read_loop, reads
from ostinato.model.graphs import nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of

# A Loop needs no initial values since this version.
_LOOP_WITHOUT_STATE = 11

Part = TypeVar("Part")


def dead_loop_values(model: ir.Model) -> int:
    """Take superfluous states, scan inputs and scan outputs out of loops; returns how many.

    Matches, in Scan (version 9 and later) and Loop:

    * a state that each step hands on unchanged: its initial value is read instead;
    * a state with the initial and next value of another one, a scan input with the source, axis
      and direction of another one, a scan output with the element, axis and direction of another
      one: the first of them is read instead;
    * a scan output that nobody reads, a state whose value reaches no output that is read and no
      condition, and a scan input that the body does not read, but for the last one of a Scan;
      with its last output the loop itself leaves.

    Valid because none of them changes what another output gets.
    """
    opset, names, removed = opset_of(model), Names(model), 0
    for node in nodes_of(model):
        form = read_loop(node, opset)
        if form is not None and any(map(is_needed, node.outputs)):
            removed += _reduce(form, names, opset)
    return removed


def _reduce(form: LoopForm, names: Names, opset: int) -> int:
    before = len(form.states) + len(form.scanned) + len(form.stacked)
    _capture_constant_states(form)
    _merge(form)
    if not any(map(is_needed, form.node.outputs)):
        discard(form.node)
        return before
    _drop(form, opset)
    removed = before - len(form.states) - len(form.scanned) - len(form.stacked)
    if removed:
        form.write(names)
    return removed


def _capture_constant_states(form: LoopForm) -> None:
    for state in form.states:
        if origin(state.after) is state.before:
            form.substitute(state.before, state.initial)
            replace_value(state.final, state.initial)


def _merge(form: LoopForm) -> None:
    for state, first in _repeated(form.states, lambda s: (s.initial, origin(s.after))):
        form.substitute(state.before, first.before)
        replace_value(state.final, first.final)
    for scanned, earlier in _repeated(form.scanned, lambda s: (s.source, s.axis, s.backward)):
        form.substitute(scanned.element, earlier.element)
    for stacked, kept in _repeated(form.stacked, lambda s: (origin(s.element), s.axis, s.backward)):
        replace_value(stacked.result, kept.result)


def _repeated(parts: list[Part], key: Callable[[Part], Hashable]) -> list[tuple[Part, Part]]:
    """The parts whose key an earlier part has, each with the first such part."""
    first: dict[Hashable, Part] = {}
    pairs = ((part, first.setdefault(key(part), part)) for part in parts)
    return [(part, earlier) for part, earlier in pairs if part is not earlier]


def _drop(form: LoopForm, opset: int) -> None:
    form.stacked = [stacked for stacked in form.stacked if is_needed(stacked.result)]
    needed = _needed(form)
    states = [s for s in form.states if s.before in needed or is_needed(s.final)]
    scanned = [s for s in form.scanned if s.element in needed]
    if form.head is None:
        form.scanned = scanned or form.scanned[:1]
    elif opset < _LOOP_WITHOUT_STATE:
        states = states or form.states[:1]
    form.states = states


def _needed(form: LoopForm) -> set[ir.Value]:
    """The values of the body that its outputs need, those of unused states left aside."""
    after = {state.before: state.after for state in form.states}
    pending = [stacked.element for stacked in form.stacked]
    pending += [state.after for state in form.states if is_needed(state.final)]
    if form.head is not None:
        pending.append(form.head.proceed)
    needed = set[ir.Value]()
    while pending:
        value = pending.pop()
        if value in needed:
            continue
        needed.add(value)
        maker = value.producer()
        if maker is not None and maker.graph is form.body:
            pending.extend(reads(maker))
        if value in after:
            pending.append(after[value])
    return needed
