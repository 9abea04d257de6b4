"""Folding of what integer nodes compute from known sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np
import onnx
from onnx import numpy_helper

from ostinato.errors import ModelError
from ostinato.graph.facts import Facts, facts_of
from ostinato.model.slices import slice_range

Sizes: TypeAlias = "Mapping[str, Sequence[int | str | None]]"
Values: TypeAlias = "dict[str, np.ndarray]"
"""Integers by name, as arrays of objects: numbers, the names of sizes, None for any other."""

Size: TypeAlias = "int | str | None"


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


def made_shapes(graph: onnx.GraphProto, sizes: Sizes) -> dict[str, tuple[Size, ...]]:
    """The shapes of what Expand, Reshape and Tile make of known sizes, whose names inference loses.

    sizes: of values of this graph and the graphs in it. PyTorch's `expand` chooses between the
    sizes that it is given and, where one is -1, those of the tensor.
    """
    found: dict[str, tuple[Size, ...]] = {}
    for scope, known in _scopes(graph, {}):
        for node in scope.node:
            if (value := _value(node, known, sizes) if not node.domain else None) is not None:
                known[node.output[0]] = value
            rule = _SHAPES.get(node.op_type) if not node.domain else None
            # The first Tile has an input more, the first Reshape one less.
            if rule is None or len(node.input) != 2 or node.input[1] not in known:
                continue
            if node.input[0] not in sizes:
                continue
            allows_zero = any(a.name == "allowzero" and a.i for a in node.attribute)
            target = known[node.input[1]]
            if target.ndim == 1 and not (allows_zero and not target.all()):
                found[node.output[0]] = rule(tuple(sizes[node.input[0]]), tuple(target))
    return found


def _expanded(given: tuple[Size, ...], target: tuple[Size, ...]) -> tuple[Size, ...]:
    rank = max(len(given), len(target))
    pairs = zip(*((1,) * (rank - len(each)) + each for each in (given, target)), strict=True)
    return tuple(_broadcast(left, right) for left, right in pairs)


def _broadcast(left: Size, right: Size) -> Size:
    """The size of two axes that meet, each of which may be 1."""
    if 1 in (left, right):
        return right if left == 1 else left
    numbers = [size for size in (left, right) if isinstance(size, int)]
    return numbers[0] if numbers else left if left == right else None


def _reshaped(given: tuple[Size, ...], target: tuple[Size, ...]) -> tuple[Size, ...]:
    """The target, where 0 is a size that stays, and -1 what is left over."""
    kept = [given[i] if size == 0 and i < len(given) else size for i, size in enumerate(target)]
    if -1 not in kept or None in (*given, *kept):
        return tuple(None if size == -1 else size for size in kept)
    others = [size for size in kept if size != -1]
    rest = Counter(size for size in given if isinstance(size, str))
    rest.subtract(size for size in others if isinstance(size, str))
    number, divisor = (prod(n for n in each if isinstance(n, int)) for each in (given, others))
    names = [name for name, count in rest.items() if count]
    left: Size = None
    if divisor > 0 and number % divisor == 0 and not names:
        left = number // divisor
    elif divisor == number > 0 and len(names) == 1 and rest[names[0]] == 1:
        left = names[0]
    return tuple(left if size == -1 else size for size in kept)


def _tiled(given: tuple[Size, ...], repeats: tuple[Size, ...]) -> tuple[Size, ...]:
    return tuple(
        size if times == 1 else times if size == 1 else None
        for size, times in zip(given, repeats, strict=False)
    )


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
    return all(type(size) is int and -(2**63) <= size < 2**63 for size in value.flat)


def _value(
    node: onnx.NodeProto, known: Mapping[str, np.ndarray], sizes: Sizes
) -> np.ndarray | None:
    facts = facts_of(node.op_type)
    rule = _VIEWS.get(node.op_type)
    # What tests or converts has results of another type.
    if facts.arithmetic is not None and facts.broadcasts and facts.computes and not facts.tests:
        is_other = any(attribute.name == "fmod" and attribute.i for attribute in node.attribute)
        rule = None if is_other else partial(_of_numbers, facts)
    if node.op_type == "Shape" and node.input[0] in sizes:
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        shape = [*sizes[node.input[0]]][bounds.get("start", 0) : bounds.get("end")]
        return np.array(shape, object)
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
    if any(not isinstance(size, int) for operand in operands for size in operand.flat):
        raise TypeError
    if not facts.total and not operands[1].all():
        raise ZeroDivisionError
    return np.asarray(reduce(np.frompyfunc(facts.arithmetic, 2, 1), operands), object)


def _equal(left: Size, right: Size) -> bool | None:
    """Whether two sizes are equal, where that is sure; those with names are not negative."""
    if left is None or right is None:
        return None
    if isinstance(left, int) == isinstance(right, int):
        return left == right or (None if isinstance(left, str) else False)
    number = left if isinstance(left, int) else right
    return False if isinstance(number, int) and number < 0 else None


def _chosen(condition: bool | None, left: Size, right: Size) -> Size:
    return (left if left == right else None) if condition is None else left if condition else right


_VIEWS: dict[str, Callable[..., np.ndarray]] = {
    "Concat": _concat,
    "Equal": np.frompyfunc(_equal, 2, 1),
    "Gather": _gather,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda values, axes: np.expand_dims(values, tuple(map(int, axes))),
    "Where": np.frompyfunc(_chosen, 3, 1),
}

_SHAPES = {"Expand": _expanded, "Reshape": _reshaped, "Tile": _tiled}
