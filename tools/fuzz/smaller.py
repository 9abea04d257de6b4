"""Makes a model that fails small: fewer outputs, nodes cut off behind and in front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests import witness

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Fails = Callable[[onnx.ModelProto, Feeds], bool]


def smaller(model: onnx.ModelProto, feeds: Feeds, fails: Fails) -> tuple[onnx.ModelProto, Feeds]:
    """A smaller model that still fails, and its inputs; the model itself if none was found."""
    for step in (_one_output, _first_node, _given_values):
        for candidate, given in step(model, feeds):
            candidate, given = without_dead(candidate, given)
            if is_valid(candidate) and fails(candidate, given):
                model, feeds = candidate, given
                if step is not _given_values:
                    break
    return model, feeds


def is_valid(model: onnx.ModelProto) -> bool:
    """Whether the checker accepts the model."""
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


Candidates = Iterator[tuple[onnx.ModelProto, Feeds]]


def _one_output(model: onnx.ModelProto, feeds: Feeds) -> Candidates:
    for output in model.graph.output:
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        del copy.graph.output[:]
        copy.graph.output.append(output)
        yield copy, feeds


def _first_node(model: onnx.ModelProto, feeds: Feeds) -> Candidates:
    """Models that end with the outputs of a node, the first node first."""
    types = _types(model)
    for node in model.graph.node:
        outputs = [types[name] for name in node.output if name in types]
        if outputs:
            copy = onnx.ModelProto.FromString(model.SerializeToString())
            del copy.graph.output[:]
            copy.graph.output.extend(outputs)
            yield copy, feeds


def _given_values(model: onnx.ModelProto, feeds: Feeds) -> Candidates:
    """Models that are given what a node computes; each goes on from the one before it."""
    types = _types(model)
    current, given = model, dict(feeds)
    last = {output.name for output in model.graph.output}
    for node in reversed(list(model.graph.node)):
        names = [name for name in node.output if name in types]
        if last & set(node.output) or len(names) != len(node.output):
            continue
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        del copy.graph.output[:]
        copy.graph.output.extend(types[name] for name in names)
        copy, needed = without_dead(copy, feeds)
        try:
            values = witness.run(copy.SerializeToString(), needed)
        except (witness.WitnessError, pytest.skip.Exception):
            continue
        current = onnx.ModelProto.FromString(current.SerializeToString())
        kept = [n for n in current.graph.node if n.name != node.name or n.output != node.output]
        del current.graph.node[:]
        current.graph.node.extend(kept)
        for name, value in zip(names, values, strict=True):
            array = np.asarray(value)
            number = helper.np_dtype_to_tensor_dtype(array.dtype)
            current.graph.input.append(helper.make_tensor_value_info(name, number, array.shape))
            given[name] = array
        yield current, given


def _types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Value infos of all values of the main graph whose element type is known."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return {output.name: output for output in model.graph.output}
    found = {}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        if value.type.HasField("tensor_type"):
            number, rank = value.type.tensor_type.elem_type, value.type.tensor_type.shape.dim
            has_shape = value.type.tensor_type.HasField("shape")
            shape = [None] * len(rank) if has_shape else None
            found[value.name] = helper.make_tensor_value_info(value.name, number, shape)
    return found


def without_dead(model: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """The model without nodes, inputs and constants that no output depends on."""
    needed = {output.name for output in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(_reads(node))
            kept.append(node)
    graph = helper.make_graph(
        kept[::-1],
        model.graph.name,
        [value for value in model.graph.input if value.name in needed],
        model.graph.output,
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    copy.graph.CopyFrom(graph)
    return copy, {name: array for name, array in feeds.items() if name in needed}


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node or its bodies read."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _reads(inner)
        yield from (output.name for output in attribute.g.output)
