"""Semantics of expressions, in NumPy: the arithmetic that all other stages must reproduce.

Results are those of IEEE 754 with rounding to nearest even, bit for bit (the bits of a NaN are not
specified). There is no promotion: every operation is done in the dtype of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ostinato.element_types import numpy_dtype
from ostinato.errors import OstinatoError
from ostinato.program.expr import FLOATS, HALVES, Cast, Const, Expr, Op, children, dtype_of, walk
from ostinato.program.functions import expand
from ostinato.program.fused import fma

Array = npt.NDArray[Any]


def evaluate(root: Expr, leaf: Callable[..., Array]) -> Array:
    """Evaluate `root`; `leaf(node)` gives the values of Load, Index, Extent and Reduced nodes.

    For a load with a mask or computed positions it is `leaf(node, *values)`, with their values in
    the order of `children`. Arrays broadcast against each other. Raises OstinatoError for an
    unknown operation.
    """
    with np.errstate(all="ignore"):
        return evaluate_unwarned(root, leaf)


def evaluate_unwarned(root: Expr, leaf: Callable[..., Array]) -> Array:
    """Evaluate as `evaluate` does, but leave it to the caller to silence NumPy's warnings."""
    values: list[Array] = []
    for compute, operands in _steps(root):
        values.append(compute(leaf, *[values[position] for position in operands]))
    return values[-1]


def function_of(root: Expr, leaves: Sequence[Expr]) -> Callable[..., Array]:
    """Return a function that computes `root` from the values of its leaves.

    They have the dtypes of the leaves. Warnings of NumPy are the caller's to ignore.
    """
    positions = {leaf: position for position, leaf in enumerate(leaves)}
    steps = []
    nodes = list(walk(expand(root)))
    for node in nodes:
        if node not in positions:
            positions[node] = len(positions)
            steps.append((_step(node), [positions[part] for part in children(node)]))
    last = positions[nodes[-1]]

    def compute(*given: Array) -> Array:
        values = list(given)
        for step, operands in steps:
            values.append(step(None, *[values[position] for position in operands]))
        return values[last]

    return compute


# A loop evaluates the same expressions in every step.
@lru_cache(maxsize=256)
def _steps(root: Expr) -> tuple[tuple[Callable[..., Array], tuple[int, ...]], ...]:
    """For each node in order: a function of `leaf` and the operands, and which steps give these."""
    nodes = list(walk(expand(root)))
    positions = {node: position for position, node in enumerate(nodes)}
    return tuple((_step(node), tuple(positions[part] for part in children(node))) for node in nodes)


def _step(node: Expr) -> Callable[..., Array]:
    if isinstance(node, Const):
        value = np.asarray(node.value, node.dtype)
        return lambda leaf: value
    if isinstance(node, Cast):
        return lambda leaf, operand: convert(operand, node.dtype)
    if not isinstance(node, Op):
        return lambda leaf, *operands: np.asarray(leaf(node, *operands), dtype_of(node))
    if node.name == "bitcast":
        return lambda leaf, operand: operand.view(node.dtype)
    if node.name not in OPERATIONS:
        raise OstinatoError(f"unknown operation {node.name!r} of {len(node.args)} arguments")
    operation, dtype = OPERATIONS[node.name], np.dtype(node.dtype)
    return lambda leaf, *operands: np.asarray(operation(*operands), dtype)


def convert(value: Array, dtype: str) -> Array:
    """Number conversion: integers wrap, floats saturate toward zero and NaN becomes 0."""
    if dtype in HALVES:
        return value.astype(np.float32).astype(numpy_dtype(dtype))
    # Names of dtypes take NumPy a microsecond.
    if value.dtype.itemsize == 2 and value.dtype.name in HALVES:
        return convert(value.astype(np.float32), dtype)
    if dtype == "bool":
        return np.asarray(value != 0)
    if value.dtype.kind != "f" or dtype in FLOATS:
        return value.astype(dtype)
    limits = np.iinfo(dtype)
    # Both powers of two are exact in either float format, unlike the largest integer.
    low, high = (value.dtype.type(float(v)) for v in (limits.min, limits.max + 1))
    inside = (value > low) & (value < high)
    result = np.where(inside, value, 0).astype(dtype)
    result = np.where(value <= low, _scalar(limits.min, dtype), result)
    return np.where(value >= high, _scalar(limits.max, dtype), result)


def _scalar(value: int, dtype: str) -> Any:
    """A NumPy scalar."""
    return np.dtype(dtype).type(value)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, _scalar(1, str(b.dtype)), b)
    toward_zero = (a - np.fmod(a, safe)) // safe
    return np.where(b == 0, _scalar(0, str(a.dtype)), toward_zero)


def _modulo(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, _scalar(1, str(b.dtype)), b)
    return np.where(b == 0, _scalar(0, str(a.dtype)), np.remainder(a, safe))


def _dot(a: Array, b: Array, total: Array) -> Array:
    """Add to the int32 `total` the products of four bytes, unsigned in `a` and signed in `b`."""
    for shift in (0, 8, 16, 24):
        total = total + ((a >> shift) & 255) * ((b << (24 - shift)) >> 24)
    return total


def _dot_pairs(a: Array, b: Array, total: Array) -> Array:
    """Add to the int32 `total` the products of two signed 16-bit integers."""
    for shift in (0, 16):
        total = total + ((a << (16 - shift)) >> 16) * ((b << (16 - shift)) >> 16)
    return total


def _shift(a: Array, count: Array, function: Callable[[Array, Array], Array]) -> Array:
    bits = 8 * a.dtype.itemsize
    unsigned = np.dtype(f"uint{bits}")
    distance = count.view(unsigned)
    shifted = function(a.view(unsigned), np.minimum(distance, unsigned.type(bits - 1)))
    result: Array = np.where(distance < bits, shifted, unsigned.type(0))
    return result.view(a.dtype)


def _extreme(a: Array, b: Array, function: np.ufunc, smaller: bool) -> Array:
    """NaN if either is; -0 is less than +0 (IEEE 754-2019 minimum and maximum)."""
    result: Array = np.asarray(function(a, b))
    if a.dtype.kind != "f":
        return result
    negative = (np.signbit(a) | np.signbit(b)) if smaller else (np.signbit(a) & np.signbit(b))
    zero = np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0))
    return np.where((a == 0) & (b == 0), zero, result)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "mod": _modulo,
    "fma": fma,
    "dot": _dot,
    "dot_pairs": _dot_pairs,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "min": partial(_extreme, function=np.minimum, smaller=True),
    "max": partial(_extreme, function=np.maximum, smaller=False),
    "larger": lambda a, b: np.where(b > a, b, a),
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "trunc": np.trunc,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": partial(_shift, function=np.left_shift),
    "shr": partial(_shift, function=np.right_shift),
    "select": np.where,
}
