"""States of loops that grow: what the last step leaves has all earlier ones as prefixes.

    state' = Concat(state, piece)     F = the state behind the last step
    state before a step               the first elements of F
    state after it                    those, and the rows of the piece

So no step's state has to be kept. Where pieces come in front, read "the last elements".
"""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.loop_form import LoopForm, State, origin
from ostinato.model.graphs import maker_of
from ostinato.model.values import dims_of
from ostinato.records import dataclass


@dataclass(frozen=True)
class Prefix:
    """A value of a body that is a part of what its state is behind the last step.

    rows: what a step adds to the state along `axis`, and what it adds behind this value; None
    where that is no number.
    """

    state: State
    axis: int
    in_front: bool
    rows: tuple[int, int] | None


def prefixes_of(form: LoopForm) -> dict[ir.Value, Prefix]:
    """The values of a loop's body that are prefixes of its grown states."""
    found: dict[ir.Value, Prefix] = {}
    for state in form.states:
        found |= _prefixes(state)
    return found


def obstacle(form: LoopForm) -> str | None:
    """Why the shapes of what a Loop carries leave it without a gradient, if they do."""
    prefixes = prefixes_of(form)
    for state in form.states:
        if not isinstance(state.before.type, ir.TensorType | None):
            return (
                f"has no gradient: its state {state.before.name!r} is no tensor, and its steps "
                "read it. Lists to which they append alone have one, and results of the steps"
            )
        dims = dims_of(state.before)
        is_fixed = dims is not None and None not in dims and dims == dims_of(state.initial)
        if not is_fixed and state.before not in prefixes:
            return (
                f"has no gradient: its state {state.before.name!r} changes its shape from step to "
                "step. States that grow by a Concat behind or in front of them have one"
            )
    return None


def _prefixes(state: State) -> dict[ir.Value, Prefix]:
    """Follow a state through a chain of Concat nodes to the state of the next step."""
    for in_front in (False, True):
        chain = _chain(state, in_front)
        if chain is not None:
            break
    else:
        return {}
    axis, members, added = chain
    total = None if None in added else sum(rows or 0 for rows in added)
    found = {}
    for index, value in enumerate(members):
        behind = added[:index]
        rows = None if total is None else (total, sum(n or 0 for n in behind))
        found[value] = Prefix(state, axis, in_front, rows)
    return found


def _chain(state: State, in_front: bool) -> tuple[int, list[ir.Value], list[int | None]] | None:
    """The axis, the members of the chain from the last one back, and the rows each one adds."""
    value, axis = origin(state.after), None
    members, added = list[ir.Value](), list[int | None]()
    while value is not state.before:
        node, dims = maker_of(value, "Concat"), dims_of(value)
        if node is None or dims is None:
            return None
        along = node.attributes["axis"].as_int() % len(dims)
        if axis not in (None, along) or value.graph is not state.before.graph:
            return None
        axis = along
        *pieces, base = node.inputs if in_front else reversed(node.inputs)
        sizes = [None if piece is None else (dims_of(piece) or ())[axis:][:1] for piece in pieces]
        known = [size[0] for size in sizes if size and isinstance(size[0], int)]
        members.append(value)
        added.append(sum(known) if len(known) == len(pieces) else None)
        assert base is not None
        value = origin(base)
    return None if axis is None else (axis, [*members, value], added)
