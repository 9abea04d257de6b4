"""Models written as text, and arrays for them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser


def parse(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> {text}')


def feeds_of(model: onnx.ModelProto, scale: float = 1.0, **sizes: int) -> dict[str, np.ndarray]:
    """Random arrays for the float inputs of `model`: normal times `scale`."""
    random = np.random.default_rng(1)
    found = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in dims]
        found[value.name] = np.asarray(scale * random.standard_normal(shape), np.float32)
    return found


def loops(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The loops of the main graph."""
    return [node for node in model.graph.node if node.op_type in ("Scan", "Loop")]
