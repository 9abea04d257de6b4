"""Sizes of values as far as they follow from the inputs: numbers, or names of run-time sizes.

Two values with one name have the same size whenever the model runs. The names are those that the
model gives to the dimensions of its inputs, and names that shape inference makes up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import onnx
import onnx.shape_inference
import onnx_ir as ir

from ostinato.model.attributes import Attributes
from ostinato.model.graphs import graphs
from ostinato.model.normal_form import attribute_graphs

Sizes: TypeAlias = "tuple[int | str | None, ...]"

# Constants that say something about shapes are small.
_SHAPE_ELEMENTS = 64


def infer_sizes(model: ir.Model) -> dict[str, Sizes]:
    """The sizes of values of all graphs by name; a value of unknown rank is missing.

    ONNX lets a Loop change the shape of what it carries, so shape inference says nothing of it.
    Here every state is first taken to keep the shape of its initial value. States whose next value
    then comes out with another shape, or an unknown one, are given up until no more are: what
    remains is proven by induction over the steps.
    """
    carried = _carried(model)
    scalars = _scalars(model)
    assumed: dict[str, Sizes] = {}
    refuted = set[str]()
    while True:
        sizes = _infer(model, assumed | scalars)
        wrong = {
            state
            for state, shape in assumed.items()
            if not sizes.get(carried[state][0]) == sizes.get(carried[state][1]) == shape
        }
        if wrong:
            refuted |= wrong
            assumed = {state: shape for state, shape in assumed.items() if state not in wrong}
            continue
        new = {
            state: sizes[initial]
            for state, (initial, _) in carried.items()
            if state not in assumed.keys() | refuted and None not in sizes.get(initial, (None,))
        }
        if not new:
            return sizes
        assumed |= new


def _loops(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Graph]]:
    for graph in graphs(model):
        for node in graph:
            if node.op_type == "Loop" and node.domain == "":
                yield node, Attributes(node).graph("body")


def _scalars(model: ir.Model) -> dict[str, Sizes]:
    """The number of a step and the condition that a Loop hands to its body have rank 0."""
    return {value.name or "": () for _, body in _loops(model) for value in body.inputs[:2]}


def _carried(model: ir.Model) -> dict[str, tuple[str, str]]:
    """For each value that a Loop carries the names of its initial value and its next value."""
    found = {}
    for node, body in _loops(model):
        for initial, before, after in zip(
            node.inputs[2:], body.inputs[2:], body.outputs[1:], strict=False
        ):
            if initial is not None and isinstance(before.type, ir.TensorType):
                found[before.name or ""] = initial.name or "", after.name or ""
    return found


def _infer(model: ir.Model, assumed: Mapping[str, Sizes]) -> dict[str, Sizes]:
    proto = _outline(model, assumed)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # whatever inference raises: nothing is known then
        return {}
    found: dict[str, Sizes] = {}
    for info in _infos(inferred.graph):
        if info.type.tensor_type.HasField("shape"):
            found[info.name] = tuple(map(_size, info.type.tensor_type.shape.dim))
    for tensor in inferred.graph.initializer:
        found[tensor.name] = tuple(tensor.dims)
    return found


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def _outline(model: ir.Model, assumed: Mapping[str, Sizes]) -> onnx.ModelProto:
    """The model without large constants and claimed shapes, with those of `assumed` values."""
    proto = onnx.ModelProto(ir_version=model.ir_version)
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.name = "outline"
    for value in model.graph.inputs:
        proto.graph.input.append(_input(value))
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.size <= _SHAPE_ELEMENTS:
            proto.graph.initializer.append(ir.serde.serialize_tensor(tensor))
        else:
            proto.graph.input.append(_input(value))
    for node in model.graph:
        proto.graph.node.append(ir.serde.serialize_node(node))
    for value in model.graph.outputs:
        info = proto.graph.output.add(name=value.name or "")
        if value.type is not None:
            ir.serde.serialize_type_into(info.type, value.type)
    for graph in _nested(proto.graph):
        _restate(graph, assumed)
    return proto


def _input(value: ir.Value) -> onnx.ValueInfoProto:
    """A value of known rank, each of its unknown sizes with a name of its own."""
    info: onnx.ValueInfoProto = ir.serde.serialize_value(value)
    if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") and not dim.dim_param:
                dim.dim_param = f"{value.name}:{axis}"
    return info


def _restate(graph: onnx.GraphProto, assumed: Mapping[str, Sizes]) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for value in graph.input:
        if value.name in assumed:
            shape = value.type.tensor_type.shape
            shape.SetInParent()
            for size in assumed[value.name]:
                dim = shape.dim.add()
                if isinstance(size, int):
                    dim.dim_value = size
                else:
                    dim.dim_param = size or ""


def _nested(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            for body in attribute_graphs(attribute):
                yield body
                yield from _nested(body)


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.value_info, *graph.output)
    for body in _nested(graph):
        yield from (*body.input, *body.value_info, *body.output)
