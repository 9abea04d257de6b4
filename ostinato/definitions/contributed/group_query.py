"""Attention with a cache, as onnxruntime's tools for language models write it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.attention import (
    Heads,
    attend,
    hidden_bias,
    new_axes,
    rotate,
    split_heads,
)
from ostinato.definitions.contributed.call import INT64, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.tables import microsoft

_ZERO, _ONE = np.array(0, np.int64), np.array(1, np.int64)


@microsoft.register("GroupQueryAttention")
def group_query_attention(call: Call) -> Sequence[Maybe]:
    """Causal attention in which several heads of queries share one of keys and values.

    The rows of a batch have as many keys as `seqlens_k` says, less one; new ones are stored behind
    those, in a cache that is as long as the longer one of the past and of all keys. One that grows
    with its rows is full: new ones are put behind it.
    """
    call.refuse_input("head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight")
    for name, only in (("smooth_softmax", (-1, 0)), ("qk_output", (0,)), ("causal", (1,))):
        call.refuse_unless(name, *only)
    for name in ("k_quant_type", "v_quant_type"):
        call.refuse_unless(name, "NONE")
    call.refuse_unless("sliding_window_cache", 0)
    for name in ("kv_cache_bit_width", "qk_norm_epsilon"):
        call.attribute(name)  # of caches and operands that are refused above
    if call.wanted(3):
        raise call.refuse("output 'output_qk' is not supported")
    many, few = call.attribute("num_heads"), call.attribute("kv_num_heads")
    query, key, value = _grouped(call, many, few)
    before, is_grown = _keys_before(call, query), _is_grown(call)
    if is_grown:
        before = _all_rows(call, query, before)
    if call.attribute("do_rotary"):
        query, key = _turned(call, query, key, before)
    else:
        call.attribute("rotary_interleaved")
    if is_grown:
        keys, values = (
            _appended(call, new, name) for new, name in ((key, "key"), (value, "value"))
        )
        seen = keys, values
    else:
        keys, values = (
            _stored(call, new, name, before) for new, name in ((key, "key"), (value, "value"))
        )
        seen = _filled(call, keys, "key"), _filled(call, values, "value")
    heads = Heads(query, seen[0], seen[1], many // few)
    bias = [_visible(call, heads, before)]
    if (extra := call.input("attention_bias")) is not None:
        bias.append(extra)
    scale, softcap = call.attribute("scale") or None, call.attribute("softcap") or 0.0
    return [attend(call, heads, bias, scale, softcap), keys, values]


def _grouped(call: Call, many: int, few: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    query, key, value = call["query"], call.input("key"), call.input("value")
    if key is None or value is None:
        width = call.size(query, 2)
        if width is None:
            raise call.refuse("the width of the packed input 'query' is not known")
        size = width // (many + 2 * few)
        ends = np.cumsum([0, many * size, few * size, few * size]).tolist()
        parts = [call.slice(query, a, b, 2) for a, b in pairwise(ends)]
        query, key, value = parts
    return (
        split_heads(call, query, many),
        split_heads(call, key, few),
        split_heads(call, value, few),
    )


def _keys_before(call: Call, query: ir.Value) -> ir.Value:
    """Keys of each row before the new ones: int64 `[batch, 1]`; none in the first call."""
    rows = call.writer.size(query, 2)
    lengths = call.reshape(call.cast(call["seqlens_k"], INT64), -1, 1)
    before = call.op("Sub", call.op("Add", lengths, _ONE), rows)
    first = call.op("Equal", _total(call), rows, dtype=ir.DataType.BOOL)
    return call.op("Where", first, _ZERO, before, dtype=INT64)


def _is_grown(call: Call) -> bool:
    """Whether the caller lets both caches grow, each of which is as long as there are rows."""
    outputs = call.node.outputs
    if len(outputs) < 3:
        return False
    pairs = ((call.input("past_key"), outputs[1]), (call.input("past_value"), outputs[2]))
    return call.caches.are_grown(2, *pairs)


def _all_rows(call: Call, query: ir.Value, before: ir.Value) -> ir.Value:
    """The rows of the caches, which have to be the keys before the new ones: int64 `[1, 1]`."""
    rows = call.writer.size(call["past_key"], 2)
    total = call.op("Add", rows, call.writer.size(query, 2))
    fits = [
        call.op("Equal", *pair, dtype=ir.DataType.BOOL)
        for pair in ((before, rows), (_total(call), total))
    ]
    length = call.caches.lengths[call["past_key"].name or ""]
    call.require(
        call.op("And", *fits),
        "inputs 'seqlens_k' and 'total_sequence_length' expect other rows in the past than those "
        "that the steps before have added; give a cache of fixed length by "
        f"`sizes={{{length!r}: ...}}`",
    )
    return call.reshape(rows, 1, 1)


def _places(call: Call, x: ir.Value, before: ir.Value) -> ir.Value:
    """The places of the new rows: `[batch, rows]`."""
    batch, _, rows, _ = call.dims(x)
    places = call.op("Add", before, call.writer.value(call.writer.positions(x, 2), "rows"))
    return call.shaped(places, batch, rows)


def _turned(
    call: Call, query: ir.Value, key: ir.Value, before: ir.Value
) -> tuple[ir.Value, ir.Value]:
    half = call.size(call["cos_cache"], 1)
    if half is None:
        raise call.refuse("the width of input 'cos_cache' is not known")
    interleaved = bool(call.attribute("rotary_interleaved"))
    places = call.input("position_ids")
    if places is None:
        places = _places(call, query, before)
    return (
        rotate(call, query, places, 2 * half, interleaved),
        rotate(call, key, places, 2 * half, interleaved),
    )


def _appended(call: Call, new: ir.Value, name: str) -> ir.Value:
    """The cache with the new rows behind it."""
    batch, heads, _, size = call.dims(new)
    longer = call.op("Concat", call[f"past_{name}"], new, axis=2)
    return call.shaped(longer, batch, heads, None, size)


def _stored(call: Call, new: ir.Value, name: str, before: ir.Value) -> ir.Value:
    """The cache with the new rows in their places, and zeros behind them, as onnxruntime writes."""
    past = call.input(f"past_{name}")
    if past is None:
        return new
    places = new_axes(call, _places(call, new, before), (1, 3))
    index = call.op("Expand", places, call.op("Shape", new, dtype=INT64))
    result = call.op("ScatterElements", _with_room(call, past, name), index, new, axis=2)
    batch, heads, _, size = call.dims(new)
    return call.shaped(result, batch, heads, None, size)


def _with_room(call: Call, past: ir.Value, name: str) -> ir.Value:
    """The rows of a cache that are filled, with zeros behind them up to its new length."""
    filled = _filled(call, past, name)
    length, total = call.writer.size(past, 2), _total(call)
    missing = call.op("Sub", _greater(call, length, total), call.writer.size(filled, 2))
    sides = [call.writer.size(past, axis) for axis in (0, 1, 3)]
    shape = call.op("Concat", *sides[:2], missing, sides[2], axis=0, dtype=INT64)
    zeros = call.op("Expand", call.number(0, past), shape, dtype=past.dtype)
    return call.op("Concat", filled, zeros, axis=2)


def _greater(call: Call, a: ir.Value, b: ir.Value) -> ir.Value:
    """The greater one of two integers, of which the Max of old operator sets knows none."""
    if call.writer.opset >= 12:
        return call.op("Max", a, b)
    return call.op("Where", call.op("Less", a, b, dtype=ir.DataType.BOOL), b, a, dtype=INT64)


def _total(call: Call) -> ir.Value:
    """Keys of the longest row, the new ones among them: int64 `[1]`."""
    return call.reshape(call.cast(call["total_sequence_length"], INT64), 1)


def _filled(call: Call, cache: ir.Value, name: str) -> ir.Value:
    """The rows of a cache up to the last one that any query sees."""
    if call.input(f"past_{name}") is None:
        return cache
    batch, heads, _, size = call.dims(cache)
    part = call.op("Slice", cache, np.zeros(1, np.int64), _total(call), np.array([2]))
    return call.shaped(part, batch, heads, None, size)


def _visible(call: Call, heads: Heads, before: ir.Value) -> ir.Value:
    """Hides keys behind a query, and those too far before it: `[batch, 1, rows, keys]`."""
    places = new_axes(call, _places(call, heads.query, before), (1, 3))
    columns = call.writer.positions(heads.key, 2)
    hidden = call.op("Less", places, columns, dtype=ir.DataType.BOOL)
    window = call.attribute("local_window_size")
    if window >= 0:
        first = call.op("Sub", places, np.array(window, np.int64))
        far = call.op("Not", call.op("Less", first, columns, dtype=ir.DataType.BOOL))
        hidden = call.op("Or", hidden, far)
    return hidden_bias(call, hidden, float("-inf"), heads.query)
