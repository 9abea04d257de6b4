"""Floats that are computed from sizes: where they become integers again, those are sizes.

So `Cast(Ceil(Cast(n) / 2))` is known before a run, like the same in integers, and shapes that are
made of it are no shapes that only a run tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from ostinato.ops.core.builder import Builder
from ostinato.ops.core.known_sizes import LIMIT
from ostinato.ops.core.registry import Context
from ostinato.ops.core.tensor import Joined, Tensor, Value, static_shape
from ostinato.sizes.conditions import truncdiv
from ostinato.sizes.dims import Dim, Size, ceildiv, computed, floordiv
from ostinato.sizes.quotients import (
    BITS,
    Quotient,
    Ratio,
    added,
    divided,
    multiplied,
    of_float,
    of_size,
)

# Operators on quotients; Cast passes them on between floats, and makes them of integers.
_FUNCTIONS: Mapping[str, Callable[..., Quotient | Ratio | None]] = {
    "Add": added,
    "Sub": partial(added, sign=-1),
    "Mul": multiplied,
    "Div": divided,
    "Floor": methodcaller("integer", floordiv),
    "Ceil": methodcaller("integer", ceildiv),
    "Cast": lambda quotient: quotient,
}


def followed(context: Context, operands: Sequence[Value], result: Tensor) -> Tensor:
    """The result of the node; what its elements are is remembered where sizes tell it."""
    function, shape = _FUNCTIONS.get(context.node.op_type), static_shape(result.shape)
    if function is None or result.dtype not in BITS or result.base is None or shape is None:
        return result
    if all(value.known is not None and value.known.dtype != object for value in operands):
        return result
    found = [_quotients(context.builder, value, BITS[result.dtype]) for value in operands]
    known = [array for array in found if array is not None and _are_quotients(array)]
    if len(known) < len(found):
        return result
    combine: Any = np.frompyfunc(function, len(known), 1)
    elements = np.empty(shape, object)
    elements[...] = combine(*known)
    if all(element is not None for element in elements.flat):
        context.builder.quotients[result.base.buffer] = elements
    return result


def whole_sizes(context: Context, value: Value, dtype: str) -> Tensor | None:
    """The result of the Cast of such floats to an integer type, as sizes."""
    builder = context.builder
    if dtype != "int64" or value.dtype not in BITS or value.known is not None:
        return None
    known = _quotients(builder, value, BITS[value.dtype])
    if known is None or not _are_quotients(known):
        return None
    whole = [quotient.integer(truncdiv) for quotient in known.flat]
    conditions = [room for quotient in whole for room in quotient.conditions()]
    if computed(*(q.numerator for q in whole)) or not _guarded(builder, conditions, value.dtype):
        return None
    sizes = np.empty(known.shape, object)
    sizes.flat[:] = [quotient.numerator for quotient in whole]
    return builder.constants.known(dtype, sizes)


def known_floats(builder: Builder, value: Value) -> np.ndarray | None:
    """The elements as numbers, where they are made of sizes that are numbers; else None.

    Such is the scale `Cast(h) / Cast(h_before)` of a batch of any size: the shapes of both images
    are known but for their batch. A quotient of two floats is rounded once; others stay unknown.
    """
    if value.known is not None:
        return value.known if value.known.dtype != object else None
    known = _quotients(builder, value, BITS[value.dtype]) if value.dtype in BITS else None
    if known is None or not _are_quotients(known):
        return None
    exact = [quotient.number() for quotient in known.flat]
    if any(number is None for number in exact):
        return None
    dtype = np.dtype(value.dtype).type
    floats = [dtype(q.numerator) / dtype(q.denominator) for q in exact if q is not None]
    return np.array(floats, value.dtype).reshape(known.shape)


def known_ratios(builder: Builder, value: Value) -> list[float | tuple[Size, Size]] | None:
    """As `known_floats`, with a pair of sizes where one over the other is rounded once.

    Such is the scale of two images of any size.
    """
    floats = known_floats(builder, value)
    if floats is not None:
        return [float(number) for number in floats.reshape(-1)]
    known = _quotients(builder, value, BITS[value.dtype]) if value.dtype in BITS else None
    if known is None:
        return None
    result = [_ratio(builder, element, value.dtype) for element in known.flat]
    exact = [one for one in result if one is not None]
    sizes = [size for one in exact if isinstance(one, tuple) for size in one]
    return exact if len(exact) == len(result) and not computed(*sizes) else None


def _ratio(
    builder: Builder, element: Quotient | Ratio, dtype: str
) -> float | tuple[Size, Size] | None:
    """A float that is rounded once: as a number, or as the sizes it is a quotient of."""
    if isinstance(element, Ratio):
        return element.above, element.below
    above, below = element.numerator, element.denominator
    if isinstance(above, int):
        kind = np.dtype(dtype).type
        return None if element.number() is None else float(kind(above) / kind(below))
    is_one = element.rounded in ((), ((above, below),)) and not computed(above)
    return (above, below) if is_one and _guarded(builder, element.conditions(), dtype) else None


def _guarded(builder: Builder, conditions: list[Size], dtype: str) -> bool:
    """Specialise for sizes that floats hold; False where there are conditions and it cannot be."""
    if conditions and not builder.guarded:
        return False
    for room in conditions:
        builder.require.guard_that(room, f"sizes that {dtype} rounds")
    return True


def _are_quotients(known: np.ndarray) -> bool:
    return all(isinstance(element, Quotient) for element in known.flat)


def _quotients(builder: Builder, value: Value, bits: int) -> np.ndarray | None:
    """The quotients of sizes that the elements are; None where sizes do not tell them."""
    if isinstance(value, Joined):
        parts = [_quotients(builder, part, bits) for part in value.parts]
        known = [part for part in parts if part is not None]
        return np.concatenate(known, value.axis) if len(known) == len(parts) else None
    shape = static_shape(value.shape)
    if shape is None or np.prod(shape, dtype=np.int64) > LIMIT:
        return None
    if value.known is not None:
        return _of_known(value.known, bits)
    if value.base is None:
        return None
    elements = builder.quotients.get(value.base.buffer)
    steps = [n for n in (value.base.offset, *value.strides) if isinstance(n, int)]
    if elements is None or len(steps) <= len(shape) or value.base.terms:
        return None
    start, *strides = steps
    places = np.full(shape, start)
    for step, numbers in zip(strides, np.indices(shape), strict=True):
        places += step * numbers
    found = np.empty(shape, object)
    found[...] = elements.reshape(-1)[places]
    return found if all(element.bits == bits for element in found.flat) else None


def _of_known(known: np.ndarray, bits: int) -> np.ndarray | None:
    """Sizes, or constants that are quotients of small numbers."""
    result = np.empty(known.shape, object)
    for index in np.ndindex(known.shape):
        number = known[index]
        if isinstance(number, Dim) or known.dtype.kind in "iuO":
            result[index] = of_size(number if isinstance(number, Dim) else int(number), bits)
        elif known.dtype.kind == "f" and np.isfinite(number):
            result[index] = of_float(float(number), bits)
        if result[index] is None:
            return None
    return result
