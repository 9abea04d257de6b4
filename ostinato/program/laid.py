"""Constants in the order in which code reads them, written once, to where they stay.

A pass that lays constants out anew says which elements go where (`Laid`); nothing moves before the
memory of all constants is there (`lay_out`). What it says names the constants it takes elements
of, so it holds for any contents of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from ostinato.records import dataclass

# Bytes: a cache line, and a vector of the longest registers. Part of the contract with callers of
# compiled code, so it is the same on all machines; places of the arena begin at multiples as well.
ALIGNMENT = 64


@dataclass(frozen=True)
class Piece:
    """Elements of a constant, and where they go; all positions and strides count elements.

    source: the constant. start, strides: where the elements lie in it. place, steps: where they go.
    """

    source: str
    start: int
    strides: tuple[int, ...]
    place: int
    steps: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Laid:
    """A constant of so many elements, which are those of the pieces, and zero where none goes.

    sources: the constants that pieces name; flat.
    """

    dtype: np.dtype[Any]
    size: int
    pieces: tuple[Piece, ...]
    sources: Mapping[str, np.ndarray] = field(compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return self.size * self.dtype.itemsize

    def write(self, target: np.ndarray) -> None:
        """Fill flat memory of this type and size."""
        if sum(math.prod(piece.shape) for piece in self.pieces) < self.size:
            target[:] = 0
        for piece in self.pieces:
            if 0 not in piece.shape:
                taken = _view(self.sources[piece.source], piece.start, piece.strides, piece.shape)
                _view(target, piece.place, piece.steps, piece.shape)[...] = taken

    def elements(self) -> np.ndarray:
        """The contents in memory of their own, flat."""
        result = np.empty(self.size, self.dtype)
        self.write(result)
        return result


# The contents of a constant, or how to make them.
Contents: TypeAlias = np.ndarray | Laid


def elements(constant: Contents) -> np.ndarray:
    """The contents of a constant."""
    return constant.elements() if isinstance(constant, Laid) else constant


def _view(flat: np.ndarray, start: int, strides: Iterable[int], shape: Sequence[int]) -> np.ndarray:
    steps = [stride * flat.itemsize for stride in strides]
    # NumPy's function asks for the type by the text of its own types, which not all have.
    plain = flat if flat.dtype.isbuiltin == 1 else flat.view(f"u{flat.itemsize}")
    return np.lib.stride_tricks.as_strided(plain[start:], shape, steps).view(flat.dtype)


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
    # Aligned already, so that nobody copies them once more.
    block = np.empty(end + ALIGNMENT, np.uint8)
    first = -block.ctypes.data % ALIGNMENT
    blob = block[first : first + end]
    for name, constant in constants.items():
        start = offsets[name]
        stop = start + constant.nbytes
        place = blob[start:stop].view(constant.dtype)
        if isinstance(constant, Laid):
            constant.write(place)
        else:
            place.reshape(constant.shape)[...] = constant
        blob[stop : stop + -stop % ALIGNMENT] = 0
    return ConstantBlob(blob, offsets)
