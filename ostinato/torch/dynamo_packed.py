"""Packed sequences in the graphs of Dynamo, which breaks a graph at each of their functions.

Where it traces for this backend, it takes the functions below in place of PyTorch's. They call
operators that say nothing but shapes; `in_torch` puts PyTorch's functions in their places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.trace_rules import get_torch_obj_rule_map
from torch._dynamo.variables import SkipFunctionVariable, UserFunctionVariable
from torch._dynamo.variables.base import VariableTracker
from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.weak import WeakTensorKeyDictionary

from ostinato.torch import recurrent


def _pack(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64)
    lengths = lengths.to(torch.int64)
    order = back = None
    if not enforce_sorted:
        lengths, order = torch.sort(lengths, descending=True)
        back = torch.argsort(order)
        input = input.index_select(0 if batch_first else 1, order)
    data, sizes = _PACK(input, lengths, batch_first)
    return PackedSequence(data, sizes, order, back)


def _pad(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    data, sizes, _, back = sequence
    y, lengths = _PAD(data, sizes, batch_first, padding_value, total_length)
    if back is None:
        return y, lengths
    return y.index_select(0 if batch_first else 1, back), lengths[back]


def _forward(self: Any, input: PackedSequence, hx: Any = None) -> Any:
    """The call of a recurrent layer."""
    data, sizes, order, back = input
    has_cell = self.mode == "LSTM"
    states = [] if hx is None else [*hx] if has_cell else [hx]
    if order is not None:
        states = [state.index_select(1, order) for state in states]
    y, *finals = _LAYERS[self.mode.lower()](
        data,
        sizes,
        states,
        self._flat_weights,
        self.bias,
        self.num_layers,
        self.dropout,
        self.training,
        self.bidirectional,
    )
    if back is not None:
        finals = [final.index_select(1, back) for final in finals]
    return PackedSequence(y, sizes, order, back), tuple(finals) if has_cell else finals[0]


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    pack_padded_sequence: _pack,
    pad_packed_sequence: _pad,
}
_METHODS = {torch.nn.GRU.forward, torch.nn.LSTM.forward, torch.nn.RNN.forward}
_ROWS = WeakTensorKeyDictionary()


def install(backend: Callable[..., Any]) -> None:
    """Have Dynamo take these functions where it traces for this backend."""

    def is_own(tx: Any) -> bool:
        found = innermost_backend(tx.output.compiler_fn)
        return getattr(found, "compiler_fn", found) is backend

    class Function(SkipFunctionVariable):
        def call_function(self, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
            if not is_own(tx):
                return super().call_function(tx, args, kwargs)
            own = VariableTracker.build(tx, _FUNCTIONS[self.value])
            return tx.inline_user_function_return(own, args, kwargs)

    for function in _FUNCTIONS:
        get_torch_obj_rule_map()[function] = Function
    original = UserFunctionVariable.call_function

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> VariableTracker:
        given = [*self.self_args(), *args] if self.fn in _METHODS else []
        is_packed = len(given) > 1 and given[1].python_type() is PackedSequence
        if not is_packed or not is_own(tx):
            return original(self, tx, args, kwargs)
        return tx.inline_user_function_return(VariableTracker.build(tx, _forward), given, kwargs)

    UserFunctionVariable.call_function = call_function


def in_torch(module: torch.fx.GraphModule) -> None:
    """Put functions of PyTorch in the places of the operators defined here."""
    found = [node for node in module.graph.nodes if node.target in _IN_TORCH]
    for node in found:
        node.target = _IN_TORCH[node.target]
    if found:
        module.recompile()


def _of_length(x: Tensor) -> Any:
    """A size that data decide."""
    env = x.fake_mode.shape_env
    size = env.create_unbacked_symint()
    _constrain_range_for_size(size)
    return size


def _fake_pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    count, steps = _of_length(x), _of_length(x)
    torch._check(steps <= x.shape[1 if batch_first else 0])
    sizes = lengths.new_empty((steps,))
    _ROWS[sizes] = lengths.shape[0]
    return x.new_empty((count, *x.shape[2:])), sizes


def _fake_pad(
    data: Tensor, sizes: Tensor, batch_first: bool, value: float, total: Any
) -> tuple[Tensor, Tensor]:
    time, rows = sizes.shape[0] if total is None else total, _rows(sizes)
    front = (rows, time) if batch_first else (time, rows)
    return data.new_empty((*front, *data.shape[1:])), sizes.new_empty((rows,))


def _rows(sizes: Tensor) -> Any:
    rows = _ROWS.get(sizes)
    return _of_length(sizes) if rows is None else rows


def _call_pad(data: Tensor, sizes: Tensor, batch_first: bool, value: float, total: Any) -> Any:
    packed = PackedSequence(data, sizes)
    return pad_packed_sequence(packed, batch_first, value, total)


def _layer(name: str) -> tuple[Any, Callable[..., Any]]:
    """The operator of a recurrent layer, and the same in PyTorch."""
    count = 1 + recurrent.STATES[name]
    results = ", ".join(["Tensor"] * count)

    def fake(data: Tensor, sizes: Tensor, states: Any, weights: Any, *settings: Any) -> Any:
        _, layers, _, _, bidirectional = settings
        widths = _widths(name, weights)
        rows = states[0].shape[1] if states else _rows(sizes)
        directions = 1 + bidirectional
        finals = [data.new_empty((layers * directions, rows, width)) for width in widths]
        return data.new_empty((data.shape[0], directions * widths[0])), *finals

    def call(data: Tensor, sizes: Tensor, states: Any, weights: Any, *settings: Any) -> Any:
        if not states:
            _, layers, _, _, bidirectional = settings
            widths = _widths(name, weights)
            count = layers * (1 + bidirectional)
            states = [torch.zeros(count, sizes[0], w, dtype=data.dtype) for w in widths]
        given = states if name == "lstm" else states[0]
        return getattr(torch, name)(data, sizes, given, weights, *settings)

    return _define(
        f"packed_{name}(Tensor data, Tensor sizes, Tensor[] states, Tensor[] weights, "
        "bool has_biases, int layers, float dropout, bool train, bool bidirectional) "
        f"-> ({results})",
        fake,
    ), call


def _widths(name: str, weights: Any) -> list[int]:
    """The widths of the states."""
    width = weights[1].shape[1]
    return [width] if name != "lstm" else [width, weights[1].shape[0] // 4]


def _define(schema: str, fake: Callable[..., Any]) -> Any:
    _LIBRARY.define(schema)
    name = schema.partition("(")[0]
    torch.library.register_fake(f"{_LIBRARY.ns}::{name}", fake, lib=_LIBRARY)
    return getattr(getattr(torch.ops, _LIBRARY.ns), name)


_LIBRARY = torch.library.Library("ostinato", "FRAGMENT")
_PACK = _define("pack(Tensor x, Tensor lengths, bool batch_first) -> (Tensor, Tensor)", _fake_pack)
_PAD = _define(
    "pad(Tensor data, Tensor sizes, bool batch_first, float value, SymInt? total) "
    "-> (Tensor, Tensor)",
    _fake_pad,
)
_OF_LAYERS = {name: _layer(name) for name in recurrent.NAMES}
_LAYERS = {name: operator for name, (operator, _) in _OF_LAYERS.items()}
_IN_TORCH: dict[Any, Callable[..., Any]] = {
    _PACK: torch._pack_padded_sequence,
    _PAD: _call_pad,
    **dict(_OF_LAYERS.values()),
}
