"""A model file as its structure and its weights: checkpoints of a network differ in these alone.

Weights are the data of large tensors of float32 and float64, wherever they are nested. Nothing
of the onnx package is imported: what has been compiled for one checkpoint is found for another one
before the compiler is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ostinato.protobuf.wire import fields, integer, items

# Elements from which on the data of a tensor is no structure. Fewer may be sizes, or scales that
# choose a form.
LEAST = 64
# Fields of messages (onnx.proto).
_MODEL_GRAPH, _GRAPH_NODE, _GRAPH_INITIALIZER, _NODE_ATTRIBUTE = 7, 1, 5, 5
_TENSOR_TYPE, _TENSOR_NAME, _RAW_DATA, _DOCUMENTATION = 2, 8, 9, 12
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
# The types of weights by their numbers, and the fields in which their elements lie packed.
_TYPES: dict[int, tuple[np.dtype[Any], int]] = {
    1: (np.dtype("<f4"), 4),
    11: (np.dtype("<f8"), 10),
}


class Weight(NamedTuple):
    """The data of a tensor in a file: its name, if it has one, bytes, and the type of elements."""

    name: str
    data: memoryview
    dtype: np.dtype[Any]

    def array(self) -> np.ndarray[Any, Any]:
        """The elements, flat."""
        return np.frombuffer(self.data, self.dtype)

    def digest(self) -> str:
        """Text that is another one for other data."""
        return hashlib.sha256(self.data).hexdigest()


def split(data: memoryview) -> tuple[bytes, list[Weight]]:
    """A digest of all of a file but its weights, and the weights in the order of the file.

    Raises `IndexError` for what is no message of protobuf.
    """
    parts = _Parts(data)
    parts.add(0, len(data), {_MODEL_GRAPH: parts.graph})
    return parts.digest.digest(), parts.weights


class _Parts:
    """The parts of a file: what is no weight goes to the digest, each piece with its length.

    Messages around weights have no length there: it depends on how a tensor is written.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.digest, self.weights = hashlib.sha256(), list[Weight]()

    def add(self, begin: int, end: int, inner: Mapping[int, Callable[[int, int], None]]) -> None:
        """Add a message. inner: what adds the messages in large fields, by the field's number."""
        done = begin
        for number, head, first, last in fields(self._data, begin, end):
            if number in inner and last - first >= LEAST * 4:
                self._feed(self._data[done:head])
                self._feed(b"%d" % number)
                inner[number](first, last)
                done = last
        self._feed(self._data[done:end])
        self._feed(b"end")

    def graph(self, begin: int, end: int) -> None:
        """Add a graph."""
        self.add(begin, end, {_GRAPH_INITIALIZER: self._tensor, _GRAPH_NODE: self._node})

    def _node(self, begin: int, end: int) -> None:
        self.add(begin, end, {_NODE_ATTRIBUTE: self._attribute})

    def _attribute(self, begin: int, end: int) -> None:
        tensors = dict.fromkeys((_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS), self._tensor)
        self.add(
            begin, end, {_ATTRIBUTE_GRAPH: self.graph, _ATTRIBUTE_GRAPHS: self.graph} | tensors
        )

    def _tensor(self, begin: int, end: int) -> None:
        found = list(items(self._data, begin, end))
        kind = integer(self._data, begin, end, _TENSOR_TYPE)
        dtype, packed = _TYPES.get(kind, (None, _RAW_DATA))
        places = [(one[3], one[4]) for one in found if one[0] in (_RAW_DATA, packed)]
        if dtype is None or len(places) != 1:
            self._feed(self._data[begin:end])
            return
        ((first, last),) = places
        if last - first < LEAST * dtype.itemsize or (last - first) % dtype.itemsize:
            self._feed(self._data[begin:end])
            return
        names = [self._data[one[3] : one[4]] for one in found if one[0] == _TENSOR_NAME]
        for number, _, head, _, stop in sorted(found):
            if number not in (_RAW_DATA, packed, _DOCUMENTATION):
                self._feed(self._data[head:stop])
        self._feed(b"%d weights" % ((last - first) // dtype.itemsize))
        name = b"".join(names).decode(errors="replace")
        self.weights.append(Weight(name, self._data[first:last], dtype))

    def _feed(self, piece: bytes | memoryview) -> None:
        self.digest.update(b"%d:" % len(piece))
        self.digest.update(piece)
