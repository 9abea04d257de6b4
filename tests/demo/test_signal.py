import numpy as np
import pytest

from ostinato.demo.signal import BINS, FRAME, HOP, SAMPLE_RATE, analyze, mix, snr_db, synthesize


@pytest.mark.parametrize("length", [1, HOP - 1, HOP, HOP + 1, FRAME, 5000])
def test_analysis_and_synthesis_reconstruct_the_signal(length):
    signal = np.random.default_rng(length).standard_normal(length)
    spectra = analyze(signal)
    assert spectra.shape == (-(-length // HOP) + 1, BINS)
    np.testing.assert_allclose(synthesize(spectra, length), signal, rtol=0, atol=1e-14)


def test_a_tone_lies_in_the_bin_of_its_frequency():
    tone = np.sin(2 * np.pi * 1000 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)
    magnitude = np.abs(analyze(tone))
    assert (magnitude[2:-2].argmax(axis=1) == 1000 * FRAME // SAMPLE_RATE).all()


def test_frame_starts_one_hop_before_its_index():
    impulse = np.zeros(4 * HOP)
    impulse[HOP] = 1
    energy = np.sum(np.abs(analyze(impulse)) ** 2, axis=1)
    assert energy[1] > 0
    np.testing.assert_array_equal(np.flatnonzero(energy), [1])


@pytest.mark.parametrize("snr", [-5.0, 0.0, 12.0])
def test_mix_has_the_requested_ratio(snr):
    clean, noise = np.random.default_rng(1).standard_normal((2, 1000))
    assert snr_db(clean, mix(clean, 7 * noise, snr)) == pytest.approx(snr, abs=1e-9)
