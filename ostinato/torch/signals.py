"""Transforms and windows of signals.

PyTorch takes its inverse transform apart into an operator for each sample of a frame. Its exporter
has windows with defaults alone, and the one of Hamming with the coefficients of ONNX.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.errors import UnsupportedError


def istft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose short-time spectrum comes nearest to `x` (Griffin and Lim, 1984).

    x: complex, [batch, frequencies, frames] or [frequencies, frames]. The result is [batch, time]
        or [time]. onesided: what the number of frequencies says already.

    Raises `UnsupportedError` for a complex window.
    """
    if window is not None and window.is_complex():
        raise UnsupportedError("istft", "module", "a complex window has no native form")
    hop = n_fft // 4 if hop_length is None else hop_length
    spectra = (x if x.dim() == 3 else x.unsqueeze(0)).transpose(1, 2)
    norm = "ortho" if normalized else "backward"
    shape = _window(x, n_fft, n_fft if win_length is None else win_length, window)
    if return_complex:
        frames = torch.fft.ifft(spectra, n_fft, norm=norm)
        parts = [_overlapped(part * shape, hop) for part in (frames.real, frames.imag)]
        signal = torch.complex(*parts)
    else:
        half = n_fft // 2 + 1
        frames = torch.fft.irfft(spectra[..., :half], n_fft, norm=norm)
        signal = _overlapped(frames * shape, hop)
    weights = _overlapped(shape.square().expand(1, spectra.shape[1], n_fft), hop)
    start = n_fft // 2 if center else 0
    # Behind the frames no window has a weight.
    signal = signal[:, start:] / torch.where(weights == 0, 1.0, weights)[:, start:]
    if length is not None:
        signal = F.pad(signal, (0, length))[:, :length]
    elif center:
        signal = signal[:, : hop * (spectra.shape[1] - 1) + n_fft % 2]
    return signal if x.dim() == 3 else signal.squeeze(0)


def _window(x: Tensor, n_fft: int, length: int, window: Tensor | None) -> Tensor:
    """The window in the middle of a frame."""
    if window is None:
        window = torch.ones(length, dtype=x.real.dtype, device=x.device)
    left = (n_fft - length) // 2
    return F.pad(window, (left, n_fft - length - left))


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """Frames [batch, frames, samples] added up, each `hop` samples behind the one before.

    A frame is cut into pieces of `hop` samples: pieces of the same place follow one another.
    """
    batch, count, size = frames.shape
    places = -(-size // hop)
    pieces = F.pad(frames, (0, places * hop - size)).unflatten(-1, (places, hop)).unbind(2)
    rows = [piece.reshape(batch, count * hop) for piece in pieces]
    added = [F.pad(row, (i * hop, (places - 1 - i) * hop)) for i, row in enumerate(rows)]
    return sum(added[1:], added[0])[:, : size + hop * (count - 1)]


def windows() -> dict[Any, Callable[..., Tensor]]:
    """Windows of a length, by operator."""
    aten = torch.ops.aten
    hann, hamming, blackman = (0.5, 0.5), (0.54, 0.46), (0.42, 0.5, 0.08)
    return {
        aten.hann_window.default: _cosines(*hann),
        aten.hann_window.periodic: _cosines(*hann),
        aten.hamming_window.default: _cosines(*hamming),
        aten.hamming_window.periodic: _cosines(*hamming),
        aten.hamming_window.periodic_alpha: _cosines(*hamming),
        aten.hamming_window.periodic_alpha_beta: _cosines(*hamming),
        aten.blackman_window.default: _cosines(*blackman),
        aten.blackman_window.periodic: _cosines(*blackman),
        aten.bartlett_window.default: _bartlett,
        aten.bartlett_window.periodic: _bartlett,
    }


def _cosines(*defaults: float) -> Callable[..., Tensor]:
    """A sum of cosines of whole multiples of the angle, with alternating signs."""

    def call(length: int, periodic: bool = True, *given: float, **kind: Any) -> Tensor:
        factors = (*given, *defaults[len(given) :])
        angle = 2 * math.pi * _places(length, periodic)
        terms = [(-1) ** i * factor * torch.cos(i * angle) for i, factor in enumerate(factors)]
        return _of_kind(sum(terms[1:], terms[0]), length, kind)

    return call


def _bartlett(length: int, periodic: bool = True, **kind: Any) -> Tensor:
    return _of_kind(1 - (2 * _places(length, periodic) - 1).abs(), length, kind)


def _places(length: int, periodic: bool) -> Tensor:
    """The samples' places in the window, from 0 on; 1 is behind it, or its last sample."""
    return torch.arange(length, dtype=torch.float64) / max(length - (not periodic), 1)


def _of_kind(window: Tensor, length: int, kind: Any) -> Tensor:
    """As in PyTorch: in the type that is asked for; a window of one sample is 1."""
    window = torch.ones_like(window) if length == 1 else window
    return window.to(kind.get("dtype") or torch.get_default_dtype())
