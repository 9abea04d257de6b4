"""Operands of one element: conditions, and numbers of steps."""

from __future__ import annotations

from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Value
from ostinato.sizes.dims import Dim, Size


def single(context: Context, value: Value | None, name: str, dtype: str) -> Value | None:
    """An operand of this type that must have one element, if it is given."""
    if value is not None and (value.size != 1 or value.dtype != dtype):
        raise context.refuse(f"input {name!r} must be a single {dtype}")
    return value


def known_element(value: Value | None) -> Size | bool | None:
    """The element of a single value, if it is known while compiling."""
    if value is None or value.known is None:
        return None
    element = value.known.reshape(-1)[0]
    if value.dtype == "bool":
        return None if isinstance(element, Dim) else bool(element)
    return element if isinstance(element, Dim) else int(element)
