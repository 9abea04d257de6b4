"""Unrolled steps, and how each reads the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import onnx_ir as ir

from ostinato.graph.pieces import piece_lengths
from ostinato.graph.random import is_random
from ostinato.model.graphs import is_standard, subgraphs
from ostinato.model.values import constant_tensor, look_at, unread_array
from ostinato.records import dataclass

# Nodes between what all steps share and what one of them reads of it: Slice, Squeeze, Cast.
_DEEPEST_PICK = 4

# Elements of a constant of which each step may have its own.
_SETTINGS = 16

# Steps that read values of more steps before are not rolled up: each takes a state.
_FARTHEST = 16

# A position in the body and the number of an output.
Place = tuple[int, int]


@dataclass
class Steps:
    """`count` steps of `period` nodes each; `wires` says where every operand comes from.

    states: what steps hand on, numbered, and what that was a step before, and so on.
    """

    nodes: list[ir.Node]
    period: int
    count: int
    wires: dict[tuple[int, int], Wire] = field(default_factory=dict)
    states: dict[Carried, int] = field(default_factory=dict)

    def output(self, step: int, place: Place) -> ir.Value:
        """The value at this place in one of the steps."""
        return self.nodes[step * self.period + place[0]].outputs[place[1]]


@dataclass(frozen=True)
class Inner:
    """A value of the same step."""

    place: Place


@dataclass(frozen=True)
class Carried:
    """A value of as many steps before as there are `initials`, which the first steps read."""

    place: Place
    initials: tuple[ir.Value, ...]

    @property
    def later(self) -> Carried | None:
        """The same value, of one step later; None where that is what the step itself makes."""
        return Carried(self.place, self.initials[1:]) if len(self.initials) > 1 else None


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


def kinds(nodes: Sequence[ir.Node]) -> np.ndarray:
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


class Places:
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


def connect(steps: Steps, places: Places) -> bool:
    """Fill in `wires` and `states`; returns whether all steps are connected alike."""
    for position in range(steps.period):
        copies = steps.nodes[position :: steps.period]
        for slot in range(len(copies[0].inputs)):
            wire = _wire([node.inputs[slot] for node in copies], places)
            if wire is None:
                return False
            steps.wires[position, slot] = wire
            state = wire if isinstance(wire, Carried) else None
            while state is not None:
                steps.states.setdefault(state, len(steps.states))
                state = state.later
    return bool(steps.states)


def _wire(values: Sequence[ir.Value | None], places: Places) -> Wire | None:
    found = [places.get(value) for value in values]
    distance = next((step for step, place in enumerate(found) if place is not None), None)
    if distance is None:
        return outside(values)
    source, place = found[distance] or (0, (0, 0))
    if source or distance > _FARTHEST:
        return None
    if any(at != (step, place) for step, at in enumerate(found[distance:])):
        return None
    initials = tuple(value for value in values[:distance] if value is not None)
    if len(initials) < distance:
        return None
    return Carried(place, initials) if distance else Inner(place)


def outside(values: Sequence[ir.Value | None], depth: int = _DEEPEST_PICK) -> Wire | None:
    """The values that steps read and none of them makes."""
    first = values[0]
    if all(value is first for value in values):
        return Shared(first)
    if constant_tensor(first) is not None:
        found = _constants(values)
        if found is not None:
            for value in values:
                look_at(value)
        return found
    producers = [value.producer() if value is not None else None for value in values]
    nodes = [node for node in producers if node is not None]
    if depth == 0 or len(nodes) < len(values) or len({node.op_type for node in nodes}) > 1:
        return None
    if len(set(nodes)) > 1 and len(set(kinds(nodes))) > 1:
        return None
    indices = {value.index() for value in values if value is not None}
    if len(indices) > 1:
        return _piece(values, nodes)
    operands = [outside(row, depth - 1) for row in zip(*(n.inputs for n in nodes), strict=True)]
    whole = tuple(operand for operand in operands if operand is not None)
    return Picked(nodes[0], indices.pop() or 0, whole) if len(whole) == len(operands) else None


def _piece(values: Sequence[ir.Value | None], nodes: Sequence[ir.Node]) -> Piece | None:
    """The pieces that steps read of one Split."""
    split = nodes[0]
    source = split.inputs[0]
    if not is_standard(split, "Split") or len(set(nodes)) > 1 or source is None:
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


def _constants(values: Sequence[ir.Value | None]) -> Wire | None:
    """Constants that all steps have in common, or of which each has a small one."""
    arrays: list[np.ndarray] = []
    for array in map(unread_array, values):
        if array is None or not _may_be_alike(array, arrays[0] if arrays else array):
            return None
        arrays.append(array)
    if all(a is arrays[0] or _bytes(a) == _bytes(arrays[0]) for a in arrays):
        return Shared(values[0])
    # Weights of layers are no settings of steps.
    return Listed(tuple(arrays)) if arrays[0].size <= _SETTINGS else None


def _may_be_alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether both are settings of steps, or begin alike: weights of layers do not."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    is_small = one is other or one.size <= _SETTINGS
    return is_small or _bytes(one, _SETTINGS) == _bytes(other, _SETTINGS)


def _bytes(array: np.ndarray, count: int | None = None) -> bytes:
    """The contents, or the first elements, of what may be a view of large weights."""
    return array.tobytes() if count is None else array.flat[:count].tobytes()
