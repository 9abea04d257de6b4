"""Score a folder of recordings with the demo's denoiser, on all cores, by Ray Data.

    pip install 'ostinato[ray,demo]'
    python examples/score_corpus.py FOLDER SCORES.csv

A score is how many decibels the denoiser takes from a WAV file of 16 kHz and one channel; what
cannot be read is in the table, with the reason. For a cluster: `ray.init(address="auto")`.
"""

from usage import arguments, stop

folder, table = arguments(__doc__)

from pathlib import Path

import numpy as np
import ray
import soundfile

from ostinato.demo import MODEL, signal
from ostinato.ray import Predictor


# %% A recording: its magnitudes, or what is wrong with it
def read(row):
    try:
        samples, rate = soundfile.read(row["path"], dtype="float32")
        if rate != 16000 or samples.ndim != 1 or len(samples) < signal.FRAME:
            expected = f"expected 16 kHz, one channel, {signal.FRAME} samples or more"
            raise ValueError(f"{rate} Hz, shape {samples.shape}: {expected}")
        magnitude, error = np.abs(signal.analyze(samples)), ""
    except (soundfile.SoundFileError, ValueError) as problem:
        magnitude, error = np.zeros((0, signal.FRAME // 2 + 1)), str(problem)
    return {**row, "magnitude": magnitude.astype(np.float32), "error": error}


# %% A batch of recordings: how many decibels the masks take away
class Scorer(Predictor):
    def __init__(self):
        super().__init__(MODEL, states={"state": "state_out"}, errors="error")

    def __call__(self, batch):
        scored = super().__call__(batch)
        removed = np.full(len(batch["path"]), np.nan)
        for i, (whole, mask) in enumerate(zip(batch["magnitude"], scored.pop("mask"), strict=True)):
            if mask.size:
                powers = [max(np.sum(x * x), 1e-12) for x in (whole, whole * mask)]
                removed[i] = 10 * np.log10(powers[0] / powers[1])
        return {**scored, "removed_db": removed}


# %% The corpus
paths = [{"path": str(path)} for path in sorted(Path(folder).rglob("*.wav"))]
if not paths:
    stop(f"{folder}: no .wav files")
ray.init(include_dashboard=False)
actors = ray.data.ActorPoolStrategy(size=int(ray.cluster_resources()["CPU"]))
scores = ray.data.from_items(paths).map(read).map_batches(Scorer, batch_size=16, compute=actors)
scores = scores.to_pandas().sort_values("path")
scores.to_csv(table, columns=["path", "removed_db", "error"], index=False)
failed = [f"{row.path}: {row.error}" for row in scores.itertuples() if row.error]
print(f"{len(scores) - len(failed)} recordings scored, {len(failed)} could not be read: {table}")
print(*failed, sep="\n")
