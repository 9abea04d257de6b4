"""What arguments of public functions are, before anything is done with them."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real


def is_number(value: object) -> bool:
    """Whether a value is a real number, as NumPy's scalars are; truth values are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether a value is an integer, as NumPy's scalars are; truth values are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


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
