"""Arithmetic on sizes that shape inference does not follow, folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from ostinato.errors import ModelError

Sizes: TypeAlias = "Mapping[str, Sequence[int | str | None]]"
Values: TypeAlias = "dict[str, np.ndarray]"
"""Integers by name, as arrays of objects; a size that is no number is None."""


def fold_sizes(graph: onnx.GraphProto, sizes: Sizes) -> int:
    """Store what integer nodes compute from known sizes as initializers; returns how many.

    sizes: of values of this graph and the graphs in it. The inference of the onnx package follows
    sizes through sums and products, into the operands of some operators only: bounds of a Slice
    have to be initializers, and a division ends it, as in the `chunk` of scripted PyTorch.
    """
    return sum(_fold(scope, known, sizes) for scope, known in _scopes(graph, {}))


def _scopes(graph: onnx.GraphProto, outer: Values) -> Iterator[tuple[onnx.GraphProto, Values]]:
    known = {**outer}
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT64:
            known[tensor.name] = _decoded(tensor).astype(object)
    yield graph, known
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _scopes(attribute.g, known)


def _decoded(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # whatever NumPy makes of data that does not fit the type
        raise ModelError(f"initializer {tensor.name!r} cannot be decoded: {error}") from error


def _fold(graph: onnx.GraphProto, known: Values, sizes: Sizes) -> int:
    results = {value.name for value in graph.output}
    kept = []
    for node in graph.node:
        value = _value(node, known, sizes) if not node.domain else None
        if value is not None:
            known[node.output[0]] = value
        if value is None or node.output[0] in results or not _is_int64(value):
            kept.append(node)
        else:
            array = value.astype(np.int64)
            graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
    folded = len(graph.node) - len(kept)
    if folded:
        del graph.node[:]
        graph.node.extend(kept)
    return folded


def _is_int64(value: np.ndarray) -> bool:
    return all(size is not None and -(2**63) <= size < 2**63 for size in value.flat)


def _value(
    node: onnx.NodeProto, known: Mapping[str, np.ndarray], sizes: Sizes
) -> np.ndarray | None:
    rule = _RULES.get(node.op_type)
    if node.op_type == "Shape" and node.input[0] in sizes:
        numbers = [size if isinstance(size, int) else None for size in sizes[node.input[0]]]
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        return np.array(numbers[bounds.get("start", 0) : bounds.get("end")], object)
    if rule is None or not all(name in known for name in node.input):
        return None
    try:
        return np.asarray(rule(*(known[name] for name in node.input)), object)
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return None  # an operand is a size that is no number, or the model is wrong


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = abs(a) // abs(b)
    return np.where((a < 0) == (b < 0), quotient, -quotient)


def _gather(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    if values.ndim != 1:
        raise ValueError("the axis is a matter of an attribute")
    return np.asarray(values[index.astype(np.int64)], object)


def _squeeze(values: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    return np.squeeze(values, None if axes is None else tuple(map(int, axes)))


def _each(combine: np.ufunc) -> Callable[..., np.ndarray]:
    """`combine` for operands that are all numbers: of two sizes, None is neither the larger one."""

    def rule(*operands: np.ndarray) -> np.ndarray:
        if any(size is None for operand in operands for size in operand.flat):
            raise TypeError
        return np.asarray(reduce(combine, operands), object)

    return rule


_RULES: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "Max": _each(np.maximum),
    "Min": _each(np.minimum),
    "Gather": _gather,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda values, axes: np.expand_dims(values, tuple(map(int, axes))),
}
