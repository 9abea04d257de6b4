"""Locks that are open in the child of a fork, where the threads that held them do not exist."""

from __future__ import annotations

import os
import threading
import weakref

_LOCKS: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock that a forked child finds open, whatever other threads were doing."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def _open_all() -> None:
    for lock in _LOCKS:
        # As the standard library does with its own.
        lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
