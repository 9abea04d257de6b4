"""The shipped model, judged by the reference kernels of onnx alone."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ostinato.demo import MODEL
from ostinato.demo.signal import BINS, analyze, mix, snr_db, synthesize
from ostinato.demo.synthetic import NOISES, speech

HIDDEN = 96


@pytest.fixture(scope="module")
def model():
    return onnx.load(MODEL)


@pytest.fixture(scope="module")
def evaluator(model):
    return ReferenceEvaluator(model)


def masks_of(evaluator, magnitude, state=None):
    """Masks [time, BINS] and the final state of one call over all of magnitude [time, BINS]."""
    state = np.zeros((1, 1, HIDDEN), np.float32) if state is None else state
    mask, state = evaluator.run(None, {"magnitude": magnitude[:, None], "state": state})
    return mask[:, 0], state


def test_file_is_small_and_valid(model):
    assert MODEL.stat().st_size < 300_000
    onnx.checker.check_model(model, full_check=True)


def test_interface(model):
    def shapes(values):
        return {
            value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in values
        }

    assert shapes(model.graph.input) == {
        "magnitude": ["time", "batch", BINS],
        "state": [1, "batch", HIDDEN],
    }
    assert shapes(model.graph.output) == {
        "mask": ["time", "batch", BINS],
        "state_out": [1, "batch", HIDDEN],
    }


def test_frame_by_frame_equals_whole_sequence(evaluator):
    magnitude = np.abs(analyze(speech(0.3, np.random.default_rng([2, 0])))).astype(np.float32)
    whole, final = masks_of(evaluator, magnitude)
    state = None
    for t in range(len(magnitude)):
        mask, state = masks_of(evaluator, magnitude[t : t + 1], state)
        np.testing.assert_allclose(mask[0], whole[t], rtol=0, atol=1e-5)
    np.testing.assert_allclose(state, final, rtol=0, atol=1e-5)
    assert whole.min() >= 0
    assert whole.max() <= 1


def gain_db(evaluator, noise, snr, seed):
    """SNR gain in dB for eight seconds of speech and noise that training never saw."""
    rng = np.random.default_rng([2, seed])
    clean = speech(8.0, rng) / 20
    noisy = mix(clean, NOISES[noise](8.0, rng), snr)
    spectra = analyze(noisy)
    masks, _ = masks_of(evaluator, np.abs(spectra).astype(np.float32))
    return snr_db(clean, synthesize(spectra * masks, len(noisy))) - snr


# Babble is other speech: with one small network and one microphone, little can be told apart.
@pytest.mark.parametrize(
    ("noise", "least"), [("white", 7), ("pink", 7), ("coloured", 8), ("hum", 10), ("babble", 3)]
)
def test_gain_at_five_decibels(evaluator, noise, least):
    assert np.mean([gain_db(evaluator, noise, 5.0, seed) for seed in range(4)]) >= least


def test_nearly_clean_speech_is_left_alone(evaluator):
    assert np.mean([gain_db(evaluator, "pink", 30.0, seed) for seed in range(4)]) >= 0
