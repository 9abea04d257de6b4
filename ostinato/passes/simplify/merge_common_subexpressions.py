"""Equal constants and equal computations are kept once."""

from __future__ import annotations

import hashlib
import struct
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import discard, replace_value
from ostinato.graph.random import is_random
from ostinato.model.graphs import subgraphs
from ostinato.model.origins import Observed
from ostinato.model.values import unread_array

Key = tuple[Hashable, ...]
# Bytes that are looked at, evenly spread, before a digest is made of all.
_SAMPLE = 256


def merge_common_subexpressions(model: ir.Model) -> int:
    """Let equal nodes share one result and equal initializers one value; returns how many left.

    Matches a node of a standard operator that has no graph attribute, is not random, and has the
    operator, inputs and attributes of an earlier node of its graph or of a graph around it. Floats
    in attributes are compared by their bits. Readers get the earlier result. Valid because such a
    node is a function of its inputs and attributes, and the earlier node has always run before.
    """
    merged = _merge_constants(model)
    return merged + _merge_nodes(model.graph, [])


def _merge_constants(model: ir.Model) -> int:
    """Large weights are rarely equal: few elements tell most of them apart."""
    initializers = model.graph.initializers
    values = [v for v in initializers.values() if v.const_value is not None]
    values = [v for v in values if not v.is_graph_output()]
    merged = 0
    for alike in (group for form in _groups(values, _form) for group in _groups(form, _sample)):
        first: dict[bytes, ir.Value] = {}
        for value in alike:
            kept = first.setdefault(_digest(value), value)
            if kept is not value:
                _note_equal(value.const_value, kept.const_value)
                replace_value(value, kept)
                del initializers[value.name or ""]
                merged += 1
    return merged


def _note_equal(first: ir.TensorProtocol | None, second: ir.TensorProtocol | None) -> None:
    """Note for weights that these two have to be equal in other ones as well."""
    observed = [tensor for tensor in (first, second) if isinstance(tensor, Observed)]
    if len(observed) == 2:
        observed[0].origins.equal.append((observed[0].unread, observed[1].unread))
    elif observed:
        observed[0].numpy()


def _groups(
    values: Iterable[ir.Value], key: Callable[[ir.Value], Hashable]
) -> Iterable[list[ir.Value]]:
    """The values of each key that several have, in their order."""
    found: defaultdict[Hashable, list[ir.Value]] = defaultdict(list)
    for value in values:
        found[key(value)].append(value)
    return [group for group in found.values() if len(group) > 1]


def _form(value: ir.Value) -> Hashable:
    array = unread_array(value)
    assert array is not None
    return array.dtype, array.shape, array.strides


def _sample(value: ir.Value) -> bytes:
    flat = _flat(value)
    # An odd step visits every byte of an element.
    return flat[:: flat.size // _SAMPLE | 1].tobytes()


def _digest(value: ir.Value) -> bytes:
    return hashlib.sha256(_flat(value).data).digest()


def _flat(value: ir.Value) -> np.ndarray:
    """The contents as bytes, in the order of memory."""
    array = unread_array(value)
    assert array is not None
    if array.dtype == object:
        return np.frombuffer(repr(array.tolist()).encode(), np.uint8)
    return np.ascontiguousarray(array.ravel("K")).view(np.uint8)


def _merge_nodes(graph: ir.Graph, outer: list[dict[Key, ir.Node]]) -> int:
    available: dict[Key, ir.Node] = {}
    scopes = [*outer, available]
    merged = 0
    for node in graph:
        key = _key(node)
        if key is None:
            for body in subgraphs(node):
                merged += _merge_nodes(body, scopes)
            continue
        earlier = next((scope[key] for scope in scopes if key in scope), None)
        if earlier is None:
            available[key] = node
            continue
        for old, new in zip(node.outputs, earlier.outputs, strict=True):
            if old.name:
                replace_value(old, new)
        discard(node)
        merged += 1
    return merged


def _key(node: ir.Node) -> Key | None:
    """The key by which nodes are equal, None for a node that must not be merged."""
    # An Identity that is still there returns a copy under a name that its graph needs.
    if node.domain != "" or node.op_type == "Identity" or is_random(node):
        return None
    attributes = attributes_key(node)
    if attributes is None:
        return None
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    named = tuple(bool(value.name) for value in node.outputs)
    return node.op_type, tuple(inputs), attributes, named


def attributes_key(node: ir.Node) -> Key | None:
    """The key by which the attributes of nodes are equal, None where one has no key."""
    attributes = []
    for name, attribute in node.attributes.items():
        contents = _attribute_key(attribute)
        if contents is None:
            return None
        attributes.append((name, contents))
    return tuple(sorted(attributes))


def _attribute_key(attribute: ir.Attr) -> Key | None:
    value = attribute.value
    match attribute.type:
        case ir.AttributeType.INT | ir.AttributeType.STRING:
            return attribute.type.name, value
        case ir.AttributeType.INTS | ir.AttributeType.STRINGS:
            return attribute.type.name, *value
        case ir.AttributeType.FLOAT:
            return attribute.type.name, struct.pack("<d", value)
        case ir.AttributeType.FLOATS:
            return attribute.type.name, struct.pack(f"<{len(value)}d", *value)
        case ir.AttributeType.TENSOR if value.dtype != ir.DataType.STRING:
            return (
                attribute.type.name,
                value.dtype.name,
                tuple(value.shape.numpy()),
                value.tobytes(),
            )
        case _:
            return None
