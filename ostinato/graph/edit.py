"""The edits that passes share. Each keeps the model valid, with its outputs and nested graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from ostinato.model.graphs import subgraphs
from ostinato.model.values import tensor_of


def add_constant(model: ir.Model, name: str, contents: np.ndarray | ir.TensorProtocol) -> ir.Value:
    """A new initializer of the main graph, where every nested graph can read it too.

    `name` must be free in the whole model.
    """
    tensor = tensor_of(contents) if isinstance(contents, np.ndarray) else contents
    value = ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.shape.numpy()),
        const_value=tensor,
    )
    tensor.name = name
    model.graph.initializers.add(value)
    return value


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Let every reader of `old` read `new`, and return it from the graph that returned `old`.

    Graph outputs keep their names. A graph can return a value directly only when one of its own
    nodes makes it and it is not returned already; otherwise an Identity stands between.
    """
    for reader, position in old.uses():
        reader.replace_input_with(position, new)
    new.type = new.type or old.type
    if not old.is_graph_output():
        # The shape of a scalar is empty, but known.
        new.shape = old.shape if new.shape is None else new.shape
    elif can_return(old.graph, new):
        new.name, new.type = old.name, old.type or new.type
        new.shape = new.shape if old.shape is None else old.shape
        _substitute_output(old, new)
    else:
        return_copy(old, new, old.name or "")


def supersede(
    node: ir.Node, values: Sequence[ir.Value], made: Sequence[ir.Node] | ir.Node = ()
) -> None:
    """Let these values take the places of a node's outputs, and what `made` them its place."""
    node.prepend(made)
    for old, new in zip(node.outputs, values, strict=True):
        replace_value(old, new)
    discard(node)


def can_return(graph: ir.Graph | None, value: ir.Value) -> bool:
    """Whether `graph` may return `value` in place of another of its outputs."""
    maker = value.producer()
    return maker is not None and maker.graph is graph and not value.is_graph_output()


def return_copy(old: ir.Value, source: ir.Value, name: str) -> None:
    """Return `Identity(source)`, called `name`, from the graph that returned `old`."""
    graph = old.graph
    assert graph is not None
    copy = append_copy(graph, source, name)
    copy.type, copy.shape = old.type or source.type, old.shape
    _substitute_output(old, copy)


def append_copy(graph: ir.Graph | ir.Function, source: ir.Value, name: str) -> ir.Value:
    """`Identity(source)`, called `name`, for what cannot return `source` itself."""
    copy = ir.Value(name=name, type=source.type, shape=source.shape)
    graph.append(ir.Node("", "Identity", [source], outputs=[copy], name=""))
    return copy


def _substitute_output(old: ir.Value, new: ir.Value) -> None:
    graph = old.graph
    assert graph is not None
    for position, output in enumerate(graph.outputs):
        if output is old:
            graph.outputs[position] = new


def is_needed(value: ir.Value) -> bool:
    """Whether a node reads the value or a graph returns it."""
    return bool(value.uses()) or value.is_graph_output()


def discard(node: ir.Node) -> None:
    """Remove a node whose outputs nothing reads, with everything nested in it.

    The graphs in it are left empty: a pass that found them before then sees none of their nodes.
    """
    pending = [node]
    for current in pending:
        for position in range(len(current.inputs)):
            current.replace_input_with(position, None)
        for body in subgraphs(current):
            pending.extend(body)
            body.outputs.clear()
    for current in pending:
        assert current.graph is not None
        current.graph.remove(current)


def splice(
    model: ir.Model,
    body: ir.Graph,
    before: ir.Node,
    given: Mapping[ir.Value, ir.Value] = MappingProxyType({}),
) -> list[ir.Value]:
    """Move the nodes of `body` in front of the node `before`; returns what `body` returned.

    given: for inputs of `body`, the values that are read in their places; readers of the others
    must have been given other values before. Its initializers move to the main graph.
    """
    for old, new in given.items():
        for reader, position in old.uses():
            reader.replace_input_with(position, new)
    outputs = [given.get(value, value) for value in body.outputs]
    body.outputs.clear()
    for value in list(body.initializers.values()):
        del body.initializers[value.name or ""]
        model.graph.initializers.add(value)
    nodes = list(body)
    body.remove(nodes)
    before.prepend(nodes)
    return outputs
