"""The outputs of this compiler beside those of onnxruntime, for the same inputs.

From the command line: `ostinato compare MODEL --vs onnxruntime --dim time=100`. The two differ in
the last places: they add in another order and approximate exp differently (docs/numerics.md).
"""

import numpy as np

import ostinato
from ostinato.demo import MODEL

rng = np.random.default_rng(0)
feeds = {
    "magnitude": np.abs(rng.standard_normal((100, 1, 161))).astype(np.float32),
    "state": np.zeros((1, 1, 96), np.float32),
}
session = ostinato.InferenceSession(MODEL)
ours = session.run(None, feeds)

try:
    import onnxruntime
except ImportError:
    raise SystemExit("onnxruntime is not installed: nothing to compare with") from None

theirs = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, feeds)
for output, a, b in zip(session.get_outputs(), ours, theirs, strict=True):
    print(f"{output.name} {output.shape}: largest difference {np.abs(a - b).max():.1e}")
    np.testing.assert_allclose(a, b, atol=1e-5)
