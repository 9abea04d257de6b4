"""Ops that the standard defines as functions of others."""

from __future__ import annotations

import numpy as np

from tests.oracle.graph import Array, Node, evaluate, op


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


@op("SwiGLU")
def _swiglu(node: Node, a: Array, b: Array) -> Array:
    return a / (1 + np.exp(-node.get("alpha", 1.0) * a)) * b


@op("LinearAttention")
def _linear_attention(
    node: Node,
    query: Array,
    key: Array,
    value: Array,
    past: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
) -> list[Array]:
    heads, q_heads = node.get("kv_num_heads"), node.get("q_num_heads")
    rule = node.get("update_rule", "gated_delta")
    n, steps, width = query.shape
    k, v = width // q_heads, value.shape[2] // heads
    scale = node.get("scale", 0.0) or 1 / np.sqrt(k)
    state = np.zeros((n, heads, k, v)) if past is None else past.copy()
    y = np.zeros((n, steps, q_heads, v))
    for row, t, head in np.ndindex(n, steps, heads):
        s = state[row, head]
        key_t = key[row, t].reshape(heads, k)[head]
        new = value[row, t].reshape(heads, v)[head]
        if rule in ("gated", "gated_delta"):
            s = s * np.exp(decay[row, t].reshape(heads, -1)[head])[:, None]
        if rule in ("delta", "gated_delta"):
            rate = beta[row, t][head if beta.shape[2] > 1 else 0]
            new = rate * (new - key_t @ s)
        state[row, head] = s = s + np.outer(key_t, new)
        group = q_heads // heads
        for reader in range(head * group, (head + 1) * group):
            y[row, t, reader] = scale * query[row, t].reshape(q_heads, k)[reader] @ s
    return [y.reshape(n, steps, q_heads * v), state]


@op("CausalConvWithState")
def _causal_convolution(
    node: Node, x: Array, weight: Array, bias: Array | None = None, past: Array | None = None
) -> list[Array]:
    n, channels, length = x.shape
    taps = weight.shape[2]
    past = np.zeros((n, channels, taps - 1)) if past is None else past
    padded = np.concatenate([past, x], 2)
    y = np.zeros(x.shape)
    for tap in range(taps):
        y += weight[:, 0, tap, None] * padded[:, :, tap : tap + length]
    y = y if bias is None else y + bias[:, None]
    if node.get("activation", "none") != "none":
        y = y / (1 + np.exp(-y))
    return [y, padded[:, :, length:]]


@op("Attention")
def _attention(
    node: Node,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    lengths: Array | None = None,
) -> list[Array]:
    packed = query.ndim == 3
    if packed:
        query, key, value = (
            x.reshape(*x.shape[:2], node.get(f"{kind}_num_heads"), -1).transpose(0, 2, 1, 3)
            for x, kind in ((query, "q"), (key, "kv"), (value, "kv"))
        )
    if past_key is not None:
        key = np.concatenate([past_key, key], 2)
        value = np.concatenate([past_value, value], 2)
    n, heads, rows, size = query.shape
    columns = key.shape[2]
    raw = np.zeros((n, heads, rows, columns))
    bias = np.zeros(raw.shape)
    if mask is not None:
        mask = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        missing = columns - mask.shape[-1]
        widths = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
        bias = bias + np.pad(mask, widths, constant_values=-np.inf)
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    right = 0 if node.get("is_causal", 0) else right
    y = np.zeros((n, heads, rows, value.shape[3]))
    scale = node.get("scale", 1 / np.sqrt(size))
    group = heads // key.shape[1]
    for b, h, i in np.ndindex(n, heads, rows):
        raw[b, h, i] = scale * key[b, h // group] @ query[b, h, i]
        position = i
        if past_key is not None:
            position += past_key.shape[2]
        elif lengths is not None:
            position += lengths[b] - rows
        for j in range(columns):
            outside = lengths is not None and j >= lengths[b]
            outside |= left >= 0 and j < position - left
            outside |= right >= 0 and j > position + right
            bias[b, h, i, j] += -np.inf if outside else 0
    cap = node.get("softcap", 0.0)
    capped = cap * np.tanh(raw / cap) if cap else raw
    blind = (bias == -np.inf).all(-1, keepdims=True)
    weights = np.where(blind, 0, _softmax(capped + bias))
    for b, h in np.ndindex(n, heads):
        y[b, h] = weights[b, h] @ value[b, h // group]
    shown = (raw, capped, capped + bias, weights)[node.get("qk_matmul_output_mode", 0)]
    if packed:
        y = y.transpose(0, 2, 1, 3).reshape(n, rows, -1)
    return [y, key, value, shown]


@op("FlexAttention")
def _flex_attention(node: Node, query: Array, key: Array, value: Array) -> Array:
    group = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, group, 1), np.repeat(value, group, 1)
    scale = node.get("scale", 1 / np.sqrt(query.shape[3]))
    scores = scale * query @ key.transpose(0, 1, 3, 2)
    scores = _modified(node, "score_mod", scores)
    return _modified(node, "prob_mod", _softmax(scores)) @ value


def _modified(node: Node, name: str, x: Array) -> Array:
    body = node.get(name)
    if body is None:
        return x
    return evaluate(body, node.opset, {**node.scope, body.input[0].name: x})[0]


@op("RotaryEmbedding")
def _rotary_embedding(
    node: Node, x: Array, cosines: Array, sines: Array, positions: Array | None = None
) -> Array:
    packed = x.ndim == 3
    heads = node.get("num_heads", 1)
    sizes = (*x.shape[:2], heads, x.shape[2] // heads)
    apart = x.reshape(sizes) if packed else x.swapaxes(1, 2)
    rotated = node.get("rotary_embedding_dim", 0) or apart.shape[3]
    if positions is not None:
        cosines, sines = cosines[positions], sines[positions]
    c, s = cosines[:, :, None], sines[:, :, None]
    y = apart.copy()
    if node.get("interleaved", 0):
        one, two = slice(0, rotated, 2), slice(1, rotated, 2)
    else:
        one, two = slice(0, rotated // 2), slice(rotated // 2, rotated)
    y[..., one] = c * apart[..., one] - s * apart[..., two]
    y[..., two] = s * apart[..., one] + c * apart[..., two]
    return y.reshape(x.shape) if packed else y.swapaxes(1, 2)


@op("AffineGrid")
def _affine_grid(node: Node, theta: Array, size: Array) -> Array:
    sizes = [int(n) for n in size[2:]]
    axes = []
    for n in sizes:
        if node.get("align_corners", 0):
            axes.append(np.linspace(-1, 1, n))
        else:
            axes.append((np.arange(n) * 2 + 1) / n - 1)
    grids = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*reversed(grids), np.ones(sizes)], -1)
    return np.einsum("nij,...j->n...i", theta, points)


@op("NegativeLogLikelihoodLoss")
def _loss(node: Node, x: Array, target: Array, weight: Array | None = None) -> Array:
    weight = np.ones(x.shape[1]) if weight is None else weight
    loss, used = np.zeros(target.shape), np.zeros(target.shape)
    for place in np.ndindex(target.shape):
        label = target[place]
        if label != node.get("ignore_index", None):
            used[place] = weight[label]
            loss[place] = -x[(place[0], label, *place[1:])] * weight[label]
    reduction = node.get("reduction", "mean")
    if reduction == "none":
        return loss
    return loss.sum() / used.sum() if reduction == "mean" else loss.sum()


@op("SoftmaxCrossEntropyLoss")
def _cross_entropy(node: Node, x: Array, target: Array, weight: Array | None = None) -> list[Array]:
    log = np.log(np.moveaxis(_softmax(np.moveaxis(x, 1, -1)), -1, 1))
    return [_loss(node, log, target, weight), log]
