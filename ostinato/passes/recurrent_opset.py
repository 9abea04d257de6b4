"""Raises a model to opset 9, the first one with the `Scan` that recurrences are expanded to."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

from ostinato.errors import UnsupportedError
from ostinato.model.attributes import describe
from ostinato.model.schema import opset_of

SCAN_OPSET = 9
SCAN_IR_VERSION = 4  # the first in which an initializer need not be a graph input as well

# Attributes that a later schema dropped, and whose default is what the later operator always does.
_DROPPED_WITH_DEFAULT = {"broadcast", "spatial"}
# Same schema, another meaning: before opset 7 the slope of PRelu is per channel, not broadcast.
_CHANGED_MEANING = {("PRelu", 1), ("PRelu", 6)}


def raise_opset(model: ir.Model, except_for: frozenset[ir.Node]) -> int:
    """Raise `model` in place to opset 9 if it is older, and return the opset it then imports.

    A node keeps its meaning when its schema at opset 9 still has the attributes and inputs it
    uses, with equal defaults; operators only gained types and optional features where that holds.
    Nodes of `except_for` are about to be replaced and are not looked at. Raises
    `UnsupportedError` for the first other node whose operator changed; nothing is modified then.
    """
    opset = opset_of(model)
    if opset < SCAN_OPSET:
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            if node.domain in ("", "ai.onnx") and node not in except_for:
                _check_unchanged(node, opset)
        model.opset_imports[""] = opset = SCAN_OPSET
    model.ir_version = max(model.ir_version, SCAN_IR_VERSION)
    return opset


def _check_unchanged(node: ir.Node, opset: int) -> None:
    old = defs.get_schema(node.op_type, opset)
    new = defs.get_schema(node.op_type, SCAN_OPSET)
    reason = _difference(node, old, new)
    if reason:
        raise UnsupportedError(
            describe(node),
            node.op_type,
            f"{reason} between opset {opset} of this model and opset {SCAN_OPSET}, which the "
            "expansion of recurrent nodes needs; convert the model with onnx.version_converter",
        )


def _difference(node: ir.Node, old: defs.OpSchema, new: defs.OpSchema) -> str | None:
    """What changed from `old` to `new` for this very node, in words; None when nothing did."""
    if old.since_version == new.since_version:
        return None
    if new.deprecated or (node.op_type, old.since_version) in _CHANGED_MEANING:
        return "the operator changed its meaning"
    for name in node.attributes:
        if name not in new.attributes or new.attributes[name].type != old.attributes[name].type:
            return f"attribute {name!r} changed"
    for name, attribute in old.attributes.items():
        if name in node.attributes or name in _DROPPED_WITH_DEFAULT:
            continue
        if name in new.attributes:
            later = new.attributes[name]
            same = (later.required, later.default_value) == (
                attribute.required,
                attribute.default_value,
            )
        else:
            same = not attribute.default_value.name
        if not same:
            return f"the default of attribute {name!r} changed"
    used = max(len(node.inputs), 1)
    if [i.name for i in old.inputs[:used]] != [i.name for i in new.inputs[:used]]:
        return "the inputs changed"
    return None
