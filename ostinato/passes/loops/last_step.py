"""The last of some steps that a program wrote out, which lacks what only a next one would read."""

from __future__ import annotations

from enum import Enum

import onnx_ir as ir

from ostinato.passes.loops.repeated_steps import (
    Carried,
    Inner,
    Shared,
    Steps,
    connect,
    from_outside,
    same_kind,
)


def with_last_step(steps: Steps) -> Steps:
    """`steps` and one more, if the nodes behind them are a part of one that ends in dead code.

    Nodes that it lacks are written; the last state that they make is read by nobody.
    """
    body = steps.nodes[: steps.period]
    for (position, slot), wire in steps.wires.items():
        if not isinstance(wire, Carried):
            continue
        last = steps.output(steps.count - 1, wire.place)
        for use in last.uses():
            if use.idx != slot or use.node in steps.nodes:
                continue
            match = _Match(steps)
            if match.unify(position, use.node) and match.complete(body):
                nodes = [match.nodes[i] for i in range(steps.period)]
                longer = Steps([*steps.nodes, *nodes], steps.period, steps.count + 1)
                if connect(longer):
                    steps.nodes[-1].append(match.written)
                    return longer
    return steps


class _Unknown(Enum):
    """An operand that steps do not share, nor hand on."""

    UNKNOWN = 0


_UNKNOWN = _Unknown.UNKNOWN


class _Match:
    """Which node is which one of the step. written: those that are not there."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.nodes: dict[int, ir.Node] = {}
        self.written: list[ir.Node] = []

    def unify(self, position: int, node: ir.Node | None) -> bool:
        """Whether `node`, and what it reads, are the ones of the step at `position` and before."""
        steps = self._steps
        if position in self.nodes or node is None:
            return self.nodes.get(position) is node is not None
        if node in steps.nodes or not same_kind([steps.nodes[position], node]):
            return False
        self.nodes[position] = node
        return all(self._agrees(position, slot, v) for slot, v in enumerate(node.inputs))

    def _agrees(self, position: int, slot: int, value: ir.Value | None) -> bool:
        steps = self._steps
        wire = steps.wires[position, slot]
        if isinstance(wire, Inner):
            known = value is not None and value.index() == wire.place[1]
            return known and value is not None and self.unify(wire.place[0], value.producer())
        if isinstance(wire, Carried):
            return value is steps.output(steps.count - 1, wire.place)
        earlier = [node.inputs[slot] for node in steps.nodes[position :: steps.period]]
        return isinstance(from_outside([*earlier, value]), type(wire))

    def complete(self, body: list[ir.Node]) -> bool:
        """Find or write the other nodes, in order; returns whether that is possible."""
        for position, node in enumerate(body):
            if position in self.nodes:
                continue
            operands = [self._operand(position, slot) for slot in range(len(node.inputs))]
            uses = [use for v in operands if isinstance(v, ir.Value) for use in v.uses()]
            if any(self._is(position, use.node) for use in uses):
                continue
            if _UNKNOWN in operands:
                return False
            self.nodes[position] = _again(node, [v for v in operands if v is not _UNKNOWN])
            self.written.append(self.nodes[position])
        return True

    def _is(self, position: int, node: ir.Node) -> bool:
        """`unify`, which leaves nothing behind where it fails."""
        if node in self.nodes.values():
            return False
        before = dict(self.nodes)
        found = self.unify(position, node)
        self.nodes = self.nodes if found else before
        return found

    def _operand(self, position: int, slot: int) -> ir.Value | _Unknown | None:
        wire = self._steps.wires[position, slot]
        if isinstance(wire, Shared):
            return wire.value
        if isinstance(wire, Inner):
            return self.nodes[wire.place[0]].outputs[wire.place[1]]
        if isinstance(wire, Carried):
            return self._steps.output(self._steps.count - 1, wire.place)
        return _UNKNOWN


def _again(node: ir.Node, operands: list[ir.Value | None]) -> ir.Node:
    outputs = [ir.Value(type=value.type, shape=value.shape) for value in node.outputs]
    return ir.Node(
        node.domain, node.op_type, operands, list(node.attributes.values()), outputs=outputs
    )
