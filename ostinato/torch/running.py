"""Running maxima, products and sums of exponentials of PyTorch, by `scan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan


def _extreme(is_after: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """is_after: of an element and the extreme so far, where the element takes its place."""

    def call(x: Tensor, dim: int) -> Any:
        if not x.dim():
            return x.clone(), torch.zeros_like(x, dtype=torch.int64)
        rows = x.detach().movedim(dim, 0)

        def step(carried: Any, element: Any) -> Any:
            best, place = carried
            value, own = element
            wins = is_after(value, best) | value.isnan()
            best, place = torch.where(wins, value, best), torch.where(wins, own, place)
            return (best, place), place.clone()

        # As float64, since the gradient of `scan` does not take carried integers (PyTorch 2.13).
        start = rows[0].clone(), torch.zeros_like(rows[0], dtype=torch.float64)
        own = torch.arange(x.shape[dim], dtype=torch.float64)
        places = scan(step, start, (rows, own))[1].movedim(0, dim).detach().to(torch.int64)
        return torch.return_types.cummax((x.gather(dim, places), places))

    return call


cummax = _extreme(torch.ge)
cummin = _extreme(torch.le)


def cumprod(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """The product of all elements up to each one."""
    x = x if dtype is None else x.to(dtype)
    if not x.dim():
        return x.clone()

    def step(product: Tensor, element: Tensor) -> Any:
        product = product * element
        return product, product.clone()

    rows = x.movedim(dim, 0)
    return scan(step, torch.ones_like(rows[0]), rows)[1].movedim(0, dim)


def logcumsumexp(x: Tensor, dim: int) -> Any:
    """The logarithm of the sum of exponentials up to each element, of which none overflows."""
    if not x.dim():
        return x.clone()
    if not x.dtype.is_floating_point:
        return NotImplemented
    rows = x.movedim(dim, 0)

    def step(carried: Any, element: Tensor) -> Any:
        most, total = carried
        larger = torch.maximum(most, element).detach()
        # Differences of infinities are no numbers.
        shift = torch.where(larger.isinf(), 0.0, larger)
        total = total * (most - shift).exp() + (element - shift).exp()
        return (larger, total), shift + total.log()

    start = torch.full_like(rows[0], -torch.inf).detach(), torch.zeros_like(rows[0])
    return scan(step, start, rows)[1].movedim(0, dim)
