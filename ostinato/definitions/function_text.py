"""Function bodies written as ONNX text, in place of those of the schemas."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
import onnx.parser
import onnx_ir as ir

from ostinato.model.attributes import Attributes

FLOAT = int(ir.DataType.FLOAT)


def function(
    node: ir.Node, opset: int, names: Sequence[str], lines: Sequence[str]
) -> onnx.FunctionProto:
    """A function with the inputs `names`, the nodes of `lines` and the outputs `o0, o1, ..`.

    The outputs are as many as those of `node`; `names` are as many as the operator has inputs.
    """
    outputs = ", ".join(f"o{position}" for position in range(len(node.outputs)))
    body = "\n".join(lines)
    return onnx.parser.parse_function(f"""
        <domain: "definition", opset_import: ["": {opset}]>
        {node.op_type} ({", ".join(names)}) => ({outputs}) {{ {body} }}""")


def finite(attributes: Attributes, name: str, default: float | None) -> float | None:
    """A float attribute that is to be written in a text, which has no infinities."""
    number: float | None = attributes.float(name, default)
    if number is not None and not math.isfinite(number):
        raise attributes.refuse(f"attribute {name!r} is {number}, expected a finite number")
    return number


def wanted(node: ir.Node, position: int) -> bool:
    """Whether the node has this output."""
    return position < len(node.outputs) and bool(node.outputs[position].name)


def size_of(value: ir.Value | None, axis: int) -> int | None:
    """The size of an axis, None if it is not a number that is known."""
    if value is None or value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else None
