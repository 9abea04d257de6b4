"""Covariances, powers, choices and reductions by index, which PyTorch's exporter does not know."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from ostinato.torch import running

# Rows of a table of choices that a model holds.
_MOST_CHOICES = 2**20


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Any:
    """Powers of the elements, the highest first, as `torch.vander` names its arguments."""
    powers = linalg_vander(x, N=N)
    return powers if increasing else powers.flip(-1)


def linalg_vander(x: Tensor, *, N: int | None = None) -> Any:
    """Powers of the elements along a new last axis, beginning with 1."""
    count = x.shape[-1] if N is None else N
    if not isinstance(count, int) or count < 1 or not x.dim():
        return NotImplemented
    ones = torch.ones_like(x).unsqueeze(-1)
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        x, ones = x.long(), ones.long()
    if count == 1:
        return ones
    factors = x.unsqueeze(-1).expand(*x.shape, count - 1)
    return torch.cat([ones, running.cumprod(factors, -1)], -1)


def cov(
    x: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Any:
    """The covariance of rows; fweights: how often each column counts, aweights: how much."""
    if x.dim() > 2 or x.dtype.is_complex or x.dtype == torch.bool:
        return NotImplemented
    rows = x if x.dim() == 2 else x.reshape(1, -1)
    rows = rows if rows.dtype.is_floating_point else rows.to(torch.get_default_dtype())
    given = [one for one in (fweights, aweights) if one is not None]
    if not given:
        centred = rows - rows.mean(1, keepdim=True)
        return (centred @ centred.mT / max(rows.shape[1] - correction, 0)).squeeze()
    weights = math.prod(given[1:], start=given[0]).to(rows.dtype)
    total = weights.sum()
    lost = total * 0 + 1 if aweights is None else (weights * aweights).sum() / total
    centred = rows - (rows * weights).sum(1, keepdim=True) / total
    return (centred * weights @ centred.mT / (total - correction * lost).clamp(min=0)).squeeze()


def corrcoef(x: Tensor) -> Any:
    """The covariance of rows that are divided by their deviations."""
    found = cov(x)
    if found is NotImplemented:
        return found
    if not found.dim():
        return found / found
    deviations = found.diagonal().sqrt()
    return (found / deviations.unsqueeze(1) / deviations).clamp(-1, 1)


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """Each choice of `r` elements as a row."""
    if x.dim() != 1 or not isinstance(x.shape[0], int) or r < 1:
        return NotImplemented
    count = x.shape[0]
    if math.comb(count + r - 1 if with_replacement else count, r) > _MOST_CHOICES:
        return NotImplemented
    choose: Any = (
        itertools.combinations_with_replacement if with_replacement else itertools.combinations
    )
    places = torch.tensor([*choose(range(count), r)], dtype=torch.int64).reshape(-1, r)
    return x[places]


def _met(index: Tensor, source: Tensor) -> Tensor:
    """The part of a source that has indices, which in ONNX is all of it."""
    for axis, (count, size) in enumerate(zip(index.shape, source.shape, strict=True)):
        if isinstance(count, int) and isinstance(size, int) and count < size:
            source = source.narrow(axis, 0, count)
    return source


def scattered(operator: Any) -> Any:
    """A scatter whose source may be larger than its indices."""

    def call(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
        met = _met(index, source)
        return NotImplemented if met is source else operator(x, dim, index, met)

    return call


def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Any:
    """The mean of all elements that go to one place, which no scatter of ONNX computes."""
    met = _met(index, source)
    if reduce != "mean" and met is source:
        return NotImplemented
    if reduce != "mean":
        return x.scatter_reduce(dim, index, met, reduce, include_self=include_self)
    source = met
    ones = torch.ones_like(source)
    first = torch.ones_like(x) if include_self else torch.zeros_like(x)
    count = first.scatter_add(dim, index, ones)
    kept = x if include_self else torch.where(count > 0, 0, x)
    total, count = kept.scatter_add(dim, index, source), count.clamp(min=1)
    if x.dtype.is_floating_point:
        return total / count
    return torch.div(total, count, rounding_mode="floor")


def scatter(x: Tensor, dim: int, index: Tensor, source: Tensor | float, *, reduce: str) -> Any:
    """Sums or products at places, of tensors or of one number."""
    if not isinstance(source, Tensor):
        source = torch.full_like(index, source, dtype=x.dtype)
    source = _met(index, source)
    return x.scatter_reduce(dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Reduce each slice of `source` into the slice of `x` at its index, as a scatter does."""
    if not x.dim():
        return NotImplemented
    shape = [1] * x.dim()
    shape[dim] = -1
    places = index.to(torch.int64).reshape(shape).expand(source.shape)
    found = scatter_reduce(x, dim, places, source, reduce, include_self)
    if found is not NotImplemented:
        return found
    return x.scatter_reduce(dim, places, source, reduce, include_self=include_self)
