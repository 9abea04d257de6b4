"""Score a folder of recordings with the demo's denoiser, on all cores, by Ray Data.

    pip install 'ostinato[ray,demo]'
    python examples/score_corpus.py FOLDER SCORES.csv

FOLDER has WAV files, 16 kHz, one channel. The score of a recording is how many decibels of it the
denoiser takes for noise. Files that cannot be read are in the table too, with the reason; the rest
goes on. On a cluster, `ray.init(address="auto")` finds it and everything else stays the same.
"""

import csv
import sys
from pathlib import Path

if __name__ == "__main__" and len(sys.argv) != 3:
    sys.exit(__doc__)

import numpy as np
import ray
import soundfile

from ostinato.demo.run import MODEL
from ostinato.demo.signal import FRAME, SAMPLE_RATE, analyze
from ostinato.ray import Predictor

EMPTY = np.zeros((0, FRAME // 2 + 1), np.float32)


def read(row):
    """Magnitudes `[frames, bins]` of a file, or what is wrong with it."""
    try:
        samples, rate = soundfile.read(row["path"], dtype="float32")
        if rate != SAMPLE_RATE or samples.ndim != 1 or len(samples) < FRAME:
            raise ValueError(f"{rate} Hz, shape {samples.shape}: expected 16 kHz, one channel")
        return {**row, "magnitude": np.abs(analyze(samples)).astype(np.float32), "error": ""}
    except (soundfile.SoundFileError, ValueError) as error:
        return {**row, "magnitude": EMPTY, "error": str(error)}


def score(row):
    """How many decibels the mask takes away."""
    decibels = None
    if not row["error"]:
        before, after = (np.sum(np.square(x)) for x in (row["magnitude"], row["cleaned"]))
        decibels = float(10 * np.log10(max(before, 1e-12) / max(after, 1e-12)))
    return {"path": row["path"], "removed_db": decibels, "error": row["error"]}


class Denoiser(Predictor):
    """The masked magnitudes beside the magnitudes, which the score needs both."""

    def __call__(self, batch):
        scored = super().__call__(batch)
        cleaned = np.empty(len(scored["mask"]), object)
        for i, mask in enumerate(scored.pop("mask")):
            cleaned[i] = mask * batch["magnitude"][i] if mask.size else EMPTY
        return {**scored, "magnitude": batch["magnitude"], "cleaned": cleaned}


if __name__ == "__main__":
    folder, table = sys.argv[1:]
    paths = [{"path": str(path)} for path in sorted(Path(folder).rglob("*.wav"))]
    if not paths:
        sys.exit(f"{folder}: no .wav files")
    ray.init(include_dashboard=False)
    scores = (
        ray.data.from_items(paths)
        .map(read)
        .map_batches(
            Denoiser,
            fn_constructor_args=(str(MODEL),),
            fn_constructor_kwargs={"states": {"state": "state_out"}, "errors": "error"},
            batch_size=16,
            compute=ray.data.ActorPoolStrategy(size=int(ray.cluster_resources()["CPU"])),
        )
        .map(score)
    )
    rows = sorted(scores.iter_rows(), key=lambda row: row["path"])
    with open(table, "w", newline="") as file:
        writer = csv.DictWriter(file, ["path", "removed_db", "error"])
        writer.writeheader()
        writer.writerows(rows)
    failed = [row for row in rows if row["error"]]
    print(f"{len(rows) - len(failed)} recordings scored, {len(failed)} could not be read: {table}")
    for row in failed:
        print(f"  {row['path']}: {row['error']}")
