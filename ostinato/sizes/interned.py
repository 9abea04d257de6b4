"""Nodes that exist once: equal ones are the same object, so equality and hashing take no time."""

from __future__ import annotations

import struct
from functools import cache
from threading import RLock
from typing import Any
from weakref import ref


class Interned(type):
    """Base of nodes: constructor calls with equal arguments return the same object.

    For frozen dataclasses without an equality of their own. Comparing or hashing a node looks at
    nothing below it, however deep that is, and tables may be keyed by nodes.

    _has_floats: whether an argument may be one, as the annotations of fields say.
    """

    _has_floats: bool

    def __init__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        fields = members.get("__annotations__", {}).values()
        cls._has_floats = any("float" in str(annotation) for annotation in fields)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        names: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
        if len(args) != len(names):
            if kwargs:
                rest = names[len(args) :]
                args += tuple([kwargs.pop(n) if n in kwargs else getattr(cls, n) for n in rest])
            else:
                args += _defaults(cls, len(args))
        if kwargs:
            raise TypeError(f"{cls.__name__} has no {', '.join(kwargs)}, or was given it twice")
        key = (cls, *map(_key, args)) if cls._has_floats else (cls, *args)
        reference = _INTERNED.get(key)
        found = reference() if reference is not None else None
        if found is not None:
            return found
        made = type.__call__(cls, *args)
        own = _Reference(made, _forget)
        own.key = key
        with _LOCK:
            reference = _INTERNED.setdefault(key, own)
            found = reference()
            if found is None:
                _INTERNED[key], found = own, made
            return found


@cache
def _defaults(cls: type, given: int) -> tuple[Any, ...]:
    """The defaults of the arguments after the first `given`, which classes have as attributes."""
    names: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
    return tuple([getattr(cls, name) for name in names[given:]])


class _Reference(ref[Any]):
    """A weak reference that knows its key; `weakref.KeyedRef` takes four times as long to make."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


# A WeakValueDictionary takes several times as long.
_INTERNED: dict[tuple[Any, ...], _Reference] = {}
# Two threads must not make two objects of one node. The lock is reentrant: a thread that holds it
# may collect garbage, which removes dead nodes.
_LOCK = RLock()


def _forget(reference: _Reference) -> None:
    with _LOCK:
        # An equal node may have taken the place of the dead one.
        if _INTERNED.get(reference.key) is reference:
            del _INTERNED[reference.key]


def _key(value: Any) -> Any:
    # 0.0 == -0.0 and nan != nan, but they are different constants.
    return struct.pack("d", value) if isinstance(value, float) else value
