"""Shape arithmetic: integers computed from shapes stay sizes, and never become kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Tensor, Value, static_shape
from ostinato.program.dims import (
    Dim,
    Size,
    ceildiv,
    floordiv,
    is_nonnegative,
    maximum,
    minimum,
)
from ostinato.program.expr import DTYPES, INTEGERS, Expr, Extent, Index, cast, constant, op

# Values of more elements than this are data, not shapes.
LIMIT = 64


class _Unknown(Exception):
    """The result depends on sizes that are only known at run time."""


def _divide(left: Size, right: Size) -> Size:
    """Integer division toward zero; 0 for a zero divisor, as kernels have it."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            return 0
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if isinstance(right, int) and right > 0 and is_nonnegative(left):
        return floordiv(left, right)
    raise _Unknown


def _equal(left: Size, right: Size) -> bool:
    difference = left - right
    if isinstance(difference, int):
        return difference == 0
    if is_nonnegative(difference - 1) or is_nonnegative(-difference - 1):
        return False
    raise _Unknown


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divide,
    "Neg": lambda a: -a,
    "Max": maximum,
    "Min": minimum,
    "Equal": _equal,
    "Where": lambda condition, a, b: a if condition else b,
    "Cast": lambda a: a,
    "CastLike": lambda a: a,
}


def fold_sizes(context: Context, operands: Sequence[Value], dtype: str) -> Tensor | None:
    """The node's result of type `dtype` if all operands are known sizes; None if it needs a kernel.

    Raises `ShapeError` for shapes that cannot be broadcast.
    """
    known = [value.known for value in operands if value.known is not None]
    small = all(array.size <= LIMIT for array in known)
    if len(known) < len(operands) or not small or dtype not in (*INTEGERS, "bool"):
        return None
    if any(value.dtype not in ("int32", "int64", "bool") for value in operands):
        return None
    function = FUNCTIONS[context.node.op_type]
    shape = context.builder.broadcast(*(value.shape for value in operands))
    result = np.empty(tuple(n for n in shape if isinstance(n, int)), object)
    try:
        result[...] = np.frompyfunc(function, len(known), 1)(*(k.astype(object) for k in known))
    except _Unknown:
        return None
    if dtype not in ("int64", "bool") and any(isinstance(v, Dim) for v in result.flat):
        return None
    result.flat[:] = object_array([wrapped(value, dtype) for value in result.flat])
    return context.builder.sizes(result, dtype)


def wrapped(value: Size | bool, dtype: str) -> Size | bool:
    """A number as an integer type holds it; run-time sizes are taken to fit."""
    if isinstance(value, Dim) or dtype == "bool":
        return value
    limits = np.iinfo(dtype)
    low, count = int(limits.min), 1 << limits.bits
    return (value - low) % count + low


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


def object_array(sizes: Sequence[Size]) -> np.ndarray:
    """Sizes as an array of one axis."""
    array = np.empty(len(sizes), object)
    array[:] = sizes
    return array


@lowers("Shape")
def lower_shape(context: Context) -> Value:
    """The sizes of a value's axes, from `start` to `end`."""
    shape = context.input(0).shape
    start = context.attributes.int("start", 0)
    end = context.attributes.int("end", len(shape))
    # Out-of-range bounds are clamped, as in a slice of a sequence.
    return context.builder.sizes(object_array(shape[start:end]))


@lowers("Size")
def lower_size(context: Context) -> Value:
    """The number of elements."""
    return context.builder.sizes(object_array([context.input(0).size]).reshape(()))


@lowers("ConstantOfShape")
def lower_constant_of_shape(context: Context) -> Value:
    """A value of a given shape that is the same everywhere; float32 zeros by default."""
    shape = tuple(known_sizes(context, 0, "input 'input'"))
    fill = np.zeros(1, np.float32)
    if "value" in context.node.attributes:
        fill = context.attributes.tensor("value").numpy()
    if fill.size != 1:
        raise context.invalid(f"attribute 'value' has {fill.size} elements, expected 1")
    if fill.dtype.name not in DTYPES:
        raise context.refuse(f"type {fill.dtype.name} has no native form")
    for axis, extent in enumerate(shape):
        context.builder.require_nonnegative(extent, f"axis {axis} of the shape asked for")
    static = static_shape(shape)
    if static is not None and math.prod(static) <= LIMIT:
        return context.builder.constant(np.full(static, fill.item(), fill.dtype))
    value = constant(fill.item(), fill.dtype.name)
    return context.builder.compute(shape, lambda _: value)


@lowers("Range")
def lower_range(context: Context) -> Value:
    """Integers from `start` to before `limit` in steps of `delta`."""
    dtype = context.input(0).dtype
    if dtype not in INTEGERS:
        # The documents define it as repeated addition, whose rounding errors add up.
        raise context.refuse(f"type {dtype} has no native form")
    start, limit, delta = (
        known_sizes(context, i, f"input {name!r}")[0]
        for i, name in enumerate(("start", "limit", "delta"))
    )
    if not isinstance(delta, int):
        raise context.refuse("input 'delta' is only known at run time")
    # The precision of floating types, which are refused.
    context.attributes.int("stash_type", 1)
    if delta == 0:
        raise context.invalid("input 'delta' is 0")
    span = limit - start if delta > 0 else start - limit
    count = maximum(ceildiv(span, abs(delta)), 0)
    if isinstance(count, int) and count <= LIMIT:
        return context.builder.sizes(object_array([start + i * delta for i in range(count)]), dtype)
    (axis,) = axes = context.builder.axes((count,))
    assert axis is not None
    offset: Expr = op("mul", Index(axis), constant(delta, "int64"))
    element = cast(op("add", Extent(start), offset), dtype)
    return context.builder.stored((count,), axes, element)
