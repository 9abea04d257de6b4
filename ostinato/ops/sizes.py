"""Shape arithmetic: integers computed from shapes stay sizes, and never become kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ostinato.ops.builder import LONGEST_TABLE
from ostinato.ops.registry import Context, lowers
from ostinato.ops.tensor import Progression, Tensor, Value, static_shape
from ostinato.program.dims import (
    Dim,
    Size,
    ceildiv,
    choose,
    floordiv,
    is_equal,
    is_less,
    is_nonnegative,
    maximum,
    minimum,
)
from ostinato.program.expr import BYTE_FLOATS, DTYPES, INTEGERS, Extent, Index, cast, constant, op

# Values of more elements than this are data, not shapes.
LIMIT = 64
# Numbers that take more terms to express are computed by kernels.
MOST_TERMS = 16
# Results of these fit into the type of their operands.
_SELECTIONS = frozenset(("Max", "Min", "Where"))


def _divide(left: Size, right: Size) -> Size:
    """Integer division toward zero; 0 for a zero divisor, as kernels have it."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            return 0
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if isinstance(right, int):
        if right <= 0:
            return -_divide(left, -right) if right else 0
        if is_nonnegative(left):
            return floordiv(left, right)
        return floordiv(maximum(left, 0), right) - floordiv(maximum(-left, 0), right)
    if is_nonnegative(left) and is_nonnegative(right):
        return floordiv(left, right) * (1 - is_equal(right, 0))
    size = floordiv(maximum(left, -left), maximum(right, -right))
    sign = (1 - 2 * is_less(left, 0)) * (1 - 2 * is_less(right, 0))
    return size * sign * (1 - is_equal(right, 0))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divide,
    "Neg": lambda a: -a,
    "Abs": lambda a: maximum(a, -a),
    "Max": maximum,
    "Min": minimum,
    "Equal": is_equal,
    "Less": is_less,
    "LessOrEqual": lambda a, b: 1 - is_less(b, a),
    "Greater": lambda a, b: is_less(b, a),
    "GreaterOrEqual": lambda a, b: 1 - is_less(a, b),
    "And": lambda a, b: a * b,
    "Or": maximum,
    "Not": lambda a: 1 - a,
    "Where": choose,
    "Cast": lambda a: a,
    "CastLike": lambda a: a,
}


def fold_sizes(context: Context, operands: Sequence[Value], dtype: str) -> Tensor | None:
    """The node's result of type `dtype` if all operands are known sizes; None if it needs a kernel.

    Raises `ShapeError` for shapes that cannot be broadcast and for a division by zero.
    """
    known = [value.known for value in operands if value.known is not None]
    small = all(array.size <= LIMIT for array in known)
    if len(known) < len(operands) or not small or dtype not in (*INTEGERS, "bool"):
        return None
    if any(value.dtype not in ("int32", "int64", "bool") for value in operands):
        return None
    if context.node.op_type == "Div":
        for size in known[1].flat:
            context.builder.require_nonzero(size, "division by zero in the arithmetic of shapes")
    function = FUNCTIONS[context.node.op_type]
    shape = context.builder.broadcast(*(value.shape for value in operands))
    result = np.empty(tuple(n for n in shape if isinstance(n, int)), object)
    result[...] = np.frompyfunc(function, len(known), 1)(*(k.astype(object) for k in known))
    if any(isinstance(n, Dim) and len(n.terms) > MOST_TERMS for n in result.flat):
        return None
    fits = context.node.op_type in _SELECTIONS or {value.dtype for value in operands} == {dtype}
    if not fits or context.node.op_type not in (*_SELECTIONS, "Cast", "CastLike"):
        result.flat[:] = object_array([wrapped(value, dtype) for value in result.flat])
    return context.builder.sizes(result, dtype)


REDUCTIONS: dict[str, Callable[[Size, Size], Size]] = {
    "ReduceSum": lambda a, b: a + b,
    "ReduceProd": lambda a, b: a * b,
    "ReduceMax": maximum,
    "ReduceMin": minimum,
}


def fold_reduction(context: Context, value: Value, axes: tuple[int, ...]) -> Tensor | None:
    """The node's result, with axes of extent 1, if it reduces a few sizes; else None."""
    function, known = REDUCTIONS.get(context.node.op_type), value.known
    if function is None or known is None or value.dtype != "int64":
        return None
    if not 0 < known.size <= MOST_TERMS:
        return None
    combine: Any = np.frompyfunc(function, 2, 1)
    result = known.astype(object)
    for axis in axes:
        result = combine.reduce(result, axis, keepdims=True)
    result.flat[:] = object_array([wrapped(n, "int64") for n in result.flat])
    return context.builder.sizes(result)


def wrapped(value: Size | bool, dtype: str) -> Size | bool:
    """A number as an integer type holds it; sizes of 64 bits are taken to fit."""
    if dtype == "bool":
        return value if isinstance(value, Dim) else bool(value)
    if isinstance(value, Dim) and dtype == "int64":
        return value
    limits = np.iinfo(dtype)
    low, count = int(limits.min), 1 << limits.bits
    return value - floordiv(value - low, count) * count


def known_sizes(context: Context, position: int, what: str) -> list[Size]:
    """The elements of an operand that sizes depend on; floats are cut to integers.

    Those that are values of inputs may be negative. A size made of them goes through
    `builder.defined` before anything is laid out by it.
    """
    value = context.input(position)
    if value.known is None:
        raise context.unknown(f"{what} is only known at run time", position)
    if value.known.dtype.kind == "f" and not np.isfinite(value.known).all():
        raise context.invalid(f"{what} is not finite")
    return [n if isinstance(n, Dim) else int(n) for n in value.known.reshape(-1)]


def known_size(context: Context, position: int, what: str) -> Size:
    """The only element of an integer operand that sizes depend on."""
    sizes = known_sizes(context, position, what)
    if len(sizes) != 1:
        raise context.invalid(f"{what} has {len(sizes)} elements, expected 1")
    return sizes[0]


def known_ints(context: Context, position: int, what: str) -> list[int]:
    """The elements of an integer operand that must be plain numbers."""
    require_numbers(context, position, what=what)
    return [n for n in known_sizes(context, position, what) if isinstance(n, int)]


def require_numbers(context: Context, *positions: int, what: str) -> None:
    """Refuse the node unless these operands are plain numbers, or left out."""
    unknown = []
    for position in positions:
        value = context.optional(position)
        known = None if value is None else value.known
        if value is not None and (known is None or any(isinstance(n, Dim) for n in known.flat)):
            unknown.append(position)
    if unknown:
        reason = f"{what} is only known at run time"
        raise context.unknown(reason, *unknown, needs_numbers=True)


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
    asked = known_sizes(context, 0, "input 'input'")
    builder = context.builder
    shape = tuple(builder.defined(n, f"axis {i} of the shape") for i, n in enumerate(asked))
    fill = np.zeros(1, np.float32)
    if "value" in context.node.attributes:
        fill = context.attributes.tensor("value").numpy()
    if fill.size != 1:
        raise context.invalid(f"attribute 'value' has {fill.size} elements, expected 1")
    if fill.dtype.name not in DTYPES or fill.dtype.name in BYTE_FLOATS:
        raise context.refuse(f"type {fill.dtype.name} has no native form")
    static = static_shape(shape)
    if static is not None and math.prod(static) <= LIMIT:
        return builder.constant(np.full(static, fill.item(), fill.dtype))
    value = constant(fill.item(), fill.dtype.name)
    return builder.compute(shape, lambda _: value)


@lowers("Range")
def lower_range(context: Context) -> Value:
    """Numbers from `start` to before `limit` in steps of `delta`."""
    dtype = context.input(0).dtype
    if dtype not in INTEGERS:
        return _float_range(context)
    start, limit, delta = (
        known_size(context, i, f"input {name!r}")
        for i, name in enumerate(("start", "limit", "delta"))
    )
    # The precision of floating types, which are refused.
    context.attributes.int("stash_type", 1)
    count = _steps(context, start, limit, delta)
    if isinstance(count, int) and count <= LIMIT:
        elements = [wrapped(start + i * delta, dtype) for i in range(count)]
        return context.builder.sizes(object_array(elements), dtype)
    (axis,) = axes = context.builder.axes((count,))
    assert axis is not None
    first, step = (
        constant(n, "int64") if isinstance(n, int) else Extent(n) for n in (start, delta)
    )
    element = cast(op("add", first, op("mul", Index(axis), step)), dtype)
    stored = context.builder.stored((count,), axes, element)
    return replace(stored, progression=Progression(start, (delta,)))


def _float_range(context: Context) -> Value:
    """Floats known while compiling.

    The function body of the documents adds `delta` to the last element again and again, so rounding
    errors add up, and counts `ceil((limit - start) / delta)` in the type itself.
    """
    # 16-bit types are computed in float32, which is the only precision there is to choose.
    context.attributes.int("stash_type", 1)
    require_numbers(context, 0, 1, 2, what="the number of elements")
    operands = [context.input(i).known for i in range(3)]
    if any(known is None or known.size != 1 for known in operands):
        raise context.invalid("'start', 'limit' and 'delta' must have one element each")
    start, limit, delta = (known.reshape(-1)[0] for known in operands if known is not None)
    if delta == 0:
        raise context.invalid("input 'delta' is 0")
    with np.errstate(all="ignore"):
        count = np.ceil((limit - start) / delta)
    if not count <= LONGEST_TABLE:
        raise context.refuse(f"{count} elements have no native form")
    elements = np.full(max(int(count), 0), delta, context.input(0).dtype)
    elements[:1] = start
    return context.builder.constant(np.add.accumulate(elements))


def _steps(context: Context, start: Size, limit: Size, delta: Size) -> Size:
    """The number of steps from `start` to before `limit`, at least 0."""
    if isinstance(delta, int):
        if delta == 0:
            raise context.invalid("input 'delta' is 0")
        span = limit - start if delta > 0 else start - limit
        count = ceildiv(span, abs(delta))
    else:
        context.builder.require_nonnegative(
            maximum(delta, -delta) - 1, "delta must not be 0: its absolute value minus 1"
        )
        count = -floordiv(start - limit, delta)
    return context.builder.defined(maximum(count, 0), "number of elements")
