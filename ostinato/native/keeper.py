"""Functions that copy arrays into the rows of stores, as fast as a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ostinato.native.trampoline import Callee, Shape, Trampoline
from ostinato.native.workspace import Workspace

Array = np.ndarray[Any, Any]

NO_TURN = 2
"""The value of the turn while no frame is kept."""

# Copying never waits for another copy.
_AT_ONCE = Workspace(limit=None)


def keeper(
    trampoline: Trampoline,
    slot: int,
    values: Sequence[tuple[np.dtype[Any], Shape]],
    stores: Sequence[Sequence[Array]],
    marks: Sequence[bytearray],
    turn: bytearray,
) -> Callable[..., int | None]:
    """A function `keep(*values)` that copies arrays of exactly these dtypes and shapes.

    slot: the row to copy to. stores: of each value two, C-contiguous, with a row for each slot.
    marks: a byte of each store for each slot, set when it is taken. turn: a byte that says which
    store is on, or `NO_TURN`.

    It returns None on success; 1 when the row is taken; `BUSY` without a turn; `REFUSED` as a
    `Trampoline.caller` does. It does not give up the GIL.
    """
    flags = [np.frombuffer(each, np.uint8) for each in (turn, *marks)]
    record = [flags[0].ctypes.data, *(each[slot:].ctypes.data for each in flags[1:])]
    record.append(len(stores))
    for pair in stores:
        record += [pair[0].strides[0], *(each[slot:].ctypes.data for each in pair)]
    nothing = np.empty(0, np.uint8)
    owned = (*flags, *itertools.chain.from_iterable(stores))
    symbols = np.array(record, np.int64)
    callee = Callee(trampoline.keep, symbols, nothing, nothing, owned, workspace=_AT_ONCE)
    return trampoline.caller(callee, values, [])
