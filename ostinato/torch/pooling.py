"""Pools of PyTorch that its exporter has no form for, or whose divisor it leaves out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.errors import UnsupportedError

aten = torch.ops.aten


def _of_axes(value: Any, count: int) -> list[Any]:
    given = [value] if not isinstance(value, Sequence) else list(value)
    return given * count if len(given) == 1 else given


def _divided(pool: Any, rank: int) -> Callable[..., Any]:
    """Means over windows by a divisor of the caller's, whatever lies inside of the image."""

    def call(
        x: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override is None:
            return NotImplemented
        kernel, before = _of_axes(kernel_size, rank), _of_axes(padding, rank)
        steps = _of_axes(stride, rank) if stride not in ((), [], None) else kernel
        pads: list[int] = []
        for axis in range(1, rank + 1):
            size, k, step, pad = x.shape[-axis], kernel[-axis], steps[-axis], before[-axis]
            pads += [pad, pad + (_overhang(size, k, step, pad) if ceil_mode else 0)]
        padded = F.pad(x, pads)
        return pool(padded, kernel, steps) * (math.prod(kernel) / divisor_override)

    return call


def _overhang(size: Any, kernel: int, step: int, pad: int) -> int:
    """By how much the last window leads beyond the padding; each begins before that behind."""
    if not isinstance(size, int):
        raise UnsupportedError(
            "avg_pool", "module", "divisor_override with ceil_mode needs images of a known size"
        )
    whole = -(-(size + 2 * pad - kernel) // step) + 1
    if (whole - 1) * step >= size + pad:
        whole -= 1
    return max((whole - 1) * step + kernel - size - 2 * pad, 0)


def _windows(x: Tensor, sizes: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor] | None:
    """The elements of each window of the last axes, where there are some, and their places.

    The windows are the last axis. None where the image has no known size.
    """
    rank = len(sizes)
    shape = x.shape[-rank:]
    if not all(isinstance(n, int) for n in (*shape, *sizes)):
        return None
    places, inside = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
    for axis, (size, count) in enumerate(zip(shape, sizes, strict=True)):
        starts = [i * size // count for i in range(count)]
        ends = [-(-(i + 1) * size // count) for i in range(count)]
        longest = max((e - s for s, e in zip(starts, ends, strict=True)), default=1)
        numbers = torch.arange(count)
        here = (numbers * size // count).unsqueeze(-1) + torch.arange(longest)
        form = [count if i == axis else 1 for i in range(rank)]
        form += [longest if i == axis else 1 for i in range(rank)]
        behind = ((numbers + 1) * size + count - 1) // count
        is_in = (here < behind.unsqueeze(-1)).reshape(form)
        places = places * size + here.clamp(max=size - 1).reshape(form)
        inside = inside & is_in
    places, inside = places.flatten(rank), inside.flatten(rank)
    taken = x.flatten(-rank).index_select(-1, places.flatten())
    return taken.unflatten(-1, places.shape), inside, places


def _adaptive_max(x: Tensor, output_size: Sequence[Any]) -> Any:
    found = _windows(x, output_size)
    if found is None:
        return NotImplemented
    taken, inside, places = found
    least = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    masked = torch.where(inside, taken, least)
    first = masked.argmax(-1, keepdim=True)
    return masked.amax(-1), places.expand(masked.shape).gather(-1, first).squeeze(-1)


def _adaptive_mean(x: Tensor, output_size: Sequence[Any]) -> Any:
    found = _windows(x, output_size)
    if found is None:
        return NotImplemented
    taken, inside, _ = found
    return torch.where(inside, taken, 0.0).sum(-1) / inside.sum(-1)


def pools() -> dict[Any, Callable[..., Any]]:
    """Formulas by operator."""
    return {
        aten.avg_pool2d.default: _divided(aten.avg_pool2d, 2),
        aten.avg_pool3d.default: _divided(aten.avg_pool3d, 3),
        aten.adaptive_max_pool2d.default: _adaptive_max,
        aten.adaptive_max_pool3d.default: _adaptive_max,
        aten.adaptive_max_pool1d.default: _adaptive_max,
        aten.adaptive_avg_pool3d.default: _adaptive_mean,
    }
