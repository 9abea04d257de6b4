"""Elements of values that do not change with time, as far as they are known."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.graph.facts import facts_of, sources
from ostinato.model.values import constant_array
from ostinato.streaming.converter import Converter
from ostinato.streaming.facts import Fixed


def contents_of(converter: Converter, node: ir.Node) -> np.ndarray | None:
    """The elements of the only output of `node`; None where they are not known.

    Only values whose elements are all equal are followed: initial states that an exporter writes
    as zeros of a computed shape.
    """
    facts = facts_of(node.op_type, node.domain)
    if node.domain or len(node.outputs) != 1:
        return None
    dims, dtype = converter.dims(node.outputs[0]), node.outputs[0].dtype
    if dims is None:
        return None
    number: float | None = None
    if node.op_type == "ConstantOfShape":
        attribute = node.attributes.get("value")
        number = 0.0 if attribute is None else uniform(attribute.as_tensor().numpy())
    elif node.op_type == "Cast":
        number = _cast(_uniform(converter, node.inputs[0]), dtype)
    elif facts.moves and not facts.fills:
        numbers = {_uniform(converter, value) for value in sources(node)}
        number = numbers.pop() if len(numbers) == 1 else None
    if number is None or dtype is None:
        return None
    return np.full([1] * len(dims), number, dtype.numpy())


def _cast(number: float | None, to: ir.DataType | None) -> float | None:
    """The result of Cast for a number; None for a float beyond an integer type."""
    if number is None or to is None:
        return None
    kind = to.numpy()
    if isinstance(number, float) and kind.kind in "iu":
        limits = np.iinfo(kind)
        return int(number) if limits.min <= number <= limits.max else None
    with np.errstate(over="ignore"):
        made: float = np.asarray(number).astype(kind).item()
    return made


def _uniform(converter: Converter, value: ir.Value | None) -> float | None:
    if value is None:
        return None
    array = constant_array(value)
    if array is None:
        fact = converter.fact(value)
        array = fact.contents if isinstance(fact, Fixed) else None
    return uniform(array)


def uniform(array: np.ndarray | None) -> float | None:
    """The number that all elements of `array` are; None where there is no such."""
    if array is None or not array.size or array.dtype.kind not in "biuf":
        return None
    first: float = array.flat[0].item()
    return first if (array == first).all() else None
