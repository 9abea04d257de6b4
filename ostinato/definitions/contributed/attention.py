"""Attention as onnxruntime's transformer tools write it.

Heads are `[batch, heads, rows, size]` here; a mask becomes numbers that are added to the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from ostinato.definitions.contributed.call import FLOAT, INT64, Call
from ostinato.definitions.contributed.given import Maybe
from ostinato.definitions.contributed.products import scaled_product
from ostinato.definitions.contributed.tables import microsoft
from ostinato.graph.writer import Operand
from ostinato.records import dataclass


@dataclass
class Heads:
    """Queries, keys and values, and how many heads of queries share one of the others."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    group: int = 1


def split_heads(call: Call, x: ir.Value, heads: int | None, size: int | None = None) -> ir.Value:
    """`[batch, rows, heads * size]` by heads, of which the number or the size is given."""
    batch, rows, width = call.dims(x)
    apart = call.reshape(x, 0, 0, heads or -1, size or -1)
    if heads is not None:
        size = width // heads if isinstance(width, int) else None
    return call.shaped(call.op("Transpose", apart, perm=[0, 2, 1, 3]), batch, heads, rows, size)


def _longer(call: Call, past: ir.Value, new: ir.Value) -> ir.Value:
    """Rows behind those of the past."""
    batch, heads, _, size = call.dims(new)
    return call.shaped(call.op("Concat", past, new, axis=2), batch, heads, None, size)


def attend(
    call: Call, heads: Heads, bias: Sequence[ir.Value], scale: float | None, softcap: float = 0.0
) -> ir.Value:
    """`softmax(scale Q K' + bias) V`, the heads side by side: `[batch, rows, heads * size]`."""
    q, k, v = heads.query, heads.key, heads.value
    factor = _factor(call, q) if scale is None else call.number(scale, q)
    rows, keys = call.writer.size(q, 2), call.writer.size(k, 2)
    if heads.group > 1:
        q = call.reshape(q, 0, -1, heads.group, rows, call.writer.size(q, 3))
        k, v = new_axes(call, k, (2,)), new_axes(call, v, (2,))
    order = [0, 1, 3, 2] if heads.group == 1 else [0, 1, 2, 4, 3]
    scores = call.op("MatMul", q, call.op("Transpose", k, perm=order))
    scores = call.op("Mul", scores, factor)
    if softcap:
        cap = call.number(softcap, scores)
        scores = call.op("Mul", call.op("Tanh", call.op("Div", scores, cap)), cap)
    if heads.group > 1 and bias:
        scores = call.reshape(scores, 0, call.writer.size(heads.query, 1), rows, keys)
    for part in bias:
        scores = call.op("Add", scores, part)
    if heads.group > 1 and bias:
        scores = call.reshape(scores, 0, -1, heads.group, rows, keys)
    result = call.op("MatMul", call.op("Softmax", scores, axis=-1), v)
    query, value = heads.query.shape, heads.value.shape
    count, size = (None, None) if query is None or value is None else (query[1], value[-1])
    if heads.group > 1:
        last = size if isinstance(size, int) else -1
        result = call.reshape(result, 0, call.writer.size(heads.query, 1), rows, last)
    width = count * size if isinstance(count, int) and isinstance(size, int) else None
    turned = call.op("Transpose", result, perm=[0, 2, 1, 3])
    joined = call.reshape(turned, 0, 0, -1 if width is None else width)
    if query is None or value is None:
        return joined
    # What follows asks for the rank; inferring that of a whole model takes long.
    return call.shaped(joined, query[0], query[2], width)


def _factor(call: Call, query: ir.Value) -> Operand:
    """The default factor of scores: one over a root of the size."""
    size = call.size(query, 3)
    if size is not None:
        return call.number(size**-0.5, query)
    root = call.op("Sqrt", call.cast(call.writer.size(query, 3), FLOAT))
    return call.cast_like(call.op("Reciprocal", root), query)


def new_axes(call: Call, x: Operand, axes: Sequence[int]) -> ir.Value:
    """`x` with axes of size 1 at these places of the result."""
    return call.writer.value(call.writer.unsqueeze(x, axes, "broadcast"), "broadcast")


def hidden_bias(call: Call, where: ir.Value, number: float, like: ir.Value) -> ir.Value:
    """`number` where a key must not be seen, and 0 elsewhere."""
    return call.op(
        "Where", where, call.number(number, like), call.number(0, like), dtype=like.dtype
    )


def mask_bias(call: Call, name: str, heads: Heads) -> list[ir.Value]:
    """The bias of scores for a mask of 0 and 1, or of lengths."""
    mask = call.input(name)
    number = call.attribute("mask_filter_value")
    if mask is None:
        return []
    rank = call.rank(mask)
    if rank == 1:
        hidden = _beyond(call, mask, heads)
    elif rank in (2, 3):
        hidden = call.op("Equal", mask, np.zeros((), np.int32), dtype=ir.DataType.BOOL)
        hidden = new_axes(call, hidden, (1, 2) if rank == 2 else (1,))
    else:
        raise call.refuse(f"input {name!r} has {rank} axes, expected 1 to 3")
    return [hidden_bias(call, hidden, number, heads.query)]


def _beyond(call: Call, lengths: ir.Value, heads: Heads) -> ir.Value:
    """Keys beyond the length of their row: `[batch, 1, 1, keys]`.

    Behind the lengths the first keys may follow, as many again.
    """
    batch, count = call.size(heads.query, 0), call.size(lengths, 0)
    columns = call.writer.positions(heads.key, 2)
    same = str(heads.query.shape[0]) == str(lengths.shape[0])  # type: ignore[index]
    if same or (batch is not None and count == batch):
        return _compared(call, "Less", columns, lengths, opposite=True)
    if batch is not None and count == 2 * batch:
        ends, starts = call.slice(lengths, 0, batch, 0), call.slice(lengths, batch, count, 0)
    elif batch is None or count is None:
        ends, starts = _ends_and_starts(call, lengths, call.writer.size(heads.query, 0))
    else:
        raise call.refuse(f"{count} lengths for {batch} rows of the batch")
    before = _compared(call, "Less", columns, starts)
    return call.op("Or", before, _compared(call, "Less", columns, ends, opposite=True))


def _ends_and_starts(call: Call, lengths: ir.Value, batch: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Lengths and first keys of this many rows, where only a run tells whether there are both."""
    nothing = call.op("Expand", call.number(0, lengths), batch, dtype=lengths.dtype)
    both = call.op("Concat", lengths, nothing, axis=0)
    twice, axis = call.op("Add", batch, batch), np.array([0], np.int64)
    ends = call.op("Slice", both, np.array([0], np.int64), batch, axis)
    return ends, call.op("Slice", both, batch, twice, axis)


def _compared(
    call: Call, op_type: str, columns: Operand, limits: ir.Value, opposite: bool = False
) -> ir.Value:
    wide = new_axes(call, call.cast(limits, INT64), (1, 2, 3))
    result = call.op(op_type, columns, wide, dtype=ir.DataType.BOOL)
    return call.op("Not", result) if opposite else result


def causal_bias(call: Call, heads: Heads) -> ir.Value:
    """Hides the keys behind each query, the last of which is at the place of the last key."""
    keys, rows = call.writer.size(heads.key, 2), call.writer.size(heads.query, 2)
    offset = call.op("Sub", keys, rows)
    places = call.op(
        "Add", call.writer.value(call.writer.positions(heads.query, 2), "rows"), offset
    )
    behind = call.op(
        "Less",
        new_axes(call, places, (1,)),
        call.writer.positions(heads.key, 2),
        dtype=ir.DataType.BOOL,
    )
    assert heads.query.dtype is not None
    lowest = float(np.finfo(heads.query.dtype.numpy()).min)
    return hidden_bias(call, behind, lowest, heads.query)


def _bias(call: Call, heads: Heads, mask: str) -> list[ir.Value]:
    parts = mask_bias(call, mask, heads)
    if call.attribute("unidirectional"):
        parts.append(causal_bias(call, heads))
    if "attention_bias" in call.names and (extra := call.input("attention_bias")) is not None:
        parts.append(extra)
    return parts


@microsoft.register("Attention")
def attention(call: Call) -> Sequence[Maybe]:
    """Self-attention with its input projection, and a past of `[2, batch, heads, rows, size]`."""
    call.refuse_unless("do_rotary", 0)
    call.refuse_unless("past_present_share_buffer", 0)
    call.attribute("rotary_embedding_dim")
    call.refuse_input("past_sequence_length")
    whole, bias = call.op("MatMul", call["input"], call["weights"]), call.input("bias")
    if bias is not None:
        whole = call.op("Add", whole, bias)
    call.shaped(whole, *call.dims(call["input"])[:2], call.size(call["weights"], 1))
    sizes = call.attribute("qkv_hidden_sizes") or _thirds(call, call["weights"])
    return _self_attention(call, whole, sizes)


@microsoft.register("QAttention")
def q_attention(call: Call) -> Sequence[Maybe]:
    """Attention whose input projection is a product of 8-bit numbers."""
    call.refuse_unless("do_rotary", 0)
    call.refuse_unless("past_present_share_buffer", 0)
    call.single("input_scale", "input_zero_point")
    points = call.input("input_zero_point"), call.input("weight_zero_point")
    scale = call.op("Mul", call["input_scale"], call["weight_scale"])
    operands = call["input"], call["weight"]
    whole = scaled_product(call, *operands, points, scale, call["bias"])
    call.shaped(whole, *call.dims(call["input"])[:2], call.size(call["weight"], 1))
    return _self_attention(call, whole, _thirds(call, call["weight"]))


def _thirds(call: Call, weights: ir.Value) -> list[int]:
    width = call.size(weights, 1)
    if width is None or width % 3:
        raise call.refuse("the width of the weights is not known, or no multiple of 3")
    return [width // 3] * 3


def _self_attention(call: Call, whole: ir.Value, sizes: Sequence[int]) -> Sequence[Maybe]:
    count, ends = call.attribute("num_heads"), np.cumsum([0, *sizes]).tolist()
    parts = [call.slice(whole, start, stop, 2) for start, stop in pairwise(ends)]
    query, key, value = (split_heads(call, part, count) for part in parts)
    heads = Heads(query, key, value)
    if (past := call.input("past")) is not None:
        for i, name in enumerate(("key", "value")):
            before = call.op("Gather", past, np.array(i, np.int64), axis=0)
            setattr(heads, name, _longer(call, before, getattr(heads, name)))
    scale = call.attribute("scale") or (sizes[0] // count) ** -0.5
    result = attend(call, heads, _bias(call, heads, "mask_index"), scale)
    if not call.wanted(1):
        return [result]
    both = [new_axes(call, x, (0,)) for x in (heads.key, heads.value)]
    return [result, call.op("Concat", *both, axis=0)]


@microsoft.register("MultiHeadAttention")
def multi_head_attention(call: Call) -> Sequence[Maybe]:
    """Attention of projected queries, keys and values, side by side or packed into one.

    Keys and values of four axes are those of a cross attention, already by heads.
    """
    call.refuse_input("past_sequence_length", "cache_indirection")
    if call.wanted(3):
        raise call.refuse("output 'qk' is not supported")
    count = call.attribute("num_heads")
    heads = _projected(call, count)
    for name in ("key", "value"):
        if (past := call.input(f"past_{name}")) is not None:
            setattr(heads, name, _longer(call, past, getattr(heads, name)))
    scale = call.attribute("scale") or None
    result = attend(call, heads, _bias(call, heads, "key_padding_mask"), scale)
    return [result, heads.key, heads.value]


def _projected(call: Call, count: int) -> Heads:
    query, key, value = call["query"], call.input("key"), call.input("value")
    if key is None or value is None:
        return _packed(call, query, key, count)
    bias, parts = call.input("bias"), [query, key, value]
    are_heads = call.rank(key) == 4
    if bias is not None:
        if are_heads:
            raise call.refuse("input 'bias' with keys by heads")
        start: Operand = np.array([0], np.int64)
        for i, part in enumerate(parts):
            end = call.op("Add", call.writer.size(part, 2), start)
            own = call.op("Slice", bias, start, end, np.array([0], np.int64))
            parts[i] = call.shaped(call.op("Add", part, own), *call.dims(part))
            start = end
    first = split_heads(call, parts[0], count)
    if are_heads:
        return Heads(first, key, value)
    return Heads(first, split_heads(call, parts[1], count), split_heads(call, parts[2], count))


def _packed(call: Call, query: ir.Value, key: Maybe, count: int) -> Heads:
    """`[batch, rows, heads, 3, size]` for all of them, or 2 for keys and values."""
    call.refuse_input("bias")
    whole = query if key is None else key

    batch, rows, _, _, size = call.dims(whole)

    def part(i: int) -> ir.Value:
        one = call.op("Gather", whole, np.array(i, np.int64), axis=3)
        turned = call.op("Transpose", one, perm=[0, 2, 1, 3])
        return call.shaped(turned, batch, count, rows, size)

    if key is None:
        return Heads(part(0), part(1), part(2))
    return Heads(split_heads(call, query, count), part(0), part(1))


@microsoft.register("RotaryEmbedding")
def rotary_embedding(call: Call) -> Sequence[Maybe]:
    """Turns pairs of elements by the angles of their position.

    `[batch, rows, heads * size]` or `[batch, heads, rows, size]`; one position is that of the
    first row.
    """
    call.refuse_unless("is_packed_batching", 0)
    call.refuse_unless("scale", 1.0, 0.0)
    x, ids = call["input"], call["position_ids"]
    is_packed = call.rank(x) == 3
    half, turned = call.size(call["cos_cache"], 1), call.attribute("rotary_embedding_dim")
    count = call.attribute("num_heads")
    if half is None:
        raise call.refuse("the width of input 'cos_cache' is not known")
    if is_packed:
        x = split_heads(call, x, count) if turned else split_heads(call, x, None, 2 * half)
    places = ids
    if call.rank(ids) == 1:
        rows = call.writer.value(call.writer.positions(x, 2), "rows")
        places = call.shaped(call.op("Add", rows, ids), call.dims(x)[2])
    result = rotate(call, x, places, 2 * half, bool(call.attribute("interleaved")))
    if is_packed:
        result = call.reshape(call.op("Transpose", result, perm=[0, 2, 1, 3]), 0, 0, -1)
    return [result]


def rotate(call: Call, x: ir.Value, places: ir.Value, width: int, interleaved: bool) -> ir.Value:
    """The first `width` elements of each head turned; `places` are `[rows]` or `[batch, rows]`."""
    batch, heads, rows, size = call.dims(x)
    angles = [call.op("Gather", call[f"{name}_cache"], places) for name in ("cos", "sin")]
    if call.rank(places) == 2:
        angles = [new_axes(call, angle, (1,)) for angle in angles]
    cos, sin = angles
    part = x if size == width else call.slice(x, 0, width, 3)
    if interleaved:
        pairs = call.reshape(part, 0, 0, call.writer.size(part, 2), width // 2, 2)
        first, second = (call.op("Gather", pairs, np.array(i, np.int64), axis=4) for i in (0, 1))
    else:
        first, second = (call.slice(part, n, n + width // 2, 3) for n in (0, width // 2))
    left = call.op("Sub", call.op("Mul", first, cos), call.op("Mul", second, sin))
    right = call.op("Add", call.op("Mul", second, cos), call.op("Mul", first, sin))
    if interleaved:
        both = [new_axes(call, half, (4,)) for half in (left, right)]
        result = call.reshape(call.op("Concat", *both, axis=4), 0, 0, call.writer.size(x, 2), width)
    else:
        result = call.op("Concat", left, right, axis=3)
    if size != width:
        rest = call.slice(x, width, np.iinfo(np.int64).max, 3)
        result = call.op("Concat", result, rest, axis=3)
    return call.shaped(result, batch, heads, rows, size)
