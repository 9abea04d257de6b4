"""Products with weights that are dequantised in blocks become sums of integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ostinato.definitions.bytes_in_blocks import (
    OLDEST,
    has_kernels,
    product_in_blocks,
    rows_in_blocks,
)
from ostinato.graph.edit import supersede
from ostinato.graph.quantised import blocks_of
from ostinato.graph.writer import Array, Writer
from ostinato.model.graphs import maker_of, nodes_of
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.model.values import constant_array
from ostinato.passes.normalise.integer_products import biased
from ostinato.records import dataclass

_FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True)
class _Weights:
    """Bytes and zero points `[blocks, block, n]` and `[blocks, 1, n]`, scales `[blocks, n]`."""

    bytes: Array
    zero: Array | None
    scale: Array


def integer_blocks(model: ir.Model) -> int:
    """Round rows to bytes, and multiply these by the weights; returns the number of nodes.

    Matches MatMul and Gemm of float32 with weights that DequantizeLinear makes of constant blocks
    along their sums. Blocks of the other operand's rows get scales of their own, where onnxruntime
    has such kernels (`definitions.bytes_in_blocks`). Results differ by these roundings: it is done
    only where `Options.integer_products` asks for it.
    """
    opset, names, changed = opset_of(model), Names(model), 0
    for node, weights in list(_products(model)):
        x = node.inputs[0]
        assert x is not None and x.shape is not None
        writer = Writer(model.graph, names, opset, _FLOAT, node.name or "product")
        blocks, block, _ = weights.bytes.shape
        rows = rows_in_blocks(writer, x, len(x.shape), blocks * block, blocks, block)
        result = product_in_blocks(writer, rows, weights.bytes, weights.scale, weights.zero)
        supersede(node, [biased(writer, node, result)], writer.nodes)
        changed += 1
    return changed


def possible_integer_blocks(model: ir.Model) -> int:
    """Count the nodes that `integer_blocks` would change."""
    return sum(1 for _ in _products(model))


def _products(model: ir.Model) -> Iterator[tuple[ir.Node, _Weights]]:
    if opset_of(model) < OLDEST:
        return
    for node in nodes_of(model):
        if node.op_type not in ("MatMul", "Gemm") or node.domain != "":
            continue
        x, made = node.inputs[0], maker_of(node.inputs[1], "DequantizeLinear")
        is_known = x is not None and x.dtype == _FLOAT and x.shape is not None and len(x.shape) > 0
        if made is None or not is_known or node.attributes.get_int("transA", 0) != 0:
            continue
        weights = _weights(made, node.attributes.get_int("transB", 0) != 0)
        if weights is not None:
            alpha = np.float32(node.attributes.get_float("alpha", 1.0))
            yield node, _Weights(weights.bytes, weights.zero, weights.scale * alpha)


def _weights(node: ir.Node, is_turned: bool) -> _Weights | None:
    """The constants of a DequantizeLinear in blocks along the sums, None for others."""
    blocks = blocks_of(node)
    arrays = [constant_array(value) for value in node.inputs if value is not None]
    if blocks is None or not blocks.are_even or any(array is None for array in arrays):
        return None
    q, scale, *points = (np.asarray(a.T if is_turned else a) for a in arrays if a is not None)
    kind, dtype = node.inputs[0].dtype if node.inputs[0] else None, scale.dtype
    if q.ndim != 2 or blocks.axis != (1 if is_turned else 0) or kind is None:
        return None
    if dtype != np.float32 or not np.isfinite(scale).all():
        return None
    if not has_kernels(kind.bitwidth, blocks.length) or kind.is_floating_point():
        return None
    bytes_ = np.uint8 if kind.name.startswith("U") else np.int8
    count = blocks.size // blocks.length
    zero = points[0].astype(bytes_).reshape(count, 1, -1) if points else None
    return _Weights(q.astype(bytes_).reshape(count, blocks.length, -1), zero, scale)
