# %% [markdown]
"""A first look, cell by cell: denoise a signal whole, then frame by frame, and plot what happened.

    pip install 'ostinato[demo]'
    python examples/first_look.py

Editors that know `# %%` cells open it as a notebook; as a program it writes first_look.png.
"""

# %% A noisy signal, made from random numbers
from time import perf_counter_ns

from usage import arguments

arguments(__doc__)

import matplotlib.pyplot as plt
import numpy as np

import ostinato
from ostinato.demo import MODEL
from ostinato.demo.signal import HOP, SAMPLE_RATE, analyze, mix, snr_db, synthesize
from ostinato.demo.synthetic import speech, white

random = np.random.default_rng(3)
clean = speech(6, random)
noisy = mix(clean, white(6, random), 5)
spectra = analyze(noisy)
frames = np.abs(spectra).astype(np.float32)[:, None, None]  # one frame: [time 1, batch 1, 161]

# %% The whole signal in one call
session = ostinato.InferenceSession(MODEL)
start = {"state": np.zeros((1, 1, 96), np.float32)}
masks, _ = session.run(None, {"magnitude": frames[:, 0], **start})
denoised = synthesize(masks[:, 0] * spectra, len(clean))
print(f"{snr_db(clean, noisy):.1f} dB before, {snr_db(clean, denoised):.1f} dB after")

# %% Frame by frame: the stream keeps the state, the bits are the same
stream, times = session.stream({"state": "state_out"}), []
for frame, expected in zip(frames, masks, strict=True):
    before = perf_counter_ns()
    (mask,) = stream.step({"magnitude": frame})
    times.append((perf_counter_ns() - before) / 1000)
    assert np.array_equal(mask[0], expected)

# %% What the compiler made of it
print(report := session.report())

# %% Plots
figure, axes = plt.subplots(2, 2, figsize=(11, 6), layout="constrained")
for panel, title, signal in zip(axes[0], ("noisy", "denoised"), (noisy, denoised), strict=True):
    panel.specgram(signal, NFFT=2 * HOP, Fs=SAMPLE_RATE, noverlap=HOP, vmin=-90, cmap="magma")
    panel.set(title=title, xlabel="s", ylabel="Hz")
axes[1, 0].hist(times, bins=60, range=(0, 3 * np.median(times)))
axes[1, 0].set(title=f"one frame: median {np.median(times):.1f} us", xlabel="us")
kernels = sorted(report.kernels, key=lambda kernel: kernel["bytes"] or 0)[-8:]
axes[1, 1].barh([k["name"] for k in kernels], [(k["bytes"] or 0) / 1024 for k in kernels])
axes[1, 1].set(title="bytes that a kernel moves in a run of one frame", xlabel="KiB")
figure.savefig("first_look.png")
