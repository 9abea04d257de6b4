"""Workspaces: an arena and states, shared by calls that may not run at the same time.

Whether a call gives the GIL up is decided by how long the last one over its workspace took. Looking
at the clock costs 20 ns, giving the GIL up and taking it again another 20 where no other thread
wants it. Where one does, the call waits until that thread lets go, up to `sys.getswitchinterval()`,
which would make a call of a few microseconds a thousand times longer. A call that kept the GIL for
some milliseconds gives it up on the way.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ostinato.errors import StreamError
from ostinato.native import trampoline_ir
from ostinato.records import dataclass

Array = np.ndarray[Any, Any]

BUSY = -2
"""The status of a call that did not run because another one over its workspace is running."""

# 16 to 33 us.
LONG_CALL = 1 << 16
"""Ticks of `clock` from which on a call is long enough to give the GIL up."""

_NEVER = -1  # the largest number, as it is read there


@dataclass(frozen=True)
class State:
    """An input and an output of a compiled function that take turns with two buffers.

    input, output: positions among all inputs and outputs. buffers: of the same dtype and shape,
    C-contiguous; the function reads the first and writes the second, next time the other way round.
    """

    input: int
    output: int
    buffers: tuple[Array, Array]


def in_use() -> StreamError:
    """The error for `BUSY`."""
    return StreamError(
        "another thread is in a call over the same memory; wait for it, or give each thread a "
        "stream or a bound call of its own"
    )


class Workspace:
    """An arena and states, shared by calls that may not run at the same time.

    limit: ticks of the call before from which on a call gives up the GIL at once; None if it does
    so only on the way. A call that finds the workspace in use by another thread returns `BUSY`.

    is_abandoned: whether a thread was in a call when this process was forked from the one it is in.
    """

    def __init__(self, states: Sequence[State] = (), limit: int | None = LONG_CALL) -> None:
        self.states = tuple(states)
        rows = [
            (state.input, state.output, *(buffer.ctypes.data for buffer in state.buffers))
            for state in self.states
        ]
        head = (0, 0, _NEVER if limit is None else limit, 0, 0, 0, len(rows))
        self.record = np.array([*head, *itertools.chain.from_iterable(rows)], np.int64)
        self._firsts = [first for _, _, first, _ in rows]
        self.is_abandoned = False
        _WORKSPACES.add(self)

    def current(self, index: int) -> Array:
        """The buffer that the next call reads state `index` from."""
        first, second = self.states[index].buffers
        address = self.record[self._row(index) + 2]
        return first if address == self._firsts[index] else second

    def following(self, index: int) -> Array:
        """The buffer that the next call writes state `index` to."""
        first, second = self.states[index].buffers
        return second if self.current(index) is first else first

    def begin(self, index: int, offset: int) -> None:
        """Let the only buffer of state `index` begin this many bytes further on."""
        row = self._row(index)
        self.record[row + 2 : row + 4] = self._firsts[index] + offset

    def swap(self) -> None:
        """Exchange the buffers of every state, as a call that succeeded does."""
        rows = self.record[trampoline_ir.WORKSPACE_SLOTS :].reshape(-1, trampoline_ir.STATE_SLOTS)
        rows[:, 2:] = rows[:, :1:-1]

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Keep calls out while Python code uses the states. Raises `StreamError` when in use."""
        if self.record[0]:
            raise in_use()
        self.record[0] = 1
        try:
            yield
        finally:
            if self.record[0] == 1:
                self.record[0] = 0

    def close(self) -> None:
        """Let no call run from now on. Raises `StreamError` when one is running."""
        if self.record[0] == 1:
            raise in_use()
        self.record[0] = 2

    @staticmethod
    def _row(index: int) -> int:
        return trampoline_ir.WORKSPACE_SLOTS + index * trampoline_ir.STATE_SLOTS


_WORKSPACES: weakref.WeakSet[Workspace] = weakref.WeakSet()


def _release_all() -> None:
    """A thread that was in a call when the process was forked is not in the child.

    Its call has not exchanged the states, so those of two buffers are what they were before it.
    """
    for workspace in _WORKSPACES:
        if workspace.record[0] == 1:
            workspace.record[0] = 0
            workspace.is_abandoned = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)
