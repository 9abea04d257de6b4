"""The last of some unrolled steps, which lack nodes that only a next step would read.

    h1 = f(x0, h0)  y0 = g(h1)  s1 = e(h1)
    h2 = f(x1, s1)  y1 = g(h2)  s2 = e(h2)
    h3 = f(x2, s2)  y2 = g(h3)               e(h3) is dead code, which exporters drop

The nodes behind whole steps are compared with those of a step, in order: one that does what the
next node of a step would do is that node, and nodes that are not there are written anew. Where a
state is handed on by another one, as in a filter of second order, two steps lack nodes, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx_ir as ir

from ostinato.graph.facts import facts_of, sources
from ostinato.model.values import constant_array
from ostinato.passes.loops.steps import Carried, Inner, Shared, Steps, Wire, kinds, outside

# No more steps at the end are looked at.
MOST_LAST = 8
# An element of these may be out of range; else what a step does with numbers is no error.
_PICKS = frozenset(("Gather", "GatherElements", "GatherND", "OneHot"))

Row: TypeAlias = "tuple[ir.Value | None, ...]"
"""An operand from outside, of each step."""


class LastSteps:
    """The steps behind `steps` that lack nodes. count: how many there are.

    nodes: those that are there, in the order of the steps; None for each that is missing.
    """

    def __init__(self, steps: Steps, behind: Sequence[ir.Node]) -> None:
        self._steps, self._own = steps, set(steps.nodes)
        self.nodes: list[ir.Node | None] = []
        self._rows: dict[tuple[int, int], Row] = {}
        self.count, taken = 0, 0
        while self.count < MOST_LAST:
            step = _Step(self, steps)
            found = step.find(behind[taken:])
            if not found:
                break
            self.nodes += step.nodes
            self._rows |= step.rows
            self.count, taken = self.count + 1, taken + found

    def row(self, position: int, slot: int) -> Row:
        """The value that the node at `position` reads at `slot`, in each step so far."""
        steps, place = self._steps, (position, slot)
        if place not in self._rows:
            copies = steps.nodes[position :: steps.period]
            self._rows[place] = tuple(node.inputs[slot] for node in copies)
        return self._rows[place]

    def carried(self, wire: Carried) -> ir.Value | None:
        """The value of an earlier step that the next step reads; None where it is missing."""
        position, output = wire.place
        at = self.count - len(wire.initials)
        if at < 0:
            return self._steps.output(self._steps.count + at, wire.place)
        node = self.nodes[at * self._steps.period + position]
        return None if node is None else node.outputs[output]

    def is_own(self, node: ir.Node | None) -> bool:
        """Whether one of the whole steps has this node."""
        return node in self._own

    def write(self) -> Steps:
        """All steps, after writing missing nodes into the graph."""
        steps, period = self._steps, self._steps.period
        whole = Steps(steps.nodes, period, steps.count, dict(steps.wires), steps.states)
        nodes = list(steps.nodes)
        for i, node in enumerate(self.nodes):
            if node is None:
                node = self._written(i % period, steps.count + i // period, nodes)
                nodes[-1].append(node)
            nodes.append(node)
        for place, row in self._rows.items():
            wire = outside(row)
            assert wire is not None
            whole.wires[place] = wire
        whole.nodes, whole.count = nodes, steps.count + self.count
        return whole

    def _written(self, position: int, step: int, nodes: Sequence[ir.Node]) -> ir.Node:
        """The node of a step at `position`, over the `nodes` of this one and those before."""
        steps, operands = self._steps, list[ir.Value | None]()
        for slot in range(len(steps.nodes[position].inputs)):
            wire = steps.wires[position, slot]
            if isinstance(wire, (Inner, Carried)):
                before = len(wire.initials) if isinstance(wire, Carried) else 0
                at = (step - before) * steps.period + wire.place[0]
                operands.append(nodes[at].outputs[wire.place[1]])
            else:
                operands.append(self._rows[position, slot][step])
        model = steps.nodes[position]
        outputs = [ir.Value(type=value.type, shape=value.shape) for value in model.outputs]
        attributes = list(model.attributes.values())
        return ir.Node(model.domain, model.op_type, operands, attributes, outputs=outputs)


class _Step:
    """The next step behind `last`. rows: of operands from outside, with those of this step."""

    def __init__(self, last: LastSteps, steps: Steps) -> None:
        self._last, self._steps = last, steps
        self.nodes: list[ir.Node | None] = []
        self.rows: dict[tuple[int, int], Row] = {}
        # The values read in this step, by the values read at the same place in the steps before.
        self._known: dict[Row, ir.Value | None] = {}

    def find(self, behind: Sequence[ir.Node]) -> int:
        """Count the nodes `behind` that are of the step, from its first one on; 0 if it is none."""
        found = 0
        while len(self.nodes) < self._steps.period:
            if found < len(behind) and self._is_next(behind[found]):
                found += 1
            elif not found or not self._may_be_missing():
                return 0
        return found

    def _is_next(self, node: ir.Node) -> bool:
        """Whether `node` does what comes next in the step; it is taken if it does."""
        steps, position = self._steps, len(self.nodes)
        if self._last.is_own(node) or len({*kinds([steps.nodes[position], node])}) > 1:
            return False
        rows: dict[tuple[int, int], Row] = {}
        for slot, value in enumerate(node.inputs):
            wire = steps.wires[position, slot]
            if isinstance(wire, (Inner, Carried)):
                if value is None or value is not self._made(wire):
                    return False
                continue
            rows[position, slot] = (*self._last.row(position, slot), value)
            made_inside = value is not None and self._last.is_own(value.producer())
            if made_inside or not self._fits(wire, rows[position, slot]):
                return False
        self._known |= {row[:-1]: row[-1] for row in rows.values()}
        self.rows |= rows
        self.nodes.append(node)
        return True

    def _may_be_missing(self) -> bool:
        """Whether what comes next is known and cannot fail; it is passed over if so."""
        steps, position = self._steps, len(self.nodes)
        if _may_fail(steps.nodes[position]):
            return False
        for slot in range(len(steps.nodes[position].inputs)):
            wire = steps.wires[position, slot]
            if isinstance(wire, (Inner, Carried)):
                continue
            row = self._last.row(position, slot)
            value = row[-1] if isinstance(wire, Shared) else self._known.get(row)
            self.rows[position, slot] = (*row, value)
            if not self._fits(wire, (*row, value)):
                return False
        self.nodes.append(None)
        return True

    def _made(self, wire: Inner | Carried) -> ir.Value | None:
        """The value of this or an earlier step that a node reads; None where it is missing."""
        if isinstance(wire, Carried):
            return self._last.carried(wire)
        maker = self.nodes[wire.place[0]]
        return None if maker is None else maker.outputs[wire.place[1]]

    def _fits(self, wire: Wire, row: Row) -> bool:
        return isinstance(outside(row), type(wire))


def _may_fail(node: ir.Node) -> bool:
    """Whether numbers that a step computes may be an error."""
    if node.op_type in ("Div", "Mod"):
        return node.outputs[0].dtype is None or node.outputs[0].dtype.is_integer()
    facts = facts_of(node.op_type, node.domain)
    moved = sources(node) if facts.moves else []
    return bool(node.domain) or (
        (facts.stores or node.op_type in _PICKS)
        and any(constant_array(v) is None for v in node.inputs if v not in moved)
    )
