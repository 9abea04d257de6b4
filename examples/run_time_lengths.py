"""One compiled model for every sequence length and batch: named dimensions stay run-time sizes.

A new length compiles nothing; it only makes a plan (output shapes, size of the scratch memory).
`specialize` bakes a size in. Neither it, nor the batch, nor how a sequence is cut, changes a bit.
"""

from usage import arguments

arguments(__doc__)

import numpy as np

import ostinato
from ostinato.demo import MODEL

session = ostinato.InferenceSession(MODEL)
for argument in session.get_inputs():
    print(f"{argument.name}: {argument.type} {argument.shape}")


def run(magnitude, session=session):
    """The mask for magnitudes [time, batch, 161], from a state of zeros."""
    state = np.zeros((1, magnitude.shape[1], 96), np.float32)
    mask, _ = session.run(None, {"magnitude": magnitude, "state": state})
    return mask


signal = np.abs(np.random.default_rng(0).standard_normal((200, 4, 161))).astype(np.float32)
whole = run(signal)
for length in (1, 7, 50, 200):
    # The first steps do not depend on how many follow.
    assert np.array_equal(run(signal[:length]), whole[:length])
    print(f"time={length}: mask {whole[:length].shape}")

assert np.array_equal(run(signal[:, 2:3]), whole[:, 2:3])  # one of a batch of four, alone

fixed = ostinato.InferenceSession(MODEL, specialize={"time": 200, "batch": 4})
assert np.array_equal(run(signal, fixed), whole)
print("same bits for every length, batch and specialisation")
