"""The spelling of ONNX types, such as "seq(tensor(float))"."""

from __future__ import annotations

import onnx
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


def known_type(value: ir.Value | None) -> str | None:
    """The type of an operand as schemas write it, None where it is not known."""
    kind = "undefined" if value is None else type_text(value.type)
    return None if "undefined" in kind else kind


def proto_text(kind: onnx.TypeProto) -> str:
    """The same of a type in a file, which may be one of maps."""
    field = kind.WhichOneof("value")
    if field == "map_type":
        key = onnx.TensorProto.DataType.Name(kind.map_type.key_type).lower()
        return f"map({key},{proto_text(kind.map_type.value_type)})"
    if field == "sequence_type":
        return f"seq({proto_text(kind.sequence_type.elem_type)})"
    if field == "optional_type":
        return f"optional({proto_text(kind.optional_type.elem_type)})"
    if field == "tensor_type":
        return f"tensor({onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()})"
    return "undefined"


def holds_map(kind: onnx.TypeProto) -> bool:
    """Whether a value of this type is a map, or has maps in it."""
    field = kind.WhichOneof("value")
    if field in ("sequence_type", "optional_type"):
        return holds_map(getattr(kind, field).elem_type)
    return bool(field == "map_type")
