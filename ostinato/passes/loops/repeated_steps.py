"""Steps that a program wrote out one after another, and how each reads the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.pieces import piece_lengths
from ostinato.graph.random import is_random
from ostinato.model.graphs import subgraphs
from ostinato.model.values import constant_array
from ostinato.records import dataclass

# Fewer steps cost little written out.
_LEAST_STEPS = 8
# Longer bodies are not looked for, and no more places where one may begin.
_LONGEST_BODY = 1024
_MOST_PHASES = 32
_MOST_RUNS = 64
# Nodes between what all steps share and what one of them reads of it: Slice, Squeeze, Cast.
_DEEPEST_PICK = 4

# A position in the body and the number of an output.
Place = tuple[int, int]


@dataclass
class Steps:
    """`count` steps of `period` nodes each; `wires` says where every operand comes from."""

    nodes: list[ir.Node]
    period: int
    count: int
    wires: dict[tuple[int, int], Wire] = field(default_factory=dict)
    states: dict[tuple[Place, ir.Value], int] = field(default_factory=dict)

    def output(self, step: int, place: Place) -> ir.Value:
        """The value at this place in one of the steps."""
        return self.nodes[step * self.period + place[0]].outputs[place[1]]


@dataclass(frozen=True)
class Inner:
    """A value of the same step."""

    place: Place


@dataclass(frozen=True)
class Carried:
    """A value of the step before, and what the first step reads."""

    place: Place
    initial: ir.Value


@dataclass(frozen=True)
class Shared:
    """The same value in all steps, or none."""

    value: ir.Value | None


@dataclass(frozen=True, eq=False)
class Listed:
    """A constant for each step."""

    arrays: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Picked:
    """The output of a node outside, of which there is one for each step."""

    node: ir.Node
    output: int
    operands: tuple[Wire, ...]


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of what a Split takes apart along `axis`: `size` elements from `begins[t]` on."""

    source: ir.Value
    axis: int
    begins: tuple[np.ndarray, ...]
    size: int


Wire = Inner | Carried | Shared | Listed | Picked | Piece


def find_steps(model: ir.Model) -> tuple[Steps, dict[str, Sizes]] | None:
    """The longest repetition that is a recurrence, and the sizes of all values."""
    nodes = list(model.graph)
    made = {value: (i, k) for i, node in enumerate(nodes) for k, value in enumerate(node.outputs)}
    numbers = _numbers(nodes)
    sizes: dict[str, Sizes] | None = None
    # A chain of element-wise functions is one kernel as it is.
    plain = np.array([facts_of(node.op_type, node.domain).elementwise for node in nodes], bool)
    runs = [run for run in _runs(numbers) if not plain[run[0] : run[0] + run[2]].all()]
    for begin, length, period in runs[:_MOST_RUNS]:
        best: Steps | None = None
        for phase in _phases(nodes[begin : begin + length], period):
            count = (length - phase) // period
            if best is not None and count < best.count:
                break
            first = begin + phase
            steps = Steps(nodes[first : first + count * period], period, count)
            if _connect(steps, _Places(made, first, period, count)) and (
                best is None or len(steps.states) < len(best.states)
            ):
                best = steps
        if best is not None and _recurs(best):
            sizes = infer_sizes(model) if sizes is None else sizes
            if _keeps_shapes(best, sizes):
                return best, sizes
    return None


def _numbers(nodes: Sequence[ir.Node]) -> np.ndarray:
    """A number for each node, the same for nodes that do the same with other operands."""
    known: dict[object, int] = {}
    found = []
    for node in nodes:
        key: object = id(node)
        if not is_random(node) and not any(True for _ in subgraphs(node)):
            attributes = tuple(sorted((n, str(a)) for n, a in node.attributes.items()))
            operands = tuple(value is None for value in node.inputs)
            unnamed = tuple(not value.name for value in node.outputs)
            key = (node.domain, node.op_type, attributes, operands, unnamed)
        found.append(known.setdefault(key, len(known)))
    return np.array(found, np.int64)


def _runs(numbers: np.ndarray) -> list[tuple[int, int, int]]:
    """Where the sequence repeats itself: begin, length and period; the longest first."""
    found = []
    for period in range(1, min(len(numbers) // _LEAST_STEPS, _LONGEST_BODY) + 1):
        differs = np.flatnonzero(numbers[period:] != numbers[:-period])
        edges = np.concatenate([[-1], differs, [len(numbers) - period]])
        for begin, end in zip(edges[:-1] + 1, edges[1:], strict=True):
            if end - begin >= (_LEAST_STEPS - 1) * period:
                found.append((int(begin), int(end - begin) + period, period))
    return sorted(found, key=lambda run: (-(run[1] // run[2] * run[2]), run[2]))


def _phases(nodes: Sequence[ir.Node], period: int) -> list[int]:
    """Where in a repetition a step may begin: where most steps fit, and fewest values cross."""
    places = {node: place for place, node in enumerate(nodes)}
    crossed = np.zeros(len(nodes) + 1, np.int64)
    for node, place in places.items():
        for value in node.outputs:
            last = max((places.get(use.node, place) for use in value.uses()), default=place)
            # Before each node behind the one that makes it, up to its last reader.
            crossed[place + 1] += 1
            crossed[last + 1] -= 1
    waiting = np.cumsum(crossed)[: len(nodes)]
    begins = range(min(period, len(nodes) - _LEAST_STEPS * period + 1))
    ranked = sorted(
        begins, key=lambda at: (-((len(nodes) - at) // period), int(waiting[at::period].sum()))
    )
    return ranked[:_MOST_PHASES]


class _Places:
    """In which step, and where in it, the values of steps are made.

    made: the number of the node and of its output, of all values of the graph. The steps are the
    nodes from `first` on.
    """

    def __init__(self, made: Mapping[ir.Value, Place], first: int, period: int, count: int) -> None:
        self._made, self._first, self._period, self._count = made, first, period, count

    def get(self, value: ir.Value | None) -> tuple[int, Place] | None:
        """Step and place of a value, None for one from outside."""
        found = None if value is None else self._made.get(value)
        if found is None:
            return None
        step, position = divmod(found[0] - self._first, self._period)
        return (step, (position, found[1])) if 0 <= step < self._count else None


def _connect(steps: Steps, places: _Places) -> bool:
    """Fill in `wires` and `states`; returns whether all steps are connected alike."""
    for position in range(steps.period):
        copies = steps.nodes[position :: steps.period]
        for slot in range(len(copies[0].inputs)):
            wire = _wire([node.inputs[slot] for node in copies], places)
            if wire is None:
                return False
            steps.wires[position, slot] = wire
            if isinstance(wire, Carried):
                steps.states.setdefault((wire.place, wire.initial), len(steps.states))
    return bool(steps.states)


def _wire(values: Sequence[ir.Value | None], places: _Places) -> Wire | None:
    second = places.get(values[1])
    if second is not None:
        source, place = second
        if source > 1:
            return None
        expected = [(step - 1 + source, place) for step in range(1, len(values))]
        found = [places.get(value) for value in values]
        if found[1:] != expected:
            return None
        if source == 1:
            return Inner(place) if found[0] == (0, place) else None
        first = values[0]
        return None if first is None or found[0] is not None else Carried(place, first)
    if any(places.get(value) is not None for value in values):
        return None
    return _outside(values, _DEEPEST_PICK)


def _outside(values: Sequence[ir.Value | None], depth: int) -> Wire | None:
    """What steps read that none of them makes."""
    first = values[0]
    if all(value is first for value in values):
        return Shared(first)
    arrays = [constant_array(value) for value in values]
    if all(array is not None for array in arrays):
        return _constants([array for array in arrays if array is not None], first)
    producers = [value.producer() if value is not None else None for value in values]
    nodes = [node for node in producers if node is not None]
    if depth == 0 or len(nodes) < len(values) or len(set(_numbers(nodes))) > 1:
        return None
    indices = {value.index() for value in values if value is not None}
    if len(indices) > 1:
        return _piece(values, nodes)
    operands = [_outside(row, depth - 1) for row in zip(*(n.inputs for n in nodes), strict=True)]
    whole = tuple(operand for operand in operands if operand is not None)
    return Picked(nodes[0], indices.pop() or 0, whole) if len(whole) == len(operands) else None


def _piece(values: Sequence[ir.Value | None], nodes: Sequence[ir.Node]) -> Piece | None:
    """The pieces that steps read of one Split."""
    split = nodes[0]
    source = split.inputs[0]
    if split.op_type != "Split" or split.domain or len(set(nodes)) > 1 or source is None:
        return None
    axis, shape = split.attributes.get_int("axis", 0), source.shape
    known = shape is not None and -len(shape) <= axis < len(shape)
    lengths = piece_lengths(split, shape[axis] if shape is not None and known else None)
    if lengths is None:
        return None
    read = [value.index() or 0 for value in values if value is not None]
    sizes, begins = {lengths[k] for k in read}, np.cumsum([0, *lengths])
    if len(sizes) > 1:
        return None
    places = tuple(np.array([begins[k]], np.int64) for k in read)
    return Piece(source, axis, places, sizes.pop())


def _constants(arrays: list[np.ndarray], first: ir.Value | None) -> Wire | None:
    if any(a.shape != arrays[0].shape or a.dtype != arrays[0].dtype for a in arrays):
        return None
    # Weights of layers differ from the first elements on.
    if all(_bytes(a, 16) == _bytes(arrays[0], 16) for a in arrays) and all(
        a is arrays[0] or _bytes(a) == _bytes(arrays[0]) for a in arrays
    ):
        return Shared(first)
    # Weights of layers are no settings of steps.
    return Listed(tuple(arrays)) if arrays[0].size <= 16 else None


def _bytes(array: np.ndarray, count: int | None = None) -> bytes:
    return array.reshape(-1)[:count].tobytes()


def _recurs(steps: Steps) -> bool:
    """Whether something that is handed on is computed from what was.

    Else one could begin each step in the middle of an iteration that depends on no other.
    """
    late: set[int] = set()
    for (position, _), wire in sorted(steps.wires.items(), key=lambda item: item[0]):
        if isinstance(wire, Carried) or (isinstance(wire, Inner) and wire.place[0] in late):
            late.add(position)
    return any(place[0] in late for place, _ in steps.states)


def _keeps_shapes(steps: Steps, sizes: dict[str, Sizes]) -> bool:
    for position, node in enumerate(steps.nodes[: steps.period]):
        for output in range(len(node.outputs)):
            made = [steps.output(t, (position, output)) for t in range(steps.count)]
            shapes = {sizes.get(str(v.name)) for v in made}
            if len(shapes) > 1 or made[0].dtype != made[1].dtype:
                return False
    for place, initial in steps.states:
        value = steps.output(0, place)
        size = sizes.get(str(value.name))
        if size is None or None in size or sizes.get(str(initial.name)) != size:
            return False
        if value.dtype is None or initial.dtype != value.dtype:
            return False
    return True
