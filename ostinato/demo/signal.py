"""Short-time spectra of mono signals: 20 ms frames every 10 ms at 16 kHz.

Analysis and synthesis both use the square root of a periodic Hann window. At half overlap the
squared windows add up to one, so `synthesize(analyze(x), len(x))` returns `x` (Griffin and Lim,
"Signal estimation from modified short-time Fourier transform", 1984, equation 6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]
ComplexArray = npt.NDArray[np.complexfloating]

SAMPLE_RATE = 16_000
FRAME = 320
HOP = FRAME // 2
BINS = FRAME // 2 + 1
WINDOW = np.sin(np.pi * np.arange(FRAME) / FRAME)


def analyze(signal: FloatArray) -> ComplexArray:
    """Spectra [frames, BINS] of a signal [samples]; frame t starts at sample (t - 1) * HOP.

    Zeros before and behind the signal let two frames cover every sample of it.
    """
    count = -(-len(signal) // HOP) + 1
    padded = np.zeros((count + 1) * HOP, dtype=signal.dtype)
    padded[HOP : HOP + len(signal)] = signal
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    return np.fft.rfft(frames * WINDOW, axis=-1)


def synthesize(spectra: ComplexArray, length: int) -> FloatArray:
    """Signal [length] from spectra [frames, BINS] by windowed overlap-add; inverts `analyze`."""
    frames = np.fft.irfft(spectra, FRAME, axis=-1) * WINDOW
    padded = np.zeros((len(frames) + 1, HOP), dtype=frames.dtype)
    padded[:-1] += frames[:, :HOP]
    padded[1:] += frames[:, HOP:]
    return padded.reshape(-1)[HOP : HOP + length]


def snr_db(clean: FloatArray, estimate: FloatArray) -> float:
    """Signal-to-noise ratio of an estimate in dB: clean energy over that of the difference."""
    return float(10 * np.log10(np.sum(clean**2) / np.sum((estimate - clean) ** 2)))


def mix(clean: FloatArray, noise: FloatArray, snr: float) -> FloatArray:
    """`clean` plus `noise` scaled so that `snr_db` of the mixture is `snr` dB."""
    gain = float(np.sqrt(np.sum(clean**2) / np.sum(noise**2) * 10 ** (-snr / 10)))
    return clean + gain * noise
