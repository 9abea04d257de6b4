"""Nodes that exist once: equal ones are the same object, so equality and hashing take no time."""

from __future__ import annotations

import struct
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary


class Interned(type):
    """Makes constructor calls with equal arguments return the same object.

    For frozen dataclasses without an equality of their own. Comparing or hashing a node looks at
    nothing below it, however deep that is, and tables may be keyed by nodes.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        names: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
        made = None
        if kwargs or len(args) != len(names):
            made = super().__call__(*args, **kwargs)
            args = tuple(getattr(made, name) for name in names)
        key = (cls, *map(_key, args))
        found = _INTERNED.get(key)
        if found is not None:
            return found
        made = super().__call__(*args) if made is None else made
        with _LOCK:
            return _INTERNED.setdefault(key, made)


_INTERNED: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
# Two threads that compile must not make two objects of one node.
_LOCK = Lock()


def _key(value: Any) -> Any:
    # 0.0 == -0.0 and nan != nan, but they are different constants.
    return struct.pack("d", value) if isinstance(value, float) else value
