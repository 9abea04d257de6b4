"""A node whose results are as ONNX infers them, for operators of many attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from tools.fuzz.random_graph import OPSET, Array, Builder, Shape, Value

Operand = Value | Array | None


def inferred(
    b: Builder,
    op: str,
    operands: Sequence[Operand],
    is_exact: bool = False,
    *,
    outputs: int = 1,
    **attributes: Any,
) -> list[Value]:
    """Add a node; arrays become constants, None an operand that is left out.

    Raises `LookupError` where ONNX does not know the shapes of the results, or refuses the node.
    """
    names = [_named(b, operand) for operand in operands]
    known = [(n, x) for n, x in zip(names, operands, strict=True) if x is not None]
    types = {name: _type(x) for name, x in known}
    data = {n: numpy_helper.from_array(x, n) for n, x in known if isinstance(x, np.ndarray)}
    results = [f"y{i}" for i in range(outputs)]
    try:
        found = shape_inference.infer_node_outputs(
            onnx.defs.get_schema(op, OPSET),
            helper.make_node(op, names, results, **attributes),
            types,
            data,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
    except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise LookupError from error
    likes = [(*_read(found[name]), is_exact) for name in results if name in found]
    if len(likes) < outputs:
        raise LookupError
    return b.add_several(op, names, likes, **attributes)


def _named(b: Builder, operand: Operand) -> str:
    if operand is None:
        return ""
    return operand.name if isinstance(operand, Value) else b.constant(operand)


def _type(operand: Value | Array) -> onnx.TypeProto:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
    return helper.make_tensor_type_proto(number, operand.shape)


def _read(kind: onnx.TypeProto) -> tuple[str, Shape]:
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
        raise LookupError
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    if min(shape, default=0) < 0:
        raise LookupError
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    return dtype, shape
