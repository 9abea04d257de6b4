"""Tell speech from silence in a recording, chunk by chunk of 32 ms, with silero-vad as a stream.

    pip install 'ostinato[demo]'
    python examples/detect_speech.py silero_vad.onnx RECORDING.wav

The model is https://github.com/snakers4/silero-vad; the recording has 16 kHz and one channel.
"""

from usage import arguments, stop

model, recording = arguments(__doc__)

import numpy as np
import soundfile

import ostinato
from ostinato.cli.meter import Meter

CHUNK, CONTEXT, RATE = 512, 64, 16000
samples, rate = soundfile.read(recording, dtype="float32")
if rate != RATE or samples.ndim != 1:
    stop(f"{recording}: expected 16 kHz and one channel, got {rate} Hz, shape {samples.shape}")
stream = ostinato.InferenceSession(model).stream({"state": "stateN"}, sizes={"state.1": 1})
print(stream.describe())

padded = np.append(np.zeros(CONTEXT, np.float32), samples)
speaking, began = False, 0.0
with Meter(CHUNK / RATE) as meter:
    for start in range(0, len(samples) - CHUNK + 1, CHUNK):
        chunk = padded[start : start + CONTEXT + CHUNK].reshape(1, -1)
        with meter.step():
            (probability,) = stream.step({"input": chunk, "sr": np.array(RATE)})
        if (probability.item() > 0.5) != speaking:
            speaking, now = not speaking, start / RATE
            if not speaking:
                print(f"speech from {began:.2f} s to {now:.2f} s")
            began = now
print(meter.summary())
