"""Whether a node means the same in another version of its operator set."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

# Attributes that a later schema dropped, and whose default is what the later operator always does.
_DROPPED_WITH_DEFAULT = {"broadcast", "spatial"}
# Same schema, another meaning: before opset 7 the slope of PRelu is per channel, not broadcast.
_CHANGED_MEANING = {("PRelu", 1), ("PRelu", 6)}


def change_between(node: ir.Node, old: defs.OpSchema, new: defs.OpSchema) -> str | None:
    """Describe what changed from `old` to `new` for this very node; None when nothing did.

    A node keeps its meaning when the later schema still has the attributes and inputs it uses,
    with equal defaults; operators only gained types and optional features where that holds.
    """
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
