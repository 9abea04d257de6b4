"""Products of dequantised values become sums of integers, which are scaled afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ostinato.graph.edit import supersede
from ostinato.graph.quantised import Quantised, quantised
from ostinato.graph.writer import Array, Operand, Writer
from ostinato.model.graphs import nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import optional_input, static_dims
from ostinato.records import dataclass

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
# The first opset with MatMulInteger and ConvInteger.
_OLDEST = 10
# This many products of two differences of bytes stay within 32 bits.
MOST_TERMS = (2**31 - 1) // 255**2


@dataclass(frozen=True)
class _Product:
    """A node and what its operands stand for."""

    node: ir.Node
    left: Quantised
    right: Quantised


@dataclass(frozen=True)
class _Rule:
    """Whether the bytes of a right operand can be multiplied, and what is written then."""

    takes: Callable[[ir.Node, Quantised], bool]
    write: Callable[[Writer, ir.Node, Quantised, Quantised], ir.Value]


def integer_products(model: ir.Model) -> int:
    """Multiply the bytes in place of the floats that stand for them; returns the number of nodes.

    Matches MatMul, Gemm and Conv of results of DequantizeLinear: bytes with one constant scale on
    the left, and on the right with one or one for each column or filter. Writes MatMulInteger or
    ConvInteger, exact in int32, times the product of both scales. That rounds once where the
    document rounds each operand and each sum, so results differ in the last places: it is done only
    where `Options.integer_products` asks for it. Not where sums might leave 32 bits.
    """
    opset = opset_of(model)
    names, changed = Names(model), 0
    for product in list(_products(model)):
        node = product.node
        writer = Writer(model.graph, names, opset, ir.DataType.FLOAT, node.name or "product")
        result = _RULES[node.op_type].write(writer, node, product.left, product.right)
        supersede(node, [result], writer.nodes)
        changed += 1
    return changed


def possible_integer_products(model: ir.Model) -> int:
    """Count the nodes that `integer_products` would change."""
    return sum(1 for _ in _products(model))


def _products(model: ir.Model) -> Iterator[_Product]:
    """The nodes whose operands stand for bytes that can be multiplied in their place."""
    if opset_of(model) < _OLDEST:
        return
    for node in nodes_of(model):
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain != "":
            continue
        left, right = (_bytes(value) for value in node.inputs[:2])
        if left is None or right is None or not left.is_single:
            continue
        if rule.takes(node, right):
            yield _Product(node, left, right)


def _bytes(value: ir.Value | None) -> Quantised | None:
    """The bytes that a value stands for."""
    found = quantised(value)
    return found if found is not None and found.value.dtype in BYTES else None


def _stays_in_range(value: ir.Value, axes: Sequence[int]) -> bool:
    """Whether sums over these axes of an operand have few terms."""
    dims = static_dims(value)
    if dims is None or not all(-len(dims) <= axis < len(dims) for axis in axes):
        return False
    sizes = [dims[axis] for axis in axes]
    known = [size for size in sizes if size is not None]
    return len(known) == len(sizes) and int(np.prod(known)) <= MOST_TERMS


def _is_along(right: Quantised, axis: int) -> bool:
    """Whether there is one scale, or one for each place along an axis of a known rank."""
    dims = static_dims(right.value)
    return right.is_single or (dims is not None and right.axis % len(dims) == axis % len(dims))


def _scaled(writer: Writer, total: ir.Value, factor: Array) -> ir.Value:
    wide = writer.op("Cast", [total], "wide", {"to": ir.DataType.FLOAT})
    return writer.op("Mul", [wide, factor], "scaled")


def _product(writer: Writer, left: Quantised, right: Quantised, alpha: float = 1.0) -> ir.Value:
    operands: list[Operand] = [left.value, right.value, left.zero, right.zero]
    total = writer.op("MatMulInteger", operands, "sums", dtype=ir.DataType.INT32)
    return _scaled(writer, total, np.float32(alpha) * (left.scale * right.scale))


def _takes_matmul(_: ir.Node, right: Quantised) -> bool:
    dims = static_dims(right.value)
    if dims is None or len(dims) < 2 or not _stays_in_range(right.value, [-2]):
        return False
    # Zero points of columns are those of a matrix.
    return _is_along(right, -1) and (right.is_single or len(dims) == 2)


def _flips(node: ir.Node) -> list[bool]:
    return [node.attributes.get_int(name, 0) != 0 for name in ("transA", "transB")]


def _takes_gemm(node: ir.Node, right: Quantised) -> bool:
    columns = 0 if _flips(node)[1] else 1
    return _stays_in_range(right.value, [1 - columns]) and _is_along(right, columns)


def _gemm(writer: Writer, node: ir.Node, left: Quantised, right: Quantised) -> ir.Value:
    alpha = node.attributes.get_float("alpha", 1.0)
    sides = [
        Quantised(_flipped(writer, side.value), side.scale, side.zero, 1) if flip else side
        for side, flip in zip((left, right), _flips(node), strict=True)
    ]
    return biased(writer, node, _product(writer, sides[0], sides[1], alpha))


def biased(writer: Writer, node: ir.Node, result: ir.Value) -> ir.Value:
    """Add `beta C` to a product, as Gemm does."""
    bias, beta = optional_input(node, 2), node.attributes.get_float("beta", 1.0)
    if bias is None or beta == 0.0:
        return result
    if beta != 1.0:
        bias = writer.op("Mul", [bias, writer.scalar(beta)], "biases")
    return writer.op("Add", [result, bias], "biased")


def _flipped(writer: Writer, value: ir.Value) -> ir.Value:
    return writer.op("Transpose", [value], "transposed", {"perm": [1, 0]}, value.dtype)


def _takes_conv(_: ir.Node, right: Quantised) -> bool:
    dims = static_dims(right.value)
    if dims is None or len(dims) < 3 or not _is_along(right, 0):
        return False
    return _stays_in_range(right.value, range(1, len(dims)))


def _conv(writer: Writer, node: ir.Node, left: Quantised, right: Quantised) -> ir.Value:
    dims = static_dims(right.value)
    assert dims is not None
    total = writer.declare("sums", None, ir.DataType.INT32)
    operands: list[Operand] = [left.value, right.value, left.zero, right.zero]
    given = [ir.Attr(a.name, a.type, a.value) for a in node.attributes.values()]
    writer.node("ConvInteger", operands, [total], given)
    spatial = (1,) * (len(dims) - 2)
    factor = left.scale * right.scale
    result = _scaled(writer, total, factor if right.is_single else factor.reshape(-1, *spatial))
    bias = optional_input(node, 2)
    if bias is None:
        return result
    shape = np.array([-1, *spatial], np.int64)
    return writer.op("Add", [result, writer.op("Reshape", [bias, shape], "biases")], "biased")


_RULES: dict[str, _Rule] = {
    "MatMul": _Rule(_takes_matmul, lambda writer, _, left, right: _product(writer, left, right)),
    "Gemm": _Rule(_takes_gemm, _gemm),
    "Conv": _Rule(_takes_conv, _conv),
}
