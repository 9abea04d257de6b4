"""Activations, normalisations, embeddings and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.fuzz.random_contributed import Contributed, contributed, maybe, real
from tools.fuzz.random_node import Drawer, Shape

REAL = ("float32", "float32", "float16")


def _rows(d: Drawer, size: int) -> Shape:
    return (*[d.number(1, 4) for _ in range(d.number(1, 3))], size)


@contributed(4)
def _activated(d: Drawer) -> Contributed:
    op = d.choose(("Gelu", "QuickGelu", "FastGelu", "BiasGelu"))
    size, dtype = d.choose((1, 3, 8, 17)), "float32"
    x, bias = real(d, dtype, *_rows(d, size)), real(d, dtype, size)
    about = {"alpha": d.choose((1.0, -0.5, 1.702))} if op == "QuickGelu" and d.chance(0.7) else {}
    operands = {"FastGelu": [x, maybe(d, bias)], "BiasGelu": [x, bias]}.get(op, [x])
    return Contributed(op, operands, about)


@contributed(4)
def _normalised(d: Drawer) -> Contributed:
    simple = d.chance(0.5)
    op = "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization"
    size, dtype = d.choose((1, 3, 8, 17)), d.choose(REAL)
    batch, rows = d.number(1, 3), d.number(1, 4)
    shape = (batch, rows, size) if d.chance(0.8) else (batch * rows, size)
    x = real(d, dtype, *shape)
    kept = d.choose((shape, shape, shape[1:], (1, *shape[1:]))) if len(shape) == 3 else shape
    skip, gamma, bias = real(d, dtype, *kept), real(d, dtype, size), real(d, dtype, size)
    operands = [x, skip, gamma, *([] if simple else [maybe(d, real(d, dtype, size))])]
    about = {"epsilon": d.choose((1e-3, 0.5))} if d.chance(0.7) else {}
    return Contributed(op, [*operands, maybe(d, bias)], about)


@contributed(2)
def _embedded(d: Drawer) -> Contributed:
    batch, rows, size = d.number(1, 3), d.number(1, 4), d.choose((4, 8))
    ids = d.random.integers(0, 5, (batch, rows)).astype(np.int32)
    parts = maybe(d, d.random.integers(0, 2, (batch, rows)).astype(np.int32))
    words, places = real(d, "float32", 5, size), real(d, "float32", 6, size)
    segments = None if parts is None else real(d, "float32", 2, size)
    gamma, beta = real(d, "float32", size), real(d, "float32", size)
    mask = maybe(d, (np.arange(rows) < d.random.integers(1, rows + 1, (batch, 1))).astype(np.int32))
    at = maybe(d, d.random.integers(0, 6, (batch, rows)).astype(np.int32), 0.3)
    operands = [ids, parts, words, places, segments, gamma, beta, mask, at]
    about = {"epsilon": 1e-3} if d.chance(0.5) else {}
    return Contributed("EmbedLayerNormalization", operands, about, d.number(2, 3))


def _mask(d: Drawer, batch: int, rows: int, keys: int) -> Any:
    """Lengths, or zeros and ones of two or three axes."""
    kind = d.number(0, 3)
    if kind == 0:
        return d.random.integers(1, keys + 1, batch).astype(np.int32)
    if kind == 1:
        ends = d.random.integers(1, keys + 1, batch)
        return np.concatenate([ends, d.random.integers(0, ends)]).astype(np.int32)
    shape = (batch, keys) if kind == 2 else (batch, rows, keys)
    mask = d.random.integers(0, 2, shape)
    mask[..., 0] = 1
    return mask.astype(np.int32)


def _common(d: Drawer, heads: int) -> dict[str, Any]:
    about: dict[str, Any] = {"num_heads": heads}
    if d.chance(0.4):
        about["scale"] = d.choose((0.25, 1.0, 0.7))
    if d.chance(0.3):
        about["unidirectional"] = 1
    if d.chance(0.2):
        about["mask_filter_value"] = d.choose((-5.0, -1e4))
    return about


@contributed(4)
def _attention(d: Drawer) -> Contributed:
    batch, rows, heads, size = d.number(1, 2), d.number(1, 5), d.choose((1, 2)), d.choose((4, 8))
    width, inner, before = heads * size, d.number(3, 9), d.number(0, 3)
    x, about = real(d, "float32", batch, rows, inner), _common(d, heads)
    sizes = [width] * 3
    past = None
    if d.chance(0.3):
        past = real(d, "float32", 2, batch, heads, before, size)
    elif d.chance(0.3):
        sizes[2] = heads * d.choose((2, 4, 8))
        about["qkv_hidden_sizes"] = sizes
    keys = rows + (0 if past is None else before)
    weights, bias = real(d, "float32", inner, sum(sizes)), real(d, "float32", sum(sizes))
    mask = _mask(d, batch, rows, keys) if d.chance(0.5) else None
    extra = real(d, "float32", d.choose((1, batch)), d.choose((1, heads)), rows, keys)
    operands = [x, weights, maybe(d, bias, 0.8), mask, past, maybe(d, extra, 0.3)]
    return Contributed("Attention", operands, about, 1 if past is None else 2)


@contributed(4)
def _many_heads(d: Drawer) -> Contributed:
    batch, rows, heads, size = d.number(1, 2), d.number(1, 5), d.choose((1, 2)), d.choose((4, 8))
    wide, keys, before = d.choose((2, 4, 8)), d.number(1, 6), d.number(0, 3)
    about, form = _common(d, heads), d.number(0, 1)
    q = real(d, "float32", batch, rows, heads * size)
    extra = d.chance(0.3)
    key_bias: Any = None
    past: list[Any] = [None, None]
    # Queries that are fewer than keys have no places among them.
    keys = rows if about.get("unidirectional") else keys
    if form == 0:
        k, v = (real(d, "float32", batch, keys, heads * n) for n in (size, wide))
        key_bias = maybe(d, real(d, "float32", heads * (2 * size + wide)))
        if d.chance(0.4):
            past = [real(d, "float32", batch, heads, before, n) for n in (size, wide)]
    else:
        k, v = (real(d, "float32", batch, heads, keys, size) for _ in range(2))
    total = keys + (0 if past[0] is None else before)
    mask = _mask(d, batch, rows, total) if d.chance(0.4) else None
    bias = real(d, "float32", d.choose((1, batch)), d.choose((1, heads)), rows, total)
    operands = [q, k, v, key_bias, mask, bias if extra else None, *past]
    # Without an output for all keys, onnxruntime reads others than those of the past.
    return Contributed("MultiHeadAttention", operands, about, 3 if past[0] is not None else 1)


@contributed(2)
def _one_row(d: Drawer) -> Contributed:
    """onnxruntime reads a mask and a bias of beams unasked, and that of the first row for all."""
    rows, beams, heads, size = d.number(1, 2), d.number(1, 3), d.choose((1, 2)), d.choose((4, 8))
    batch, before, room = rows * beams, d.number(0, 4), d.number(5, 7)
    about: dict[str, Any] = {"num_heads": heads, "past_present_share_buffer": 1}
    if d.chance(0.3):
        about["scale"] = 0.5
    q, k, v = (real(d, "float32", batch, 1, heads * size) for _ in range(3))
    with_beams, length = d.chance(0.5), np.array(before, np.int32)
    past = [real(d, "float32", batch, heads, room, size) for _ in range(2)]
    origins = d.random.integers(0, beams, (rows, beams, room)).astype(np.int32)
    mask = d.random.integers(0, 2, (batch, before + 1)).astype(np.int32)
    mask[:, 0] = 1
    many = 1 if with_beams else d.choose((1, batch))
    extra = real(d, "float32", many, heads if with_beams else d.choose((1, heads)), 1, before + 1)
    if not with_beams:
        mask, extra = maybe(d, mask), maybe(d, extra)
    chosen = [np.array(beams, np.int32), origins] if with_beams else [None, None]
    bias = maybe(d, real(d, "float32", 3 * heads * size))
    operands = [q, k, v, mask, extra, *past, length, *chosen, bias]
    return Contributed("DecoderMaskedMultiHeadAttention", operands, about, 3)


@contributed(3)
def _turned(d: Drawer) -> Contributed:
    batch, rows, heads, size = d.number(1, 3), d.number(1, 4), d.number(1, 3), d.choose((4, 8, 16))
    is_packed, part = d.chance(0.5), d.chance(0.4)
    width = size // 2 if part else size
    x = real(
        d, "float32", *((batch, rows, heads * size) if is_packed else (batch, heads, rows, size))
    )
    angles = d.random.random((8, width // 2))
    places = d.random.integers(0, 4, (batch, rows)) if d.chance(0.6) else d.random.integers(0, 4, 1)
    about = {"interleaved": d.flag()}
    if part:
        about |= {"num_heads": heads, "rotary_embedding_dim": width}
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return Contributed("RotaryEmbedding", [x, places, cos, sin], about)


def _behind(before: Any, shape: Shape) -> Any:
    """Where a cache has rows that are not in use: `[batch, 1, rows, 1]`."""
    return (np.arange(shape[2]) >= np.asarray(before)[:, None])[:, None, :, None]


@contributed(4)
def _grouped(d: Drawer) -> Contributed:
    batch, few, group, size = (
        d.number(1, 2),
        d.choose((1, 2)),
        d.choose((1, 2, 3)),
        d.choose((8, 16)),
    )
    heads, room = few * group, d.number(1, 6)
    about: dict[str, Any] = {"num_heads": heads, "kv_num_heads": few}
    is_first = d.chance(0.4)
    rows = d.number(1, 4) if is_first or batch == 1 else 1
    before = np.zeros(batch, np.int32) if is_first else d.random.integers(1, 4, batch)
    total = int(before.max()) + rows
    q, k, v = (real(d, "float32", batch, rows, n * size) for n in (heads, few, few))
    if d.chance(0.3):
        q, k, v = np.concatenate([q, k, v], -1), None, None
    past: list[Any] = [None, None]
    if not is_first or d.chance(0.5):
        past = [real(d, "float32", batch, few, max(total, room), size) for _ in range(2)]
        for cache in past:
            # What lies behind the rows in use is nobody's business.
            cache[np.broadcast_to(_behind(before, cache.shape), cache.shape)] = 0
    if d.chance(0.4):
        about["local_window_size"] = d.number(1, 4)
    if d.chance(0.3):
        about["softcap"] = d.choose((1.0, 5.0))
    if d.chance(0.3):
        about["scale"] = 0.5
    turned: list[Any] = [None, None]
    if d.chance(0.4):
        about |= {"do_rotary": 1, "rotary_interleaved": d.flag()}
        turned = [real(d, "float32", 16, size // 2) for _ in range(2)]
    lengths = (before + rows - 1).astype(np.int32)
    operands = [q, k, v, *past, lengths, np.array(total, np.int32), *turned]
    return Contributed("GroupQueryAttention", operands, about, 3)
