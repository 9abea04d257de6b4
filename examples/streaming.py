"""Frame by frame: one stream, and many streams stepped together as one batch.

The model is the denoiser of `ostinato demo`: magnitude [time, batch, 161] and state [1, batch, 96]
in, mask and the next state out. A stream keeps the state; steps give the bits of one whole call.
"""

from usage import arguments

arguments(__doc__)

import numpy as np

from ostinato import InferenceSession, demo

session = InferenceSession(demo.MODEL)
random = np.random.default_rng(0)
signals, start = random.random((3, 100, 1, 161), "f4"), np.zeros((1, 1, 96), "f4")
whole = [session.run(["mask"], {"magnitude": x, "state": start})[0] for x in signals]

# One stream. A bound step reads and writes these arrays and allocates nothing.
stream = session.stream({"state": "state_out"})
frame = np.empty((1, 1, 161), np.float32)
step = stream.bind({"magnitude": frame})
for t, expected in enumerate(whole[0]):
    frame[0] = signals[0, t]
    step()
    assert np.array_equal(step.outputs["mask"][0], expected)

# Three streams as one batch. Not every stream has a frame in every step.
pool = session.pool({"state": "state_out"}, capacity=3)
position = {pool.open(): 0 for _ in signals}
while min(position.values()) < 100:
    for number, (handle, t) in enumerate(position.items()):
        if t < 100 and random.random() < 0.8:
            pool.push(handle, {"magnitude": signals[number, t : t + 1]})
    for handle, (mask,) in pool.step().items():
        assert np.array_equal(mask[0], whole[list(position).index(handle)][position[handle]])
        position[handle] += 1
print("100 frames, same bits as one call on the whole signal, alone and in a pool")
