"""Operators that ONNX does not have for bfloat16, in float32."""

from __future__ import annotations

import onnx_ir as ir

from ostinato.graph.edit import replace_value
from ostinato.graph.random import may_draw
from ostinato.model.names import Names
from ostinato.model.schema import opset_of, schema_of
from ostinato.model.signature import type_error
from ostinato.model.types import known_type
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.pipeline import PASSES, run_passes

_SETTLING = ("lift_constants", "split_to_slice", "dead_code")
_PARTS = [item for item in PASSES if item.name in _SETTLING]
_NARROW, _WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT


def widen(model: ir.Model) -> None:
    """Cast operands of bfloat16 to float32 where an operator does not take them, results back.

    Not those of nodes that draw numbers: PyTorch draws others for float32 (`draws.take`).
    """
    graphs = [*model.graphs()]
    values = (v for graph in graphs for node in graph for v in (*node.inputs, *node.outputs))
    if not any(value is not None and value.dtype == _NARROW for value in values):
        return
    # Nor does ONNX have sequences of bfloat16: what reads parts of a tensor reads the tensor.
    if any(node.op_type == "SplitToSequence" for graph in graphs for node in graph):
        run_passes(model, passes=_PARTS)
    infer_shapes(model)
    names, version = Names(model), opset_of(model)
    nodes = [node for graph in graphs for node in graph if node.domain == ""]
    for node in [node for node in nodes if not may_draw(node)]:
        schema = schema_of(node.op_type, "", version)
        if schema is None or type_error(schema, [*map(known_type, node.inputs)]) is None:
            continue
        narrow = set()
        for place, value in enumerate(node.inputs):
            if value is not None and value.dtype == _NARROW:
                narrow.add(schema.inputs[min(place, len(schema.inputs) - 1)].type_str)
                cast = _cast(value, _WIDE, names)
                node.prepend(cast)
                node.replace_input_with(place, cast.outputs[0])
        for place, value in enumerate(node.outputs):
            formal = schema.outputs[min(place, len(schema.outputs) - 1)]
            if value.dtype == _NARROW or (value.dtype is None and formal.type_str in narrow):
                cast = _cast(value, _NARROW, names)
                node.append(cast)
                replace_value(value, cast.outputs[0])
                cast.replace_input_with(0, value)
                value.type = ir.TensorType(_WIDE)
                if value.name == cast.outputs[0].name:
                    value.name = names.fresh(f"{value.name}_wide")


def _cast(value: ir.Value, dtype: ir.DataType, names: Names) -> ir.Node:
    cast = ir.node("Cast", [value], {"to": dtype})
    result = cast.outputs[0]
    result.name, result.dtype, result.shape = names.fresh(f"{value.name}_cast"), dtype, value.shape
    return cast
