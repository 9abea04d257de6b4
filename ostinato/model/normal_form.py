"""One spelling for what ONNX lets a file spell in several ways.

After `normalize`, of a model of any IR version:

* nodes are sorted: producers stand before readers, in bodies and functions too;
* tensors are stored in the model: external data is read, sparse tensors are dense;
* an initializer is a constant. One that is also a graph input (every one up to IR version 3, a
  default that a caller may override since 4) is taken off the inputs;
* a size that is left open is not written, where exporters also write -1, or "?" for each;
* the standard operators' domain is spelt "", graphs have a name, and a metadata key has one value;
* nothing is said of devices that nodes should run on;
* every output of a body or branch is a value of its own: one that passes on a value of an
  enclosing graph, or repeats another output, does so through an Identity;
* equations of Einsum have no blanks: the onnx package does not infer shapes with all of them;
* STFT says whether it is onesided: the onnx package infers shapes of another default;
* no shape is written inside the graph. Shapes are inferred afresh from the inputs and the
  constants, so a wrong claim in the file cannot reach the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from ostinato.errors import ModelError, UnsupportedError
from ostinato.model.order import attribute_graphs, sort_nodes
from ostinato.model.schema import normal_domain
from ostinato.model.weights import read_external

# The first IR version whose initializers need not be graph inputs.
_IR_VERSION_OF_CONSTANTS = 4
# The name that exporters give every open size: two of them need not be equal.
_OPEN = "?"
# A few bytes can describe a sparse tensor of any size.
_LARGEST_DENSE_TENSOR = 1 << 30


def normalize(model: onnx.ModelProto, folder: Path | None) -> list[onnx.ValueInfoProto]:
    """Bring `model` into normal form in place, reading external data relative to `folder`.

    Returns the declarations of the initializers that a caller may override.

    Raises `ModelError` for external data that is missing, out of bounds or outside of `folder`,
    and for inconsistent sparse tensors; `UnsupportedError` for other sparse attributes.
    """
    for item in model.opset_import:
        item.domain = normal_domain(item.domain)
    overridable = _overridable(model)
    _normalize_graph(model.graph, [], folder)
    for value in (*model.graph.input, *model.graph.output):
        _forget_open_sizes(value)
    for function in model.functions:
        function.domain = normal_domain(function.domain)
        for item in function.opset_import:
            item.domain = normal_domain(item.domain)
        del function.value_info[:]
        sort_nodes(function.node)
        _normalize_nodes(function.node, [set(function.input)], folder)
    del model.configuration[:]
    model.ir_version = max(model.ir_version, _IR_VERSION_OF_CONSTANTS)
    metadata = {item.key: item.value for item in model.metadata_props}
    onnx.helper.set_model_props(model, metadata)
    return overridable


def _overridable(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    if model.ir_version < _IR_VERSION_OF_CONSTANTS:
        return []
    defaults = {tensor.name for tensor in model.graph.initializer}
    defaults |= {sparse.values.name for sparse in model.graph.sparse_initializer}
    return [_copy(value) for value in model.graph.input if value.name in defaults]


def _copy(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    _forget_open_sizes(copy)
    return copy


def _forget_open_sizes(value: onnx.ValueInfoProto) -> None:
    for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
        if (dim.HasField("dim_value") and dim.dim_value < 0) or dim.dim_param == _OPEN:
            dim.Clear()


def store_data(graph: onnx.GraphProto, folder: Path | None) -> None:
    """Read external data into the model; sparse initializers become dense ones.

    Raises `ModelError` as `normalize` does.
    """
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, folder))
    del graph.sparse_initializer[:]
    for tensor in _tensors(graph):
        read_external(tensor, folder)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for body in attribute_graphs(attribute):
                yield from _tensors(body)


def _normalize_graph(graph: onnx.GraphProto, outer: list[set[str]], folder: Path | None) -> None:
    """Normalise a graph whose enclosing graphs define the names in `outer`."""
    graph.name = graph.name or "graph"
    sort_nodes(graph.node)
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, folder))
    del graph.sparse_initializer[:]
    for tensor in graph.initializer:
        read_external(tensor, folder)
    _separate_inputs_from_initializers(graph, is_body=bool(outer))
    del graph.value_info[:]

    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    _normalize_nodes(graph.node, [*outer, defined], folder)
    if outer:
        _forget_shapes(graph)
        _separate_outputs(graph, [*outer, defined])


def _normalize_nodes(
    nodes: Iterable[onnx.NodeProto], scopes: list[set[str]], folder: Path | None
) -> None:
    for node in nodes:
        node.domain = normal_domain(node.domain)
        del node.device_configurations[:]
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                _make_dense(node, attribute, folder)
            for tensor in (attribute.t, *attribute.tensors):
                read_external(tensor, folder)
            for body in attribute_graphs(attribute):
                _normalize_graph(body, scopes, folder)
            if (node.op_type, attribute.name) == ("Einsum", "equation"):
                attribute.s = attribute.s.replace(b" ", b"")
        if node.op_type == "STFT" and not any(item.name == "onesided" for item in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
        scopes[-1].update(node.output)


def _separate_inputs_from_initializers(graph: onnx.GraphProto, *, is_body: bool) -> None:
    """Let each name be an input or an initializer: inputs of bodies are always fed by the owner."""
    inputs = {value.name for value in graph.input}
    constants = {tensor.name for tensor in graph.initializer}
    if not inputs & constants:
        return
    if is_body:
        kept = [tensor for tensor in graph.initializer if tensor.name not in inputs]
        del graph.initializer[:]
        graph.initializer.extend(kept)
    else:
        fed = [value for value in graph.input if value.name not in constants]
        del graph.input[:]
        graph.input.extend(fed)


def _forget_shapes(body: onnx.GraphProto) -> None:
    for value in (*body.input, *body.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _separate_outputs(body: onnx.GraphProto, scopes: list[set[str]]) -> None:
    own, seen = scopes[-1], set[str]()
    for position, output in enumerate(body.output):
        name = output.name
        foreign = name not in own and any(name in scope for scope in scopes[:-1])
        if foreign or name in seen:
            output.name = f"{name}_output_{position}"
            while any(output.name in scope for scope in scopes):
                output.name += "_"
            body.node.add(op_type="Identity", input=[name], output=[output.name])
            own.add(output.name)
        seen.add(output.name)


def _make_dense(node: onnx.NodeProto, attribute: onnx.AttributeProto, folder: Path | None) -> None:
    if node.op_type != "Constant":
        reason = f"attribute {attribute.name!r} is a sparse tensor"
        raise UnsupportedError(node.name or "".join(node.output[:1]), node.op_type, reason)
    dense = _dense(attribute.sparse_tensor, folder)
    attribute.Clear()
    attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
    attribute.t.CopyFrom(dense)


def _dense(sparse: onnx.SparseTensorProto, folder: Path | None) -> onnx.TensorProto:
    """The dense form of a sparse tensor: zeros, and `values` at linear or per-axis `indices`."""
    name, dims = sparse.values.name, tuple(sparse.dims)
    read_external(sparse.values, folder)
    read_external(sparse.indices, folder)
    try:
        values = onnx.numpy_helper.to_array(sparse.values)
        indices = onnx.numpy_helper.to_array(sparse.indices)
        if min(dims, default=1) < 0 or math.prod(dims) * values.itemsize > _LARGEST_DENSE_TENSOR:
            raise ValueError(f"dense size {dims} is not supported")
        if indices.size and indices.min() < 0:
            raise ValueError("an index is negative")
        dense = np.zeros(dims, values.dtype)
        positions = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dims)
        dense.reshape(-1)[positions] = values
        return onnx.numpy_helper.from_array(dense, name)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise ModelError(f"sparse tensor {name or '<unnamed>'!r}: {error}") from error
