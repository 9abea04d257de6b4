"""Gradient nodes of the training domain become the nodes that compute the gradient."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx_ir as ir

from ostinato.autodiff.differentiate import at_opset, differentiate, prepare
from ostinato.errors import ModelError, UnsupportedError
from ostinato.graph.edit import discard, replace_value, splice
from ostinato.graph.loop_form import reads
from ostinato.graph.writer import Writer
from ostinato.model.attributes import Attributes, describe
from ostinato.model.graphs import graphs
from ostinato.model.load import load_model
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import dims_of
from ostinato.model.write import to_model_proto
from ostinato.passes.normalise.infer_shapes import infer_shapes

_DOMAIN = "ai.onnx.preview.training"


def expand_gradients(model: ir.Model) -> int:
    """Replace the Gradient nodes of the main graph, in place; returns their number.

    A node names values of its graph: the part between `xs`, `zs` and `y` is copied, with the node's
    inputs in place of `xs` and `zs`, and differentiated. The gradient of a `y` of several elements
    is that of their sum. A node may name results of another one: derivatives of derivatives.
    Models of older operator sets are converted to the one that the rules write.

    Raises `ModelError` for a node that names what is not there, or a `y` that depends on more than
    `xs` and `zs`, and `UnsupportedError` for nodes in bodies and functions, and for an operator
    without a gradient.
    """
    if not any(map(_is_gradient, model.graph.all_nodes())):
        return 0
    converted = at_opset(model)
    if converted is not model:
        model.graph = converted.graph
    for graph in graphs(model)[1:]:
        for node in filter(_is_gradient, graph):
            raise UnsupportedError(describe(node), node.op_type, "stands in a body, not the graph")
    nodes = [node for node in model.graph if _is_gradient(node)]
    for node in nodes:
        _expand(model, node)
    model.opset_imports.pop(_DOMAIN, None)
    return len(nodes)


def _is_gradient(node: ir.Node) -> bool:
    return node.domain == _DOMAIN and node.op_type == "Gradient"


@dataclass(frozen=True)
class _Request:
    """A node, the values that it names, and those that it reads in place of `xs` and `zs`."""

    node: ir.Node
    sources: tuple[ir.Value, ...]
    y: ir.Value
    inputs: tuple[ir.Value, ...]
    count: int

    def invalid(self, reason: str) -> ModelError:
        return ModelError(f"node {describe(self.node)!r} ({self.node.op_type}): {reason}")


def _read(graph: ir.Graph, node: ir.Node) -> _Request:
    reader = Attributes(node)
    xs, zs = reader.strings("xs"), reader.strings("zs", ())
    y = reader.string("y")
    reader.finish()
    known = {value.name: value for value in (*graph.inputs, *graph.initializers.values())}
    known |= {value.name: value for other in graph for value in other.outputs}
    inputs = tuple(value for value in node.inputs if value is not None)
    for name in (*xs, *zs, y):
        if name not in known:
            raise _Request(node, (), node.outputs[0], inputs, 0).invalid(
                f"names {name!r}, which is no value of the graph"
            )
    request = _Request(node, tuple(known[n] for n in (*xs, *zs)), known[y], inputs, len(xs))
    if len(inputs) != len(request.sources):
        raise request.invalid(
            f"has {len(inputs)} inputs, expected one for each of xs and zs: {len(request.sources)}"
        )
    return request


def _expand(model: ir.Model, node: ir.Node) -> None:
    infer_shapes(model)
    request = _read(model.graph, node)
    part = load_model(_between(model, request))
    prepare(part)
    wanted = [i for i, output in enumerate(node.outputs[: request.count]) if output.name]
    sources = list(part.graph.inputs)
    gradients = differentiate(part, _total(part), [sources[i] for i in wanted])
    part.graph.outputs.clear()
    part.graph.outputs.extend(gradients)
    names = Names(model)
    for graph in graphs(part):
        own = [*graph.initializers.values(), *(v for inner in graph for v in inner.outputs)]
        for value in (*own, *(() if graph is part.graph else graph.inputs)):
            if value.name:
                value.name = names.fresh(f"{describe(node)}/{value.name}")
    given = dict(zip(sources, request.inputs, strict=True))
    for i, result in zip(wanted, splice(model, part.graph, node, given), strict=True):
        replace_value(node.outputs[i], result)
    discard(node)


def _between(model: ir.Model, request: _Request) -> onnx.ModelProto:
    """The part of the model from `sources` to `y`."""
    found, needed = set(request.sources), {request.y}
    nodes: set[str] = set()
    for node in reversed(model.graph):
        if any(output in needed - found for output in node.outputs):
            nodes.update(str(output.name) for output in node.outputs)
            needed.update(reads(node))
    for value in needed - found:
        if value.is_graph_input() and value in model.graph.inputs:
            raise request.invalid(
                f"y={request.y.name!r} depends on {value.name!r}, which is neither in xs nor in zs"
            )
    whole = to_model_proto(model)
    names = {str(value.name) for value in needed - found}
    part = onnx.ModelProto()
    part.CopyFrom(whole)
    part.graph.Clear()
    part.graph.name = whole.graph.name
    part.graph.node.extend(n for n in whole.graph.node if nodes.intersection(n.output))
    part.graph.initializer.extend(t for t in whole.graph.initializer if t.name in names)
    for value, given in zip(request.sources, request.inputs, strict=True):
        part.graph.input.append(_info(value, given if given.shape is not None else value))
    part.graph.output.append(_info(request.y, request.y))
    for info in (*part.graph.input, *part.graph.output):
        if not info.type.tensor_type.HasField("shape"):
            raise request.invalid(f"the rank of {info.name!r} is not known")
    return part


def _info(value: ir.Value, like: ir.Value) -> onnx.ValueInfoProto:
    described = ir.Value(name=value.name, type=like.type or value.type, shape=like.shape)
    return ir.serde.serialize_value(described)


def _total(model: ir.Model) -> ir.Value:
    """The sum of the elements of the only output."""
    (y,) = model.graph.outputs
    if dims_of(y) == ():
        return y
    assert y.dtype is not None
    writer = Writer(model.graph, Names(model), opset_of(model), y.dtype, "gradient")
    total = writer.op("ReduceSum", [y], "total", {"keepdims": 0})
    model.graph.extend(writer.nodes)
    infer_shapes(model)
    return total
