"""Kernels in plain NumPy of what exporters write around sizes and weights.

`onnx.reference` has them all, in 230 modules that take longer to import than most models to pass
through the graph passes. Here is what most models need of it (tests hold both against each other).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ostinato.element_types import NUMBERED, numpy_dtype
from ostinato.sizes.slices import slice_range

if TYPE_CHECKING:
    import onnx_ir as ir

Array: TypeAlias = np.ndarray[Any, Any]
Kernel: TypeAlias = "Callable[[ir.Node | Step, Sequence[Array | None]], Array | None]"

# Types whose sums, products, quotients and roots IEEE 754 rounds correctly on any machine.
EXACT_FLOATS: frozenset[np.dtype[Any]] = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


class Attributes(dict[str, Any]):
    """Attributes that are integers, as those of a node."""

    get_int = get_ints = dict.get


class Step:
    """What is stored of a node that moves or computes constants.

    moves: whether it copies elements, so that no option changes what it makes.
    """

    domain = ""
    outputs: Sequence[Any] = ()

    def __init__(self, op_type: str, attributes: Mapping[str, Any], moves: bool) -> None:
        self.op_type, self.attributes, self.moves = op_type, Attributes(attributes), moves

    def run(self, arrays: Sequence[Array | None]) -> Array | None:
        """The result; None where it has to be computed when a model runs."""
        with np.errstate(all="ignore"):
            result = direct_kernel(self, arrays)
        given = [array for array in arrays if array is not None]
        if result is None or self.moves or not any(map(has_subnormals, (*given, result))):
            return result
        return None


def has_subnormals(array: Array) -> bool:
    """Whether an option may change what is computed from these floats."""
    if array.dtype not in EXACT_FLOATS:
        return False
    return bool(np.any((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)))


def has_direct_kernel(op_type: str) -> bool:
    """Whether a standard operator has a kernel here."""
    return op_type in _KERNELS


def direct_kernel(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    """The only result of a standard operator, given its inputs; None if it has no kernel here.

    Raises whatever NumPy makes of operands that do not fit.
    """
    kernel = _KERNELS.get(node.op_type)
    return None if kernel is None or node.domain != "" else kernel(node, arrays)


def _axes(node: ir.Node | Step, arrays: Sequence[Array | None]) -> tuple[int, ...] | None:
    """The axes of an operator that took them as an attribute once, and as an operand now."""
    given = arrays[1] if len(arrays) > 1 else node.attributes.get_ints("axes", None)
    return None if given is None else tuple(int(axis) for axis in np.ravel(given))


def _needed(arrays: Sequence[Array | None], count: int) -> list[Array]:
    """The first operands, none of which is left out."""
    found = [array for array in arrays[:count] if array is not None]
    if len(found) != count:
        raise ValueError(f"expected {count} operands")
    return found


def _cast(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    (x,), dtype = _needed(arrays, 1), NUMBERED.get(node.attributes.get_int("to", 0))
    return None if dtype is None else x.astype(numpy_dtype(dtype))


def _concat(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array:
    return np.concatenate(_needed(arrays, len(arrays)), node.attributes.get_int("axis"))


def _dequantised(_: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    """A single integer, which has no axis for several scales."""
    (x, scale), zero = _needed(arrays, 2), arrays[2] if len(arrays) > 2 else None
    if x.size != 1 or scale.size != 1 or scale.dtype != np.float32:
        return None
    shift = 0 if zero is None else int(zero.item())
    result: Array = (x.astype(np.int64) - shift).astype(np.float32) * scale.reshape(())
    return result


def _expand(_: ir.Node | Step, arrays: Sequence[Array | None]) -> Array:
    x, shape = _needed(arrays, 2)
    sizes = np.broadcast_shapes(x.shape, tuple(int(size) for size in shape))
    return np.broadcast_to(x, sizes)


def _gather(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array:
    x, indices = _needed(arrays, 2)
    return x.take(indices, node.attributes.get_int("axis", 0))


def _reshape(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    if len(arrays) < 2:
        return None  # one of the versions with attributes
    x, shape = _needed(arrays, 2)
    keeps_zeros = node.attributes.get_int("allowzero", 0)
    sizes = [int(size) for size in shape]
    return x.reshape([x.shape[i] if n == 0 and not keeps_zeros else n for i, n in enumerate(sizes)])


def _slice(_: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    if len(arrays) < 3:
        return None  # one of the versions with attributes
    x, starts, ends = _needed(arrays, 3)
    axes, steps = (*arrays[3:], None, None)[:2]
    axes = np.arange(len(starts)) if axes is None else axes
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        taken = slice_range(int(start), int(end), int(step), x.shape[int(axis)])
        x = x.take(np.array(taken, np.int64), int(axis))
    return x


def _squeeze(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array:
    return np.squeeze(_needed(arrays, 1)[0], _axes(node, arrays))


def _transpose(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array:
    (x,) = _needed(arrays, 1)
    return x.transpose(node.attributes.get_ints("perm", range(x.ndim)[::-1]))


def _unsqueeze(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    axes = _axes(node, arrays)
    return None if axes is None else np.expand_dims(_needed(arrays, 1)[0], axes)


def _filled(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array:
    (shape,), value = _needed(arrays, 1), node.attributes.get("value")
    fill = np.zeros(1, np.float32) if value is None else value.as_tensor().numpy()
    return np.full(tuple(int(size) for size in shape), fill.item(), fill.dtype)


def _binary(function: Any) -> Kernel:
    """A kernel of two numbers of one type: floats are rounded once, integers wrap."""

    def kernel(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
        a, b = _needed(arrays, 2)
        if a.dtype.kind not in "iuf" or a.dtype != b.dtype or node.attributes:
            return None  # old versions place the axes of an operand by an attribute
        result: Array = function(a, b)
        return result

    return kernel


def _unary(function: Any) -> Kernel:
    """A kernel of one number: it keeps its type."""

    def kernel(_: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
        (x,) = _needed(arrays, 1)
        result: Array | None = function(x).astype(x.dtype) if x.dtype.kind in "if" else None
        return result

    return kernel


def _counted(_: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    """Evenly spaced whole numbers."""
    start, limit, step = _needed(arrays, 3)
    if start.dtype.kind != "i":
        return None
    first, end, each = (int(number.item()) for number in (start, limit, step))
    result: Array = np.arange(first, end, each, dtype=start.dtype)
    return result


def _modulo(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    """Remainders of whole numbers with the sign of the divisor."""
    a, b = _needed(arrays, 2)
    if a.dtype.kind not in "iu" or a.dtype != b.dtype or node.attributes.get_int("fmod", 0):
        return None
    result: Array = np.mod(a, b)
    return result


def _triangle(node: ir.Node | Step, arrays: Sequence[Array | None]) -> Array:
    (x,), k = _needed(arrays, 1), arrays[1] if len(arrays) > 1 else None
    keep = np.triu if node.attributes.get_int("upper", 1) else np.tril
    return keep(x, 0 if k is None else int(k.item())).astype(x.dtype)


def _where(_: ir.Node | Step, arrays: Sequence[Array | None]) -> Array | None:
    condition, yes, no = _needed(arrays, 3)
    return np.where(condition, yes, no) if yes.dtype == no.dtype else None


def _divided(a: Array, b: Array) -> Array:
    """Quotients; those of whole numbers are cut toward zero."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    floor: Array = np.floor_divide(a, b)
    is_above: Array = (floor * b != a) & ((a < 0) ^ (b < 0))
    result: Array = floor + is_above.astype(a.dtype)
    return result


_KERNELS: dict[str, Kernel] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "DequantizeLinear": _dequantised,
    "Div": _binary(_divided),
    "Equal": _binary(np.equal),
    "Expand": _expand,
    "Gather": _gather,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Mod": _modulo,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "Range": _counted,
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Transpose": _transpose,
    "Trilu": _triangle,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
