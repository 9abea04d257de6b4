"""An If whose condition an earlier If decides goes into the branches of that one.

    c, u, w = If(a): (false, x, 0)       y = If(a): x
              else: (d, 0, z)       =>       else: If(d): z
    y = If(c): w else: u                           else: 0

PyTorch writes `break` and `return` in a scripted loop in this way: what was computed so far, or
what comes next, and zeros for whatever is not read then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from ostinato.graph.edit import append_copy, can_return, discard, replace_value, splice
from ostinato.graph.loop_form import detach, origin
from ostinato.model.captures import captures, with_inner
from ostinato.model.graphs import BRANCHES, branches, graphs, is_if, is_standard, subgraphs
from ostinato.model.names import Names
from ostinato.model.values import constant_array
from ostinato.records import dataclass

Inside = Callable[["ir.Value | None"], "ir.Value | None"]


def thread_ifs(model: ir.Model) -> int:
    """Move each If whose condition an If before it decides into that one; returns their number.

    Matches an If that reads nothing computed behind the first one but its outputs, with the same
    condition or with one of these outputs as condition, where a branch of the first one decides it.
    Where the other branch does not, the second one is copied there, if it does nothing but choose.
    Makes an If without the outputs that nobody reads any more. Valid because the branch that runs
    is the same, with the same operands.
    """
    names, found = Names(model), 0
    for graph in reversed(graphs(model)):
        for node in graph:
            while is_if(node) and (following := _following(graph, node)) is not None:
                node = _Threaded(model, node, following, names).joined()
                found += 1
    return found


def _following(graph: ir.Graph, first: ir.Node) -> ir.Node | None:
    """The If behind `first` that can go into its branches, if there is one."""
    conditions = [first.inputs[0], *first.outputs]
    readers = [node for value in conditions if value is not None for node, _ in value.uses()]
    if not any(is_if(node) and node.graph is graph and node is not first for node in readers):
        return None
    place = {node: i for i, node in enumerate(graph)}
    for node in graph:
        if is_if(node) and place[node] > place[first] and _may_join(first, node, place):
            return node
    return None


def _may_join(first: ir.Node, second: ir.Node, place: Mapping[ir.Node, int]) -> bool:
    if origin(second.inputs[0]) not in (origin(first.inputs[0]), *first.outputs):
        return False
    for value in set(captures(second)).difference(second.inputs):
        maker = value.producer()
        if maker is not None and place.get(maker, -1) > place[first]:
            return False
    outcomes = [_outcome(first, second, side) for side in (0, 1)]
    taken = [outcome for outcome in outcomes if outcome is not None]
    chooses = [_only_chooses(way) for way in branches(second)]
    copied = {0, 1} if len(taken) < 2 else set(taken) if taken[0] == taken[1] else set[int]()
    return bool(taken) and all(chooses[way] for way in copied)


def _only_chooses(branch: ir.Graph) -> bool:
    """Whether a branch computes nothing."""
    return all(is_standard(node, "Identity") for node in branch)


def _outcome(first: ir.Node, second: ir.Node, side: int) -> int | None:
    """The branch that the second If takes where the first takes `side`; None if that is open."""
    condition = origin(second.inputs[0])
    if condition is origin(first.inputs[0]):
        return side
    known = constant_array(origin(_inside(first, side)(condition)))
    return None if known is None or known.size != 1 else int(not known.item())


def _inside(first: ir.Node, side: int) -> Inside:
    """A function from a value to what it is in a branch of an If that may have made it."""
    made = dict(zip(first.outputs, branches(first)[side].outputs, strict=True))
    return lambda value: None if value is None else made.get(value, value)


@dataclass(frozen=True)
class _Threaded:
    """Two Ifs, the second of which goes into the first."""

    model: ir.Model
    first: ir.Node
    second: ir.Node
    names: Names

    def joined(self) -> ir.Node:
        """The If that takes the place of both."""
        first, second = self.first, self.second
        ways = branches(first)
        outcomes = [_outcome(first, second, side) for side in (0, 1)]
        results = [self._results(side, outcomes[side]) for side in (0, 1)]
        for way, values in zip(ways, results, strict=True):
            for value in values:
                own = value if can_return(way, value) else append_copy(way, value, self._name())
                way.outputs.append(own)
        outputs = [*first.outputs, *second.outputs]
        kept = [i for i, value in enumerate(outputs) if self._is_read(value)]
        for way in ways:
            returned = [way.outputs[i] for i in kept]
            way.outputs.clear()
            way.outputs.extend(returned)
        made = [ir.Value(name=v.name, type=v.type, shape=v.shape) for v in outputs]
        node = ir.Node(
            "",
            "If",
            first.inputs,
            [ir.AttrGraph(side, way) for side, way in zip(BRANCHES, ways, strict=True)],
            outputs=[made[i] for i in kept],
            name=first.name,
        )
        first.prepend(node)
        for i in kept:
            replace_value(outputs[i], made[i])
        discard(second)
        detach(first)
        return node

    def _is_read(self, value: ir.Value) -> bool:
        """Whether anything but the second If reads a value."""
        inner = set(with_inner(self.second))
        return value.is_graph_output() or any(node not in inner for node, _ in value.uses())

    def _results(self, side: int, outcome: int | None) -> list[ir.Value]:
        """The results of the second If, computed at the end of a branch of the first one."""
        way, inside = branches(self.first)[side], _inside(self.first, side)
        if outcome is None:
            return self._copied(way, inside)
        taken = branches(self.second)[outcome]
        if _only_chooses(taken):
            chosen = [inside(origin(output)) for output in taken.outputs]
            return [value for value in chosen if value is not None]
        for node in [inner for each in taken for inner in with_inner(each)]:
            for i, value in enumerate(node.inputs):
                node.replace_input_with(i, inside(value))
            for body in subgraphs(node):
                self._return_inside(body, inside)
        self._return_inside(taken, inside)
        last = ir.Node("", "Identity", [None], num_outputs=1, name="")
        way.append(last)
        outputs = splice(self.model, taken, last)
        way.remove(last)
        return outputs

    def _return_inside(self, body: ir.Graph, inside: Inside) -> None:
        for i, value in enumerate(body.outputs):
            if (own := inside(value)) is not None and own is not value:
                body.outputs[i] = append_copy(body, own, self._name())

    def _copied(self, way: ir.Graph, inside: Inside) -> list[ir.Value]:
        """The outputs of a copy of the second If, which only chooses, in a branch of the first."""
        bodies = []
        for side, taken in zip(BRANCHES, branches(self.second), strict=True):
            body = ir.Graph([], [], nodes=[], name=taken.name)
            for output in taken.outputs:
                value = inside(origin(output))
                assert value is not None
                body.outputs.append(append_copy(body, value, self._name()))
            bodies.append(ir.AttrGraph(side, body))
        outputs = [
            ir.Value(name=self._name(), type=old.type, shape=old.shape)
            for old in self.second.outputs
        ]
        condition = inside(origin(self.second.inputs[0]))
        way.append(ir.Node("", "If", [condition], bodies, outputs=outputs, name=self._name()))
        return outputs

    def _name(self) -> str:
        return self.names.fresh(f"{self.second.name}/threaded")
