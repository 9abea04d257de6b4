"""Sequences as tuples of arrays, optionals as a value or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.graph import OPS, Array, Node, op

Seq = tuple[Array, ...]


def _place(position: Array) -> int:
    return int(np.reshape(position, ()))


@op("SequenceEmpty")
def _empty(node: Node) -> Seq:
    return ()


@op("SequenceConstruct")
def _construct(node: Node, *values: Array) -> Seq:
    return values


@op("SequenceInsert")
def _insert(node: Node, sequence: Seq, value: Array, position: Array | None = None) -> Seq:
    elements = list(sequence)
    elements.insert(len(elements) if position is None else _place(position), value)
    return tuple(elements)


@op("SequenceErase")
def _erase(node: Node, sequence: Seq, position: Array | None = None) -> Seq:
    elements = list(sequence)
    del elements[-1 if position is None else _place(position)]
    return tuple(elements)


OPS["SequenceAt"] = lambda node, sequence, position: sequence[_place(position)]
OPS["SequenceLength"] = lambda node, sequence: np.array(len(sequence))


@op("ConcatFromSequence")
def _concat(node: Node, sequence: Seq) -> Array:
    join = np.stack if node.get("new_axis", 0) else np.concatenate
    return join(sequence, node.get("axis"))


@op("SplitToSequence")
def _split(node: Node, x: Array, split: Array | None = None) -> Seq:
    axis = node.get("axis", 0)
    extent = x.shape[axis]
    size = 1 if split is None else split
    ends = np.cumsum(split) if np.ndim(size) else [*range(int(size), extent, int(size)), extent]
    pieces = np.split(x, ends, axis)[: len(ends)]
    if split is None and not node.get("keepdims", 1):
        pieces = [np.squeeze(piece, axis) for piece in pieces]
    return tuple(pieces)


@op("SequenceMap")
def _map(node: Node, first: Seq, *others: Any) -> list[Seq]:
    from tests.oracle.graph import evaluate

    body = node.get("body")
    rows = []
    for i, element in enumerate(first):
        given = [element, *(v[i] if isinstance(v, tuple) else v for v in others)]
        names = [value.name for value in body.input]
        scope = {**node.scope, **dict(zip(names, given, strict=True))}
        rows.append(evaluate(body, node.opset, scope))
    return [tuple(column) for column in zip(*rows, strict=True)]


OPS["Optional"] = lambda node, value=None: value
OPS["OptionalHasElement"] = lambda node, value=None: np.array(value is not None)
OPS["OptionalGetElement"] = lambda node, value: value
