"""Roll unrolled steps up into a Scan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.inferred_sizes import Sizes
from ostinato.graph.loop_form import SCAN_WITHOUT_BATCH
from ostinato.graph.writer import Operand, Writer
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.passes.loops.last_steps import MOST_LAST
from ostinato.passes.loops.repeated_steps import find_steps
from ostinato.passes.loops.rolled_results import Results
from ostinato.passes.loops.steps import (
    Carried,
    Inner,
    Listed,
    Picked,
    Piece,
    Place,
    Shared,
    Steps,
    Wire,
)

# Slice takes its bounds as inputs since this version.
_SLICE_OF_OPERANDS = 10


def reroll(model: ir.Model) -> int:
    """Replace repeated nodes that hand values on by a Scan; returns the number of Scans made.

    Matches, in the main graph, `K` times the same nodes one after another, at least 8 times, whose
    operands are in every step a value of this step; one of a step before, for the first steps from
    outside; the same value from outside; or constants, pieces of a Split, or nodes on these,
    that may differ from step to step. At least one value is handed on, and it keeps its type and
    shape. Makes `Scan(initial values, step numbers)` with the nodes of one step, in which constants
    that grow evenly are computed from the number of the step, and others are scanned. A Concat of a
    value of all steps, in order or reversed, becomes a scan output. The last steps may lack what
    only next ones would read (`last_steps`). Valid because step `t` of the Scan computes what copy
    `t` of the nodes computed.
    """
    return _reroll(model, MOST_LAST)


def reroll_whole_steps(model: ir.Model) -> int:
    """`reroll` of steps that lack nothing: no step computes what the model does not.

    What only a next step would read has no gradient. In a Scan it has zeros, and zero times what is
    not finite, as of a division by the number of a step, is not zero.
    """
    return _reroll(model, 0)


def _reroll(model: ir.Model, most_last: int) -> int:
    if opset_of(model) < SCAN_WITHOUT_BATCH or "" not in model.opset_imports:
        return 0
    rolled = 0
    while (found := find_steps(model, most_last)) is not None:
        _Rolling(model, *found).apply()
        rolled += 1
    return rolled


class _Rolling:
    """Writes one Scan in place of the steps."""

    def __init__(self, model: ir.Model, steps: Steps, sizes: dict[str, Sizes]) -> None:
        self._model, self._steps, self._sizes = model, steps, sizes
        names, opset = Names(model), opset_of(model)
        prefix = f"{steps.nodes[0].name or steps.nodes[0].op_type}/rolled"
        self._outer = Writer(model.graph, names, opset, ir.DataType.INT64, prefix)
        self._inner = self._outer.within("body")
        self._number = self._inner.declare("step", (), ir.DataType.INT64)
        self._scanned: list[tuple[ir.Value, ir.Value]] = []
        self._picked: dict[Picked, ir.Value] = {}

    def apply(self) -> None:
        steps = self._steps
        states = [self._like(state.initials[0], f"state_{i}") for state, i in steps.states.items()]
        self._states = states
        self._values: dict[Place, ir.Value] = {}
        for position, node in enumerate(steps.nodes[: steps.period]):
            self._copy(position, node)
        finals = [self._like(state.initials[0], "final") for state in steps.states]
        first = steps.nodes[0]
        results = Results(self._model, steps, self._sizes, self._outer, self._values)
        results.hand_on(finals)
        outputs = [
            states[steps.states[state.later]] if state.later else self._values[state.place]
            for state in steps.states
        ]
        outputs += [self._values[place] for place, _, _ in results.collected]
        body = self._body(states, outputs)
        numbers = self._outer.value(np.arange(steps.count, dtype=np.int64), "steps")
        self._outer.node(
            "Scan",
            [
                *(state.initials[0] for state in steps.states),
                numbers,
                *(stacked for _, stacked in self._scanned),
            ],
            [*finals, *results.collected.values()],
            [
                ir.AttrGraph("body", body),
                ir.AttrInt64("num_scan_inputs", 1 + len(self._scanned)),
                ir.AttrInt64s("scan_output_axes", [axis for _, axis, _ in results.collected]),
                ir.AttrInt64s("scan_output_directions", [int(r) for _, _, r in results.collected]),
            ],
            role="scan",
        )
        self._model.graph.insert_before(first, [*self._outer.nodes, *results.after.nodes])
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

    def _operand(self, wire: Wire) -> ir.Value | None:
        if isinstance(wire, Inner):
            return self._values[wire.place]
        if isinstance(wire, Carried):
            return self._states[self._steps.states[wire]]
        if isinstance(wire, Shared):
            return wire.value
        if isinstance(wire, Listed):
            return self._constant(wire.arrays)
        if isinstance(wire, Piece):
            return self._piece(wire)
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

    def _piece(self, wire: Piece) -> ir.Value:
        """The piece of a step, as a Slice; before these took operands, as a Gather."""
        begin = self._constant(wire.begins)
        if self._inner.opset < _SLICE_OF_OPERANDS:
            places = self._inner.op("Add", [begin, np.arange(wire.size)], "places")
            attributes = {"axis": wire.axis}
            return self._inner.op(
                "Gather", [wire.source, places], "piece", attributes, wire.source.dtype
            )
        end = self._inner.op("Add", [begin, np.array([wire.size])], "end")
        operands: list[Operand] = [wire.source, begin, end, np.array([wire.axis])]
        return self._inner.op("Slice", operands, "piece", dtype=wire.source.dtype)

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
