"""Stores the weights of the demo's denoiser in int8 and int4, fine-tunes both, prints their gains.

    python -m tools.quantize_denoiser [--steps N] [--output DIR]

The gain is that of the demo: how much higher the signal-to-noise ratio is behind the denoiser, as a
mean over signals of all kinds of noise at 5 dB that training has not heard.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console

import ostinato
from ostinato.cli.common import table
from ostinato.demo.signal import SAMPLE_RATE, FloatArray, analyze, mix, snr_db, synthesize
from ostinato.demo.synthetic import NOISES, speech
from ostinato.training import AdamW
from ostinato.training.progress import Progress
from tools.train_denoiser import (
    CLIP_NORM,
    HIDDEN,
    MODEL,
    TARGETS,
    feeds,
    loss_of,
    make_clips,
    sample,
)

SECONDS, SNR = 5.0, 5.0
# Of the rate that the model was trained with, a sixth: weights only move between levels.
RATE = 5e-4
# One scale for each row: more of them would take a fifth of the file.
BLOCK = -1


def signals(seeds: int) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Clean and noisy signals that training has not heard."""
    for seed in range(seeds):
        rng = np.random.default_rng([1, seed])
        clean = speech(SECONDS, rng) / 20
        for make in NOISES.values():
            yield clean, mix(clean, make(len(clean) / SAMPLE_RATE, rng), SNR)


def gain(model: onnx.ModelProto, seeds: int) -> float:
    """The mean gain in dB."""
    session = ostinato.InferenceSession(model)
    gains = []
    for clean, noisy in signals(seeds):
        spectra = analyze(noisy)
        magnitude = np.abs(spectra)[:, None].astype(np.float32)
        state = np.zeros((1, 1, HIDDEN), np.float32)
        (mask,) = session.run(["mask"], {"magnitude": magnitude, "state": state})
        gains.append(snr_db(clean, synthesize(spectra * mask[:, 0], len(noisy))) - SNR)
    return float(np.mean(gains))


def tuned(model: onnx.ModelProto, weights: str, steps: int, batch: int) -> onnx.ModelProto:
    """The model with weights of this type, trained for `steps` batches with the rounding in it."""
    rng = np.random.default_rng(2027)
    with Console(stderr=True).status("Making signals"):
        clean, noise = make_clips(rng, voices=300, noises=40)
    trainer = ostinato.Trainer(
        model,
        loss_of,
        AdamW(weight_decay=1e-3),
        outputs=["mask"],
        targets=TARGETS,
        clip_norm=CLIP_NORM,
        quantize=weights,
        block=BLOCK,
    )
    with Progress(1) as progress:
        for step in progress.each(range(steps)):
            trainer.lr = RATE * (1 + math.cos(math.pi * step / steps)) / 2
            progress.show(trainer.step(*feeds(*sample(clean, noise, batch, rng))))
    return trainer.quantized


def main() -> None:
    """Prints gain and bytes of each form; writes the fine-tuned models where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--output", type=Path, help="folder for the fine-tuned models")
    arguments = parser.parse_args()
    model = onnx.load(MODEL)
    models = {"float32": model}
    for weights in ("int8", "int4"):
        models[weights] = ostinato.quantize(model, weights, block=BLOCK)
        name = f"{weights}, fine-tuned"
        models[name] = tuned(model, weights, arguments.steps, arguments.batch)
        if arguments.output is not None:
            arguments.output.mkdir(parents=True, exist_ok=True)
            onnx.save(models[name], arguments.output / f"denoiser_{weights}.onnx")
    rows = table("the demo's denoiser", "weights", "gain, dB", "bytes", "share")
    for name, each in models.items():
        size = each.ByteSize()
        share = size / model.ByteSize()
        rows.add_row(name, f"{gain(each, arguments.seeds):.2f}", f"{size:,}", f"{share:.3f}")
    Console().print(rows)


if __name__ == "__main__":
    main()
