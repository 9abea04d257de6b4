"""Operands of one element: conditions, and numbers of steps."""

from __future__ import annotations

from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Value
from ostinato.sizes.dims import Dim, Size


def single(context: Context, value: Value | None, name: str, dtype: str) -> Value | None:
    """An operand of this type that must have one element, if it is given."""
    if value is None:
        return None
    if value.dtype != dtype or (isinstance(value.size, int) and value.size != 1):
        raise context.refuse(f"input {name!r} must be a single {dtype}")
    return _without_axes(context, value, name)


def scalar(context: Context, position: int, name: str) -> Value | None:
    """An operand of one element, without axes, if it is given.

    Where only a run tells its size, the run checks it. Raises `ModelError`.
    """
    value = context.optional(position)
    if value is None:
        return None
    if isinstance(value.size, int) and value.size != 1:
        raise context.invalid(f"input {name!r} has the shape {value.shape}, expected one element")
    return _without_axes(context, value, name)


def _without_axes(context: Context, value: Value, name: str) -> Value:
    """The element of a value, of which only a run may tell that it has no other."""
    context.builder.require.equal(value.size, 1, f"elements of {name!r} and a single one")
    return context.builder.reshaped(value, ()) if value.shape else value


def known_element(value: Value | None) -> Size | bool | None:
    """The element of a single value, if it is known while compiling."""
    if value is None or value.known is None:
        return None
    element = value.known.reshape(-1)[0]
    if value.dtype == "bool":
        return None if isinstance(element, Dim) else bool(element)
    return element if isinstance(element, Dim) else int(element)
