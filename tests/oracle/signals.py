"""Fourier transforms, framing and windows as their documents define them."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.oracle.graph import Array, Node, op


def _complex(x: Array) -> Array:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def _parts(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


@op("DFT")
def _dft(node: Node, x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
    along = node.get("axis", 1) if node.opset < 20 else -2 if axis is None else int(axis)
    along %= x.ndim
    inverse, onesided = node.get("inverse", 0), node.get("onesided", 0)
    n = x.shape[along] if not (inverse and onesided) else 2 * (x.shape[along] - 1)
    n = n if length is None else int(length)
    if inverse and onesided:
        return np.fft.irfft(_complex(x), n, along)[..., None]
    result = (np.fft.ifft if inverse else np.fft.fft)(_complex(x), n, along)
    return _parts(result.take(range(n // 2 + 1), along) if onesided else result)


@op("STFT")
def _stft(
    node: Node, x: Array, step: Array, window: Array | None = None, length: Array | None = None
) -> Array:
    x = x if x.ndim == 3 else x[..., None]
    n = x.shape[1] if window is None else len(window)
    n = n if length is None else int(length)
    starts = range(0, x.shape[1] - n + 1, int(step))
    weights = np.ones(n) if window is None else window
    frames = np.stack([_complex(x)[:, s : s + n] * weights for s in starts], 1)
    result = np.fft.fft(frames)
    return _parts(result[..., : n // 2 + 1] if node.get("onesided", 1) else result)


def _angles(node: Node, size: Array) -> Array:
    n = int(np.reshape(size, ()))
    return 2 * np.pi * np.arange(n) / (n if node.get("periodic", 1) else n - 1)


@op("HannWindow")
def _hann(node: Node, size: Array) -> Array:
    return _typed64(node, 0.5 - 0.5 * np.cos(_angles(node, size)))


@op("HammingWindow")
def _hamming(node: Node, size: Array) -> Array:
    return _typed64(node, 25 / 46 - 21 / 46 * np.cos(_angles(node, size)))


@op("BlackmanWindow")
def _blackman(node: Node, size: Array) -> Array:
    angles = _angles(node, size)
    return _typed64(node, 0.42 - 0.5 * np.cos(angles) + 0.08 * np.cos(2 * angles))


def _typed64(node: Node, values: Array) -> Array:
    """Integers in their own type, floats as they are."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(node.get("output_datatype", 1)))
    return values.astype(dtype) if dtype.kind in "iu" else values


@op("MelWeightMatrix")
def _mel_weight_matrix(
    node: Node, bands: Array, length: Array, rate: Array, lower: Array, upper: Array
) -> Array:
    low, high = (2595 * np.log10(1 + float(edge) / 700) for edge in (lower, upper))
    step = (high - low) / (int(bands) + 2)
    corners = [
        int((int(length) + 1) * (700 * (10 ** ((low + i * step) / 2595) - 1)) // int(rate))
        for i in range(int(bands) + 2)
    ]
    result = np.zeros((int(length) // 2 + 1, int(bands)))
    for band in range(int(bands)):
        left, centre, right = corners[band : band + 3]
        result[centre, band] = 1
        for k in range(left, centre):
            result[k, band] = (k - left) / (centre - left)
        for k in range(centre, right):
            result[k, band] = (right - k) / (right - centre)
    return _typed64(node, result)
