"""Inputs that a model appends rows to, as its graph has them: `present = Concat(past, new)`."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ostinato.errors import InputError
from ostinato.model.attributes import describe


def appended(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The inputs that an output is, with rows beside them, along an axis of no fixed size."""
    inputs = set(graph.inputs)
    for present in graph.outputs:
        node = present.producer()
        if node is None or node.op_type != "Concat" or node.domain or len(node.inputs) < 2:
            continue
        for operand in (node.inputs[0], node.inputs[-1]):
            past = _before_moving(operand)
            if past is not None and past in inputs and past.shape is not None:
                axis = growing_axis(past, present)
                is_named = axis < len(past.shape) and not isinstance(past.shape[axis], int)
                if is_named and moved_axis(past, present) != axis:
                    yield past, present


def _before_moving(value: ir.Value | None) -> ir.Value | None:
    """The state whose rows a value has in other places, if nobody else reads it; or the value."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Gather" or node.domain:
        return value
    (past, _) = node.inputs
    return past if past is not None and len(past.uses()) == 1 else None


def gather_of(past: ir.Value, present: ir.Value) -> ir.Node | None:
    """The node that gives the rows of a state other places, if there is one."""
    node = present.producer()
    assert node is not None
    operands = [node.inputs[0], node.inputs[-1]]
    return None if past in operands else next(use.node for use in past.uses())


def moved_axis(past: ir.Value, present: ir.Value) -> int | None:
    """The axis along which the rows of a state change places, if they do."""
    node = gather_of(past, present)
    if node is None or past.shape is None:
        return None
    return node.attributes.get_int("axis", 0) % max(len(past.shape), 1)


def is_first(past: ir.Value, present: ir.Value) -> bool:
    """Whether new rows come behind those of the state."""
    node = present.producer()
    return node is not None and _before_moving(node.inputs[0]) is past


def growing_axis(past: ir.Value, present: ir.Value) -> int:
    """The axis along which an output is longer than an input."""
    node = present.producer()
    assert node is not None and past.shape is not None
    return int(node.attributes["axis"].as_int()) % len(past.shape)


def refused(past: ir.Value, present: ir.Value, reason: str) -> InputError:
    """The error of a state that grows in a way no stream keeps."""
    node = present.producer()
    where = "" if node is None else f" (node {describe(node)!r}, {node.op_type})"
    return InputError(
        f"state {past.name!r} of a stream changes its shape: its next value {present.name!r}"
        f"{where} {reason}"
    )
