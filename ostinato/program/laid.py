"""Constants in the order in which code reads them, written once, to where they stay.

A pass that changes the layout of a constant says which elements go where (`Laid`); nothing moves
before the memory of all constants is allocated (`lay_out`). A `Laid` refers to its sources by name,
so it holds for any weights. What is computed from weights and may be larger than they are is
computed at that time as well (`Transformed`), one constant at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from ostinato.files import drop_pages
from ostinato.program.transformed import Transformed
from ostinato.records import dataclass

# Bytes: a cache line, and a vector of the longest registers. Part of the contract with callers of
# compiled code, so it is the same on all machines; places of the arena are multiples of it as well.
ALIGNMENT = 64
# After so many bytes, the pages of a mapped file that have been copied are given back.
_MANY_BYTES = 1 << 20
# Bytes from which on a turned matrix is copied in parts of so many columns, a line of a cache.
_LARGE, _COLUMNS = 1 << 20, 16


@dataclass(frozen=True)
class Piece:
    """A strided block of elements of a constant, and where it goes, counted in elements.

    source: the constant. start, strides: where the elements lie in it. place, steps: where they go.
    """

    source: str
    start: int
    strides: tuple[int, ...]
    place: int
    steps: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, source: np.ndarray) -> np.ndarray:
        """View the elements of the source, which is flat."""
        return _view(source, self.start, self.strides, self.shape)


@dataclass(frozen=True)
class Laid:
    """A constant of `size` elements: those of the pieces, and zero where none goes.

    sources: the constants that pieces name.
    """

    dtype: np.dtype[Any]
    size: int
    pieces: tuple[Piece, ...]
    sources: Mapping[str, Contents] = field(compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Its bytes in memory."""
        return self.size * self.dtype.itemsize

    def write(self, target: np.ndarray) -> None:
        """Write the elements to flat memory of this type and size."""
        if sum(math.prod(piece.shape) for piece in self.pieces) < self.size:
            target[:] = 0
        sources = {name: elements(source) for name, source in self.sources.items()}
        for piece in self.pieces:
            if 0 not in piece.shape:
                place = _view(target, piece.place, piece.steps, piece.shape)
                _copy(place, piece.of(sources[piece.source]))

    def elements(self) -> np.ndarray:
        """Gather the elements into memory of their own, flat."""
        result = np.empty(self.size, self.dtype)
        self.write(result)
        return result


@dataclass(frozen=True)
class Words:
    """A constant of words: as many neighbours of another one as fit, the first one lowest."""

    parts: Laid
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of words."""
        return self.nbytes // self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Its bytes in memory."""
        return self.parts.nbytes

    def write(self, target: np.ndarray) -> None:
        """Write the words to flat memory of this type and size."""
        self.parts.write(target.view(self.parts.dtype))

    def elements(self) -> np.ndarray:
        """Gather the words into memory of their own, flat."""
        return self.parts.elements().view(self.dtype)


@dataclass(frozen=True)
class Watched:
    """A constant of a program as it is; `read` gets its name when its elements are asked for."""

    name: str
    contents: np.ndarray | Transformed | Laid
    read: set[str] = field(compare=False, repr=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""
        return self.contents.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.contents.size

    @property
    def nbytes(self) -> int:
        """Its bytes in memory."""
        return self.contents.nbytes

    def write(self, target: np.ndarray) -> None:
        """Write the elements to flat memory of this type and size."""
        if isinstance(self.contents, np.ndarray):
            target[:] = self.contents.reshape(-1)
        else:
            self.contents.write(target)

    def elements(self) -> np.ndarray:
        """Return the elements, and note that."""
        self.read.add(self.name)
        return elements(self.contents)


# The contents of a constant, or how to make them.
Contents: TypeAlias = np.ndarray | Transformed | Laid | Words | Watched


def view_of(array: np.ndarray) -> Laid:
    """The elements of an array in row-major order, copied when they are asked for."""
    start, span = _extent(array)
    corner = tuple(slice(-1, None) if stride < 0 else slice(1) for stride in array.strides)
    flat = _view(array[corner], 0, (1,), (span,))
    return Laid(array.dtype, array.size, (whole(array, "view", start),), {"view": flat})


def _extent(array: np.ndarray) -> tuple[int, int]:
    """Where the first element lies behind the lowest one, and how many the memory has in all."""
    along = [(s // array.itemsize, n) for s, n in zip(array.strides, array.shape, strict=True)]
    start = sum(-step * (n - 1) for step, n in along if step < 0)
    return start, start + sum(step * (n - 1) for step, n in along if step > 0) + 1


def whole(array: np.ndarray, source: str, start: int) -> Piece:
    """All elements of an array as a block: the first one at `start` of a source, by its strides."""
    steps = tuple(stride // array.itemsize for stride in array.strides)
    dense = tuple(math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim))
    return Piece(source, start, steps, 0, dense, array.shape)


def elements(constant: Contents) -> np.ndarray:
    """Return the elements of a constant as an array."""
    return constant if isinstance(constant, np.ndarray) else constant.elements()


def _view(flat: np.ndarray, start: int, strides: Iterable[int], shape: Sequence[int]) -> np.ndarray:
    steps = [stride * flat.itemsize for stride in strides]
    # NumPy's function asks for the type by the text of its own types, which not all have.
    plain = flat if flat.dtype.isbuiltin == 1 else flat.view(f"u{flat.itemsize}")
    return np.lib.stride_tricks.as_strided(plain[start:], shape, steps).view(flat.dtype)


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copy elements; of large matrices that are turned a few columns at a time.

    These lie apart in the source: a matrix of 16 MB takes 7 ms so, and 30 ms at once.
    """
    is_turned = source.ndim > 1 and target.flags.c_contiguous and not source.flags.c_contiguous
    if is_turned and source.nbytes >= _LARGE and source.strides[-1] > source.itemsize:
        for first in range(0, source.shape[-1], _COLUMNS):
            some = (..., slice(first, first + _COLUMNS))
            target[some] = source[some]
    else:
        target[...] = source


@dataclass(frozen=True)
class ConstantBlob:
    """All constants of a program in one piece of memory, and where each begins (bytes)."""

    data: np.ndarray
    offsets: Mapping[str, int]


def lay_out(constants: Mapping[str, Contents]) -> ConstantBlob:
    """Constants one after the other, aligned."""
    offsets: dict[str, int] = {}
    end = 0
    for name, constant in constants.items():
        offsets[name] = end
        end += -(-constant.nbytes // ALIGNMENT) * ALIGNMENT
    # Aligned here, so that no caller has to copy it to align it.
    block = np.empty(end + ALIGNMENT, np.uint8)
    first = -block.ctypes.data % ALIGNMENT
    blob = block[first : first + end]
    for name, constant in constants.items():
        start = offsets[name]
        stop = start + constant.nbytes
        place = blob[start:stop].view(constant.dtype)
        if isinstance(constant, np.ndarray):
            place.reshape(constant.shape)[...] = constant
        else:
            constant.write(place)
        blob[stop : stop + -stop % ALIGNMENT] = 0
        if constant.nbytes >= _MANY_BYTES:
            drop_pages()
    return ConstantBlob(blob, offsets)
