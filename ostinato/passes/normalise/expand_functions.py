"""Operators that the standard defines by other operators become those."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from ostinato.definitions.affine_grid import affine_grid
from ostinato.definitions.attention import attention
from ostinato.definitions.linear_attention import linear_attention
from ostinato.definitions.optimizers import adagrad, adam, momentum
from ostinato.graph.loop_form import reads
from ostinato.graph.opset_changes import change_between
from ostinato.model.attributes import describe
from ostinato.model.graphs import nodes_of, subgraphs
from ostinato.model.schema import normal_domain, opset_of, schema_of
from ostinato.passes.normalise.infer_shapes import infer_shapes
from ostinato.passes.normalise.inline_functions import inline_functions
from ostinato.passes.normalise.lift_constants import lift_constants

# The operators whose definition has a native form, where they have none themselves, by domain. It
# is that of the schema, or one that compiles to faster code or that the schema lacks.
EXPANDED: Mapping[tuple[str, str], Callable[[ir.Node, int], onnx.FunctionProto | None] | None] = {
    ("", "AffineGrid"): affine_grid,
    ("", "Attention"): attention,
    ("", "CausalConvWithState"): None,
    ("", "LinearAttention"): linear_attention,
    ("", "NegativeLogLikelihoodLoss"): None,
    ("", "RotaryEmbedding"): None,
    ("", "SequenceMap"): None,
    ("", "SoftmaxCrossEntropyLoss"): None,
    ("", "SwiGLU"): None,
    ("ai.onnx.preview", "FlexAttention"): None,
    ("ai.onnx.preview.training", "Adagrad"): adagrad,
    ("ai.onnx.preview.training", "Adam"): adam,
    ("ai.onnx.preview.training", "Momentum"): momentum,
}

_DOMAIN = "ostinato.definition"


def expand_functions(model: ir.Model) -> int:
    """Replace operators of `EXPANDED` by their definition, in place; returns their number.

    Matches nodes in any graph whose definition is known: many depend on the types and ranks of the
    inputs. The definition is the function body of the operator's schema, or an equal one of
    `EXPANDED`. Valid because the schema states it as the meaning of the operator; a body
    written for another operator set is used only where none of its nodes changed its meaning since.
    """
    nodes = list(_matches(model))
    if not nodes:
        return 0
    if any(value is not None and value.shape is None for node in nodes for value in node.inputs):
        infer_shapes(model)
    calls = 0
    for node in nodes:
        definition = _definition(node, model)
        if definition is not None:
            _call(node, definition, f"{node.op_type}_{calls}", model)
            calls += 1
    if calls:
        inline_functions(model)
        lift_constants(model)
    return calls


def _matches(model: ir.Model) -> Iterator[ir.Node]:
    for node in nodes_of(model):
        key = normal_domain(node.domain), node.op_type
        if key in EXPANDED:
            yield node


def _definition(node: ir.Node, model: ir.Model) -> ir.Function | None:
    """The function body for this node, in the operator sets of the model; None without one."""
    schema = schema_of(node.op_type, node.domain, opset_of(model, node.domain))
    if schema is None:
        return None
    define = EXPANDED[normal_domain(node.domain), node.op_type]
    body = (define and define(node, opset_of(model))) or _body(node, schema)
    if body is None:
        return None
    made = {name for inner in body.node for name in inner.output}
    del body.output[len(node.outputs) :]
    for name in set(body.output) - made:
        # The body does not make an output that the node leaves out.
        body.node.add(op_type="Identity", input=body.input[:1], output=[name])
    body.input.extend(str(value.name) for value in _captured(node))
    for attribute in schema.attributes.values():
        if attribute.name in body.attribute and attribute.default_value.name:
            body.attribute.remove(attribute.name)
            body.attribute_proto.append(attribute.default_value)
    function = ir.serde.deserialize_function(body)
    for inner in function.all_nodes():
        inner.name = f"{describe(node)}/{inner.outputs[0].name}"
    return function if _raise(function, model, _given(node)) else None


# `schema` has members that its stub does not declare.
def _body(node: ir.Node, schema: Any) -> onnx.FunctionProto | None:
    if schema.has_function:
        body: onnx.FunctionProto = schema.function_body
        return body
    types = []
    for value in node.inputs:
        proto = onnx.TypeProto()
        if value is not None:
            if value.type is None:
                return None
            ir.serde.serialize_type_into(proto, value.type)
            if value.shape is not None:
                ir.serde.serialize_shape_into(proto, value.shape)
        types.append(proto.SerializeToString())
    text = ir.serde.serialize_node(node).SerializeToString()
    try:
        body = schema.get_context_dependent_function(text, types)
    except Exception:  # whatever the builder of the body raises: there is none for this node
        return None
    return onnx.FunctionProto.FromString(body) if body else None


def _given(node: ir.Node) -> set[str | None]:
    """The names of what the nodes of the node's own graphs make."""
    return {v.name for body in subgraphs(node) for n in body.all_nodes() for v in n.outputs}


def _raise(function: ir.Function, model: ir.Model, given: Container[str | None]) -> bool:
    """Let a function import what the model does; False if a node would get another meaning.

    given: what nodes of the model make, which are in its operator sets already.
    """
    for domain, old in function.opset_imports.items():
        new = model.opset_imports.get(domain, old)
        for node in function.all_nodes():
            if normal_domain(node.domain) != domain or old == new:
                continue
            if node.outputs[0].name in given:
                continue
            before, after = (schema_of(node.op_type, domain, version) for version in (old, new))
            if before is None or after is None or change_between(node, before, after):
                return False
        function.opset_imports[domain] = new
    return True


def _captured(node: ir.Node) -> list[ir.Value]:
    """List the captures of the graphs among the node's attributes."""
    bodies = list(subgraphs(node))
    inside = {value for body in bodies for inner in body.all_nodes() for value in inner.outputs}
    inside |= {value for body in bodies for value in body.inputs}
    used = dict.fromkeys(v for body in bodies for inner in body for v in reads(inner))
    return [value for value in used if value not in inside]


def _call(node: ir.Node, definition: ir.Function, name: str, model: ir.Model) -> None:
    """Put a call of `definition` in the place of the node."""
    missing = len(definition.inputs) - len(node.inputs) - len(_captured(node))
    call = ir.Node(
        _DOMAIN,
        name,
        [*node.inputs, *[None] * missing, *_captured(node)],
        # A body has its own copies of the graphs.
        [a for a in node.attributes.values() if a.type != ir.AttributeType.GRAPH],
        num_outputs=len(node.outputs),
        name=node.name,
    )
    graph = node.graph
    assert graph is not None
    ir.convenience.replace_nodes_and_values(
        graph, node, [node], [call], list(node.outputs), list(call.outputs)
    )
    definition.domain, definition.name = _DOMAIN, name
    model.functions[definition.identifier()] = definition
    model.opset_imports[_DOMAIN] = 1
