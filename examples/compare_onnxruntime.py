"""The outputs of this compiler beside those of onnxruntime, for the same inputs.

    pip install ostinato onnxruntime

From the command line: `ostinato compare MODEL --vs onnxruntime --dim time=100`. The two differ in
the last places: they add in another order and approximate exp differently (docs/numerics.md).
"""

from usage import arguments

arguments(__doc__)

import numpy as np
import onnxruntime

import ostinato
from ostinato.demo import MODEL

rng = np.random.default_rng(0)
feeds = {
    "magnitude": np.abs(rng.standard_normal((100, 1, 161))).astype(np.float32),
    "state": np.zeros((1, 1, 96), np.float32),
}
session = ostinato.InferenceSession(MODEL)
ours = session.run(None, feeds)

theirs = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, feeds)
for output, a, b in zip(session.get_outputs(), ours, theirs, strict=True):
    print(f"{output.name} {output.shape}: largest difference {np.abs(a - b).max():.1e}")
    np.testing.assert_allclose(a, b, atol=1e-5)
