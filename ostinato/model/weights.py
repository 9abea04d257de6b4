"""Weights aside: what checks and infers a model does without the contents of large tensors.

Each of these steps of the onnx package copies the model once or twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx_ir as ir

# Bytes from which on a tensor is set aside. Inference reads smaller ones: they may be shapes.
LEAST = 1 << 14
_PLAIN: dict[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype("<f4"),
    onnx.TensorProto.DOUBLE: np.dtype("<f8"),
    onnx.TensorProto.FLOAT16: np.dtype("<f2"),
    onnx.TensorProto.INT64: np.dtype("<i8"),
    onnx.TensorProto.INT32: np.dtype("<i4"),
    onnx.TensorProto.INT8: np.dtype("i1"),
    onnx.TensorProto.UINT8: np.dtype("u1"),
}


def set_aside(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Make inputs of the large initializers, whose contents are the result.

    Those whose data is not as long as it should be stay, for a check to name.
    """
    names = Counter(tensor.name for tensor in graph.initializer)
    names.update(value.name for value in graph.input)
    aside: dict[str, np.ndarray] = {}
    kept: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        array = _contents(tensor) if tensor.name and names[tensor.name] == 1 else None
        if array is None:
            kept.append(tensor)
            continue
        aside[tensor.name] = array
        graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    if aside:
        small = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(small)
    return aside


def _contents(tensor: onnx.TensorProto) -> np.ndarray | None:
    dtype, dims = _PLAIN.get(tensor.data_type), tuple(tensor.dims)
    if dtype is None or any(n < 0 for n in dims) or tensor.HasField("segment"):
        return None
    size = math.prod(dims) * dtype.itemsize
    if size < LEAST:
        return None
    # Each time that a message is asked for bytes it copies them.
    data = tensor.raw_data
    return np.frombuffer(data, dtype).reshape(dims) if len(data) == size else None


def put_back(graph: ir.Graph, aside: Mapping[str, np.ndarray], order: list[str]) -> None:
    """Make initializers of those inputs again, all initializers in the order of these names."""
    inputs = {value.name: value for value in graph.inputs if value.name in aside}
    for name, array in aside.items():
        value = inputs[name]
        graph.inputs.remove(value)
        value.const_value = ir.Tensor(array, name=name)
        graph.register_initializer(value)
    values = dict(graph.initializers)
    graph.initializers.clear()
    for name in order:
        graph.initializers[name] = values[name]
