"""Weights that a training step rounds: what is trained is what the quantised model computes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ostinato.arguments import is_one_of
from ostinato.errors import OptionError
from ostinato.graph.edit import add_constant
from ostinato.graph.writer import Array, Writer
from ostinato.model.names import Names
from ostinato.model.schema import opset_of
from ostinato.quantization.formats import FORMATS, Format
from ostinato.quantization.rounding import Rounded
from ostinato.quantization.sites import find_sites
from ostinato.quantization.weights import Stored, drop_unread, granularity, store, write_weights


def trained_format(name: str) -> Format:
    """The storage type of that name. Raises `OptionError` for one without scales."""
    known = [form.name for form in FORMATS.values() if form.is_integer]
    if not is_one_of(name, known):
        raise OptionError(f"quantize={name!r}: expected None or one of {', '.join(known)}")
    return FORMATS[name]


def _stored(model: ir.Model, form: Format, block: int | None) -> list[Stored]:
    """The weights with the scales that training keeps: the best for what they are at first."""
    return [
        store(site, form, block, None)
        for site in find_sites(model)
        if site.weight.dtype == ir.DataType.FLOAT
    ]


def round_in_training(model: ir.Model, form: Format, block: int | None) -> None:
    """Let each product of `model`, of opset 21, read its weights rounded to `form`, as floats.

    Scales stay what they are. The initializers remain, to be trained, as do their names.
    """
    names = Names(model)
    for item in _stored(model, form, block):
        site, weight = item.site, item.site.weight
        writer = Writer(
            model.graph, names, opset_of(model), ir.DataType.FLOAT, f"{weight.name}_rounded"
        )
        scale, attributes = granularity(item)
        scales = add_constant(model, names.fresh(f"{weight.name}_scale"), scale)
        value = weight
        if form.dtype != ir.DataType.INT8:
            # A byte has more levels than the type.
            levels = np.full(site.array.shape, form.levels, np.int8)
            most = writer.op("DequantizeLinear", [levels, scales], "most", attributes)
            value = writer.op("Min", [value, most], "below")
            value = writer.op("Max", [value, writer.op("Neg", [most], "least")], "within")
        kind = ir.DataType.INT8
        narrow = attributes | {"output_dtype": int(kind)}
        whole = writer.op("QuantizeLinear", [value, scales], "whole", narrow, kind)
        rounded = writer.op("DequantizeLinear", [whole, scales], "back", attributes)
        rounded.shape = ir.Shape(site.array.shape)
        first = next(iter(model.graph))
        model.graph.insert_before(first, writer.nodes)
        site.read(rounded)


def write_trained(
    model: ir.Model, form: Format, block: int | None, trained: dict[str, Array]
) -> None:
    """Store what training has made of the weights of `model`, with the scales that they began with.

    These are the values that `round_in_training` computes with, bit for bit.
    """
    stored = [_again(item, trained) for item in _stored(model, form, block)]
    for name, array in trained.items():
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    write_weights(model, Names(model), stored)
    drop_unread(model, [item.site.weight for item in stored])


def _again(item: Stored, trained: dict[str, Array]) -> Stored:
    site, form = item.site, item.form
    array = trained.get(str(site.weight.name), site.array)
    parts = [
        _on_grid(rows, part, form) for rows, part in zip(site.rows(array), item.parts, strict=True)
    ]
    values = site.restored(np.stack([part.values for part in parts]))
    return Stored(site, form, values, tuple(parts))


def _on_grid(rows: Array, part: Rounded, form: Format) -> Rounded:
    wide = np.repeat(part.scale, part.block, axis=1)[:, : rows.shape[1]]
    least = -form.levels - (form.dtype == ir.DataType.INT8)
    q = np.clip(np.rint(rows / wide), least, form.levels).astype(np.int8)
    return Rounded(q, part.scale, part.block)
