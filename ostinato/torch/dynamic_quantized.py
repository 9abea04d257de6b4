"""Layers that `torch.ao.quantization.quantize_dynamic` has made, in other functions of PyTorch.

Their weights are objects of C++ that no exporter sees into. While a module is exported they are
replaced by what is in them, and the functions that take them by the formulas below: products of
bytes, whose sums are exact, or of weights that were rounded to float16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch.ao.nn.quantized import dynamic
from torch.ao.nn.quantized.modules.linear import LinearPackedParams

from ostinato.errors import UnsupportedError

# Elements, and states, of a step to the next states.
_Cell: TypeAlias = Callable[..., tuple[Tensor, ...]]

# Modules in which PyTorch has layers between quantised values.
_STATIC = ("torch.ao.nn.quantized.modules", "torch.ao.nn.intrinsic.quantized.modules")
# Names of the classes in C++.
_PRODUCT, _CELL = "LinearPackedParamsBase", "CellParamsBase"
# A scale that would be smaller is this one (QuantUtils.h of PyTorch).
_LEAST_SCALE = 6.1e-5


@dataclass(frozen=True)
class Product:
    """The weights of a product `x W' + b`.

    weight: int8[J, K] less the zero points, or float16[J, K]. scales: f64[J] or f64[1] of bytes.
    """

    weight: Tensor
    bias: Tensor | None
    scales: Tensor | None

    def traced(self) -> Product:
        """The same as values of the program that is traced, which its loops may read."""
        bias, scales = (None if t is None else t.clone() for t in (self.bias, self.scales))
        return Product(self.weight.clone(), bias, scales)

    def __call__(self, x: Tensor, is_reduced: bool) -> Tensor:
        """The product; of bytes, with the 8 bits of `x`, or with 7 where `is_reduced`."""
        x = x.detach().float()
        if self.scales is None:
            return F.linear(x, self.weight.float(), self.bias)
        return self._of_bytes(x, is_reduced)

    def _of_bytes(self, x: Tensor, is_reduced: bool) -> Tensor:
        assert self.scales is not None
        scale, zero_point = _range(x, 127 if is_reduced else 255)
        # The half of the 8-bit range below 0 is left out.
        low, high = (0, 127) if is_reduced else (-128, 127)
        places = torch.round(x * (1 / scale)) + (zero_point + low)
        narrow = places.clamp(low, high).to(torch.int8).reshape(-1, x.shape[-1])
        sums = torch._int_mm(narrow, self.weight.t())
        less = (zero_point + low).to(torch.int32) * self.weight.sum(1, dtype=torch.int32)
        y = (sums - less).float() * (scale * self.scales.float())
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], y.shape[1])


def _range(x: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point, both f32[], of 0 to `levels` for all elements and 0.

    As ChooseQuantizationParams of PyTorch computes them, in float64.
    """
    low = x.min().clamp(max=0).double()
    high = x.max().clamp(min=0).double()
    scale = (high - low) / levels
    scale = torch.where(scale.float() == 0, 0.1, scale)
    is_small = scale.float() < _LEAST_SCALE
    grown = torch.where(is_small, _LEAST_SCALE / scale, 1.0)
    low, high, scale = low * grown, high * grown, scale * grown
    below, above = -low / scale, levels - high / scale
    # Start from the end that has the smaller error.
    has_low = (low / scale).abs() < levels + (high / scale).abs()
    zero_point = torch.round(torch.where(has_low, below, above)).clamp(0, levels)
    return scale.float(), zero_point.float()


@dataclass(frozen=True)
class Layer:
    """The weights of a direction of a layer: of its elements and of its state."""

    of_elements: Product
    of_state: Product
    is_reduced: bool


@contextmanager
def unpacked(what: str, module: torch.nn.Module) -> Iterator[None]:
    """Put `Product` and `Layer` in the places of objects of C++.

    Raises `UnsupportedError` for layers between quantised values, and for other objects.
    """
    for path, part in module.named_modules():
        if type(part).__module__.startswith(_STATIC) and not isinstance(part, LinearPackedParams):
            raise _refusal(what, path, part)
    found = [
        (part, key, value, _opened(what, path, part, value))
        for path, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, torch.ScriptObject)
    ]
    originals = [(cls, cls.forward_packed) for cls in (dynamic.LSTM, dynamic.GRU)]
    try:
        for part, key, _, opened in found:
            setattr(part, key, opened)
        for cls, _ in originals:
            cls.forward_packed = _refuse_packed
        yield
    finally:
        for part, key, value, _ in found:
            setattr(part, key, value)
        for cls, original in originals:
            cls.forward_packed = original


def _refuse_packed(self: torch.nn.Module, *_: Any) -> Any:
    raise UnsupportedError(
        type(self).__name__,
        "module",
        "of torch.ao.nn.quantized.dynamic, takes a packed sequence, whose steps have ranges of "
        "their own and are not compiled; give it the padded tensor",
    )


def packed(module: torch.nn.Module) -> tuple[str, ...]:
    """The names of attributes that `unpacked` replaces."""
    return tuple(
        f"{path}.{key}".lstrip(".")
        for path, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, torch.ScriptObject)
    )


def _opened(what: str, path: str, part: torch.nn.Module, value: Any) -> Product | Layer:
    name = value._type().name()
    if name == _PRODUCT:
        return _product(what, path, value)
    if name == _CELL:
        _, _, _, numbers, products = value.__getstate__()[0]
        of_elements, of_state = (_product(what, path, one) for one in products)
        return Layer(of_elements, of_state, bool(numbers and numbers[0]))
    raise _refusal(what, path, part)


def _refusal(what: str, path: str, part: torch.nn.Module) -> UnsupportedError:
    kind = f"{type(part).__module__}.{type(part).__name__}"
    return UnsupportedError(
        what,
        "module",
        f"{f'part {path!r}' if path else 'it'} is {kind}, which computes with PyTorch's own "
        "quantised values; compile the module in float that it was made from, or give what "
        "ostinato.quantize makes of that to an InferenceSession; what "
        "torch.ao.quantization.quantize_dynamic makes of LSTM, GRU, their cells and Linear is "
        "compiled",
    )


def _product(what: str, path: str, value: Any) -> Product:
    weight, bias = value.__getstate__()[0]
    bias = None if bias is None else bias.detach().float()
    if not weight.is_quantized:
        return Product(weight.detach().half(), bias, None)
    is_whole = weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
    if is_whole:
        points, scales = torch.tensor([weight.q_zero_point()]), torch.tensor([weight.q_scale()])
    else:
        points, scales = weight.q_per_channel_zero_points(), weight.q_per_channel_scales()
    if points.any():
        raise UnsupportedError(
            what, "module", f"part {path!r} has weights with a zero point; use a symmetric qconfig"
        )
    return Product(weight.int_repr(), bias, scales)


def linear(x: Tensor, weights: Product, reduce_range: bool = False) -> Tensor:
    """`torch.ops.quantized.linear_dynamic`, and `linear_dynamic_fp16`."""
    return weights(x, reduce_range)


def cell(name: str) -> Callable[..., Any]:
    """The operator of a cell, whose weights are quantised as those of `linear`."""

    def call(x: Tensor, states: Any, w_x: Product, w_h: Product, *_: Any) -> Any:
        states = [*states] if name == "lstm" else [states]
        found = _CELLS[name](w_x(x, True), w_h(states[0], True), *states)
        return found if name == "lstm" else found[0]

    return call


def recurrent(name: str) -> Callable[..., Any]:
    """`torch.quantized_lstm` or `torch.quantized_gru`, of tensors."""

    def call(x: Tensor, states: Any, layers: Sequence[Layer], *settings: Any, **_: Any) -> Any:
        _, count, dropout, train, bidirectional, batch_first = settings
        x = x.transpose(0, 1) if batch_first else x
        directions = 1 + bool(bidirectional)
        states = states if name == "lstm" else [states]
        finals = []
        for i in range(count):
            x = F.dropout(x, dropout, train) if i else x
            ways = []
            for way in range(directions):
                place = i * directions + way
                start = [state[place].clone() for state in states]
                ways.append(_direction(name, x, start, layers[place], bool(way)))
            finals += [final for final, _ in ways]
            x = torch.cat([y for _, y in ways], -1)
        y = x.transpose(0, 1) if batch_first else x
        return y, *(torch.stack([*parts]) for parts in zip(*finals, strict=True))

    return call


def _direction(
    name: str, x: Tensor, start: Sequence[Tensor], layer: Layer, is_back: bool
) -> tuple[Any, Tensor]:
    """The final states and the results of all steps."""
    of_state = layer.of_state.traced()

    def step(carried: Any, element: Tensor) -> Any:
        found = _CELLS[name](element, of_state(carried[0], layer.is_reduced), *carried)
        return [*found], found[0].clone()

    found: tuple[Any, Tensor] = scan(
        step, [*start], layer.of_elements(x, layer.is_reduced), reverse=is_back
    )
    return found


def _lstm(x: Tensor, product: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    i, f, g, o = (x + product).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(x: Tensor, product: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    x_r, x_z, x_n = x.chunk(3, -1)
    h_r, h_z, h_n = product.chunk(3, -1)
    n = torch.tanh(x_n + h_n * torch.sigmoid(h_r + x_r))
    return ((h - n) * torch.sigmoid(h_z + x_z) + n,)


def _rnn_tanh(x: Tensor, product: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return (torch.tanh(x + product),)


def _rnn_relu(x: Tensor, product: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return (torch.relu(x + product),)


_CELLS: dict[str, _Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn_tanh,
    "rnn_relu": _rnn_relu,
}
_QUANTIZED = torch.ops.quantized
FORMULAS: dict[Any, Callable[..., Any]] = {
    _QUANTIZED.linear_dynamic: linear,
    _QUANTIZED.linear_dynamic_fp16: linear,
    **{getattr(_QUANTIZED, f"quantized_{name}_cell_dynamic"): cell(name) for name in _CELLS},
    torch.ops.aten.quantized_lstm: recurrent("lstm"),
    torch.ops.aten.quantized_gru: recurrent("gru"),
}
