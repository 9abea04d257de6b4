"""A model file as its structure and its weights: checkpoints of a network differ in these alone.

Weights are the data of large tensors of floats of 16 bits and more, wherever they are nested.
Nothing of the onnx package is imported: what has been compiled for one checkpoint is found for
another one before the compiler is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ostinato.element_types import NUMBERED, numpy_dtype
from ostinato.files import beside, contents, open_file
from ostinato.protobuf import onnx_fields
from ostinato.protobuf.wire import BYTES, Item, fields, integer, items

# Elements from which on the data of a tensor is no structure. Fewer may be sizes, or scales that
# choose a form.
LEAST = 64
# Fields that a tensor has at most: each of its axes may be one.
_MOST_FIELDS = 64
# Fields of an attribute that holds neither tensors nor graphs. Each element may be a field, and the
# attributes of a forest have millions.
_LISTS = {
    onnx_fields.ATTRIBUTE_FLOATS,
    onnx_fields.ATTRIBUTE_INTS,
    onnx_fields.ATTRIBUTE_STRINGS,
}
# The types of weights, by their numbers, and the least bytes of an element.
_TYPES = (onnx_fields.FLOAT, onnx_fields.FLOAT16, onnx_fields.DOUBLE, onnx_fields.BFLOAT16)
_NARROWEST = 2


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


class Parts(NamedTuple):
    """A digest of all of a file but its weights, these in the order of the file, and other files.

    files: those beside the file that hold data of tensors, by the names that these give.
    """

    structure: bytes
    weights: list[Weight]
    files: frozenset[str]


def split(data: memoryview, folder: Path | None = None) -> Parts:
    """Tell weights and structure of a file apart. folder: where data lies that is beside it.

    Raises `IndexError` for what is no message of protobuf, and for data that is not where the file
    says.
    """
    parts = _Splitter(data, folder)
    parts.add(0, len(data), {onnx_fields.MODEL_GRAPH: parts.graph})
    return Parts(parts.digest.digest(), parts.weights, frozenset(parts.files))


class _Splitter:
    """The parts of a file: what is no weight goes to the digest, each piece with its length.

    Messages around weights have no length there: it depends on how a tensor is written.
    """

    def __init__(self, data: memoryview, folder: Path | None) -> None:
        self._data, self._folder = data, folder
        self.digest, self.weights = hashlib.sha256(), list[Weight]()
        self.files: dict[str, memoryview] = {}

    def add(
        self,
        begin: int,
        end: int,
        inner: Mapping[int, Callable[[int, int], None]],
        plain: Collection[int] = (),
    ) -> None:
        """Add a message. inner: what adds the messages in large fields, by the field's number.

        plain: fields behind which there are no such messages.
        """
        done = begin
        for number, kind, head, first, last in items(self._data, begin, end):
            if number in plain:
                break
            if kind == BYTES and number in inner and self._may_hold_weights(first, last):
                self._feed(self._data[done:head])
                self._feed(b"%d" % number)
                inner[number](first, last)
                done = last
        self._feed(self._data[done:end])
        self._feed(b"end")

    def _may_hold_weights(self, begin: int, end: int) -> bool:
        if end - begin >= LEAST * _NARROWEST:
            return True
        return self._folder is not None and b"location" in bytes(self._data[begin:end])

    def graph(self, begin: int, end: int) -> None:
        """Add a graph."""
        self.add(
            begin,
            end,
            {onnx_fields.GRAPH_INITIALIZER: self._tensor, onnx_fields.GRAPH_NODE: self._node},
        )

    def _node(self, begin: int, end: int) -> None:
        self.add(begin, end, {onnx_fields.NODE_ATTRIBUTE: self._attribute})

    def _attribute(self, begin: int, end: int) -> None:
        tensors = dict.fromkeys(
            (onnx_fields.ATTRIBUTE_TENSOR, onnx_fields.ATTRIBUTE_TENSORS), self._tensor
        )
        self.add(
            begin,
            end,
            {onnx_fields.ATTRIBUTE_GRAPH: self.graph, onnx_fields.ATTRIBUTE_GRAPHS: self.graph}
            | tensors,
            _LISTS,
        )

    def _tensor(self, begin: int, end: int) -> None:
        # One whose elements are a field each is no weight.
        found = list(islice(items(self._data, begin, end), _MOST_FIELDS))
        kind = self._integer(found, onnx_fields.TENSOR_TYPE)
        dtype = numpy_dtype(NUMBERED[kind]) if kind in _TYPES else None
        held = {onnx_fields.TENSOR_RAW_DATA, onnx_fields.PACKED.get(kind)}
        places = [(one[3], one[4]) for one in found if one[0] in held]
        if self._integer(found, onnx_fields.TENSOR_DATA_LOCATION) == onnx_fields.EXTERNAL:
            elements = self._outside(found)
        else:
            elements = self._data[slice(*places[0])] if len(places) == 1 else self._data[:0]
        is_whole = found[-1][4] == end
        if dtype is None or not is_whole or not _is_weight(elements, dtype):
            self._feed(self._data[begin:end])
            self._feed(elements)
            return
        for number, _, head, _, stop in sorted(found):
            if number not in held | {onnx_fields.TENSOR_DOCUMENTATION}:
                self._feed(self._data[head:stop])
        self._feed(b"%d weights" % (len(elements) // dtype.itemsize))
        names = [self._data[one[3] : one[4]] for one in found if one[0] == onnx_fields.TENSOR_NAME]
        name = b"".join(names).decode(errors="replace")
        self.weights.append(Weight(name, elements, dtype))

    def _integer(self, found: Sequence[Item], number: int) -> int:
        """The integer of the last field of this number; 0 where there is none."""
        values = [integer(self._data, one[2], one[4]) for one in found if one[0] == number]
        return values[-1] if values else 0

    def _outside(self, found: Sequence[Item]) -> memoryview:
        """The data of a tensor that lies in a file of its own."""
        entries: dict[bytes, str] = {}
        for number, _, _, first, last in found:
            if number == onnx_fields.TENSOR_EXTERNAL_DATA:
                pair = [bytes(self._data[i:j]) for _, _, i, j in fields(self._data, first, last)]
                if len(pair) == 2:
                    entries[pair[0]] = pair[1].decode(errors="replace")
        name = entries.get(b"location", "")
        if name not in self.files:
            place = None if self._folder is None else beside(self._folder, name)
            if place is None:
                raise IndexError
            with open_file(place, follow=False) as file:
                self.files[name] = contents(file)
        whole = self.files[name]
        start = int(entries.get(b"offset", "0"))
        size = int(entries.get(b"length", str(len(whole) - start)))
        if min(start, size) < 0 or start + size > len(whole):
            raise IndexError
        return whole[start : start + size]

    def _feed(self, piece: bytes | memoryview) -> None:
        self.digest.update(b"%d:" % len(piece))
        self.digest.update(piece)


def _is_weight(elements: memoryview, dtype: np.dtype[Any]) -> bool:
    size = len(elements)
    return size >= LEAST * dtype.itemsize and size % dtype.itemsize == 0
