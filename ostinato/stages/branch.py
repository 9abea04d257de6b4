"""A branch of a node as a model of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.codegen.artifact import UNDEFINED, UNKNOWN_RANK, Argument
from ostinato.element_types import numpy_dtype
from ostinato.errors import ModelError
from ostinato.model.graphs import graphs

Array = np.ndarray[Any, Any]


def branch_model(
    branch: ir.Graph,
    inputs: Mapping[ir.Value, Argument],
    constants: Mapping[ir.Value, ir.TensorProtocol],
    opsets: Mapping[str, int],
) -> ir.Model:
    """Copy a branch of a node into a model.

    inputs, constants: what it reads from outside. Raises `ModelError` for an input of no known
    type.
    """
    graph = branch.clone(allow_outer_scope_values=True)
    own = {value: _input(value, argument) for value, argument in inputs.items()}
    graph.inputs.extend(own.values())
    for value, tensor in constants.items():
        shape, kind = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        own[value] = ir.Value(name=value.name, shape=shape, type=kind, const_value=tensor)
        graph.register_initializer(own[value])
    graph.opset_imports.update(opsets)
    model = ir.Model(graph, ir_version=10)
    for inner in graphs(model):
        inner.outputs[:] = [own.get(value, value) for value in inner.outputs]
        for node in inner:
            for i, read in enumerate(node.inputs):
                if read in own:
                    node.replace_input_with(i, own[read])
    _tell_outputs_apart(graph)
    return model


def _input(value: ir.Value, argument: Argument) -> ir.Value:
    if argument.dtype == UNDEFINED:
        raise ModelError(f"the type of {value.name!r} is not known")
    kind = value.type
    if argument.is_tensor:
        kind = ir.TensorType(_element_type(argument.dtype))
    shape = None if argument.shape == UNKNOWN_RANK else ir.Shape(argument.shape)
    made = ir.Value(name=value.name, type=kind, shape=shape)
    made.meta.update(value.meta)
    return made


def _element_type(dtype: str) -> ir.DataType:
    return ir.DataType.STRING if dtype == "string" else ir.DataType.from_numpy(numpy_dtype(dtype))


def _tell_outputs_apart(graph: ir.Graph) -> None:
    """Give outputs that are one value an Identity each: outputs of a model are distinct values."""
    for i, value in enumerate(graph.outputs):
        if value in graph.outputs[:i]:
            copy = ir.node("Identity", [value])
            copy.outputs[0].name = f"{value.name}[{i}]"
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            graph.append(copy)
            graph.outputs[i] = copy.outputs[0]
