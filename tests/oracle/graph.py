"""Evaluates a graph node by node: If, Loop and Scan, and the registry of all other operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray
OPS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Node:
    """One node being evaluated: its attributes, the opset, and what its subgraphs see."""

    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    scope: Mapping[str, Array]

    def get(self, name: str, default: Any = None) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of the model; float outputs are float64."""
    opset = next(i.version for i in model.opset_import if i.domain == "")
    with np.errstate(all="ignore"):
        return evaluate(model.graph, opset, {name: wide(a) for name, a in feeds.items()})


# What these make depends on the type of an operand.
_READ_TYPES = ("BitCast", "CastLike")


def _widened(array: Any) -> Any:
    """As float64 what NumPy would add up in bfloat16."""
    is_narrow = isinstance(array, np.ndarray) and array.dtype.name == "bfloat16"
    return array.astype(np.float64) if is_narrow else array


def wide(array: Any) -> Any:
    if array is None or isinstance(array, tuple):  # an empty optional, a sequence
        return array and tuple(map(wide, array))
    array = np.asarray(array)
    is_float = array.dtype.kind == "f" and array.dtype.isbuiltin == 1
    return array.astype(np.float64) if is_float else array


def evaluate(graph: onnx.GraphProto, opset: int, outer: Mapping[str, Array]) -> list[Array]:
    values = dict(outer)
    values |= {t.name: wide(numpy_helper.to_array(t)) for t in graph.initializer}
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [values[name] if name else None for name in node.input]
        if node.op_type not in _READ_TYPES:
            inputs = [_widened(array) for array in inputs]
        about = Node(attributes, opset, len(node.output), values)
        results = OPS[node.op_type](about, *inputs)
        if not isinstance(results, list):
            results = [results]
        values |= zip(node.output, map(wide, results), strict=False)
    return [values[output.name] for output in graph.output]


def op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPS.update(dict.fromkeys(names, function))
        return function

    return register


@op("Constant")
def _constant(node: Node) -> Array:
    (value,) = node.attributes.values()
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.array(value)


@op("If")
def _if(node: Node, condition: Array) -> list[Array]:
    branch = node.get("then_branch") if condition else node.get("else_branch")
    return evaluate(branch, node.opset, node.scope)


@op("Loop")
def _loop(node: Node, trips: Array | None, going: Array | None, *states: Array) -> list[Array]:
    body = node.get("body")
    names = [value.name for value in body.input]
    extra = len(body.output) - 1 - len(states)
    collected: list[list[Array]] = [[] for _ in range(extra)]
    step, going = 0, True if going is None else bool(going)
    while going and (trips is None or step < trips):
        given = dict(zip(names, [np.array(step), np.array(going), *states], strict=True))
        proceed, *results = evaluate(body, node.opset, {**node.scope, **given})
        states, going, step = tuple(results[: len(states)]), bool(proceed), step + 1
        for steps, y in zip(collected, results[len(states) :], strict=True):
            steps.append(y)
    if step or not extra:
        return [*states, *(np.stack(steps) for steps in collected)]
    # Steps that never run tell the shapes of what they would have given.
    given = dict(zip(names, [np.array(0), np.array(True), *states], strict=True))
    rows = evaluate(body, node.opset, {**node.scope, **given})[1 + len(states) :]
    return [*states, *(np.zeros((0, *row.shape), row.dtype) for row in rows)]


@op("Scan")
def _scan(node: Node, *args: Array) -> list[Array]:
    body, count = node.get("body"), node.get("num_scan_inputs")
    states, scanned = list(args[: len(args) - count]), args[len(args) - count :]
    extra = len(body.output) - len(states)
    axes = node.get("scan_input_axes", [0] * count)
    backwards = node.get("scan_input_directions", [0] * count)
    names = [value.name for value in body.input]
    length = scanned[0].shape[axes[0]]

    def step(states: list[Array], elements: list[Array]) -> list[Array]:
        given = dict(zip(names, [*states, *elements], strict=True))
        return evaluate(body, node.opset, {**node.scope, **given})

    collected: list[list[Array]] = [[] for _ in range(extra)]
    for t in range(length):
        elements = [
            np.take(x, length - 1 - t if back else t, axis)
            for x, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = step(states, elements)
        states = results[: len(states)]
        for steps, y in zip(collected, results[len(states) :], strict=True):
            steps.append(y)
    out_axes = node.get("scan_output_axes", [0] * extra)
    out_backwards = node.get("scan_output_directions", [0] * extra)
    outputs = []
    for i, steps in enumerate(collected):
        if length == 0:
            element = step(
                states,
                [
                    np.zeros(np.delete(x.shape, a), x.dtype)
                    for x, a in zip(scanned, axes, strict=True)
                ],
            )[len(states) + i]
            shape = list(element.shape)
            shape.insert(out_axes[i] % (element.ndim + 1), 0)
            outputs.append(np.zeros(shape, element.dtype))
        else:
            outputs.append(np.stack(steps[::-1] if out_backwards[i] else steps, out_axes[i]))
    return [*states, *outputs]
