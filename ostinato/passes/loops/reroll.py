"""Roll up the steps that a program wrote out one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.facts import facts_of
from ostinato.graph.inferred_sizes import Sizes, infer_sizes
from ostinato.graph.loop_form import SCAN_WITHOUT_BATCH
from ostinato.graph.random import is_random
from ostinato.graph.writer import Writer
from ostinato.model.graphs import subgraphs
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array

# Fewer steps cost little written out.
_LEAST_STEPS = 8
# Longer bodies are not looked for, and no more places where one may begin.
_LONGEST_BODY = 1024
_MOST_PHASES = 32
_MOST_RUNS = 64
# Nodes between what all steps share and what one of them reads of it: Slice, Squeeze, Cast.
_DEEPEST_PICK = 4

# A position in the body and the number of an output.
_Place = tuple[int, int]


def reroll(model: ir.Model) -> int:
    """Replace repeated nodes that hand values on by a Scan; returns the number of Scans made.

    Matches, in the main graph, `K` times the same nodes one after another, at least 8 times, whose
    operands are in every step a value of this step; one of the step before, for the first step
    from outside; the same value from outside; or constants, or nodes on these, that may differ from
    step to step. At least one value is handed on, and it keeps its type and shape. Makes
    `Scan(initial values, step numbers)` with the nodes of one step, in which constants that grow
    evenly are computed from the number of the step, and others are scanned. A Concat of a value of
    all steps, in order or reversed, becomes a scan output. Valid because step `t` of the Scan
    computes what copy `t` of the nodes computed.
    """
    if opset_of(model) < SCAN_WITHOUT_BATCH or "" not in model.opset_imports:
        return 0
    rolled = 0
    while (found := _find(model)) is not None:
        _Rolling(model, *found).apply()
        rolled += 1
    return rolled


@dataclass
class _Steps:
    """`count` steps of `period` nodes each; `wires` says where every operand comes from."""

    nodes: list[ir.Node]
    period: int
    count: int
    wires: dict[tuple[int, int], _Wire] = field(default_factory=dict)
    states: dict[tuple[_Place, ir.Value], int] = field(default_factory=dict)

    def output(self, step: int, place: _Place) -> ir.Value:
        """The value at this place in one of the steps."""
        return self.nodes[step * self.period + place[0]].outputs[place[1]]


@dataclass(frozen=True)
class _Inner:
    """A value of the same step."""

    place: _Place


@dataclass(frozen=True)
class _Carried:
    """A value of the step before, and what the first step reads."""

    place: _Place
    initial: ir.Value


@dataclass(frozen=True)
class _Shared:
    """The same value in all steps, or none."""

    value: ir.Value | None


@dataclass(frozen=True, eq=False)
class _Listed:
    """A constant for each step."""

    arrays: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class _Picked:
    """The output of a node outside, of which there is one for each step."""

    node: ir.Node
    output: int
    operands: tuple[_Wire, ...]


_Wire = _Inner | _Carried | _Shared | _Listed | _Picked


def _find(model: ir.Model) -> tuple[_Steps, dict[str, Sizes]] | None:
    nodes = list(model.graph)
    made = {value: (i, k) for i, node in enumerate(nodes) for k, value in enumerate(node.outputs)}
    numbers = _numbers(nodes)
    sizes: dict[str, Sizes] | None = None
    # A chain of element-wise functions is one kernel as it is.
    plain = np.array([facts_of(node.op_type, node.domain).elementwise for node in nodes], bool)
    runs = [run for run in _runs(numbers) if not plain[run[0] : run[0] + run[2]].all()]
    for begin, length, period in runs[:_MOST_RUNS]:
        best: _Steps | None = None
        for phase in range(min(period, _MOST_PHASES)):
            count = (length - phase) // period
            if count < _LEAST_STEPS or (best is not None and count < best.count):
                break
            first = begin + phase
            steps = _Steps(nodes[first : first + count * period], period, count)
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
        single = is_random(node) or any(True for _ in subgraphs(node))
        attributes = tuple(sorted((n, str(a)) for n, a in node.attributes.items()))
        operands = tuple(value is None for value in node.inputs)
        unnamed = tuple(not value.name for value in node.outputs)
        does = (node.domain, node.op_type, attributes, operands, unnamed)
        key: object = id(node) if single else does
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


class _Places:
    """In which step, and where in it, the values of steps are made.

    made: the number of the node and of its output, of all values of the graph. The steps are the
    nodes from `first` on.
    """

    def __init__(
        self, made: Mapping[ir.Value, _Place], first: int, period: int, count: int
    ) -> None:
        self._made, self._first, self._period, self._count = made, first, period, count

    def get(self, value: ir.Value | None) -> tuple[int, _Place] | None:
        """Step and place of a value, None for one from outside."""
        found = None if value is None else self._made.get(value)
        if found is None:
            return None
        step, position = divmod(found[0] - self._first, self._period)
        return (step, (position, found[1])) if 0 <= step < self._count else None


def _connect(steps: _Steps, places: _Places) -> bool:
    """Fill in `wires` and `states`; returns whether all steps are connected alike."""
    for position in range(steps.period):
        copies = steps.nodes[position :: steps.period]
        for slot in range(len(copies[0].inputs)):
            wire = _wire([node.inputs[slot] for node in copies], places)
            if wire is None:
                return False
            steps.wires[position, slot] = wire
            if isinstance(wire, _Carried):
                steps.states.setdefault((wire.place, wire.initial), len(steps.states))
    return bool(steps.states)


def _wire(values: Sequence[ir.Value | None], places: _Places) -> _Wire | None:
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
            return _Inner(place) if found[0] == (0, place) else None
        first = values[0]
        return None if first is None or found[0] is not None else _Carried(place, first)
    if any(places.get(value) is not None for value in values):
        return None
    return _outside(values, _DEEPEST_PICK)


def _outside(values: Sequence[ir.Value | None], depth: int) -> _Wire | None:
    """What steps read that none of them makes."""
    first = values[0]
    if all(value is first for value in values):
        return _Shared(first)
    arrays = [constant_array(value) for value in values]
    if all(array is not None for array in arrays):
        return _constants([array for array in arrays if array is not None], first)
    producers = [value.producer() if value is not None else None for value in values]
    nodes = [node for node in producers if node is not None]
    if depth == 0 or len(nodes) < len(values) or len(set(_numbers(nodes))) > 1:
        return None
    indices = {value.index() for value in values if value is not None}
    if len(indices) > 1:
        return None
    operands = [_outside(row, depth - 1) for row in zip(*(n.inputs for n in nodes), strict=True)]
    whole = tuple(operand for operand in operands if operand is not None)
    return _Picked(nodes[0], indices.pop() or 0, whole) if len(whole) == len(operands) else None


def _constants(arrays: list[np.ndarray], first: ir.Value | None) -> _Wire | None:
    if any(a.shape != arrays[0].shape or a.dtype != arrays[0].dtype for a in arrays):
        return None
    if all(a.tobytes() == arrays[0].tobytes() for a in arrays):
        return _Shared(first)
    # Weights of layers are no settings of steps.
    return _Listed(tuple(arrays)) if arrays[0].size <= 16 else None


def _recurs(steps: _Steps) -> bool:
    """Whether something that is handed on is computed from what was.

    Else one could begin each step in the middle of an iteration that depends on no other.
    """
    late: set[int] = set()
    for (position, _), wire in sorted(steps.wires.items(), key=lambda item: item[0]):
        if isinstance(wire, _Carried) or (isinstance(wire, _Inner) and wire.place[0] in late):
            late.add(position)
    return any(place[0] in late for place, _ in steps.states)


def _keeps_shapes(steps: _Steps, sizes: dict[str, Sizes]) -> bool:
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


class _Rolling:
    """Writes one Scan in place of the steps."""

    def __init__(self, model: ir.Model, steps: _Steps, sizes: dict[str, Sizes]) -> None:
        self._model, self._steps, self._sizes = model, steps, sizes
        names, opset = Names(model), opset_of(model)
        prefix = f"{steps.nodes[0].name or steps.nodes[0].op_type}/rolled"
        self._outer = Writer(model.graph, names, opset, ir.DataType.INT64, prefix)
        self._inner = self._outer.within("body")
        self._after = self._outer.within("results")
        self._number = self._inner.declare("step", (), ir.DataType.INT64)
        self._scanned: list[tuple[ir.Value, ir.Value]] = []
        self._picked: dict[_Picked, ir.Value] = {}
        # Scan outputs: what the body returns, the axis, whether reversed, and the result.
        self._collected: dict[tuple[_Place, int, bool], ir.Value] = {}

    def apply(self) -> None:
        steps = self._steps
        states = [
            self._like(initial, f"state_{number}") for (_, initial), number in steps.states.items()
        ]
        self._states = states
        self._values: dict[_Place, ir.Value] = {}
        for position, node in enumerate(steps.nodes[: steps.period]):
            self._copy(position, node)
        finals = [self._like(initial, "final") for _, initial in steps.states]
        first = steps.nodes[0]
        self._collect(finals)
        outputs = [self._values[place] for place, _ in steps.states]
        outputs += [self._values[place] for place, _, _ in self._collected]
        body = self._body(states, outputs)
        numbers = self._outer.value(np.arange(steps.count, dtype=np.int64), "steps")
        self._outer.node(
            "Scan",
            [
                *(initial for _, initial in steps.states),
                numbers,
                *(stacked for _, stacked in self._scanned),
            ],
            [*finals, *self._collected.values()],
            [
                ir.AttrGraph("body", body),
                ir.AttrInt64("num_scan_inputs", 1 + len(self._scanned)),
                ir.AttrInt64s("scan_output_axes", [axis for _, axis, _ in self._collected]),
                ir.AttrInt64s("scan_output_directions", [int(r) for _, _, r in self._collected]),
            ],
            role="scan",
        )
        self._model.graph.insert_before(first, [*self._outer.nodes, *self._after.nodes])
        self._model.graph.remove(steps.nodes, safe=True)

    def _like(self, value: ir.Value, role: str) -> ir.Value:
        new = self._inner.declare(role, None, value.dtype)
        sizes = self._sizes.get(str(value.name))
        new.type, new.shape = value.type, None if sizes is None else ir.Shape(sizes)
        return new

    def _copy(self, position: int, node: ir.Node) -> None:
        operands = [
            self._operand(self._steps.wires[position, slot]) for slot in range(len(node.inputs))
        ]
        outputs = [self._like(value, node.op_type) for value in node.outputs]
        for value, old in zip(outputs, node.outputs, strict=True):
            value.name = value.name if old.name else ""
        self._write(node, operands, outputs)
        self._values.update({(position, k): value for k, value in enumerate(outputs)})

    def _write(
        self, node: ir.Node, operands: Sequence[ir.Value | None], outputs: Sequence[ir.Value]
    ) -> None:
        name = self._inner.name(node.op_type)
        self._inner.nodes.append(
            ir.Node(
                node.domain,
                node.op_type,
                operands,
                list(node.attributes.values()),
                overload=node.overload,
                outputs=outputs,
                name=name,
            )
        )

    def _operand(self, wire: _Wire) -> ir.Value | None:
        if isinstance(wire, _Inner):
            return self._values[wire.place]
        if isinstance(wire, _Carried):
            return self._states[self._steps.states[wire.place, wire.initial]]
        if isinstance(wire, _Shared):
            return wire.value
        if isinstance(wire, _Listed):
            return self._constant(wire.arrays)
        if wire not in self._picked:
            operands = [self._operand(operand) for operand in wire.operands]
            value = self._like(wire.node.outputs[wire.output], wire.node.op_type)
            outputs = [
                value if place == wire.output else ir.Value(name="")
                for place in range(len(wire.node.outputs))
            ]
            self._write(wire.node, operands, outputs)
            self._picked[wire] = value
        return self._picked[wire]

    def _constant(self, arrays: Sequence[np.ndarray]) -> ir.Value:
        """The number of the step times a difference, or an element of a list."""
        first, step = arrays[0], arrays[1] - arrays[0]
        if first.dtype == np.int64 and all(
            np.array_equal(a, first + t * step) for t, a in enumerate(arrays)
        ):
            if np.all(step == -1):
                return self._inner.op("Sub", [first, self._number], "position")
            scaled: ir.Value = self._number
            if not np.all(step == 1):
                scaled = self._inner.op("Mul", [self._number, np.asarray(step)], "offset")
            return (
                scaled
                if not first.any() and not first.ndim and scaled is self._number
                else (self._inner.op("Add", [scaled, np.asarray(first)], "position"))
            )
        stacked = self._outer.value(np.stack(arrays), "settings")
        element = self._inner.declare("setting", first.shape, stacked.dtype)
        self._scanned.append((element, stacked))
        return element

    def _body(self, states: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Graph:
        inputs = [*states, self._number, *(element for element, _ in self._scanned)]
        returned: list[ir.Value] = []
        for value in outputs:
            # A graph returns each of its values once.
            if value in returned or value in inputs:
                copy = self._inner.declare("copy", None, value.dtype)
                copy.shape = value.shape
                self._inner.node("Identity", [value], [copy])
                value = copy
            returned.append(value)
        return ir.Graph(inputs, returned, nodes=self._inner.nodes, name="steps")

    def _collect(self, finals: Sequence[ir.Value]) -> None:
        """Let readers outside read results of the Scan."""
        steps, own = self._steps, set(self._steps.nodes)
        ends: dict[_Place, ir.Value] = {}
        for (place, _), final in zip(steps.states, finals, strict=True):
            ends.setdefault(place, final)
        for place in self._values:
            copies = [steps.output(t, place) for t in range(steps.count)]
            for gathering in self._gatherings(copies, own):
                self._join(place, *gathering)
            for t, value in enumerate(copies):
                for use in list(value.uses()):
                    results = use.node.outputs
                    unused = not any(v.uses() or v.is_graph_output() for v in results)
                    if unused and use.node not in own:
                        discard(use.node)
                readers = [use for use in value.uses() if use.node not in own]
                if not readers and not value.is_graph_output():
                    continue
                if t == steps.count - 1 and place in ends:
                    new = ends[place]
                else:
                    stack = self._stack(place, 0, False)
                    new = self._after.op("Gather", [stack, np.array(t)], "step", dtype=value.dtype)
                    new.shape = self._values[place].shape
                for reader, position in readers:
                    reader.replace_input_with(position, new)
                if value.is_graph_output():
                    replace_value(value, new)

    def _stack(self, place: _Place, axis: int, reverse: bool) -> ir.Value:
        """The values of all steps, along a new axis."""
        key = place, axis, reverse
        if key not in self._collected:
            element = self._values[place]
            shape = None if element.shape is None else list(element.shape)
            if shape is not None:
                shape.insert(axis, self._steps.count)
            stack = self._outer.declare("all", None, element.dtype)
            stack.shape = None if shape is None else ir.Shape(shape)
            self._collected[key] = stack
        return self._collected[key]

    def _gatherings(
        self, copies: Sequence[ir.Value], own: set[ir.Node]
    ) -> Iterator[tuple[ir.Node, int, int, bool, bool]]:
        """Each Concat of all copies: the first of these, axis, reversed, along a new axis."""
        size = self._sizes.get(str(copies[0].name))
        if size is None:
            return
        for middle in [None, *(u.node for u in copies[0].uses() if u.node not in own)]:
            parts: Sequence[ir.Value] = copies
            axis = None
            if middle is not None:
                axis = _new_axis(middle, len(size))
                found = [_unsqueezed(value, axis, len(size), own) for value in copies]
                parts = [value for value in found if value is not None]
                if axis is None or len(parts) < len(copies):
                    continue
            for use in list(parts[0].uses()):
                node = use.node
                if node.op_type != "Concat" or node.domain or node in own:
                    continue
                rank = len(size) + (axis is not None)
                along = node.attributes["axis"].as_int() % rank
                whole = all(isinstance(one, int) for one in size)
                if (axis is None and size[along] != 1 and not whole) or axis not in (None, along):
                    continue
                for reverse in (False, True):
                    wanted = list(parts)[::-1] if reverse else list(parts)
                    first = use.idx - (len(parts) - 1 if reverse else 0)
                    if first >= 0 and list(node.inputs[first : first + len(parts)]) == wanted:
                        yield node, first, along, reverse, axis is not None
                        break

    def _join(
        self, place: _Place, node: ir.Node, first: int, axis: int, reverse: bool, new: bool
    ) -> None:
        stack = self._stack(place, axis, reverse)
        if not new:
            sizes = list(self._values[place].shape or ())
            if sizes[axis] == 1:
                axes = np.array([axis + 1])
                stack = self._after.op("Squeeze", [stack, axes], "rows", dtype=stack.dtype)
            else:
                merged = [s * self._steps.count if i == axis else s for i, s in enumerate(sizes)]
                shape = np.array(merged, np.int64)
                stack = self._after.op("Reshape", [stack, shape], "rows", dtype=stack.dtype)
        before = [v for v in node.inputs[:first] if v is not None]
        after = [v for v in node.inputs[first + self._steps.count :] if v is not None]
        if before or after:
            joined = self._after.within("joined")
            result = joined.op(
                "Concat", [*before, stack, *after], "all", {"axis": axis}, stack.dtype
            )
            self._model.graph.insert_before(node, joined.nodes)
            stack = result
        replace_value(node.outputs[0], stack)
        for position in range(len(node.inputs)):
            node.replace_input_with(position, None)
        self._model.graph.remove(node, safe=True)


def _new_axis(node: ir.Node, rank: int) -> int | None:
    """The one axis that an Unsqueeze adds."""
    if node.op_type != "Unsqueeze" or node.domain or len(node.inputs) < 2:
        return None
    axes = constant_array(node.inputs[1])
    return int(axes.reshape(-1)[0]) % (rank + 1) if axes is not None and axes.size == 1 else None


def _unsqueezed(value: ir.Value, axis: int | None, rank: int, own: set[ir.Node]) -> ir.Value | None:
    for use in value.uses():
        if use.node not in own and axis is not None and _new_axis(use.node, rank) == axis:
            return use.node.outputs[0]
    return None
