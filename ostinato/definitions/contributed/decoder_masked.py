"""Attention of one new row, with a cache of fixed length, as decoders with beams write it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.attention import (
    Heads,
    attend,
    mask_bias,
    new_axes,
    split_heads,
)
from ostinato.definitions.contributed.call import INT64, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.tables import microsoft

_FIRST, _ONE, _ROWS = np.zeros(1, np.int64), np.ones(1, np.int64), np.array([2], np.int64)


@microsoft.register("DecoderMaskedMultiHeadAttention")
def decoder_masked(call: Call) -> Sequence[Maybe]:
    """One query for each row of the batch: `[batch, 1, heads * size]`.

    Without a past, keys and values are those of a cross attention, by heads. Else the new key and
    value are stored in the past behind its first `past_sequence_length` rows.
    """
    call.refuse_unless("output_qk", 0)
    if call.wanted(3):
        raise call.refuse("output 'qk' is not supported")
    scale, count = call.attribute("scale") or None, call.attribute("num_heads")
    is_cross = call.input("past_key") is None and not call.wanted(1) and not call.wanted(2)
    call.refuse_unless("past_present_share_buffer", *((0, 1) if is_cross else (1,)))
    if is_cross:
        call.refuse_input("past_value", "past_sequence_length", "attention_bias")
        # `cache_indirection` says nothing here: keys are those of the row itself.
        heads = Heads(_projected(call, "query", 0, count), call["key"], call["value"])
        return [attend(call, heads, mask_bias(call, "mask_index", heads), scale), None, None]
    query, *new = (_projected(call, name, i, count) for i, name in enumerate(("query", *_STORED)))
    length = call.reshape(call.cast(call["past_sequence_length"], INT64), 1)
    caches = [call["past_key"], call["past_value"]]
    stored = [_with_row(call, *pair, length) for pair in zip(caches, new, strict=True)]
    keys, values = (_seen(call, *each, length) for each in zip(caches, new, strict=True))
    heads = Heads(query, keys, values)
    bias = mask_bias(call, "mask_index", heads)
    if (extra := call.input("attention_bias")) is not None:
        bias.append(extra)
    return [attend(call, heads, bias, scale), *stored]


# Operands of which the cache keeps rows.
_STORED = ("key", "value")


def _projected(call: Call, name: str, place: int, count: int) -> ir.Value:
    """An operand with its third of the bias, by heads."""
    x, bias = call[name], call.input("bias")
    if bias is not None:
        width = call.writer.size(x, 2)
        start = call.op("Mul", width, np.array([place], np.int64), dtype=INT64)
        end = call.op("Add", start, width, dtype=INT64)
        part = call.op("Slice", bias, start, end, _FIRST)
        x = call.shaped(call.op("Add", x, part), *call.dims(x))
    return split_heads(call, x, count)


def _with_row(call: Call, cache: ir.Value, new: ir.Value, length: ir.Value) -> ir.Value:
    """The cache with the new row behind its first `length` ones."""
    places = call.op(
        "Expand", new_axes(call, length, (1, 2, 3)), call.op("Shape", new, dtype=INT64)
    )
    found = call.op("ScatterElements", cache, places, new, axis=2)
    return call.shaped(found, *call.dims(cache))


def _seen(call: Call, cache: ir.Value, new: ir.Value, length: ir.Value) -> ir.Value:
    """The first `length` rows, each from the beam that it came from, and the new one."""
    batch, heads, _, size = call.dims(cache)
    past = call.op("Slice", cache, _FIRST, length, _ROWS)
    past = call.shaped(past, batch, heads, None, size)
    if (origins := call.input("cache_indirection")) is not None:
        past = call.shaped(_by_beams(call, past, origins, length), batch, heads, None, size)
    whole = call.op("Concat", past, new, axis=2)
    return call.shaped(whole, batch, heads, None, size)


def _by_beams(call: Call, past: ir.Value, origins: ir.Value, length: ir.Value) -> ir.Value:
    """Row t of a beam from the beam that `origins`, `[rows, beams, longest]`, has at t."""
    beams = call.reshape(call.cast(call["beam_width"], INT64), 1)
    rows = call.writer.value(call.writer.positions(origins, 0), "rows")
    first = new_axes(call, call.op("Mul", rows, beams, dtype=INT64), (1, 2))
    index = call.op("Add", call.cast(origins, INT64), first, dtype=INT64)
    index = call.op("Slice", index, _FIRST, length, _ROWS, dtype=INT64)
    batch = call.writer.size(past, 0)
    flat = call.op("Concat", batch, _ONE, length, _ONE, axis=0, dtype=INT64)
    index = call.op("Reshape", index, flat, dtype=INT64)
    index = call.op("Expand", index, call.op("Shape", past, dtype=INT64), dtype=INT64)
    return call.op("GatherElements", past, index, axis=0)
