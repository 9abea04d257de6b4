"""Operators of PyTorch that few modules call, in terms of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import UnsupportedError

aten = torch.ops.aten


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    places, values = (index.flatten(),), source.flatten()
    return x.flatten().index_put(places, values, accumulate).reshape(x.shape)


def _rrelu(
    x: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    if training:
        return NotImplemented
    return torch.where(x >= 0, x, x * ((lower + upper) / 2))


def _rrelu_with_noise(x: Tensor, noise: Tensor, *options: Any) -> Any:
    found = _rrelu(x, *options)
    return found if found is NotImplemented else (found, noise)


def _nonzero(x: Tensor) -> Any:
    """Of a number: as many places as it is not 0, each without an index."""
    return NotImplemented if x.dim() else aten.nonzero(x.reshape(1))[:, :0]


def _isin(x: Tensor, among: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    found = (x.unsqueeze(-1) == among.flatten()).any(-1)
    return ~found if invert else found


def _aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    if not x.dim():
        return x.clone(), x.clone()
    return NotImplemented


def _as_strided(x: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """Refuse what looks at memory that has another order than the elements."""
    begin = x.storage_offset()
    is_elsewhere = storage_offset is not None and begin and storage_offset != begin
    if not x.is_contiguous() or is_elsewhere:
        raise UnsupportedError(
            "as_strided",
            "module",
            "of a view of other memory it takes elements that the view may not have: call it on "
            "the whole tensor, or on a contiguous() one",
        )
    return NotImplemented


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The mean and the reciprocal deviation of the batch beside the result."""
    if not training:
        return NotImplemented
    axes = [i for i in range(x.dim()) if i != 1]
    form = [-1 if i == 1 else 1 for i in range(x.dim())]
    center = x.mean(axes)
    scale = (x.var(axes, correction=0) + eps).rsqrt()
    result = (x - center.reshape(form)) * scale.reshape(form)
    result = result if weight is None else result * weight.reshape(form)
    result = result if bias is None else result + bias.reshape(form)
    # As in PyTorch, no gradient passes the statistics.
    return result, center.detach(), scale.detach()


def refuse_statistics(nodes: Iterable[torch.fx.Node]) -> None:
    """Refuse a normalisation that gives statistics of the batch and writes into others."""
    for node in nodes:
        if node.target is aten.native_batch_norm.default:
            *_, mean, var, training = node.args[:6]
            if training and (mean is not None or var is not None):
                raise UnsupportedError(
                    str(node.name),
                    "native_batch_norm",
                    "it gives statistics of the batch and writes into others: call "
                    "torch.nn.functional.batch_norm, or pass none that it writes into",
                )


def rarer() -> dict[Any, Callable[..., Any]]:
    """Formulas by operator."""
    return {
        aten.put.default: _put,
        aten.rrelu.default: _rrelu,
        aten.rrelu_with_noise_functional.default: _rrelu_with_noise,
        aten.isin.Tensor_Tensor: _isin,
        **{one: _nonzero for one in (aten.nonzero.default, aten.argwhere.default)},
        aten.aminmax.default: _aminmax,
        aten.as_strided.default: _as_strided,
        aten.native_batch_norm.default: _batch_norm,
    }
