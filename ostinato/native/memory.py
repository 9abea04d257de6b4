"""Aligned blocks of memory, and how much of it there is."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ostinato.errors import RunError
from ostinato.system import system

Array = np.ndarray[Any, Any]
# Makes an array of a shape and a dtype, uninitialised.
Make = Callable[[tuple[int, ...], np.dtype[Any]], Array]

ALIGNMENT = 64
# Below this, asking the system how much is left costs more than it can save.
_CHECKED_FROM = 1 << 26
_UNKNOWN = 1 << 62
# Results of a loop of unknown length have this many bytes reserved, or this part of what is left.
# Memory is only taken where something is written.
RESERVED = 1 << 32
_SPARE_PART = 16
# A plan that does not fit with this little to spare is refused.
LEAST_SPARE = 1 << 20


def data_address(memory: Array | bytearray) -> int:
    """The address of memory. Takes a quarter of the time of `ctypes.data` where it is writable."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        # Read-only, or without elements.
        return int(np.asarray(memory).ctypes.data)


def aligned_empty(size: int) -> Array:
    """An uninitialised uint8 array of `size` bytes; unless empty it starts at a multiple of 64."""
    return _with_room(
        size, lambda room: empty((room,), np.dtype(np.uint8), "constants or intermediate values")
    )


def aligned_block(size: int) -> Array:
    """As `aligned_empty`, but raises `MemoryError`, as `np.empty` does."""
    return _with_room(size, lambda room: np.empty(room, np.uint8))


def _with_room(size: int, allocate: Callable[[int], Array]) -> Array:
    block = allocate(size + ALIGNMENT)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size]


def aligned(data: bytes | Array) -> Array:
    """`data` as a uint8 array that starts at a multiple of 64; copied only if it does not."""
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1)
    array = array.view(np.uint8)
    if array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = aligned_empty(array.size)
    copy[:] = array
    return copy


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping or being killed; None where unknown."""
    return system().available_memory()


def total_memory() -> int:
    """Bytes of memory that the machine has; more than any address where unknown."""
    total = system().total_memory()
    return _UNKNOWN if total is None else total


def spare_memory() -> int:
    """Bytes that a call may reserve without knowing how many of them it will write to."""
    available = available_memory()
    return RESERVED if available is None else min(RESERVED, available // _SPARE_PART)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], what: str, make: Make = np.empty) -> Array:
    """As `make`, but raises `RunError` that says `what` when there is no memory for the array."""
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise RunError(f"{what}: no memory for {dtype} of shape {list(shape)}") from error


def require_memory(size: int, what: str | Callable[[], str]) -> None:
    """Raise `RunError` that says `what` when `size` bytes are more than the machine has left.

    Operating systems hand out more than they have and end the process when it is touched.
    """
    if size < _CHECKED_FROM:
        return
    available = available_memory()
    if available is not None and size > available:
        named = what if isinstance(what, str) else what()
        raise RunError(
            f"{named} need {size / 2**30:.1f} GiB for these input shapes, "
            f"{available / 2**30:.1f} GiB are available; pass smaller inputs"
        )
