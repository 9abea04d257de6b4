"""Frame by frame with two bound calls: each reads the state that the other wrote.

The model is the denoiser of `ostinato demo`: magnitude [time, batch, 161] and state [1, batch, 96]
in, mask and the next state out. Stepping through a signal gives the same bits as one call on all
of it.
"""

import numpy as np

import ostinato
from ostinato.demo import MODEL

session = ostinato.InferenceSession(MODEL)

# Arrays that calls read and write in place. Nothing is allocated after this.
frame = np.zeros((1, 1, 161), np.float32)
mask = np.zeros((1, 1, 161), np.float32)
a, b = np.zeros((1, 1, 96), np.float32), np.zeros((1, 1, 96), np.float32)
calls = (
    session.bind({"magnitude": frame, "state": a}, {"mask": mask, "state_out": b}),
    session.bind({"magnitude": frame, "state": b}, {"mask": mask, "state_out": a}),
)

signal = np.abs(np.random.default_rng(0).standard_normal((100, 1, 161))).astype(np.float32)
masks = np.empty_like(signal)
for t in range(len(signal)):
    frame[0] = signal[t]
    calls[t % 2]()
    masks[t] = mask[0]

start = np.zeros((1, 1, 96), np.float32)
whole, _ = session.run(None, {"magnitude": signal, "state": start})
assert np.array_equal(masks, whole)
print(f"{len(signal)} frames, same bits as one call on the whole signal")
