"""Repairs in the child of a fork: locks whose threads do not exist, halves of changes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_LOCKS: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
# Methods by their object. No WeakMethod: its callback fails at exit.
_METHODS: weakref.WeakKeyDictionary[object, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def new_lock() -> threading.Lock:
    """A lock that a forked child finds open, whatever other threads were doing."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def in_child(owner: T, method: Callable[[T], None]) -> None:
    """Call a method of `owner` in every forked child, for as long as this exists; one of each."""
    _METHODS[owner] = method


def _put_in_order() -> None:
    for lock in _LOCKS:
        # As the standard library does with its own locks.
        lock._at_fork_reinit()  # type: ignore[attr-defined]
    for owner, function in list(_METHODS.items()):
        function(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_put_in_order)
