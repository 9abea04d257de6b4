"""Trains the demo's denoiser on synthetic speech and writes `ostinato/demo/denoiser.onnx`.

    python -m tools.train_denoiser

Nothing is downloaded: signals and noises come from `ostinato.demo.synthetic`. The network is small
on purpose: log magnitudes, one dense layer, one GRU, and a mask between 0 and 1 for every bin.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import ostinato
from ostinato.demo.signal import BINS, FRAME, HOP, SAMPLE_RATE, WINDOW
from ostinato.demo.synthetic import NOISES, speech
from ostinato.training import AdamW
from ostinato.training.losses import Values
from ostinato.training.operators import Operators
from ostinato.training.progress import Progress

MODEL = Path(__file__).resolve().parents[1] / "ostinato" / "demo" / "denoiser.onnx"
SECONDS = 3.0
FLOOR = 1e-4
DENSE = 64
HIDDEN = 96
RATE = 3e-3
CLIP_NORM = 2.0

FloatArray = npt.NDArray[np.floating]
Weights = dict[str, FloatArray]


def initial_weights(rng: np.random.Generator) -> Weights:
    """Weights before training: uniform within the inverse square root of their inputs."""
    shapes = {
        "encoder_weight": (BINS, DENSE),
        "encoder_bias": (DENSE,),
        "gru_w": (1, 3 * HIDDEN, DENSE),
        "gru_r": (1, 3 * HIDDEN, HIDDEN),
        "gru_b": (1, 6 * HIDDEN),
        "decoder_weight": (HIDDEN, BINS),
        "decoder_bias": (BINS,),
    }
    inputs = {"encoder": BINS, "gru": HIDDEN, "decoder": HIDDEN}
    limits = {name: inputs[name.split("_")[0]] ** -0.5 for name in shapes}
    return {name: rng.uniform(-limits[name], limits[name], shapes[name]) for name in shapes}


def denoiser(weights: Weights, normalisation: Weights | None = None) -> onnx.ModelProto:
    """The denoiser as ONNX, from magnitude and state to mask and state_out.

    magnitude, mask: [time, batch, BINS]; state, state_out: [1, batch, HIDDEN]; all float32.
    normalisation: mean and deviation of the features, each [BINS].
    """
    nodes = [
        helper.make_node("Add", ["magnitude", "floor"], ["raised"], "raise"),
        helper.make_node("Log", ["raised"], ["features"], "log"),
    ]
    encoded = "features"
    if normalisation is not None:
        nodes.append(helper.make_node("Sub", ["features", "mean"], ["centred"], "centre"))
        nodes.append(helper.make_node("Div", ["centred", "deviation"], ["normalised"], "scale"))
        encoded = "normalised"
    gru_inputs = ["encoded", "gru_w", "gru_r", "gru_b", "", "state"]
    gru = {"hidden_size": HIDDEN, "linear_before_reset": 1}
    nodes += [
        helper.make_node("MatMul", [encoded, "encoder_weight"], ["projected"], "encode"),
        helper.make_node("Add", ["projected", "encoder_bias"], ["biased"], "encode_bias"),
        helper.make_node("Relu", ["biased"], ["encoded"], "encode_relu"),
        helper.make_node("GRU", gru_inputs, ["hidden_4d", "state_out"], "gru", **gru),
        helper.make_node("Squeeze", ["hidden_4d", "direction"], ["hidden"], "one_direction"),
        helper.make_node("MatMul", ["hidden", "decoder_weight"], ["scores"], "decode"),
        helper.make_node("Add", ["scores", "decoder_bias"], ["logits"], "decode_bias"),
        helper.make_node("Sigmoid", ["logits"], ["mask"], "mask"),
    ]
    constants = {"floor": np.array(FLOOR), **weights, **(normalisation or {})}
    initializers = [
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()
    ]
    initializers.append(numpy_helper.from_array(np.array([1], dtype=np.int64), "direction"))

    def value(name: str, shape: list[str | int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "denoiser",
        [value("magnitude", ["time", "batch", BINS]), value("state", [1, "batch", HIDDEN])],
        [value("mask", ["time", "batch", BINS]), value("state_out", [1, "batch", HIDDEN])],
        initializers,
        f"Mask for {FRAME // (SAMPLE_RATE // 1000)} ms spectra of noisy speech; see docs/demo.md.",
    )
    proto = helper.make_model(
        graph,
        producer_name="ostinato tools/train_denoiser.py",
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def folded(weights: Weights, normalisation: Weights) -> Weights:
    """Weights that take features as they are, with the normalisation in the first layer."""
    mean, deviation = normalisation["mean"], normalisation["deviation"]
    encoder = weights["encoder_weight"].astype(np.float64) / deviation[:, None]
    return weights | {
        "encoder_weight": encoder,
        "encoder_bias": weights["encoder_bias"] - mean @ encoder,
    }


def make_clips(rng: np.random.Generator, voices: int, noises: int) -> tuple[FloatArray, FloatArray]:
    """Speech [voices, samples] and noises [kinds * noises, samples], float32, unit RMS."""
    clean = [speech(SECONDS, rng).astype(np.float32) for _ in range(voices)]
    noise = [
        make(SECONDS, rng).astype(np.float32) for make in NOISES.values() for _ in range(noises)
    ]
    return np.stack(clean), np.stack(noise)


def spectra(signals: FloatArray) -> npt.NDArray[np.complexfloating]:
    """Complex spectra [time, batch, BINS] of signals [batch, samples], framed as by `analyze`."""
    padded = np.pad(signals, ((0, 0), (HOP, HOP)))
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME, axis=1)[:, ::HOP]
    windowed = frames.swapaxes(0, 1) * WINDOW.astype(np.float32)
    return np.fft.rfft(windowed, axis=-1)


def sample(
    clean: FloatArray, noise: FloatArray, batch: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.complexfloating], npt.NDArray[np.complexfloating]]:
    """Clean and noisy spectra [time, batch, BINS]: random pairs, shifts, levels and SNRs."""
    samples = clean.shape[1]

    def pick(clips: FloatArray) -> FloatArray:
        index = rng.integers(0, len(clips), batch)
        shift = rng.integers(0, samples, batch)
        return np.stack([np.roll(clips[i], int(s)) for i, s in zip(index, shift, strict=True)])

    def decibels(low: float, high: float) -> FloatArray:
        return (10 ** (rng.uniform(low, high, (batch, 1)) / 20)).astype(np.float32)

    voice = pick(clean)
    both = pick(noise) + decibels(-30, 0) * pick(noise)
    both = both / np.sqrt(np.mean(both**2, axis=1, keepdims=True)) / decibels(-3, 15)
    level = decibels(-40, -12)
    return spectra(level * voice), spectra(level * (voice + both))


TARGETS = {name: ("float32", ("time", "batch", BINS)) for name in ("power", "cross", "noisy")} | {
    "level": ("float32", ())
}


def feeds(
    clean: npt.NDArray[np.complexfloating], noisy: npt.NDArray[np.complexfloating]
) -> tuple[Weights, Weights]:
    """What a training step takes, float32: the noisy magnitudes, and what `loss_of` compares.

    power: of the clean spectrum. cross: the real part of clean times conjugate noisy. level: a
    typical magnitude of the clean spectrum.
    """
    parts = (clean.real, clean.imag, noisy.real, noisy.imag)
    a, b, x, y = (np.ascontiguousarray(part, np.float32) for part in parts)
    power = a * a + b * b
    level = np.sqrt(power.sum((0, 2)).mean()) / len(clean)
    targets = {
        "power": power,
        "cross": a * x + b * y,
        "noisy": np.sqrt(x * x + y * y),
        "level": np.asarray(level, np.float32),
    }
    state = np.zeros((1, clean.shape[1], HIDDEN), np.float32)
    return {"magnitude": targets["noisy"], "state": state}, targets


def loss_of(op: Operators, outputs: Values, targets: Values) -> ir.Value:
    """Negative SNR of the masked spectra in dB, plus the error of their compressed magnitudes.

    The second term, with exponent 0.3, is what makes faint residual noise count (Braun and
    Tashev, "A consolidated view of loss functions for supervised deep learning-based speech
    enhancement", 2021).
    """
    over_time_and_bins = np.array([0, 2], np.int64)
    estimate = op.Mul(outputs["mask"], targets["noisy"])
    # |c - m n|^2, bin by bin.
    product = op.Mul(outputs["mask"], op.Mul(2.0, targets["cross"]))
    square = op.Add(op.Sub(targets["power"], product), op.Mul(estimate, estimate))
    error = op.ReduceSum(square, over_time_and_bins, keepdims=0)
    energy = op.ReduceSum(targets["power"], over_time_and_bins, keepdims=0)
    ratio = op.Div(energy, op.Add(error, op.Mul(energy, 1e-3)))
    snr = op.Mul(op.Log(ratio), 10 / math.log(10))

    def compressed(magnitude: ir.Value) -> ir.Value:
        return op.Pow(op.Add(op.Div(magnitude, targets["level"]), 1e-2), 0.3)

    difference = op.Sub(compressed(op.Sqrt(targets["power"])), compressed(estimate))
    squares = op.ReduceMean(op.Mul(difference, difference), keepdims=0)
    return op.Sub(op.Mul(squares, 3.0), op.ReduceMean(snr, keepdims=0))


def learning_rate(step: int, steps: int) -> float:
    """Half a cosine up to `RATE` over the first twentieth of the steps, and another one to zero."""
    top = max(1, steps // 20)
    if step < top:
        return RATE * (0.04 + 0.96 * (1 - math.cos(math.pi * step / top)) / 2)
    return RATE * (1 + math.cos(math.pi * (step - top) / max(1, steps - top))) / 2


def train(steps: int, batch: int, seed: int) -> onnx.ModelProto:
    """A denoiser trained for `steps` batches."""
    rng = np.random.default_rng(seed)
    with Console(stderr=True).status("Making signals"):
        clean, noise = make_clips(rng, voices=1500, noises=200)
    features = np.log(np.abs(sample(clean, noise, 256, rng)[1]) + FLOOR)
    normalisation = {"mean": features.mean((0, 1)), "deviation": features.std((0, 1))}
    trainer = ostinato.Trainer(
        denoiser(initial_weights(rng), normalisation),
        loss_of,
        AdamW(weight_decay=1e-3),
        outputs=["mask"],
        targets=TARGETS,
        freeze=normalisation,
        clip_norm=CLIP_NORM,
    )
    with Progress(1) as progress:
        for step in progress.each(range(steps)):
            trainer.lr = learning_rate(step, steps)
            progress.show(trainer.step(*feeds(*sample(clean, noise, batch, rng))))
    return denoiser(folded(dict(trainer.parameters), normalisation))


def main() -> None:
    """Trains, writes the model, and says how large it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=MODEL)
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=2026)
    arguments = parser.parse_args()
    onnx.save(train(arguments.steps, arguments.batch, arguments.seed), arguments.output)
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
