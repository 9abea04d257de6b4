"""Stages of their own for nodes without a native form, and the errors that refuse such nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from onnx.helper import get_attribute_value

from ostinato.codegen.artifact import UNDEFINED, Argument
from ostinato.errors import UnsupportedError
from ostinato.model.attributes import describe
from ostinato.model.captures import closed
from ostinato.model.schema import schema_of
from ostinato.model.values import constant_array, elements
from ostinato.ops.core.registry import (
    UnknownExtentsError,
    UnknownOperandError,
    UnknownStructureError,
)
from ostinato.stages.report import listed
from ostinato.stages.stage import FallbackStage, ListStage, LookupStage
from ostinato.stages.values import argument, is_open


def fallback_stage(
    node: ir.Node, refusal: UnsupportedError, opsets: Mapping[str, int]
) -> tuple[FallbackStage, list[ir.Value]]:
    """The stage that runs a node on its reference kernel, and the values that it reads.

    It has the keys that the node is specialised for, if that is possible.
    """
    proto, inputs = closed(node)
    stage = FallbackStage(
        proto.SerializeToString(),
        tuple(argument(value) for value in inputs),
        tuple(argument(value) for value in node.outputs if value.name),
        tuple(opsets.items()),
        describe(node),
        node.op_type,
        _reason(node, refusal),
    )
    return _with_keys(stage, refusal), inputs


def _with_keys(stage: FallbackStage, refusal: UnsupportedError) -> FallbackStage:
    """Add the keys that the node can be specialised for to its stage, if there are any."""
    value_keys: tuple[str, ...] = ()
    given = {argument.name: argument for argument in stage.inputs}
    if isinstance(refusal, UnknownOperandError) and given.keys() >= set(refusal.unknown):
        unknown = [given[name] for name in refusal.unknown]
        if refusal.needs_constants or all(map(_is_vector_of_any_length, unknown)):
            value_keys = refusal.unknown
    extents: set[str] = set()
    if isinstance(refusal, UnknownExtentsError) and given.keys() >= set(refusal.values):
        extents = set(refusal.values)
    if not value_keys and not extents and not isinstance(refusal, UnknownStructureError):
        return stage
    if any(made.dtype == UNDEFINED for made in stage.outputs):
        return stage
    structure_keys = tuple(
        a.name
        for a in stage.inputs
        if a.name in extents or (is_open(a) and a.name not in value_keys)
    )
    return dataclasses.replace(stage, value_keys=value_keys, structure_keys=structure_keys)


def _is_vector_of_any_length(argument: Argument) -> bool:
    """Whether a value may be a shape operand but for its length, which only a run tells."""
    shape = argument.shape
    return argument.is_tensor and len(shape) == 1 and isinstance(shape[0], str)


def maps_stage(node: ir.Node) -> tuple[ListStage, list[ir.Value]] | None:
    """Return the stage for a ZipMap, and the value that it reads; None for other nodes.

    Attributes that contradict the operator's document (ai.onnx.ml) are left to the reference
    kernel.
    """
    if (node.domain, node.op_type) != ("ai.onnx.ml", "ZipMap"):
        return None
    (rows,), (output,) = node.inputs, node.outputs
    given = [node.attributes.get(name) for name in ("classlabels_int64s", "classlabels_strings")]
    labels = [attribute.value for attribute in given if attribute is not None and attribute.value]
    if rows is None or rows.dtype != ir.DataType.FLOAT or len(labels) != 1:
        return None
    if rows.shape is None or len(rows.shape) not in (1, 2):
        return None
    return ListStage(argument(output), (argument(rows),), keys=tuple(labels[0])), [rows]


def lookup_stage(node: ir.Node) -> tuple[LookupStage, list[ir.Value]] | None:
    """Return the stage for a node that maps texts one by one, and the value that it reads.

    None for other nodes.
    """
    kind = node.domain, node.op_type
    if kind == ("ai.onnx.ml", "LabelEncoder"):
        operand, found = node.inputs[0], _by_keys(node)
    elif kind == ("", "Gather"):
        operand, found = node.inputs[1], _by_places(node)
    else:
        return None
    output = node.outputs[0]
    if found is None or operand is None or output.dtype is None:
        return None
    return LookupStage(argument(operand), argument(output), *found), [operand]


Array: TypeAlias = "np.ndarray[Any, Any]"
_Found: TypeAlias = "tuple[tuple[str, ...] | None, tuple[Any, ...], Any]"


def _by_keys(node: ir.Node) -> _Found | None:
    """Read keys, values and default of a LabelEncoder whose keys are texts."""
    about = {name: attribute.value for name, attribute in node.attributes.items()}
    (x,) = node.inputs
    if x is None or x.dtype != ir.DataType.STRING:
        return None
    if "classes_strings" in about:
        keys = tuple(about["classes_strings"])
        values, default = tuple(range(len(keys))), _default(about, (0,))
    else:
        found = [_labels(about, what) for what in ("keys", "values")]
        if any(one is None for one in found):
            return None
        # Of keys that are repeated the last one is found; only in version 1 that is the one meant.
        keys, values = (tuple(one.ravel().tolist()[::-1]) for one in found if one is not None)
        if not all(isinstance(key, str) for key in keys):
            return None
        default = _default(about, values)
    if len(keys) != len(values):
        return None
    return keys, values, default


def _labels(about: Mapping[str, Any], what: str) -> Array | None:
    """Read the keys or values of a LabelEncoder; None where they are of more than one kind."""
    given = [name for name in about if name.startswith(f"{what}_")]
    if len(given) != 1:
        return None
    contents = about[given[0]]
    if given[0].endswith("_tensor"):
        return elements(contents)
    return np.array(contents, object if given[0].endswith("_strings") else None)


def _default(about: Mapping[str, Any], values: Sequence[Any]) -> Any:
    """Read the default for texts that are no key: the schema's for the values' type if absent."""
    if "default_tensor" in about:
        return elements(about["default_tensor"]).item()
    kinds = {str: "string", int: "int64"}
    name = f"default_{kinds.get(type(values[0]), 'float') if values else 'float'}"
    schema = schema_of("LabelEncoder", "ai.onnx.ml", 2)
    assert schema is not None
    found = about.get(name, get_attribute_value(schema.attributes[name].default_value))
    return found.decode() if isinstance(found, bytes) else found


def _by_places(node: ir.Node) -> _Found | None:
    """Return the texts of a constant from which a Gather takes elements."""
    data = node.inputs[0]
    texts = constant_array(data) if data is not None and data.dtype == ir.DataType.STRING else None
    if texts is None or texts.ndim != 1:
        return None
    return None, tuple(texts.tolist()), None


def outermost(graph: ir.Graph) -> list[ir.Node]:
    """List the nodes of a graph, lookups of inputs first and those that make outputs last.

    The native nodes between them then form one segment.
    """
    first, others, last = [], [], []
    for node in graph:
        made = lookup_stage(node) or maps_stage(node)
        if made is None:
            others.append(node)
        elif made[1][0].is_graph_input():
            first.append(node)
        elif not any(value.uses() for value in node.outputs):
            last.append(node)
        else:
            others.append(node)
    return [*first, *others, *last]


def _reason(node: ir.Node, refusal: UnsupportedError) -> str:
    """Say why a node has no native form; the reason may be a node in one of its bodies."""
    if isinstance(refusal, UnknownStructureError):
        return f"the type of {refusal.node!r} is not native, or only a run tells its rank or length"
    if refusal.node == describe(node):
        return refusal.reason
    return f"node {refusal.node!r} ({refusal.op}) in it: {refusal.reason}"


def joined_refusals(refusals: Sequence[tuple[ir.Node, UnsupportedError]]) -> UnsupportedError:
    """One error for all nodes that are refused; its `unknown` is that of the first."""
    (node, first), *others = refusals
    texts = [f"node {describe(n)!r} ({n.op_type}): {_reason(n, r)}" for n, r in others]
    reason = _reason(node, first)
    more = (listed(texts),) if texts else ()
    return UnsupportedError(describe(node), node.op_type, reason, first.unknown, more)
