"""The quantised values behind the floats that DequantizeLinear makes."""

from __future__ import annotations

from math import gcd

import numpy as np
import onnx_ir as ir

from ostinato.graph.writer import Array
from ostinato.model.contributed import MICROSOFT
from ostinato.model.graphs import maker_of
from ostinato.model.values import constant_array, optional_input, static_dims
from ostinato.records import dataclass

# Numbers that share a scale at least. With 4 of them a product of one row takes 1.25 to 1.4 times
# as long as with floats, with 2 of them 2.8 times (`ostinato quantize --weights int4`, sums of 1000
# to 1004 terms).
_LEAST_BLOCK = 4


def even_block(size: int, block: int) -> int | None:
    """The longest block that divides both a size and a block; None where it is too short to pay."""
    even = gcd(size, block)
    return even if even >= _LEAST_BLOCK else None


@dataclass(frozen=True)
class Blocks:
    """The axis along which a DequantizeLinear has blocks, its size, and the length of a block."""

    axis: int
    size: int
    length: int

    @property
    def are_even(self) -> bool:
        """Whether the last block is full."""
        return self.size % self.length == 0


def blocks_of(node: ir.Node) -> Blocks | None:
    """The blocks of a DequantizeLinear; None for other nodes, and where the size is not known."""
    if node.op_type != "DequantizeLinear" or node.domain not in ("", MICROSOFT):
        return None
    length, dims = node.attributes.get_int("block_size", 0), static_dims(node.inputs[0])
    axis = node.attributes.get_int("axis", 1)
    if length < 1 or dims is None or not -len(dims) <= axis < len(dims):
        return None
    size = dims[axis]
    return Blocks(axis % len(dims), size, length) if size else None


@dataclass(frozen=True)
class Quantised:
    """The operands of a DequantizeLinear: integers, scales and zero points along an axis or one."""

    value: ir.Value
    scale: Array
    zero: Array
    axis: int

    @property
    def is_single(self) -> bool:
        """Whether there is one scale for all elements."""
        return self.scale.ndim == 0


def quantised(value: ir.Value | None) -> Quantised | None:
    """The operands if DequantizeLinear makes float32 of them, not in blocks; else None."""
    node = maker_of(value, "DequantizeLinear")
    if node is None:
        return None
    source = node.inputs[0]
    known = None if source is None else parameters(node, source.dtype)
    if known is None or source is None:
        return None
    return Quantised(source, *known, node.attributes.get_int("axis", 1))


def parameters(node: ir.Node, kind: ir.DataType | None) -> tuple[Array, Array] | None:
    """The finite float32 scales and the zero points of a node, whose integers are a `kind`.

    None where they are no constants, belong to blocks, or where the floats are no float32.
    """
    scale = constant_array(node.inputs[1])
    if scale is None or scale.dtype != np.float32 or not np.isfinite(scale).all() or kind is None:
        return None
    if node.attributes.get_int("block_size", 0) != 0:
        return None
    floats = "output_dtype" if node.op_type == "DequantizeLinear" else "precision"
    if node.attributes.get_int(floats, 0) not in (0, ir.DataType.FLOAT):
        return None
    point = optional_input(node, 2)
    zero = np.zeros(scale.shape, kind.numpy()) if point is None else constant_array(point)
    if zero is None or zero.shape != scale.shape:
        return None
    return (scale.reshape(()), zero.reshape(())) if scale.shape == (1,) else (scale, zero)
