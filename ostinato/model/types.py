"""How ONNX spells types, such as "seq(tensor(float))"."""

from __future__ import annotations

import onnx_ir as ir


def type_text(kind: ir.TypeProtocol | None) -> str:
    """The type as operator schemas write it; "undefined" for one that is not known."""
    if isinstance(kind, ir.SequenceType):
        return f"seq({type_text(kind.elem_type)})"
    if isinstance(kind, ir.OptionalType):
        return f"optional({type_text(kind.elem_type)})"
    if isinstance(kind, ir.TensorType):
        return f"tensor({kind.dtype.name.lower()})"
    return "undefined"
