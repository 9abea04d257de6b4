"""Correct nodes that the converter of the onnx package restates wrongly for a later opset.

Resize of opset 10 and Upsample place elements at `i / scale` and round down, or up where the scale
is below 1, which is not what Resize of opset 11 does by default. Clip of opset 6 has limits where
none are given, the largest floats, within which infinities come to lie. Limits and padding were
attributes, always float32, and are inputs now, of the type of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import defs, helper

from ostinato.graph.edit import add_constant
from ostinato.model.names import Names
from ostinato.model.values import constant_array

_Repair = Callable[[ir.Node, "Older", "_Edits"], None]


@dataclass(frozen=True)
class Older:
    """A node as it was: its operator, the type of its data, attributes with their defaults."""

    op_type: str
    dtype: ir.DataType | None
    attributes: Mapping[str, Any]


def older_nodes(model: ir.Model, opset: int, later: int) -> dict[str, Older]:
    """The nodes that `repair` looks at behind a conversion from `opset` to a later one.

    By their results.
    """
    found = {}
    for node in model.graph.all_nodes():
        since, _ = _RESTATED.get(node.op_type, (0, None))
        if node.domain or not opset < since <= later:
            continue
        schema = defs.get_schema(node.op_type, opset)
        attributes = {
            name: helper.get_attribute_value(attribute.default_value)
            for name, attribute in schema.attributes.items()
            if attribute.default_value.name
        } | {attribute.name: attribute.value for attribute in node.attributes.values()}
        data = node.inputs[0]
        older = Older(node.op_type, None if data is None else data.dtype, attributes)
        found[str(node.outputs[0].name)] = older
    return found


def repair(model: ir.Model, older: Mapping[str, Older]) -> None:
    """Have the nodes with these results mean what they meant."""
    edits = _Edits(model, Names(model))
    for node in list(model.graph.all_nodes()):
        found = older.get(str(node.outputs[0].name)) if node.outputs else None
        if found is not None:
            _, mend = _RESTATED[found.op_type]
            mend(node, found, edits)


@dataclass(frozen=True)
class _Edits:
    """What repairs add to the model, under names that it has not."""

    model: ir.Model
    names: Names

    def number(self, value: float, dtype: ir.DataType) -> ir.Value:
        with np.errstate(over="ignore"):
            array = np.asarray(value).astype(dtype.numpy())
        return add_constant(self.model, self.names.fresh("limit"), ir.tensor(array, dtype=dtype))

    def before(self, node: ir.Node, *made: ir.Node) -> None:
        for one in made:
            one.outputs[0].name = self.names.fresh(f"{node.outputs[0].name}/{one.op_type}")
        node.prepend(made)


def _places(node: ir.Node, older: Older, edits: _Edits) -> None:
    """Axes that become smaller are resized first: they round otherwise than those that grow."""
    if node.op_type != "Resize":
        return
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = constant_array(node.inputs[2])
    is_nearest = node.attributes.get_string("mode", "nearest") == "nearest"
    if older.op_type == "Resize" and is_nearest and (scales is None or (scales < 1).any()):
        x, roi, given = node.inputs
        one = edits.number(1.0, ir.DataType.FLOAT)
        least, most = (ir.node(name, [given, one]) for name in ("Min", "Max"))
        down = {**how, "nearest_mode": "ceil"}
        smaller = ir.node("Resize", [x, roi, least.outputs[0]], down)
        edits.before(node, least, most, smaller)
        node.replace_input_with(0, smaller.outputs[0])
        node.replace_input_with(2, most.outputs[0])
    for name, text in how.items():
        node.attributes[name] = ir.AttrString(name, text)


def _limits(node: ir.Node, older: Older, edits: _Edits) -> None:
    if older.dtype is not None:
        node.resize_inputs(3)
        for place, name in ((1, "min"), (2, "max")):
            node.replace_input_with(place, edits.number(older.attributes[name], older.dtype))


def _padding(node: ir.Node, older: Older, edits: _Edits) -> None:
    if older.dtype is not None and len(node.inputs) > 2:
        node.replace_input_with(2, edits.number(older.attributes["value"], older.dtype))


def _rows(node: ir.Node, older: Older, edits: _Edits) -> None:
    """The axes from one on are one axis of rows."""
    axis, x = older.attributes["axis"], node.inputs[0]
    shape = ir.node("Shape", [x])
    rows = ir.node("Flatten", [x], {"axis": axis})
    found = ir.node("Hardmax", [rows.outputs[0]], {"axis": -1})
    back = ir.node("Reshape", [found.outputs[0], shape.outputs[0]], name=node.name)
    edits.before(node, shape, rows, found)
    assert node.graph is not None
    ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], [back], node.outputs, back.outputs
    )


def _dividend(node: ir.Node, older: Older, edits: _Edits) -> None:
    if older.dtype == ir.DataType.INT32:
        cast = ir.node("Cast", [node.inputs[0]], {"to": ir.DataType.FLOAT})
        edits.before(node, cast)
        node.replace_input_with(0, cast.outputs[0])


# The first version of the operator sets that says it as it is said now, and the repair.
_RESTATED: dict[str, tuple[int, _Repair]] = {
    "Clip": (11, _limits),
    "Hardmax": (13, _rows),
    "Pad": (11, _padding),
    "QuantizeLinear": (19, _dividend),
    "Resize": (11, _places),
    "Upsample": (10, _places),
}
