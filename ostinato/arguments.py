"""Check arguments of public functions before anything is done with them."""

from __future__ import annotations

from collections.abc import Container, Iterable
from numbers import Integral, Real
from typing import TypeGuard


def is_number(value: object) -> bool:
    """Whether a value is a real number, as NumPy's scalars are; truth values are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, as NumPy's scalars are; truth values are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_one_of(value: object, known: Container[str]) -> TypeGuard[str]:
    """Whether a value is one of the names; what has no hash, or compares as arrays do, is none."""
    return isinstance(value, str) and value in known


def names_of(values: object) -> tuple[str, ...] | None:
    """The names that something has, one after the other; None if it has anything else.

    A single name is no list of names.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return None
    try:
        names = tuple(values)
    except TypeError:  # an array without axes
        return None
    return names if all(isinstance(name, str) for name in names) else None
