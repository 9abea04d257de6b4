"""Fine-tuning a recurrent ONNX model on the CPU: from a pretrained file to a saved one.

Here the denoiser of `ostinato demo` learns babble alone. What is saved is a GRU as it was.
"""

from usage import arguments

arguments(__doc__)

import numpy as np

import ostinato
from ostinato.demo import MODEL, signal, synthetic


def batch(seed):
    """Noisy magnitudes [time, batch, bins] and the state they start from; clean magnitudes."""
    random = np.random.default_rng(seed)
    clean = [synthetic.speech(2.0, random) for _ in range(8)]
    noisy = [signal.mix(voice, synthetic.babble(2.0, random), 5.0) for voice in clean]
    c, n = (np.stack([abs(signal.analyze(s)) for s in x], 1, dtype="f4") for x in (clean, noisy))
    return {"magnitude": n, "state": np.zeros((1, 8, 96), "f4")}, {"clean": c, "noisy": n}


def loss(op, outputs, targets):
    """The mean square of what the mask leaves of the noise, in magnitudes."""
    left = op.Sub(op.Mul(outputs["mask"], targets["noisy"]), targets["clean"])
    return op.ReduceMean(op.Mul(left, left), keepdims=0)


targets = dict.fromkeys(("clean", "noisy"), ("float32", ("time", "batch", 161)))
what = {"outputs": ["mask"], "targets": targets, "freeze": ["encoder_*"]}
trainer = ostinato.Trainer(MODEL, loss, "adam", lr=1e-3, clip_norm=1.0, **what)
unheard = [batch(1000), batch(1001)]
before = trainer.evaluate(unheard)
trainer.fit([batch(seed) for seed in range(8)], epochs=6)
trainer.save("babble_denoiser.onnx")
after = ostinato.Trainer("babble_denoiser.onnx", loss, lr=0.0, **what).evaluate(unheard)
print(f"error on voices not heard before: {before:.2f}, fine-tuned: {after:.2f}")
