"""Layers of PyTorch that its exporter has no form for, or a wrong one, in terms of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.modules import transformer

from ostinato.errors import UnsupportedError


@contextmanager
def unseen_elements() -> Iterator[None]:
    """Keep PyTorch from looking at elements.

    `nn.Transformer` and its parts ask whether a mask is causal, `torch.distributions` whether
    parameters and values are valid.
    """
    is_causal, validates = transformer._detect_is_causal_mask, Distribution._validate_args
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    # Dynamo sets False for good when it is first used, maybe in between; 0 is none of its values.
    Distribution.set_default_validate_args(0)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = is_causal
        if Distribution._validate_args is not False:
            Distribution.set_default_validate_args(validates)


def encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Any,
) -> Tensor:
    """The fused form of `nn.TransformerEncoderLayer`, which it takes where no gradient is wanted.

    rest: weight and bias of both norms and of both dense layers, the mask and its kind.
    """
    norm_1, norm_2, dense_1, dense_2 = zip(rest[0:8:2], rest[1:8:2], strict=True)
    mask, kind = (*rest[8:], None, None)[:2]

    def attend(x: Tensor) -> Tensor:
        own = qkv_weight, qkv_bias, out_weight, out_bias
        return attention(x, x, x, width, heads, *own, mask, False, True, kind)[0]

    def dense(x: Tensor) -> Tensor:
        hidden = F.linear(x, *dense_1)
        return F.linear(F.gelu(hidden) if gelu else F.relu(hidden), *dense_2)

    if norm_first:
        x = x + attend(F.layer_norm(x, (width,), *norm_1, eps))
        return x + dense(F.layer_norm(x, (width,), *norm_2, eps))
    x = F.layer_norm(x + attend(x), (width,), *norm_1, eps)
    return F.layer_norm(x + dense(x), (width,), *norm_2, eps)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The fused form of `nn.MultiheadAttention`; tensors are [batch, time, width].

    mask: added to the scores, or true where they do not count. mask_type: 0 for [time, time], 1
        for [batch, time] of keys, 2 for one with all four axes.
    """

    def split(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight, bias).unflatten(-1, (heads, width // heads)).transpose(1, 2)

    parts = zip(qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (split(x, *own) for x, own in zip((query, key, value), parts, strict=True))
    scores = q @ k.transpose(-1, -2) * (width // heads) ** -0.5
    if mask is not None:
        mask = mask[:, None, None] if mask_type == 1 else mask
        scores = (
            scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        )
    weights = scores.softmax(-1)
    result = F.linear((weights @ v).transpose(1, 2).flatten(2), out_weight, out_bias)
    if not need_weights:
        return result, None
    return result, weights.mean(1) if average_attn_weights else weights


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch normalization by the statistics of the batch, which count in the running ones."""
    if not training:
        return NotImplemented
    axes = [axis for axis in range(x.dim()) if axis != 1]
    own, shifted = torch.var_mean(x, axes, correction=0)
    if running_mean is not None and running_var is not None:
        count = x.numel() // x.shape[1]
        with torch.no_grad():
            running_mean.mul_(1 - momentum).add_(shifted, alpha=momentum)
            running_var.mul_(1 - momentum).add_(own * (count / (count - 1)), alpha=momentum)
    shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
    y = (x - shifted.view(shape)) * (own + eps).rsqrt().view(shape)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Instance normalization, whose statistics count in the running ones."""
    if running_mean is None or running_var is None or not use_input_stats:
        return NotImplemented
    with torch.no_grad():
        own, shifted = torch.var_mean(x, [*range(2, x.dim())])
        running_mean.mul_(1 - momentum).add_(shifted.mean(0), alpha=momentum)
        running_var.mul_(1 - momentum).add_(own.mean(0), alpha=momentum)
    return F.instance_norm(x, None, None, weight, bias, True, momentum, eps)


def embedding(
    indices: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table, of which one has no gradient.

    Gradients have all rows, also with `sparse`. Raises `UnsupportedError` for `scale_grad_by_freq`.
    """
    if scale_grad_by_freq:
        reason = "scale_grad_by_freq=True divides gradients by counts, which is not compiled"
        raise UnsupportedError("embedding", "module", reason)
    if padding_idx is None or max_norm is not None:
        return NotImplemented
    padding = padding_idx if padding_idx >= 0 else weight.shape[0] + padding_idx
    rows = F.embedding(indices, weight)
    return torch.where((indices == padding).unsqueeze(-1), rows.detach(), rows)


def embedding_bag(
    indices: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of rows of a table, for each row of indices or from each offset on."""
    if max_norm is not None or scale_grad_by_freq:
        return NotImplemented
    if offsets is None:
        count, bag = indices.shape[0], torch.arange(indices.shape[0]).unsqueeze(1)
        bag = bag.expand_as(indices).flatten()
    else:
        starts = offsets[:-1] if include_last_offset else offsets
        count = starts.shape[0]
        bag = (torch.arange(indices.shape[0]).unsqueeze(1) >= starts).sum(1) - 1
    rows = F.embedding(indices.flatten(), weight)
    counts = torch.ones_like(bag, dtype=weight.dtype)
    if padding_idx is not None:
        padding = padding_idx if padding_idx >= 0 else weight.shape[0] + padding_idx
        counts = (indices.flatten() != padding).to(weight.dtype)
    if include_last_offset and offsets is not None:
        # Elements behind the last offset are in no bag.
        counts = counts * (torch.arange(indices.shape[0]) < offsets[-1])
    if mode == "max":
        own = (bag == torch.arange(count).unsqueeze(1)) & (counts > 0)
        found = rows.masked_fill(~own.unsqueeze(-1), float("-inf")).amax(1)
        return found.masked_fill(~own.any(1, keepdim=True), 0.0)
    scales = counts if per_sample_weights is None else counts * per_sample_weights.flatten()
    table = rows.new_zeros(count, rows.shape[1])
    total = table.index_add(0, bag, rows * scales.unsqueeze(1))
    if mode == "sum":
        return total
    number = counts.new_zeros(count).index_add(0, bag, counts)
    return total / number.clamp(min=1).unsqueeze(1)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention with dropout, or of tensors that have not four axes."""
    if query.dim() == 4 and dropout_p == 0:
        return NotImplemented
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = scores.softmax(-1)
    if attn_mask is not None:
        # A row that sees nothing is 0.
        weights = weights.masked_fill((scores == float("-inf")).all(-1, keepdim=True), 0.0)
    return F.dropout(weights, dropout_p) @ value


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    """Distances of all rows of `x1` from all rows of `x2`."""
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
