"""Wrap a node of a model into a model of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ostinato.codegen.artifact import UNKNOWN_RANK, Argument
from ostinato.element_types import dtype_name, numpy_dtype
from ostinato.model.assemble import assemble
from ostinato.stages.stage import FallbackStage, tensors

Array = np.ndarray[Any, Any]


def one_node_model(
    stage: FallbackStage,
    constants: Mapping[str, Array] | None = None,
    structures: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """Wrap the stage into a model.

    constants: take the place of inputs, by name.
    structures: values of sequences, optionals and tensors of unknown rank, by name. The inputs are
        then the tensors in them, named as by `tensors`.
    """
    constants, structures = constants or {}, structures or {}
    graph = onnx.GraphProto(name=stage.name or "fallback")
    for argument in stage.inputs:
        if argument.name in structures:
            value = structures[argument.name]
            parts = tensors(argument.name, value)
            graph.input.extend(_part_info(name, part) for name, part in parts.items())
            graph.node.extend(_assembly(argument, value, list(parts)))
        elif argument.name not in constants:
            graph.input.append(_value_info(argument))
    graph.node.add().ParseFromString(stage.node)
    graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in constants.items())
    graph.output.extend(_value_info(argument) for argument in stage.outputs)
    return assemble(graph, stage.opsets)


def _assembly(argument: Argument, value: Any, names: Sequence[str]) -> Iterable[onnx.NodeProto]:
    """Yield the nodes that put an operand together from the tensors in it."""
    make = onnx.helper.make_node
    if value is None:
        yield make("Optional", [], [argument.name], type=_inside(argument))
    elif isinstance(value, (list, tuple)):
        dtype = _inside(argument).sequence_type.elem_type.tensor_type.elem_type
        if names:
            yield make("SequenceConstruct", names, [argument.name])
        else:
            yield make("SequenceEmpty", [], [argument.name], dtype=dtype or onnx.TensorProto.FLOAT)


def _inside(argument: Argument) -> onnx.TypeProto:
    """The type of an operand, or of what it holds if it is an optional."""
    kind = _type_proto(argument.dtype)
    return kind.optional_type.elem_type if kind.HasField("optional_type") else kind


def _part_info(name: str, array: Array) -> onnx.ValueInfoProto:
    # An axis of extent 1 may broadcast, so this extent is fixed; others are left open.
    shape = [1 if n == 1 else None for n in array.shape]
    dtype = "string" if array.dtype.kind in "OTU" else array.dtype.name
    return onnx.helper.make_tensor_value_info(name, _element_type(dtype), shape)


def _value_info(argument: Argument) -> onnx.ValueInfoProto:
    if not argument.is_tensor:
        return onnx.helper.make_value_info(argument.name, _type_proto(argument.dtype))
    shape = None if argument.shape == UNKNOWN_RANK else argument.shape
    return onnx.helper.make_tensor_value_info(argument.name, _element_type(argument.dtype), shape)


def _element_type(dtype: str) -> int:
    """The `onnx.TensorProto` number of an `Argument.dtype`."""
    if dtype == "string":
        return onnx.TensorProto.STRING
    return int(onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


def _type_proto(kind: str) -> onnx.TypeProto:
    """The type for a text such as "seq(tensor(float))"; an empty one if it is undefined."""
    outer, _, inner = kind.removesuffix(")").partition("(")
    if outer == "tensor":
        return onnx.helper.make_tensor_type_proto(_element_type(dtype_name(inner)), None)
    if outer == "seq":
        return onnx.helper.make_sequence_type_proto(_type_proto(inner))
    if outer == "optional":
        return onnx.helper.make_optional_type_proto(_type_proto(inner))
    if outer == "map":
        key, _, value = inner.partition(",")
        key_type = _element_type(dtype_name(key))
        return onnx.helper.make_map_type_proto(key_type, _type_proto(value))
    return onnx.TypeProto()
