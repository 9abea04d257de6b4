from itertools import pairwise

import numpy as np
import pytest

from ostinato.demo.signal import HOP, SAMPLE_RATE
from ostinato.demo.synthetic import NOISES, _pulses, speech

MAKERS = {"speech": speech, **NOISES}


@pytest.mark.parametrize("name", MAKERS)
def test_signals_follow_from_their_seed(name):
    first, again, other = (MAKERS[name](1.5, np.random.default_rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", MAKERS)
def test_signals_have_the_stated_length_and_unit_rms(name):
    signal = MAKERS[name](2.01, np.random.default_rng(5))
    assert signal.shape == (round(2.01 * SAMPLE_RATE),)
    assert np.sqrt(np.mean(signal**2)) == pytest.approx(1)


def test_pulses_are_harmonics_of_equal_strength():
    pulses = _pulses(np.full(101, 200.0), 100 * HOP)
    spectrum = np.abs(np.fft.rfft(pulses))
    peaks = spectrum[200:7801:200]
    assert np.sqrt(np.mean(pulses**2)) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(peaks, peaks[0], rtol=1e-6)
    assert np.sum(spectrum**2) == pytest.approx(np.sum(peaks**2), rel=1e-6)


def test_pink_noise_falls_by_three_decibels_per_octave():
    power = np.abs(np.fft.rfft(NOISES["pink"](20.0, np.random.default_rng(6)))) ** 2
    edges = 20 * np.array([125, 250, 500, 1000, 2000, 4000])
    octaves = [power[low:high].mean() for low, high in pairwise(edges)]
    np.testing.assert_allclose(np.diff(10 * np.log10(octaves)), -3.01, atol=0.35)


def test_speech_pauses():
    signal = speech(10.0, np.random.default_rng(7))
    level = np.sqrt(np.mean(signal.reshape(-1, HOP) ** 2, axis=1))
    assert 0.05 < np.mean(level < 0.01 * level.max()) < 0.7
