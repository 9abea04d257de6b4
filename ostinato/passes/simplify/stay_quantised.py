"""Move integers where a value is dequantised, moved and quantised again by the same scale.

    Quantise(Transpose(Dequantise(q, s, z)), s, z)                  Transpose(q)
    Quantise(Concat(Dequantise(q, s, z), Dequantise(c, t, y)), s, z)    Concat(q, c')

with a constant `c` of any scale, of which `c' = Quantise(Dequantise(c, t, y), s, z)` is made here.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant, supersede
from ostinato.graph.facts import facts_of, sources
from ostinato.graph.quantised import Quantised, parameters, quantised
from ostinato.model.graphs import graphs, is_standard
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array, constant_tensor
from ostinato.records import dataclass

# With at most 16 bits, two roundings to float32 are far from half a step.
_INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
# Rounded quotients below this one, and their sums with zero points, are integers of 32 bits.
_MOST_QUOTIENT = 2.0**30
# MaxPool takes the types of one byte from this opset on.
_BYTE_POOLS = 12


def stay_quantised(model: ir.Model) -> int:
    """Move integers in place of the floats that stand for them; returns how many nodes went.

    Matches a QuantizeLinear of what other nodes only move, or of which MaxPool takes the largest,
    if all of it comes from DequantizeLinear with the same constant scale and zero point, or of
    constants. Writes these nodes on the integers. Valid because `round(((q - z) * s) / s) + z` is
    `q` where nothing leaves the normal numbers, because constants are rounded here as in a run, and
    because both directions keep the order of numbers.
    """
    moved = _Moved(model)
    changed = 0
    for graph in graphs(model):
        for node in list(graph):
            wanted = _wanted(node)
            found = None if wanted is None else moved.integers(node.inputs[0], wanted)
            if found is None:
                continue
            supersede(node, [found])
            changed += 1
    return changed


@dataclass(frozen=True)
class _Form:
    """The numbers for which integers stand: their type, scale and zero point."""

    kind: ir.DataType
    scale: float
    zero: int

    @property
    def largest(self) -> float:
        """More than any of the numbers."""
        return math.ldexp(self.scale, 8 * int(self.kind.itemsize))


def _form(kind: ir.DataType | None, scale: np.ndarray, zero: np.ndarray) -> _Form | None:
    """The form, if it is one for all elements, whose numbers are normal."""
    if kind not in _INTEGERS or scale.ndim or kind.numpy() != zero.dtype:
        return None
    limits, span = np.finfo(np.float32), np.iinfo(kind.numpy())
    if not limits.tiny <= scale <= limits.max / (span.max - span.min):
        return None
    return _Form(kind, float(scale), int(zero))


def _wanted(node: ir.Node) -> _Form | None:
    """The form that a QuantizeLinear gives, if it is a constant."""
    if not is_standard(node, "QuantizeLinear"):
        return None
    kind = node.outputs[0].dtype
    known = parameters(node, kind)
    return None if known is None else _form(kind, *known)


def _given(stands: Quantised | None) -> _Form | None:
    return None if stands is None else _form(stands.value.dtype, stands.scale, stands.zero)


def _again(value: ir.Value, given: _Form, form: _Form) -> np.ndarray:
    """Constants of one form in another one, by way of float32."""
    integers, limits = constant_array(value), np.iinfo(form.kind.numpy())
    assert integers is not None
    floats = (integers.astype(np.int32) - given.zero).astype(np.float32) * np.float32(given.scale)
    rounded = np.rint(floats / np.float32(form.scale)).astype(np.int32) + form.zero
    result: np.ndarray = np.clip(rounded, limits.min, limits.max).astype(form.kind.numpy())
    return result


class _Moved:
    """The integers of values, and the nodes that have been written for them."""

    def __init__(self, model: ir.Model) -> None:
        self._model, self._names, self._opset = model, Names(model), opset_of(model)
        self._written: dict[tuple[ir.Node | None, _Form], ir.Node] = {}
        self._constants: dict[tuple[ir.Value, _Form, _Form], ir.Value] = {}

    def integers(self, value: ir.Value | None, form: _Form) -> ir.Value | None:
        """The integers that a value stands for in this form; None where there are none."""
        order = self._movers(value, form)
        if value is None or order is None:
            return None
        for node in order:
            self._write(node, form)
        return self._known(value, form)

    def _is_known(self, value: ir.Value, form: _Form) -> bool:
        """Whether a value has integers in this form already, or is constant."""
        stands = quantised(value)
        if stands is None:
            return (value.producer(), form) in self._written
        given = _given(stands)
        return given == form or (
            given is not None
            and constant_tensor(stands.value) is not None
            and given.largest < form.scale * _MOST_QUOTIENT
        )

    def _known(self, value: ir.Value, form: _Form) -> ir.Value:
        """The integers of a value that is known."""
        stands = quantised(value)
        if stands is None:
            maker = value.producer()
            assert maker is not None
            return self._written[maker, form].outputs[value.index() or 0]
        given = _given(stands)
        assert given is not None
        if given == form:
            return stands.value
        key = stands.value, given, form
        if key not in self._constants:
            name = self._names.fresh(f"{value.name}/integers")
            contents = _again(stands.value, given, form)
            self._constants[key] = add_constant(self._model, name, contents)
        return self._constants[key]

    def _movers(self, value: ir.Value | None, form: _Form) -> list[ir.Node] | None:
        """The nodes between integers in this form and a value, first ones first."""
        order: list[ir.Node] = []
        seen: set[ir.Node] = set()
        pending: list[tuple[ir.Value | None, bool]] = [(value, False)]
        while pending:
            current, is_done = pending.pop()
            if current is None:
                return None
            maker = current.producer()
            if self._is_known(current, form) or (maker in seen and not is_done):
                continue
            if maker is None or not self._moves(maker, form):
                return None
            if is_done:
                order.append(maker)
                continue
            seen.add(maker)
            pending.append((current, True))
            pending.extend((source, False) for source in _moved_operands(maker))
        return order

    def _moves(self, node: ir.Node, form: _Form) -> bool:
        """Whether a node does with integers what it does with the floats that stand for them."""
        facts = facts_of(node.op_type, node.domain)
        if not all(isinstance(output.type, ir.TensorType) for output in node.outputs):
            return False
        if is_standard(node, "MaxPool"):
            is_byte = form.kind.itemsize == 1 and self._opset >= _BYTE_POOLS
            return is_byte and len(node.outputs) == 1
        return facts.moves and not facts.fills and not facts.random and bool(facts.sources)

    def _write(self, node: ir.Node, form: _Form) -> None:
        operands = list(node.inputs)
        moved = _moved_operands(node)
        for position, operand in enumerate(operands):
            if operand is not None and any(operand is item for item in moved):
                operands[position] = self._known(operand, form)
        outputs = [
            ir.Value(
                name=self._names.fresh(f"{output.name}/integers"),
                type=ir.TensorType(form.kind),
                shape=output.shape,
            )
            for output in node.outputs
        ]
        given = [ir.Attr(a.name, a.type, a.value) for a in node.attributes.values()]
        name = self._names.fresh(f"{node.name}/integers")
        copy = ir.Node("", node.op_type, operands, given, outputs=outputs, name=name)
        node.append(copy)
        self._written[node, form] = copy


def _moved_operands(node: ir.Node) -> list[ir.Value | None]:
    return list(node.inputs[:1]) if node.op_type == "MaxPool" else sources(node)
