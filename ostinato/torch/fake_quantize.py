"""Numbers rounded as quantising them would, with PyTorch's gradient: 1 within the range, else 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def per_tensor(x: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Any:
    """`torch.fake_quantize_per_tensor_affine`, of numbers or of tensors of one element."""
    if isinstance(zero_point, Tensor):
        if zero_point.is_floating_point() or not isinstance(scale, Tensor):
            return NotImplemented
        return _rounded(x, scale.reshape(()), zero_point.reshape(()), low, high)
    # PyTorch computes in the type of `x`, and divides by the scale once.
    narrow = np.float32(scale)
    return _rounded(x, torch.tensor(narrow), torch.tensor(float(zero_point)), low, high)


def per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> Any:
    """`torch.fake_quantize_per_channel_affine`."""
    if zero_point.is_floating_point():
        return NotImplemented
    shape = [-1 if place == axis % x.dim() else 1 for place in range(x.dim())]
    return _rounded(x, scale.reshape(shape), zero_point.reshape(shape), low, high)


def _rounded(x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
    point = zero_point.float()
    whole = torch.round(x.detach().float() * (1 / scale.float())) + point
    rounded = ((whole.clamp(low, high) - point) * scale.float()).to(x.dtype)
    seen = torch.where((whole >= low) & (whole <= high), x, torch.zeros((), dtype=x.dtype))
    # A difference of 0, through which the gradient goes.
    return rounded.detach() + (seen - seen.detach())
