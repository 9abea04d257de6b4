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
from ostinato.torch import layers, linear_algebra, losses, running


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
    own = {
        torch.ops.aten.bernoulli.p: _bernoulli,
        torch.ops.aten._neg_view.default: _negative,
        torch.ops.aten.rsub.Scalar: _subtracted,
    }
    return own | {
        operator.default: registry.get_decomps(getattr(torch.ops.aten, name).input)[0].onnx_function
        for name, operator in _OF_ANY_LENGTH.items()
    }


def _negative(x: Any) -> Any:
    return opset18.Neg(x)


def _subtracted(x: Any, other: float, alpha: float = 1) -> Any:
    scaled = x if alpha == 1 else opset18.Mul(x, opset18.CastLike(alpha, x))
    return opset18.Sub(opset18.CastLike(other, x), scaled)


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
    **{one: running.cummax for one in (torch.cummax, Tensor.cummax)},
    **{one: running.cummin for one in (torch.cummin, Tensor.cummin)},
    **{one: running.cumprod for one in (torch.cumprod, Tensor.cumprod)},
    **{one: linear_algebra.inverse for one in (torch.linalg.inv, torch.inverse, Tensor.inverse)},
    **{one: linear_algebra.det for one in (torch.linalg.det, torch.det, Tensor.det)},
    **{
        one: linear_algebra.slogdet for one in (torch.linalg.slogdet, torch.slogdet, Tensor.slogdet)
    },
    **{one: linear_algebra.logdet for one in (torch.logdet, Tensor.logdet)},
    **{
        one: linear_algebra.cholesky
        for one in (torch.linalg.cholesky, torch.cholesky, Tensor.cholesky)
    },
    torch.linalg.solve: linear_algebra.solve,
    torch.linalg.inv_ex: linear_algebra.inv_ex,
    torch.linalg.solve_triangular: linear_algebra.solve_triangular,
    torch.cdist: layers.cdist,
    F.batch_norm: layers.batch_norm,
    F.cross_entropy: losses.cross_entropy,
    torch._C._nn.cross_entropy_loss: losses.cross_entropy_loss,
    F.ctc_loss: losses.ctc_loss,
    torch.ctc_loss: losses.ctc_loss,
    F.gaussian_nll_loss: losses.gaussian_nll_loss,
    F.embedding: layers.embedding,
    F.embedding_bag: layers.embedding_bag,
    F.instance_norm: layers.instance_norm,
    F.scaled_dot_product_attention: layers.scaled_dot_product_attention,
    torch._transformer_encoder_layer_fwd: layers.encoder_layer,
    torch._native_multi_head_attention: layers.attention,
}
