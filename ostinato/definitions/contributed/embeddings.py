"""Rows of tables that are stored in few bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, Call
from ostinato.definitions.contributed.few_bits import unpacked
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.layers import normalised_embedding
from ostinato.definitions.contributed.tables import microsoft
from ostinato.graph.writer import Array, Operand


@microsoft.register("GatherBlockQuantized")
def gather_block_quantized(call: Call) -> Sequence[Maybe]:
    """Gather from `(data - zero_points) scales`, with a scale for each block along an axis.

    Raises `ShapeError` for scales and zero points of another size.
    """
    whole, scales = _centred(call)
    assert scales.dtype is not None
    axis, along = (call.attribute(f"{name}_axis") % whole.ndim for name in ("gather", "quantize"))
    block, size = call.attribute("block_size"), whole.shape[along]
    blocks = scales.shape[along]
    widths = [(0, blocks * block - size if i == along else 0) for i in range(whole.ndim)]
    padded = np.pad(whole, widths)
    before, after = whole.shape[:along], whole.shape[along + 1 :]
    parts = padded.reshape(*before, blocks, block, *after)
    factors, indices = np.expand_dims(scales, along + 1), call["indices"]
    kind = ir.DataType.from_numpy(scales.dtype)
    if axis >= along:
        wide = (parts.astype(np.float32) * factors).astype(scales.dtype).reshape(padded.shape)
        table = np.take(wide, range(size), along)
        return [call.op("Gather", table, indices, dtype=kind, axis=axis)]
    rows = call.op("Gather", parts, indices, dtype=ir.DataType.from_numpy(parts.dtype), axis=axis)
    chosen = call.op("Gather", factors, indices, dtype=kind, axis=axis)
    product = call.op("Mul", call.cast(rows, kind), chosen)
    place = along + call.rank(indices) - 1
    flat = call.reshape(product, *[0] * place, blocks * block, *after)
    return [flat if blocks * block == size else call.slice(flat, 0, size, place)]


def _centred(call: Call) -> tuple[Array, Array]:
    """Whole numbers without their zero points, and the scales.

    Numbers of uint8 have `bits` each, along the last axis.
    """
    data, scales = call.constant("data"), call.constant("scales")
    points, bits = call.constant("zero_points"), call.attribute("bits")
    if data is None or scales is None or (points is None and call.input("zero_points")):
        raise call.refuse("inputs 'data', 'scales' and 'zero_points' are no constants")
    block = call.attribute("block_size")
    if bits not in (2, 4, 8) or block < 1 or not data.ndim:
        raise call.refuse(f"attributes 'bits' and 'block_size' are {bits} and {block}")
    is_packed = data.dtype == np.uint8
    whole = unpacked(data, bits) if is_packed else data
    along, sizes = call.attribute("quantize_axis") % data.ndim, list(whole.shape)
    sizes[along] = math.ceil(sizes[along] / block)
    scales = call.sized("scales", scales, *sizes)
    zero: Array = np.array(1 << (bits - 1) if is_packed else 0)
    if points is not None:
        bytes_ = [*sizes[:-1], math.ceil(sizes[-1] * bits / 8)] if is_packed else sizes
        points = call.sized("zero_points", points, *bytes_)
        zero = unpacked(points, bits)[..., : sizes[-1]] if is_packed else points
        zero = np.take(np.repeat(zero, block, along), range(whole.shape[along]), along)
    centred = whole.astype(np.int16) - zero.astype(np.int16)
    limits = np.iinfo(np.int8)
    fits = not centred.size or (limits.min <= centred.min() and centred.max() <= limits.max)
    return centred.astype(np.int8) if fits else centred, scales


@microsoft.register("QEmbedLayerNormalization")
def q_embed_layer_normalization(call: Call) -> Sequence[Maybe]:
    """EmbedLayerNormalization of tables, factors and biases in 8 bits."""

    def wide(name: str, x: ir.Value) -> ir.Value:
        call.single(f"{name}_scale", f"{name}_zero_point")
        parameters = call[f"{name}_scale"], call[f"{name}_zero_point"]
        return call.op("DequantizeLinear", x, *parameters, dtype=FLOAT)

    def rows(name: str, places: Operand) -> ir.Value:
        table = call["segment_embedding" if name == "segment" else f"{name}_embedding_quant"]
        chosen = call.op("Gather", table, places, dtype=table.dtype)
        return wide(f"{name}_embedding", chosen)

    gamma, beta = (wide(name, call[f"{name}_quant"]) for name in ("gamma", "beta"))
    return normalised_embedding(call, rows, gamma, beta)[:2]
