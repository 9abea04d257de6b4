"""Constant contents and fixed sizes of values, known before running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ostinato.errors import ModelError
from ostinato.model.origins import Observed

_ARRAY = "ostinato.array"


def optional_input(node: ir.Node, position: int) -> ir.Value | None:
    """The operand at a position, None where it is left out."""
    return node.inputs[position] if position < len(node.inputs) else None


def constant_array(value: ir.Value | None) -> np.ndarray | None:
    """The contents of an initializer as a read-only array, None for any other value.

    The array is decoded from the protobuf once and kept with the tensor. Types that NumPy lacks
    come as `ml_dtypes` arrays; strings come as arrays of Python objects. Raises `ModelError` when
    the stored data does not fit the stored type and shape.
    """
    tensor = constant_tensor(value)
    if tensor is None or value is None:
        return None
    if isinstance(tensor, Observed):
        return tensor.numpy()
    array: np.ndarray | None = tensor.meta.get(_ARRAY)
    if array is None:
        array = decoded(tensor, value.name or "").view()
        array.flags.writeable = False
        tensor.meta[_ARRAY] = array
    return array


def decoded(tensor: ir.TensorProtocol, name: str) -> np.ndarray:
    """The elements of an initializer. Raises as `constant_array`."""
    try:
        return elements(tensor)
    except Exception as error:  # whatever NumPy makes of data that does not fit the type
        raise ModelError(f"initializer {name!r} cannot be decoded: {error}") from error


def unread_array(value: ir.Value | None) -> np.ndarray | None:
    """As `constant_array`, for callers to whom the elements are all the same.

    They pass them on, and do the same for any others (`model.origins`).
    """
    tensor = constant_tensor(value)
    return tensor.unread if isinstance(tensor, Observed) else constant_array(value)


def look_at(value: ir.Value | None) -> None:
    """Note that the elements of an initializer decide something (`model.origins`)."""
    constant_array(value)


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer, None for any other value."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value


def elements(tensor: ir.TensorProtocol) -> np.ndarray:
    """The elements of a tensor; texts as objects, with zeros at their ends."""
    if tensor.dtype != ir.DataType.STRING:
        return np.asarray(tensor.numpy())
    array = np.empty(tensor.size, object)
    raw = tensor.string_data() if hasattr(tensor, "string_data") else np.ravel(tensor.numpy())
    array[:] = [text.decode() if isinstance(text, bytes) else text for text in raw]
    return array.reshape(tensor.shape.numpy())


def tensor_of(array: np.ndarray, name: str | None = None) -> ir.TensorProtocol:
    """An array as a tensor; of texts, whose tensors are of another class, as well."""
    if array.dtype != object:
        return ir.Tensor(array, name=name)
    texts = [text.encode() for text in array.ravel()]
    return ir.StringTensor(texts, shape=ir.Shape(array.shape), name=name)


def filled(like: ir.Value, shape: Sequence[int] = (), number: float | str = 0) -> np.ndarray:
    """An array of a number, or a text, in the element type of a value."""
    assert like.dtype is not None
    element = np.array(number, like.dtype.numpy())
    return np.full(shape, element, element.dtype)


def constant_scalar(value: ir.Value | None) -> Any:
    """The only element of a constant, as a Python number; None for any other value.

    Raises `ModelError` for a constant that has not one element.
    """
    array = constant_array(value)
    if array is None or value is None:
        return None
    if array.size != 1:
        raise ModelError(
            f"value {value.name!r}: expected one element, got a constant of shape "
            f"{list(array.shape)}"
        )
    return array.item()


def static_dims(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """The sizes of a value, None for a size only known at run time, None when the rank is unknown.

    Only sizes that follow from the graph's inputs and constants are given: the shape written
    beside a graph output is a claim of the exporter and may be wrong.
    """
    array = unread_array(value)
    if array is not None:
        return array.shape
    if value is None or value.shape is None or (value.is_graph_output() and value.producer()):
        return None
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def dims_of(value: ir.Value) -> tuple[int | str | None, ...] | None:
    """The sizes that stand beside a value: numbers, names, None where there is none.

    None of unknown rank.
    """
    if value.shape is None:
        return None
    return tuple(size.value if isinstance(size, ir.SymbolicDim) else size for size in value.shape)
