"""Shape arithmetic: integers computed from shapes stay sizes, and never become kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ostinato.graph.facts import facts_of
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Tensor, Value
from ostinato.program.expr import INTEGERS
from ostinato.sizes.dims import Dim, Size, computed, is_nonnegative, wrap

# Values of more elements than this are data, not shapes.
LIMIT = 64
# Numbers that take more terms to express are computed by kernels.
MOST_TERMS = 16

_Element = TypeVar("_Element", int, Size)


def fold_sizes(
    context: Context,
    operands: Sequence[Value],
    dtype: str,
    arithmetic: Callable[..., Any] | None = None,
) -> Tensor | None:
    """The node's result of type `dtype` if all operands are known sizes; None if it needs a kernel.

    arithmetic: the function of sizes, by default that of the node's operator.

    Raises `ShapeError` for shapes that cannot be broadcast. Runs check divisions by sizes.
    """
    facts = facts_of(context.node.op_type)
    function = arithmetic or facts.arithmetic
    known = [value.known for value in operands if value.known is not None]
    small = all(array.size <= LIMIT for array in known)
    if (
        function is None
        or len(known) < len(operands)
        or not small
        or dtype not in (*INTEGERS, "bool")
    ):
        return None
    if any(value.dtype not in ("int32", "int64", "bool") for value in operands):
        return None
    if context.node.op_type == "Div":
        divisors = [_number(size) for size in known[1].flat]
        if 0 in divisors and not any(isinstance(size, Dim) for size in known[0].flat):
            return None  # no sizes: a kernel knows what that is
        for size in divisors:
            context.builder.require.nonzero(size, "division by zero in the arithmetic of shapes")
    shape = context.builder.broadcasting.shape(*(value.shape for value in operands))
    result = np.empty(tuple(n for n in shape if isinstance(n, int)), object)
    numbers = [
        object_array([_number(n) for n in array.flat]).reshape(array.shape) for array in known
    ]
    result[...] = np.frompyfunc(function, len(known), 1)(*numbers)
    if any(isinstance(n, Dim) and len(n.terms) > MOST_TERMS for n in result.flat):
        return None
    fits = facts.selects or {value.dtype for value in operands} == {dtype}
    if not fits or not (facts.selects or facts.casts):
        result.flat[:] = object_array([_held(context, value, dtype) for value in result.flat])
    return context.builder.constants.known(dtype, result)


def _number(value: Any) -> Size:
    """A number or a size as it is, a truth as 0 or 1."""
    return value if isinstance(value, Dim) else int(value)


def fold_reduction(context: Context, value: Value, axes: tuple[int, ...]) -> Tensor | None:
    """The node's result, with axes of extent 1, if it reduces a few sizes; else None."""
    function, known = facts_of(context.node.op_type).arithmetic, value.known
    if function is None or known is None or value.dtype != "int64":
        return None
    if not 0 < known.size <= MOST_TERMS:
        return None
    combine: Any = np.frompyfunc(function, 2, 1)
    result = known.astype(object)
    for axis in axes:
        result = combine.reduce(result, axis, keepdims=True)
    result.flat[:] = object_array([wrapped(n, "int64") for n in result.flat])
    return context.builder.constants.known("int64", result)


def _held(context: Context, value: Size | bool, dtype: str) -> Size | bool:
    """As `wrapped`; a program may be specialised for sizes that the type holds unwrapped."""
    wraps = wrapped(value, dtype)
    builder = context.builder
    if isinstance(wraps, int) or wraps == value or not builder.guarded or computed(wraps):
        return wraps
    limits = np.iinfo(dtype)
    for room in (value - int(limits.min), int(limits.max) - value):
        if not is_nonnegative(room):
            builder.require.guard_that(room, f"sizes that {dtype} does not hold")
    return value


def wrapped(value: Size | bool, dtype: str) -> Size | bool:
    """A number as an integer type holds it; sizes are taken to fit into 64 bits."""
    if dtype == "bool":
        return value if isinstance(value, Dim) else bool(value)
    if isinstance(value, Dim) and dtype in ("int64", "uint64"):
        return value
    limits = np.iinfo(dtype)
    count = 1 << limits.bits
    middle = int(limits.min) + count // 2
    return wrap(value - middle, count) + middle


def known_sizes(context: Context, position: int, what: str) -> list[Size]:
    """The elements of an operand that sizes depend on; floats are cut to integers.

    Those that are values of inputs may be negative. A size made of them goes through
    `RunSizes.defined` before anything is laid out by it.
    """
    value = context.input(position)
    if value.known is None:
        raise context.unknown(f"{what} is only known at run time", position)
    if value.known.dtype.kind == "f" and not np.isfinite(value.known).all():
        raise context.invalid(f"{what} is not finite")
    return [n if isinstance(n, Dim) else int(n) for n in value.known.reshape(-1)]


def known_size(context: Context, position: int, what: str) -> Size:
    """The only element of an integer operand that sizes depend on."""
    return _only(context, known_sizes(context, position, what), what)


def known_ints(context: Context, position: int, what: str) -> list[int]:
    """The elements of an integer operand that must be plain numbers."""
    require_numbers(context, position, what=what)
    return [n for n in known_sizes(context, position, what) if isinstance(n, int)]


def known_int(context: Context, position: int, what: str) -> int:
    """The only element of an integer operand that must be a plain number."""
    return _only(context, known_ints(context, position, what), what)


def _only(context: Context, elements: list[_Element], what: str) -> _Element:
    if len(elements) != 1:
        raise context.invalid(f"{what} has {len(elements)} elements, expected 1")
    return elements[0]


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
        raise context.unknown(reason, *unknown, needs_constants=True)


def object_array(sizes: Sequence[Size]) -> np.ndarray:
    """Sizes as an array of one axis."""
    array = np.empty(len(sizes), object)
    array[:] = sizes
    return array
