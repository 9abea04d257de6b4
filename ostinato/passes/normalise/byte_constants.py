"""Constant integers of less than eight bits become bytes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import add_constant
from ostinato.model.contributed import MICROSOFT
from ostinato.model.graphs import nodes_of
from ostinato.model.names import Names
from ostinato.model.values import constant_array

_BYTES = {
    ir.DataType.INT4: np.int8,
    ir.DataType.UINT4: np.uint8,
    ir.DataType.INT2: np.int8,
    ir.DataType.UINT2: np.uint8,
}


def byte_constants(model: ir.Model) -> int:
    """Store the constants that a DequantizeLinear or Cast reads as bytes; returns how many nodes.

    Matches either of a constant of int4, uint4, int2 or uint2, whose zero point, if there is one,
    is a constant too. Makes int8 or uint8 constants of both. Valid because the operators compute
    with the numbers, whatever their type. How weights are packed for their kernel depends on the
    numbers again, not on their type.
    """
    names = Names(model)
    stored: dict[ir.Value, ir.Value] = {}
    changed = 0
    for node in nodes_of(model):
        if not _reads_numbers(node):
            continue
        places = [i for i, v in enumerate(node.inputs) if v is not None and v.dtype in _BYTES]
        if not places or any(constant_array(node.inputs[i]) is None for i in places):
            continue
        for place in places:
            value = node.inputs[place]
            assert value is not None and value.dtype is not None
            if value not in stored:
                array = constant_array(value)
                assert array is not None
                name = names.fresh(f"{value.name}_bytes")
                stored[value] = add_constant(model, name, array.astype(_BYTES[value.dtype]))
            node.replace_input_with(place, stored[value])
        changed += 1
    return changed


def _reads_numbers(node: ir.Node) -> bool:
    """Whether it computes with the numbers that a constant stands for."""
    if node.op_type == "Cast":
        return node.domain == ""
    return node.op_type == "DequantizeLinear" and node.domain in ("", MICROSOFT)
