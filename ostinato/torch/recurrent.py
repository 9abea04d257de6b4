"""Recurrent functions of PyTorch as the operators of ONNX, of any length and with lengths of rows.

PyTorch traces a recurrent operator step by step, after which its length is a constant. Here each
layer is an operator of its own, which the exporter writes as GRU, LSTM or RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from onnxscript import opset18
from torch import Tensor
from torch._higher_order_ops.scan import scan

# Places of PyTorch's gates in the order of ONNX.
_GATES = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
# The number of states.
STATES = {"gru": 1, "lstm": 2, "rnn_tanh": 1, "rnn_relu": 1}

# One layer: its operand [T, B, I], the lengths of rows, its states, weights of its directions,
# whether there are biases and two directions; gives results [T, B, H] and final states.
_Layer: TypeAlias = Callable[..., tuple[Tensor, ...]]


def stack(
    name: str,
    x: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    *settings: Any,
) -> tuple[Tensor, ...]:
    """Call `_stack`, and give its results the types that PyTorch has under the active autocast.

    It computes in float32 then.
    """
    given = x, *states, *weights
    if not torch.is_autocast_enabled("cpu") or any(t.dtype == torch.float64 for t in given):
        return _stack(name, x, lengths, states, weights, *settings)
    x, *wide = (tensor.float() for tensor in given)
    with torch.autocast("cpu", enabled=False):
        found = _stack(name, x, lengths, wide[: len(states)], wide[len(states) :], *settings)
    types = _types(name, states, lengths is not None)
    return tuple(y.to(dtype) for y, dtype in zip(found, types, strict=True))


def _types(name: str, states: Sequence[Tensor], is_packed: bool) -> list[torch.dtype]:
    """The types of the results, and of each final state, under autocast.

    Products have the narrow type; what is added to a state, or multiplied by it, has the wider one.
    """
    narrow = torch.get_autocast_dtype("cpu")
    carried = [torch.promote_types(narrow, state.dtype) for state in states]
    if _is_projected(name, states):
        return [narrow, narrow, carried[1]]
    if name == "gru":
        return [carried[0]] * 2
    # PyTorch computes an LSTM on a tensor by one operator, which has the narrow type throughout.
    return [carried[1]] * 3 if name == "lstm" and is_packed else [narrow] * (1 + len(states))


def _is_projected(name: str, states: Sequence[Tensor]) -> bool:
    return name == "lstm" and states[0].shape[-1] != states[1].shape[-1]


def _stack(
    name: str,
    x: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: Any,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Layers of the recurrent function `name`; gives the results of the last, and final states.

    x: [T, B, I]. lengths: int64[B], how many steps each row has; results behind them are 0.
    """
    directions = 1 + bool(bidirectional)
    layer: _Layer = _projected if _is_projected(name, states) else _OPERATORS[name]
    states = _settled(x, states, weights, layers * directions)
    each = len(weights) // layers
    finals = []
    for i in range(layers):
        x = F.dropout(x, dropout, train) if i else x
        own = weights[i * each : (i + 1) * each]
        start = [state[i * directions : (i + 1) * directions] for state in states]
        x, *final = layer(x, lengths, start, own, bool(has_biases), bool(bidirectional))
        finals.append(final)
    return x, *(torch.cat([*parts]) for parts in zip(*finals, strict=True))


def _settled(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], rows: int
) -> list[Tensor]:
    """The states, with sizes that are open but follow from the operands as these have them."""
    torch._check(x.shape[2] == weights[0].shape[1])
    found = []
    for state in states:
        # With a projection the weights tell only the width of h.
        width = weights[1].shape[1] if state is states[0] else weights[1].shape[0] // 4
        width = width if len(states) == 2 else weights[1].shape[1]
        torch._check(state.shape[0] == rows)
        torch._check(state.shape[1] == x.shape[1])
        torch._check(state.shape[2] == width)
        found.append(state.reshape(rows, x.shape[1], width))
    return found


def _projected(
    x: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """An LSTM with projection, which ONNX's has not: `h = W_hr (o * tanh(c))`."""
    directions = 1 + bidirectional
    each = len(weights) // directions
    is_valid = None
    if lengths is not None:
        is_valid = (torch.arange(x.shape[0]).unsqueeze(1) < lengths).unsqueeze(-1)
    ways = []
    for way in range(directions):
        w_x, w_h, *rest = weights[way * each : (way + 1) * each]
        b_x, b_h = rest[:2] if has_biases else (None, None)
        step = _projected_step(w_h, b_h, rest[-1], is_valid is not None)
        elements = F.linear(x, w_x, b_x)
        given = elements if is_valid is None else (elements, is_valid)
        start = [state[way].clone() for state in states]
        ways.append(scan(step, start, given, reverse=bool(way)))
    finals = zip(*(final for final, _ in ways), strict=True)
    return torch.cat([y for _, y in ways], -1), *(torch.stack([*parts]) for parts in finals)


def _projected_step(
    w_h: Tensor, b_h: Tensor | None, w_projection: Tensor, is_ragged: bool
) -> Callable[..., Any]:
    def step(carried: Any, element: Any) -> Any:
        h, c = carried
        element, *is_valid = element if is_ragged else (element,)
        i, f, g, o = (element + F.linear(h, w_h, b_h)).chunk(4, -1)
        next_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        next_h = F.linear(torch.sigmoid(o) * torch.tanh(next_c), w_projection)
        if not is_valid:
            return [next_h, next_c], next_h.clone()
        y = torch.where(is_valid[0], next_h, 0.0)
        return [torch.where(is_valid[0], next_h, h), torch.where(is_valid[0], next_c, c)], y

    return step


def _operator(name: str) -> Any:
    """An operator of one layer, without steps in its tracing."""
    results = ", ".join(["Tensor"] * (1 + STATES[name]))
    _LIBRARY.define(
        f"{name}(Tensor x, Tensor? lengths, Tensor[] states, Tensor[] weights, bool has_biases, "
        f"bool bidirectional) -> ({results})"
    )

    def fake(x: Tensor, lengths: Any, states: Any, weights: Any, *settings: Any) -> Any:
        width = states[0].shape[-1] * states[0].shape[0]
        return x.new_empty((*x.shape[:-1], width)), *(torch.empty_like(s) for s in states)

    torch.library.register_fake(f"{_LIBRARY.ns}::{name}", fake, lib=_LIBRARY)
    return getattr(getattr(torch.ops, _LIBRARY.ns), name).default


def translations() -> dict[Any, Any]:
    """Map the operators defined here to what the exporter writes."""
    return {operator: _translation(name) for name, operator in _OPERATORS.items()}


def _translation(name: str) -> Callable[..., Any]:
    def translate(
        x: Any, lengths: Any, states: Any, weights: Any, has_biases: bool, bidirectional: bool
    ) -> Any:
        directions = 1 + bidirectional
        each = len(weights) // directions
        ways = [weights[way * each : (way + 1) * each] for way in range(directions)]
        kinds = [*zip(*ways, strict=True)]
        w, r = (_of_directions([_in_order(p, name) for p in kind]) for kind in kinds[:2])
        b = None
        if has_biases:
            pairs = zip(*kinds[2:4], strict=True)
            b = _of_directions(
                [opset18.Concat(*(_in_order(p, name) for p in pair), axis=0) for pair in pairs]
            )
        if lengths is not None:
            lengths = opset18.Cast(lengths, to=6)
        settings = {
            "direction": "bidirectional" if bidirectional else "forward",
            "hidden_size": states[0].shape[2],
        }
        operands = x, w, r, b, lengths, *states
        if name == "gru":
            y, *finals = opset18.GRU(*operands, linear_before_reset=1, **settings)
        elif name == "lstm":
            y, *finals = opset18.LSTM(*operands, **settings)
        else:
            function = "Tanh" if name == "rnn_tanh" else "Relu"
            y, *finals = opset18.RNN(*operands, activations=[function] * directions, **settings)
        return _rows(y), *finals

    return translate


def _in_order(weight: Any, name: str) -> Any:
    """Gates of a weight or bias in the order of ONNX."""
    order = _GATES[name]
    if len(order) == 1:
        return weight
    gates = opset18.Split(weight, axis=0, num_outputs=len(order))
    return opset18.Concat(*(gates[place] for place in order), axis=0)


def _of_directions(parts: Sequence[Any]) -> Any:
    whole = [opset18.Unsqueeze(part, opset18.Constant(value_ints=[0])) for part in parts]
    return opset18.Concat(*whole, axis=0) if len(whole) > 1 else whole[0]


def _rows(y: Any) -> Any:
    """[T, directions, B, H] as [T, B, directions * H]."""
    turned = opset18.Transpose(y, perm=[0, 2, 1, 3])
    return opset18.Reshape(turned, opset18.Constant(value_ints=[0, 0, -1]))


_LIBRARY = torch.library.Library("ostinato", "FRAGMENT")
NAMES = tuple(_GATES)
_OPERATORS = {name: _operator(name) for name in NAMES}
