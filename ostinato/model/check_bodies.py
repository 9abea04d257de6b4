"""Nodes that own graphs agree with them on the number of inputs and outputs.

Neither `onnx.checker` nor shape inference insists on this, and everything that takes a Scan, Loop
or If apart relies on it.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from ostinato.errors import ModelError
from ostinato.model.graphs import BRANCHES

# Up to this version Scan has a batch axis, and sequence_lens as its first input.
_SCAN_WITH_BATCH = 8


def check_bodies(node: onnx.NodeProto, label: str, version: int) -> None:
    """Raise `ModelError` when the graphs of a Scan, Loop or If do not fit the node.

    `label` names the node in messages, `version` is the operator set it belongs to.
    """
    rule = _RULES.get(node.op_type)
    if rule is not None and node.domain in ("", "ai.onnx"):
        rule(node, f"node {label!r} ({node.op_type})", version)


def _attributes(node: onnx.NodeProto) -> dict[str, onnx.AttributeProto]:
    return {attribute.name: attribute for attribute in node.attribute}


def _expect(where: str, what: str, expected: int, got: int) -> None:
    if expected != got:
        raise ModelError(f"{where}: expected {expected} {what}, got {got}")


def _check_inputs(node: onnx.NodeProto, where: str, first_required: int) -> None:
    for position, name in enumerate(node.input):
        if position >= first_required and not name:
            raise ModelError(f"{where}: input {position} is missing")


def _check_if(node: onnx.NodeProto, where: str, version: int) -> None:
    for name in BRANCHES:
        branch = _attributes(node).get(name)
        if branch is not None:
            _expect(where, f"inputs of {name}", 0, len(branch.g.input))
            _expect(where, f"outputs of {name}", len(node.output), len(branch.g.output))


def _check_loop(node: onnx.NodeProto, where: str, version: int) -> None:
    _check_inputs(node, where, first_required=2)
    body = _attributes(node).get("body")
    if body is not None:
        # The body also takes the iteration number and the condition, and returns the condition.
        carried = max(len(node.input) - 2, 0)
        _expect(where, "inputs of its body", carried + 2, len(body.g.input))
        _expect(where, "outputs of its body", len(node.output) + 1, len(body.g.output))
        if len(node.output) < carried:
            raise ModelError(f"{where}: it carries {carried} values but has fewer outputs")


def _check_scan(node: onnx.NodeProto, where: str, version: int) -> None:
    attributes = _attributes(node)
    if "body" not in attributes or "num_scan_inputs" not in attributes:
        return
    ahead = 1 if version <= _SCAN_WITH_BATCH else 0
    _check_inputs(node, where, first_required=ahead)
    body = attributes["body"].g
    inputs = len(node.input) - ahead
    scanned = attributes["num_scan_inputs"].i
    if not 1 <= scanned <= inputs:
        raise ModelError(f"{where}: num_scan_inputs is {scanned}, the node has {inputs} inputs")
    stacked = len(node.output) - (inputs - scanned)
    if stacked < 0:
        raise ModelError(f"{where}: it has {inputs - scanned} states but fewer outputs")
    _expect(where, "inputs of its body", inputs, len(body.input))
    _expect(where, "outputs of its body", len(node.output), len(body.output))
    for name, length in (
        ("directions", scanned),
        ("scan_input_axes", scanned),
        ("scan_input_directions", scanned),
        ("scan_output_axes", stacked),
        ("scan_output_directions", stacked),
    ):
        if name in attributes:
            _expect(where, f"elements of attribute {name!r}", length, len(attributes[name].ints))


_RULES: dict[str, Callable[[onnx.NodeProto, str, int], None]] = {
    "If": _check_if,
    "Loop": _check_loop,
    "Scan": _check_scan,
}
