"""Functions of PyTorch that its exporter has no form for, or a wrong one, in terms of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from onnxscript import opset18
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.overrides import TorchFunctionMode

from ostinato.errors import UnsupportedError


class Formulas(TorchFunctionMode):
    """While this is entered, calls of the functions in `_FORMULAS` compute by their formula."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the formula, or `func` itself where that has a form of its own."""
        formula = _FORMULAS.get(func)
        found = NotImplemented if formula is None else formula(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if found is NotImplemented else found


# A step: the product with the element and its bias, the carried values, the other weights and the
# bias of the state; gives the next carried values, of which the first is the result.
_Cell: TypeAlias = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], Any], tuple[Tensor, ...]]


def _projected_cell(
    element: Tensor, carried: Sequence[Tensor], weights: Sequence[Tensor], bias: Any
) -> tuple[Tensor, ...]:
    """An LSTM with projection, which ONNX's has not: `h = W_hr (o * tanh(c))`."""
    h, c = carried
    w_h, w_projection = weights
    i, f, g, o = (element + F.linear(h, w_h, bias)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return F.linear(torch.sigmoid(o) * torch.tanh(c), w_projection), c


def _elman_cell(function: Callable[[Tensor], Tensor]) -> _Cell:
    """The cell of `nn.RNN`, which the exporter writes out step by step."""

    def cell(
        element: Tensor, carried: Sequence[Tensor], weights: Sequence[Tensor], bias: Any
    ) -> tuple[Tensor, ...]:
        return (function(element + F.linear(carried[0], weights[0], bias)),)

    return cell


def _layers(
    cell: _Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: Any,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: Any,
) -> tuple[Tensor, ...]:
    """A stack of layers of one or both directions by `scan`, as PyTorch's recurrent functions."""
    x = x.transpose(0, 1) if batch_first else x
    directions = 1 + bool(bidirectional)
    each = len(weights) // (layers * directions)
    finals: list[Sequence[Tensor]] = []
    for layer in range(layers):
        if layer:
            x = F.dropout(x, dropout, train)
        ways = []
        for way in range(directions):
            number = layer * directions + way
            own = weights[number * each : (number + 1) * each]
            start = [state[number] for state in states]
            y, final = _layer(cell, x, start, own, bool(has_biases), bool(way))
            ways.append(y)
            finals.append(final)
        x = torch.cat(ways, -1)
    y = x.transpose(0, 1) if batch_first else x
    return y, *(torch.stack([*parts]) for parts in zip(*finals, strict=True))


def _layer(
    cell: _Cell,
    x: Tensor,
    start: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    backward: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    """One direction of one layer. weights: of input and state, their biases if any, others."""
    w_x, w_h, *rest = weights
    b_x, b_h = (rest.pop(0), rest.pop(0)) if has_biases else (None, None)

    def step(carried: Any, element: Tensor) -> Any:
        made = cell(element, carried, (w_h, *rest), b_h)
        return [*made], made[0].clone()

    final, y = scan(step, [s.clone() for s in start], F.linear(x, w_x, b_x), reverse=backward)
    return y, final


def _encoder_layer(
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
        return _attention(x, x, x, width, heads, *own, mask, False, True, kind)[0]

    def dense(x: Tensor) -> Tensor:
        hidden = F.linear(x, *dense_1)
        return F.linear(F.gelu(hidden) if gelu else F.relu(hidden), *dense_2)

    if norm_first:
        x = x + attend(F.layer_norm(x, (width,), *norm_1, eps))
        return x + dense(F.layer_norm(x, (width,), *norm_2, eps))
    x = F.layer_norm(x + attend(x), (width,), *norm_1, eps)
    return F.layer_norm(x + dense(x), (width,), *norm_2, eps)


def _attention(
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


def _batch_norm(
    x: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
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
    if mean is not None and variance is not None:
        count = x.numel() // x.shape[1]
        with torch.no_grad():
            mean.mul_(1 - momentum).add_(shifted, alpha=momentum)
            variance.mul_(1 - momentum).add_(own * (count / (count - 1)), alpha=momentum)
    shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
    y = (x - shifted.view(shape)) * (own + eps).rsqrt().view(shape)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


def _scaled_dot_product_attention(
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


def _cdist(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    """Distances of all rows of `x` from all rows of `y`."""
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def _refuse_hook(*_: Any) -> Any:
    raise UnsupportedError("register_hook", "module", "no hook is called for a gradient within")


def _of_any_length(name: str) -> Any:
    """An operator that does what this one of PyTorch does, without steps in its tracing.

    PyTorch traces a recurrent operator step by step, after which its length is a constant.
    """
    original = getattr(torch, name)
    has_cell = name == "lstm"
    state = "Tensor[] states" if has_cell else "Tensor states"
    results = "(Tensor, Tensor, Tensor)" if has_cell else "(Tensor, Tensor)"
    _LIBRARY.define(
        f"{name}(Tensor x, {state}, Tensor[] weights, bool has_biases, int layers, float dropout, "
        f"bool train, bool bidirectional, bool batch_first) -> {results}"
    )
    _LIBRARY.impl(name, original, "CompositeExplicitAutograd")

    def fake(x: Tensor, states: Any, weights: Any, *settings: Any) -> Any:
        *_, bidirectional, _ = settings
        finals = states if has_cell else [states]
        width = finals[0].shape[-1] * (1 + bool(bidirectional))
        return x.new_empty((*x.shape[:-1], width)), *(torch.empty_like(s) for s in finals)

    torch.library.register_fake(f"{_LIBRARY.ns}::{name}", fake, lib=_LIBRARY)
    return getattr(getattr(torch.ops, _LIBRARY.ns), name)


def _lstm(x: Tensor, states: Sequence[Tensor], *rest: Any) -> Any:
    if isinstance(states, Tensor):
        return NotImplemented  # a packed sequence
    if states[0].shape[-1] != states[1].shape[-1]:
        return _layers(_projected_cell, x, states, *rest)
    if not _is_open(x):
        return NotImplemented
    return _OF_ANY_LENGTH["lstm"](x, _settled(x, states, *rest), *rest)


def _gru(x: Tensor, states: Tensor, weights: Any, *rest: Any) -> Any:
    if isinstance(weights, Tensor) or not _is_open(x):
        return NotImplemented
    (state,) = _settled(x, [states], weights, *rest)
    return _OF_ANY_LENGTH["gru"](x, state, weights, *rest)


def _rnn(function: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, states: Tensor, weights: Any, *rest: Any) -> Any:
        if isinstance(weights, Tensor):
            return NotImplemented
        return _layers(_elman_cell(function), x, [states], weights, *rest)

    return call


def _settled(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: Any,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    """The states, with sizes that are open but follow from the weights as numbers."""
    torch._check(x.shape[2] == weights[0].shape[1])
    rows, width = layers * (1 + bool(bidirectional)), weights[1].shape[1]
    for state in states:
        torch._check(state.shape[0] == rows)
        torch._check(state.shape[1] == x.shape[0 if batch_first else 1])
        torch._check(state.shape[2] == width)
    return [state.reshape(rows, state.shape[1], width) for state in states]


def _is_open(x: Tensor) -> bool:
    return not all(isinstance(size, int) for size in x.shape)


def translations() -> dict[Any, Any]:
    """How the exporter writes the operators that are defined here: like PyTorch's own."""
    registry = ONNXRegistry.from_torchlib()
    return {torch.ops.aten.bernoulli.p: _bernoulli} | {
        operator.default: registry.get_decomps(getattr(torch.ops.aten, name).input)[0].onnx_function
        for name, operator in _OF_ANY_LENGTH.items()
    }


def _bernoulli(x: Any, p: float) -> Any:
    """1 with this chance, drawn as PyTorch draws it."""
    chance = opset18.CastLike(opset18.Constant(value_float=p), x)
    return opset18.Bernoulli(opset18.Expand(chance, opset18.Shape(x)))


_LIBRARY = torch.library.Library("ostinato", "DEF")
_OF_ANY_LENGTH = {name: _of_any_length(name) for name in ("lstm", "gru")}
_FORMULAS: dict[Any, Callable[..., Any]] = {
    torch.lstm: _lstm,
    torch.gru: _gru,
    torch.rnn_tanh: _rnn(torch.tanh),
    torch.rnn_relu: _rnn(torch.relu),
    Tensor.data.__get__: Tensor.detach,
    Tensor.register_hook: _refuse_hook,
    torch.cdist: _cdist,
    F.batch_norm: _batch_norm,
    F.scaled_dot_product_attention: _scaled_dot_product_attention,
    torch._transformer_encoder_layer_fwd: _encoder_layer,
    torch._native_multi_head_attention: _attention,
}
