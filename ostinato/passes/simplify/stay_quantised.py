"""Move integers where a value is dequantised, moved and quantised again by the same scale."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.facts import facts_of, sources
from ostinato.graph.quantised import Quantised, parameters, quantised
from ostinato.model.graphs import graphs, is_standard
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.records import dataclass

# With at most 16 bits, two roundings to float32 are far from half a step.
_INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
# MaxPool takes the types of one byte from this opset on.
_BYTE_POOLS = 12


def stay_quantised(model: ir.Model) -> int:
    """Move integers in place of the floats that stand for them; returns how many nodes went.

    Matches a QuantizeLinear of what other nodes only move, or of which MaxPool takes the largest,
    if all of it comes from DequantizeLinear with the same constant scale and zero point. Writes
    these nodes on the integers. Valid because `round(((q - z) * s) / s) + z` is `q` where nothing
    leaves the normal numbers, and because both directions keep the order of numbers.
    """
    moved = _Moved(Names(model), opset_of(model))
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


class _Moved:
    """The integers of values, and the nodes that have been written for them."""

    def __init__(self, names: Names, opset: int) -> None:
        self._names, self._opset = names, opset
        self._written: dict[tuple[ir.Node, _Form], ir.Node] = {}

    def integers(self, value: ir.Value | None, form: _Form) -> ir.Value | None:
        """The integers that a value stands for in this form; None where there are none."""
        order = self._movers(value, form)
        if value is None or order is None:
            return None
        for node in order:
            self._write(node, form)
        return self._known(value, form)

    def _known(self, value: ir.Value, form: _Form) -> ir.Value | None:
        """The integers of a value whose maker needs no node, or has one."""
        stands = quantised(value)
        if stands is not None:
            return stands.value if _given(stands) == form else None
        maker = value.producer()
        copy = None if maker is None else self._written.get((maker, form))
        return None if copy is None else copy.outputs[value.index() or 0]

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
            if self._known(current, form) is not None or (maker in seen and not is_done):
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
