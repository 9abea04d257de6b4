"""Folding of what integer nodes compute from known sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TypeAlias, TypeVar

import numpy as np
import onnx
from onnx import numpy_helper

from ostinato.errors import ModelError
from ostinato.graph.facts import Facts, facts_of
from ostinato.model.slices import slice_range

Sizes: TypeAlias = "Mapping[str, Sequence[int | str | None]]"
Values: TypeAlias = "dict[str, np.ndarray]"
"""Integers by name, as arrays of objects; a size that is no number is None."""


E = TypeVar("E")


def rows(vectors: Sequence[Sequence[E]]) -> list[tuple[E, ...]] | None:
    """The elements that meet when vectors are broadcast; None where they cannot be."""
    length = next((len(vector) for vector in vectors if len(vector) != 1), 1)
    if any(len(vector) not in (1, length) for vector in vectors):
        return None
    columns = (vector if len(vector) == length else [*vector] * length for vector in vectors)
    return list(zip(*columns, strict=True))


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
    facts = facts_of(node.op_type)
    rule = _VIEWS.get(node.op_type)
    # What tests or converts has results of another type.
    if facts.arithmetic is not None and facts.broadcasts and facts.computes and not facts.tests:
        rule = partial(_of_numbers, facts)
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


def _gather(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    if values.ndim != 1:
        raise ValueError("the axis is a matter of an attribute")
    return np.asarray(values[index.astype(np.int64)], object)


def _squeeze(values: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    return np.squeeze(values, None if axes is None else tuple(map(int, axes)))


def _slice(
    values: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> np.ndarray:
    if values.ndim != 1 or (axes is not None and axes.item() not in (0, -1)):
        raise ValueError("only a vector has no other axes")
    step = 1 if steps is None else steps.item()
    positions = slice_range(starts.item(), ends.item(), step, values.size)
    return np.asarray(values[[*positions]], object)


def _concat(*vectors: np.ndarray) -> np.ndarray:
    if any(vector.ndim != 1 for vector in vectors):
        raise ValueError("the axis is a matter of an attribute")
    return np.concatenate(vectors)


def _reshape(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    if not target.all():
        raise ValueError("what 0 means is a matter of an attribute")
    return values.reshape(tuple(map(int, target)))


def _of_numbers(facts: Facts, *operands: np.ndarray) -> np.ndarray:
    """What arithmetic makes of operands that are all numbers; a quotient by 0 is none."""
    assert facts.arithmetic is not None
    if any(size is None for operand in operands for size in operand.flat):
        raise TypeError
    if not facts.total and not operands[1].all():
        raise ZeroDivisionError
    return np.asarray(reduce(np.frompyfunc(facts.arithmetic, 2, 1), operands), object)


_VIEWS: dict[str, Callable[..., np.ndarray]] = {
    "Concat": _concat,
    "Gather": _gather,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda values, axes: np.expand_dims(values, tuple(map(int, axes))),
}
