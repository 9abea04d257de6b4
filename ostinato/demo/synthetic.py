"""Speech-like signals and noises made from random numbers alone, for training, tests and the demo.

The speech is a source-filter model (Fant, "Acoustic Theory of Speech Production", 1960): pulses at
a moving pitch and noise excite a moving formant envelope, in syllables, with pauses. It says
nothing, yet has what a denoiser learns from: harmonics that glide together, formants, onsets,
silence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ostinato.demo.signal import BINS, HOP, SAMPLE_RATE, FloatArray, analyze, synthesize

_FREQUENCIES = np.linspace(0, SAMPLE_RATE / 2, BINS)
_FRAME_RATE = SAMPLE_RATE // HOP

# Ranges in Hz of the first four formants, and their bandwidths.
_FORMANTS = np.array([[280, 820], [850, 2300], [2200, 3000], [3200, 4000]])
_BANDWIDTHS = np.array([90, 110, 170, 250])


def speech(seconds: float, rng: np.random.Generator) -> FloatArray:
    """Speech-like signal [seconds * SAMPLE_RATE] of one random voice, float64, unit RMS."""
    length = round(seconds * SAMPLE_RATE)
    frames = -(-length // HOP) + 1
    voiced, fricative, formants, fricative_centre = _syllables(frames, rng)
    tract = rng.uniform(0.85, 1.2)
    distance = (_FREQUENCIES - tract * formants[:, :, None]) / _BANDWIDTHS[:, None]
    strength = np.array([1.0, 0.6, 0.35, 0.2]) * rng.uniform(0.5, 1.5, 4)
    resonances = np.sum(strength[:, None] / (1 + distance**2), axis=1)
    vowel = (resonances + 0.02) / (1 + _FREQUENCIES / 1000) ** rng.uniform(0.5, 2)
    hiss = np.exp(-(((_FREQUENCIES - fricative_centre[:, None]) / 1500) ** 2))
    breath = rng.uniform(0.02, 0.15)
    pulses = analyze(_pulses(_pitch(frames, rng), length))
    noise = analyze(rng.standard_normal(length))
    spectra = voiced[:, None] * vowel * (pulses + breath * noise)
    spectra += (fricative * rng.uniform(0.05, 0.3))[:, None] * hiss * noise
    return _unit(synthesize(spectra, length))


def _syllables(
    frames: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Per frame: voiced gain, fricative gain, formants [frames, 4] and hiss centre in Hz."""
    voiced, fricative = np.zeros(frames), np.zeros(frames)
    formants = np.tile(_FORMANTS.mean(axis=1), (frames, 1))
    centre = np.full(frames, 4000.0)
    start = int(rng.integers(0, _FRAME_RATE // 2))
    while start < frames:
        onset = start + int(rng.integers(4, 13)) * int(rng.random() < 0.5)
        end = onset + int(rng.integers(8, 32))
        fricative[start:onset] = rng.uniform(0.3, 1)
        voiced[onset:end] = rng.uniform(0.3, 1)
        centre[start:end] = rng.uniform(2500, 6500)
        formants[start:end] = rng.uniform(_FORMANTS[:, 0], _FORMANTS[:, 1])
        start = end + int(rng.integers(0, 6))
        if rng.random() < 0.15:
            start += int(rng.integers(15, 70))
    smooth_formants = np.stack([_smooth(track, 11) for track in formants.T], axis=1)
    return _smooth(voiced, 5), _smooth(fricative, 5), smooth_formants, centre


def _pitch(frames: int, rng: np.random.Generator) -> FloatArray:
    """Pitch in Hz per frame: a random voice of 80 to 300 Hz that wanders by some semitones."""
    base = 80 * (300 / 80) ** rng.random()
    knots = np.arange(0, frames + 25, 25)
    wander = np.interp(np.arange(frames), knots, rng.normal(0, 0.18, len(knots)))
    pitch: FloatArray = base * 2 ** _smooth(wander, 9)
    return pitch


def _pulses(pitch: FloatArray, length: int) -> FloatArray:
    """All harmonics of `pitch` below 7.8 kHz, equally strong: the Dirichlet kernel of the phase."""
    track = np.interp(np.arange(length) / HOP, np.arange(len(pitch)), pitch)
    half_phase = np.pi * np.cumsum(track) / SAMPLE_RATE
    harmonics = np.floor(7800 / track)
    sine = np.sin(half_phase)
    safe = np.where(np.abs(sine) < 1e-6, 1.0, sine)
    kernel = np.sin((2 * harmonics + 1) * half_phase) / safe
    pulses: FloatArray = np.where(np.abs(sine) < 1e-6, 2 * harmonics, kernel - 1)
    pulses /= np.sqrt(2 * harmonics)
    return pulses


def white(seconds: float, rng: np.random.Generator) -> FloatArray:
    """White noise [seconds * SAMPLE_RATE], unit RMS."""
    return _unit(rng.standard_normal(round(seconds * SAMPLE_RATE)))


def pink(seconds: float, rng: np.random.Generator) -> FloatArray:
    """Noise [seconds * SAMPLE_RATE] whose power falls by 3 dB per octave above 30 Hz, unit RMS."""
    spectrum = np.fft.rfft(white(seconds, rng))
    frequency = np.linspace(0, SAMPLE_RATE / 2, len(spectrum))
    length = round(seconds * SAMPLE_RATE)
    return _unit(np.fft.irfft(spectrum / np.sqrt(np.maximum(frequency, 30)), length))


def hum(seconds: float, rng: np.random.Generator) -> FloatArray:
    """Harmonics of 50 or 60 Hz mains [seconds * SAMPLE_RATE] over faint pink noise, unit RMS."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    mains = rng.choice([50, 60])
    order = np.arange(1, 25)
    amplitude = rng.random(len(order)) / order
    phase = rng.uniform(0, 2 * np.pi, len(order))
    tones = np.zeros(len(time))
    for k, gain, shift in zip(order, amplitude, phase, strict=True):
        tones += gain * np.sin(2 * np.pi * k * mains * time + shift)
    return _unit(_unit(tones) + 0.2 * pink(seconds, rng))


def babble(seconds: float, rng: np.random.Generator) -> FloatArray:
    """Eight voices at once [seconds * SAMPLE_RATE], at different levels, unit RMS."""
    voices = [rng.uniform(0.5, 1) * speech(seconds, rng) for _ in range(8)]
    return _unit(np.sum(voices, axis=0))


def coloured(seconds: float, rng: np.random.Generator) -> FloatArray:
    """Noise [seconds * SAMPLE_RATE] of a random spectrum that swells and fades, unit RMS."""
    spectra = analyze(white(seconds, rng))
    colour = np.interp(_FREQUENCIES, np.linspace(0, SAMPLE_RATE / 2, 9), rng.normal(0, 0.6, 9))
    knots = np.arange(0, len(spectra) + 50, 50)
    swell = np.interp(np.arange(len(spectra)), knots, rng.normal(0, 0.25, len(knots)))
    spectra = spectra * 10 ** (colour + swell[:, None])
    return _unit(synthesize(spectra, round(seconds * SAMPLE_RATE)))


NOISES: dict[str, Callable[[float, np.random.Generator], FloatArray]] = {
    "white": white,
    "pink": pink,
    "coloured": coloured,
    "hum": hum,
    "babble": babble,
}


def _smooth(track: FloatArray, width: int) -> FloatArray:
    """Track [frames] averaged under a Hann bump of `width` frames, its ends held."""
    bump = np.hanning(width + 2)[1:-1]
    padded = np.pad(track, width // 2, mode="edge")
    return np.convolve(padded, bump / bump.sum(), mode="valid")


def _unit(signal: FloatArray) -> FloatArray:
    """The signal scaled to unit RMS; silence stays silence."""
    rms = np.sqrt(np.mean(signal**2))
    return signal / rms if rms > 0 else signal
