"""Denoise a recording frame by frame with DTLN: two models, each a stream with its own state.

    pip install 'ostinato[demo]'
    python examples/denoise_dtln.py MODELS NOISY.wav CLEAN.wav

MODELS is pretrained_model of https://github.com/breizhn/DTLN; NOISY.wav has 16 kHz, one channel.
"""

from usage import arguments, stop

folder, noisy, clean = arguments(__doc__)

import numpy as np
import soundfile

import ostinato
from ostinato.cli.meter import Meter

BLOCK, HOP, RATE = 512, 128, 16000
samples, rate = soundfile.read(noisy, dtype="float32")
if rate != RATE or samples.ndim != 1:
    stop(f"{noisy}: expected 16 kHz and one channel, got {rate} Hz, shape {samples.shape}")
first, second = (ostinato.InferenceSession(f"{folder}/dtln_model_{i}.onnx") for i in (1, 2))
masking = first.stream({"input_3": "tf_op_layer_stack_2"})
synthesis = second.stream({"input_5": "tf_op_layer_stack_5"})
block, overlap, cleaned = (np.zeros(n, np.float32) for n in (BLOCK, BLOCK, len(samples)))
with Meter(HOP / RATE) as meter:
    for start in range(0, len(samples) - HOP + 1, HOP):
        with meter.step():
            block = np.append(block[HOP:], samples[start : start + HOP])
            spectrum = np.fft.rfft(block).astype(np.complex64)
            (mask,) = masking.step({"input_2": np.abs(spectrum).reshape(1, 1, -1)})
            estimate = np.fft.irfft(spectrum * mask.ravel()).astype(np.float32)
            (frame,) = synthesis.step({"input_4": estimate.reshape(1, 1, -1)})
            overlap = np.append(overlap[HOP:], np.zeros(HOP, np.float32)) + frame.ravel()
            cleaned[start : start + HOP] = overlap[:HOP]
soundfile.write(clean, cleaned, RATE)
print(meter.summary())
