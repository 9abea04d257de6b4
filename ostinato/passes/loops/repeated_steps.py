"""Find unrolled steps: equal groups of nodes, one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.passes.loops.last_steps import LastSteps
from ostinato.passes.loops.steps import Carried, Inner, Place, Places, Steps, connect, kinds
from ostinato.records import dataclass

# Fewer steps cost little written out.
_LEAST_STEPS = 8
# Longer bodies are not looked for, and no more places where one may begin.
_LONGEST_BODY = 1024
_MOST_PHASES = 32
_MOST_RUNS = 64


def find_steps(model: ir.Model, most_last: int) -> tuple[Steps, dict[str, Sizes]] | None:
    """The longest repetition that is a recurrence, and the sizes of all values.

    most_last: how many steps at the end may lack nodes.
    """
    nodes = list(model.graph)
    made = {value: (i, k) for i, node in enumerate(nodes) for k, value in enumerate(node.outputs)}
    numbers = kinds(nodes)
    sizes: dict[str, Sizes] | None = None
    # A chain of element-wise functions is one kernel as it is.
    plain = np.array([facts_of(node.op_type, node.domain).elementwise for node in nodes], bool)
    runs = [run for run in _runs(numbers) if not plain[run[0] : run[0] + run[2]].all()]
    if not runs:
        return None
    uses = _Uses.of(nodes)
    for begin, length, period in runs[:_MOST_RUNS]:
        # Known once some repetition was all but steps, and then far cheaper than to connect others.
        if sizes is not None and not _may_keep_shapes(nodes[begin : begin + length], period, sizes):
            continue
        phases = _phases(uses.waiting(begin, length), period)
        phases = [phase for phase in phases if uses.hand_on(begin + phase, begin + length, period)]
        best = _best(nodes, made, phases, (begin, length, period), most_last)
        if best is not None and _recurs(best[0]):
            steps, last = best
            sizes = infer_sizes(model) if sizes is None else sizes
            if _keeps_shapes(steps, last, sizes):
                return last.write(), sizes
    return None


def _best(
    nodes: Sequence[ir.Node],
    made: Mapping[ir.Value, Place],
    phases: Sequence[int],
    run: tuple[int, int, int],
    most_last: int,
) -> tuple[Steps, LastSteps] | None:
    """The steps of a run that pass the fewest values on, and later ones that lack dead nodes."""
    best: tuple[Steps, LastSteps] | None = None
    begin, length, period = run
    for phase in phases:
        count = (length - phase) // period
        if best is not None and count < best[0].count:
            break
        first, end = begin + phase, begin + phase + count * period
        steps = Steps(list(nodes[first:end]), period, count)
        if not connect(steps, Places(made, first, period, count)):
            continue
        last = LastSteps(steps, nodes[end : end + most_last * period])
        if best is None or _rank(steps, last) < _rank(*best):
            best = steps, last
    return best


def _rank(steps: Steps, last: LastSteps) -> tuple[int, int]:
    return -last.count, len(steps.states)


def _runs(numbers: np.ndarray) -> list[tuple[int, int, int]]:
    """Find where the sequence repeats itself: begin, length and period; the longest first."""
    found = []
    for period in range(1, min(len(numbers) // _LEAST_STEPS, _LONGEST_BODY) + 1):
        differs = np.flatnonzero(numbers[period:] != numbers[:-period])
        edges = np.concatenate([[-1], differs, [len(numbers) - period]])
        lengths = np.diff(edges) - 1
        for place in np.flatnonzero(lengths >= (_LEAST_STEPS - 1) * period):
            found.append((int(edges[place]) + 1, int(lengths[place]) + period, period))
    return sorted(found, key=lambda run: (-(run[1] // run[2] * run[2]), run[2]))


def _may_keep_shapes(nodes: Sequence[ir.Node], period: int, sizes: dict[str, Sizes]) -> bool:
    """Whether two repetitions in the middle, which are steps wherever these begin, keep shapes."""
    middle = len(nodes) // 2 - period
    one, other = nodes[middle : middle + period], nodes[middle + period : middle + 2 * period]
    return all(
        sizes.get(str(before.name)) == sizes.get(str(after.name))
        for first, second in zip(one, other, strict=True)
        for before, after in zip(first.outputs, second.outputs, strict=True)
    )


@dataclass(frozen=True, eq=False)
class _Uses:
    """The makers and readers of values in a list of nodes, as places in it.

    makers: the maker of each value. values, readers: of each use, the value and its reader.
    """

    makers: np.ndarray
    values: np.ndarray
    readers: np.ndarray

    @staticmethod
    def of(nodes: Sequence[ir.Node]) -> _Uses:
        """The uses of values of these nodes by others of them."""
        places = {node: place for place, node in enumerate(nodes)}
        made = [(place, value) for node, place in places.items() for value in node.outputs]
        uses = [
            (number, places[use.node])
            for number, (_, value) in enumerate(made)
            for use in value.uses()
            if use.node in places
        ]
        makers = np.array([place for place, _ in made], np.int64)
        return _Uses(makers, *np.array(uses, np.int64).reshape(-1, 2).T)

    def waiting(self, begin: int, length: int) -> np.ndarray:
        """Count, before each node of a part, the values made in it that wait for a reader in it."""
        own = self.makers[self.values]
        is_inside = (begin <= own) & (own < begin + length) & (self.readers < begin + length)
        last = self.makers.copy()
        np.maximum.at(last, self.values[is_inside], self.readers[is_inside])
        makes = (begin <= self.makers) & (self.makers < begin + length)
        # Before each node behind the one that makes it, up to its last reader.
        starts, stops = (
            np.bincount(places[makes] - begin + 1, minlength=length + 1)
            for places in (self.makers, last)
        )
        return np.cumsum(starts - stops)[:length]

    def hand_on(self, first: int, end: int, period: int) -> bool:
        """Whether some step reads what another one makes, of those from `first` on."""
        own = self.makers[self.values]
        steps = (self.readers - first) // period != (own - first) // period
        return bool((steps & (first <= own) & (self.readers < end)).any())


def _phases(waiting: np.ndarray, period: int) -> list[int]:
    """Places in a repetition where a step may begin: where most steps fit, and fewest values cross.

    waiting: the number of values that wait, by node.
    """
    count = len(waiting)
    begins = range(min(period, count - _LEAST_STEPS * period + 1))
    ranked = sorted(
        begins, key=lambda at: (-((count - at) // period), int(waiting[at::period].sum()))
    )
    return ranked[:_MOST_PHASES]


def _recurs(steps: Steps) -> bool:
    """Whether some value that is passed on is computed from one that was.

    Else one could begin each step in the middle of an iteration that depends on no other.
    """
    late: set[int] = set()
    for (position, _), wire in sorted(steps.wires.items(), key=lambda item: item[0]):
        if isinstance(wire, Carried) or (isinstance(wire, Inner) and wire.place[0] in late):
            late.add(position)
    return any(state.place[0] in late for state in steps.states)


def _keeps_shapes(steps: Steps, last: LastSteps, sizes: dict[str, Sizes]) -> bool:
    for position in range(steps.period):
        rest = [node for node in last.nodes[position :: steps.period] if node is not None]
        copies = [*steps.nodes[position :: steps.period], *rest]
        for output in range(len(copies[0].outputs)):
            made = [node.outputs[output] for node in copies]
            shapes = {sizes.get(str(v.name)) for v in made}
            if len(shapes) > 1 or made[0].dtype != made[1].dtype:
                return False
    for state in steps.states:
        value, initial = steps.output(0, state.place), state.initials[0]
        size = sizes.get(str(value.name))
        if size is None or None in size or sizes.get(str(initial.name)) != size:
            return False
        if value.dtype is None or initial.dtype != value.dtype:
            return False
    return True
