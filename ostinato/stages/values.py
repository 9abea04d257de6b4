"""Descriptions of the values that stages read and make."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from ostinato.codegen.artifact import UNDEFINED, UNKNOWN_RANK, Argument
from ostinato.element_types import dtype_name
from ostinato.model.declarations import map_type
from ostinato.model.types import type_text
from ostinato.ops.core.tensor import Joined, Tensor, Value
from ostinato.program.expr import DTYPES
from ostinato.sizes.dims import Dim, Size, computed, symbol, symbols
from ostinato.sizes.strides import Shape


def shape_of(value: ir.Value) -> Shape | None:
    """The declared shape, None if the rank is unknown; unnamed dimensions get a name each."""
    if value.shape is None:
        return None
    sizes: list[Size] = []
    for i, dim in enumerate(value.shape):
        name = dim if isinstance(dim, int) else dim.value
        sizes.append(name if isinstance(name, int) else symbol(name or f"{value.name}.{i}"))
    return tuple(sizes)


def dtype_of_value(value: ir.Value) -> str | None:
    """The NumPy name of the element type, or None for what is no tensor of a native type."""
    if value.dtype is None or not isinstance(value.type, ir.TensorType | None):
        return None
    try:
        name = value.dtype.numpy().name
    except TypeError:
        return None
    return name if name in DTYPES else None


def argument(value: ir.Value) -> Argument:
    """Describe the value for users."""
    if isinstance(value.type, ir.TensorType | None) and value.dtype is not None:
        dtype = _element_name(value.dtype)
    else:
        dtype = map_type(value) or type_text(value.type)
    shape = shape_of(value)
    if shape is None:
        return Argument(value.name or "", dtype, UNKNOWN_RANK)
    return Argument(
        value.name or "", dtype, tuple(n if isinstance(n, int) else str(n) for n in shape)
    )


def computed_sizes(described: Argument, value: object) -> Argument:
    """Give an output the sizes of its value, in place of numbers that a file wrongly claims."""
    if not isinstance(value, Tensor | Joined) or is_open(described):
        return described
    sizes = [n if isinstance(n, int) else "?" if computed(n) else str(n) for n in value.shape]
    if len(described.shape) == len(sizes):
        told = zip(described.shape, sizes, strict=True)
        sizes = [n if isinstance(claim, int) else claim for claim, n in told]
    return replace(described, shape=tuple(sizes))


def _element_name(dtype: ir.DataType) -> str:
    if dtype == ir.DataType.UNDEFINED:
        return UNDEFINED
    return "string" if dtype == ir.DataType.STRING else str(dtype.numpy().name)


def is_open(argument: Argument) -> bool:
    """Whether only a run tells the rank or length of a value of a type with a native form."""
    element = argument.dtype.replace(")", "").rpartition("(")[2]
    is_open = not argument.is_tensor or argument.shape == UNKNOWN_RANK
    if "map(" in argument.dtype:
        return False
    return is_open and (element == UNDEFINED or dtype_name(element) in DTYPES)


def plain_shape(value: Value) -> Shape:
    """Return a shape whose run-time sizes are plain names, to be bound anew by the next segment."""
    return tuple(symbol(str(n)) if isinstance(n, Dim) else n for n in value.shape)


def size_symbols(value: Tensor) -> set[str]:
    """Name the run-time dimensions on which the known elements of a value depend."""
    if value.known is None or value.known.dtype != object:
        return set()
    return {name for n in value.known.flat if isinstance(n, Dim) for name in symbols(n)}
