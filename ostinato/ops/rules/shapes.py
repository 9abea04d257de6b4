"""Shapes as values: Shape, Size, ConstantOfShape and Range, which stay sizes where they can."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ostinato.errors import ModelError
from ostinato.limits import MOST_BYTES
from ostinato.ops.core.builder import LONGEST_TABLE
from ostinato.ops.core.known_sizes import (
    LIMIT,
    known_size,
    known_sizes,
    object_array,
    require_numbers,
    wrapped,
)
from ostinato.ops.core.ordered_kernels import accumulate
from ostinato.ops.core.progressions import guard, whole
from ostinato.ops.core.registry import Context, lowers
from ostinato.ops.core.run_sizes import FAR
from ostinato.ops.core.tensor import Tensor, Value, static_shape
from ostinato.program.expr import (
    BYTE_FLOATS,
    DTYPES,
    FLOATS,
    INTEGERS,
    Extent,
    Index,
    cast,
    constant,
    op,
    select,
)
from ostinato.program.nodes import Require
from ostinato.sizes.dims import Size, ceildiv, floordiv, maximum
from ostinato.sizes.progressions import Progression


@lowers("Shape")
def lower_shape(context: Context) -> Value:
    """The sizes of a value's axes, from `start` to `end`."""
    shape = context.input(0).shape
    start = context.attributes.int("start", 0)
    end = context.attributes.int("end", len(shape))
    # Out-of-range bounds are clamped, as in a slice of a sequence.
    return context.builder.constants.known("int64", object_array(shape[start:end]))


@lowers("Size")
def lower_size(context: Context) -> Value:
    """The number of elements."""
    return context.builder.constants.known(
        "int64", object_array([context.input(0).size]).reshape(())
    )


@lowers("ConstantOfShape")
def lower_constant_of_shape(context: Context) -> Value:
    """A value of a given shape that is the same everywhere; float32 zeros by default."""
    asked = known_sizes(context, 0, "input 'input'")
    builder = context.builder
    shape = tuple(builder.sizes.defined(n, f"axis {i} of the shape") for i, n in enumerate(asked))
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
        return context.builder.constants.known(dtype, object_array(elements))
    return _counted(context, dtype, start, count, delta)


def _counted(context: Context, dtype: str, start: Size, count: Size, delta: Size) -> Tensor:
    """This many numbers from `start` in steps of `delta`, all of which the type holds."""
    (axis,) = axes = context.builder.axes((count,))
    first, step = (
        constant(n, "int64") if isinstance(n, int) else Extent(n) for n in (start, delta)
    )
    number = first if axis is None else first + Index(axis) * step
    element = cast(number, dtype)
    stored = context.builder.stored((count,), axes, element)
    return replace(stored, progression=Progression(start, (delta,)))


def _float_range(context: Context) -> Value:
    """Floats known while compiling, computed from sizes, or computed by a step of a loop.

    The function body of the documents adds `delta` to the last element again and again, so rounding
    errors add up, and counts `ceil((limit - start) / delta)` in the type itself.
    """
    # 16-bit types are computed in float32, which is the only precision there is to choose.
    context.attributes.int("stash_type", 1)
    values = [context.input(i) for i in range(3)]
    if any(value.known is None for value in values):
        of_sizes = _range_of_sizes(context, values)
        if of_sizes is not None:
            return of_sizes
        if context.builder.draft.loops and values[0].dtype in FLOATS:
            return _range_of_step(context, values)
    require_numbers(context, 0, 1, 2, what="the number of elements")
    operands = [value.known for value in values]
    if any(known is None or known.size != 1 for known in operands):
        raise _not_single(context, values)
    start, limit, delta = (known.reshape(-1)[0] for known in operands if known is not None)
    if delta == 0:
        raise context.invalid("input 'delta' is 0")
    with np.errstate(all="ignore"):
        count = max(np.ceil((limit - start) / delta), 0)
    if not np.isfinite(count):
        raise context.invalid(f"from {start} to {limit} in steps of {delta} has no end")
    if count * limit.itemsize > MOST_BYTES:
        raise context.invalid(f"there is no memory for {count} elements")
    if count > LONGEST_TABLE:
        raise context.refuse(f"{count} elements have no native form")
    elements = np.full(int(count), delta, context.input(0).dtype)
    elements[:1] = start
    return context.builder.constant(np.add.accumulate(elements))


def _range_of_sizes(context: Context, values: Sequence[Value]) -> Tensor | None:
    """As `_float_range`, of whole numbers that are sizes, in which nothing is rounded."""
    builder = context.builder
    lines = [whole(value) if value.size == 1 else None for value in values]
    given = math.prod(line.given for line in lines if line is not None)
    if None in lines or not (given == 1 or builder.guarded):
        return None
    guard(builder, given, "whole numbers that floats hold")
    start, limit, delta = (line.start for line in lines if line is not None)
    count = _steps(context, start, limit, delta)
    return _counted(context, values[0].dtype, start, count, delta)


def _not_single(context: Context, values: Sequence[Value]) -> ModelError:
    shapes = ", ".join(str(value.shape) for value in values)
    return context.invalid(
        f"'start', 'limit' and 'delta' have the shapes {shapes}, expected one element each"
    )


def _range_of_step(context: Context, values: Sequence[Value]) -> Value:
    """As `_float_range`, whose number of elements is a size that the step computes."""
    builder, dtype = context.builder, values[0].dtype
    if any(value.size != 1 for value in values):
        raise _not_single(context, values)
    start, limit, delta = (builder.load(builder.reshaped(value, ()), ()) for value in values)
    moves = builder.compute((), lambda _: delta.differs(0))
    message = f"{builder.draft.where}: input 'delta' is 0"
    builder.emit.append(Require(moves.buffer, message))
    exact = op("ceil", (limit - start) / delta)
    # What is no number is more than there is memory for.
    most = constant(FAR, dtype)
    counted = select(exact < most, op("max", exact, constant(0, dtype)), most)
    number = builder.sizes.measured(counted)
    count = builder.sizes.defined(maximum(number, 0), "number of elements")
    axis = builder.axis(count)
    is_first = Index(axis).equals(0)
    terms = builder.stored((count,), [axis], select(is_first, start, delta))
    elements = builder.empty(dtype, (count,))
    accumulate(builder, terms, elements, 0, "add", exclusive=False, reverse=False)
    return elements


def _steps(context: Context, start: Size, limit: Size, delta: Size) -> Size:
    """The number of steps from `start` to before `limit`, at least 0."""
    if isinstance(delta, int):
        if delta == 0:
            raise context.invalid("input 'delta' is 0")
        span = limit - start if delta > 0 else start - limit
        count = ceildiv(span, abs(delta))
    else:
        context.builder.require.nonnegative(
            maximum(delta, -delta) - 1, "delta must not be 0: its absolute value minus 1"
        )
        count = -floordiv(start - limit, delta)
    return context.builder.sizes.defined(maximum(count, 0), "number of elements")
