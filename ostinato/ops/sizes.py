"""Shape arithmetic: integer values computed from shapes stay sizes, and never become kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Tensor, Value
from ostinato.program.dims import Dim, Size, floordiv, is_nonnegative, maximum, minimum, product

# Constant operands of more elements than this are data, not shapes.
LIMIT = 64


def _divide(left: Size, right: Size) -> Size:
    """Integer division toward zero, where it is sure which way that rounds."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            raise ZeroDivisionError
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if isinstance(right, int) and right > 0 and is_nonnegative(left):
        return floordiv(left, right)
    raise NotImplementedError


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divide,
    "Max": maximum,
    "Min": minimum,
}


def fold_sizes(context: Context) -> Tensor | None:
    """The node's result as sizes, when all operands are known integers and at least one is a size."""
    values = [value for value in context.inputs if value is not None]
    if not all(_is_sizes(value) for value in values):
        return None
    known = [value.known for value in values if value.known is not None]
    name = context.node.op_type
    if name == "Cast":
        return context.builder.sizes(known[0])
    if name not in FUNCTIONS or len(known) != 2:
        return None
    try:
        result = np.frompyfunc(FUNCTIONS[name], 2, 1)(*known)
    except ZeroDivisionError:
        raise context.refuse("division by zero in shape arithmetic") from None
    except NotImplementedError:
        return None
    shaped = np.empty(np.broadcast_shapes(*(k.shape for k in known)), object)
    shaped[...] = result
    return context.builder.sizes(shaped, values[0].dtype)


def _is_sizes(value: Value) -> bool:
    return (
        value.known is not None
        and value.dtype in ("int64", "int32")
        and value.known.dtype == object
        and value.known.size <= LIMIT
    )


def known_sizes(context: Context, position: int, what: str) -> list[Size]:
    """The elements of an integer operand that must be known while compiling."""
    value = context.input(position)
    if value.known is None:
        raise context.refuse(f"{what} is only known at run time")
    return [n if isinstance(n, Dim) else int(n) for n in value.known.reshape(-1)]


def known_ints(context: Context, position: int, what: str) -> list[int]:
    """The elements of an integer operand that must be plain numbers."""
    sizes = known_sizes(context, position, what)
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) != len(sizes):
        raise context.refuse(f"{what} is only known at run time")
    return numbers


@lowers("Shape")
def lower_shape(context: Context) -> Value:
    """The sizes of a value's axes, from `start` to `end`."""
    rank = len(context.input(0).shape)
    start = context.attributes.int("start", 0)
    end = context.attributes.int("end", rank)
    context.attributes.finish()
    bounds = [min(max(i + rank if i < 0 else i, 0), rank) for i in (start, end)]
    return context.builder.sizes(_object_array(context.input(0).shape[slice(*bounds)]))


@lowers("Size")
def lower_size(context: Context) -> Value:
    """The number of elements."""
    context.attributes.finish()
    array = np.empty((), object)
    array[()] = product(context.input(0).shape)
    return context.builder.sizes(array)


def _object_array(sizes: tuple[Size, ...]) -> np.ndarray:
    array = np.empty(len(sizes), object)
    array[:] = sizes
    return array
