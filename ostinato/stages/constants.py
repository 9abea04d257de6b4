"""Records of constants, as JSON: how each is made of others, and blobs of elements for the rest.

A record is a mapping: "pieces" of "sources", "words" of "parts", "weights" transformed ("how"), or
a "blob". Who stores programs or files adds a kind of its own for what comes from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, TypeAlias

import numpy as np

from ostinato.element_types import numpy_dtype
from ostinato.program.laid import Contents, Laid, Piece, Watched, Words
from ostinato.program.transformed import Transformed

Array: TypeAlias = np.ndarray[Any, Any]
Record: TypeAlias = "dict[str, Any]"


class Writer:
    """Writes records. blobs: gets elements that nothing else tells."""

    def __init__(self, blobs: list[bytes | Array]) -> None:
        self._blobs = blobs

    def contents(self, contents: Contents) -> Record:
        """Record what a constant is made of."""
        if isinstance(contents, Laid):
            sources = {name: self.contents(source) for name, source in contents.sources.items()}
            pieces = [astuple(piece) for piece in contents.pieces]
            sizes = {"dtype": contents.dtype.name, "size": contents.size}
            return sizes | {"pieces": pieces, "sources": sources}
        if isinstance(contents, Words):
            return {"words": contents.dtype.name, "parts": self.contents(contents.parts)}
        if isinstance(contents, Transformed):
            how = contents.taps, contents.together, contents.is_transposed
            return {"weights": self.array(contents.weights), "how": how}
        return self.given(contents) if isinstance(contents, Watched) else self.array(contents)

    def given(self, constant: Watched) -> Record:
        """Record a constant that a program had before it was scheduled."""
        return self.contents(constant.contents)

    def array(self, array: Array) -> Record:
        """Record an array."""
        self._blobs.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        number = len(self._blobs) - 1
        return {"blob": number, "dtype": array.dtype.name, "shape": array.shape}


class Reader:
    """Makes constants of their records."""

    def __init__(self, blobs: Sequence[Array]) -> None:
        self._blobs = blobs

    def contents(self, record: Record) -> Contents:
        """The constant of a record."""
        if "pieces" in record:
            sources = {name: self.contents(one) for name, one in record["sources"].items()}
            pieces = tuple(map(piece, record["pieces"]))
            return Laid(numpy_dtype(record["dtype"]), record["size"], pieces, sources)
        if "words" in record:
            parts = self.contents(record["parts"])
            assert isinstance(parts, Laid)
            return Words(parts, numpy_dtype(record["words"]))
        if "weights" in record:
            taps, together, is_transposed = record["how"]
            phases = tuple(tuple(map(tuple, axis)) for axis in taps)
            weights = self.array(record["weights"])
            return Transformed(weights, phases, tuple(together), is_transposed)
        return self.array(record)

    def array(self, record: Record) -> Array:
        """The array of a record."""
        elements = self._blobs[record["blob"]].view(numpy_dtype(record["dtype"]))
        return elements.reshape(record["shape"])


def piece(fields: Sequence[Any]) -> Piece:
    """Return a piece, given its fields as JSON has them."""
    source, start, strides, place, steps, shape = fields
    return Piece(source, start, tuple(strides), place, tuple(steps), tuple(shape))
