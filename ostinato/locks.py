"""Repairs in the child of a fork: locks whose threads do not exist, halves of changes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

_LOCKS: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
_METHODS: list[weakref.WeakMethod[Callable[[], None]]] = []


def new_lock() -> threading.Lock:
    """A lock that a forked child finds open, whatever other threads were doing."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def in_child(method: Callable[[], None]) -> None:
    """Call a method in every forked child, for as long as its object exists."""
    _METHODS.append(weakref.WeakMethod(method, _METHODS.remove))


def _put_in_order() -> None:
    for lock in _LOCKS:
        # As the standard library does with its own.
        lock._at_fork_reinit()  # type: ignore[attr-defined]
    for reference in list(_METHODS):
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_put_in_order)
