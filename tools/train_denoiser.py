"""Trains the demo's denoiser on synthetic speech and writes `ostinato/demo/denoiser.onnx`.

    pip install torch==2.13.0
    python tools/train_denoiser.py

About ten minutes on two cores. Nothing is downloaded: signals and noises come from
`ostinato.demo.synthetic`. The network is small on purpose: log magnitudes, one dense layer, one
GRU, and a mask between 0 and 1 for every bin. Torch is used for its gradients alone; the ONNX file
is written from the trained weights with the standard operators of opset 17.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ostinato.demo.signal import BINS, FRAME, HOP, SAMPLE_RATE, WINDOW
from ostinato.demo.synthetic import NOISES, speech

MODEL = Path(__file__).resolve().parents[1] / "ostinato" / "demo" / "denoiser.onnx"
SECONDS = 3.0
FLOOR = 1e-4
DENSE = 64
HIDDEN = 96


class Denoiser(nn.Module):
    """Mask [time, batch, BINS] from the magnitudes [time, batch, BINS] of a noisy signal."""

    def __init__(self, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation
        self.encoder = nn.Linear(BINS, DENSE)
        self.gru = nn.GRU(DENSE, HIDDEN)
        self.decoder = nn.Linear(HIDDEN, BINS)

    def forward(self, magnitude: torch.Tensor) -> torch.Tensor:
        features = (torch.log(magnitude + FLOOR) - self.mean) / self.deviation
        hidden, _ = self.gru(torch.relu(self.encoder(features)))
        return torch.sigmoid(self.decoder(hidden))


def make_clips(seed: int, voices: int, noises: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Speech [voices, samples] and noises [kinds * noises, samples], float32, unit RMS."""
    rng = np.random.default_rng(seed)
    clean = [speech(SECONDS, rng).astype(np.float32) for _ in range(voices)]
    noise = [
        make(SECONDS, rng).astype(np.float32) for make in NOISES.values() for _ in range(noises)
    ]
    return torch.from_numpy(np.stack(clean)), torch.from_numpy(np.stack(noise))


def spectra(signals: torch.Tensor) -> torch.Tensor:
    """Complex spectra [time, batch, BINS] of signals [batch, samples], framed as by `analyze`."""
    padded = nn.functional.pad(signals, (HOP, HOP))
    frames = padded.unfold(1, FRAME, HOP) * torch.from_numpy(WINDOW).float()
    return torch.fft.rfft(frames).transpose(0, 1)


def sample(
    clean: torch.Tensor, noise: torch.Tensor, batch: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Clean and noisy spectra [time, batch, BINS]: random pairs, shifts, levels and SNRs."""
    samples = clean.shape[1]

    def pick(clips: torch.Tensor) -> torch.Tensor:
        index = rng.integers(0, len(clips), batch)
        shift = rng.integers(0, samples, batch)
        return torch.stack([clips[i].roll(int(s)) for i, s in zip(index, shift, strict=True)])

    def decibels(low: float, high: float) -> torch.Tensor:
        return torch.from_numpy(10 ** (rng.uniform(low, high, (batch, 1)) / 20)).float()

    voice = pick(clean)
    both = pick(noise) + decibels(-30, 0) * pick(noise)
    both = both / both.pow(2).mean(1, keepdim=True).sqrt() / decibels(-3, 15)
    level = decibels(-40, -12)
    return spectra(level * voice), spectra(level * (voice + both))


def loss_of(mask: torch.Tensor, clean: torch.Tensor, noisy: torch.Tensor) -> torch.Tensor:
    """Negative SNR of the masked spectra in dB, plus the error of their compressed magnitudes.

    The second term, with exponent 0.3, is what makes faint residual noise count (Braun and
    Tashev, "A consolidated view of loss functions for supervised deep learning-based speech
    enhancement", 2021).
    """
    error = (clean - mask * noisy).abs().pow(2).sum((0, 2))
    energy = clean.abs().pow(2).sum((0, 2))
    snr = 10 * torch.log10(energy / (error + 1e-3 * energy))
    level = energy.mean().sqrt() / clean.shape[0]
    faint = ((clean.abs() + 1e-2 * level) / level).pow(0.3)
    faint_estimate = ((mask * noisy.abs() + 1e-2 * level) / level).pow(0.3)
    return -snr.mean() + 3 * (faint - faint_estimate).pow(2).mean()


def train(steps: int, batch: int, seed: int) -> Denoiser:
    """A denoiser trained for `steps` batches, the learning rate falling as a cosine to zero."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    clean, noise = make_clips(seed, voices=1500, noises=200)
    features = torch.log(sample(clean, noise, 256, rng)[1].abs() + FLOOR)
    model = Denoiser(features.mean((0, 1)), features.std((0, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=steps, pct_start=0.05
    )
    started, running = time.perf_counter(), 0.0
    for step in range(1, steps + 1):
        target, noisy = sample(clean, noise, batch, rng)
        loss = loss_of(model(noisy.abs()), target, noisy)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        schedule.step()
        running += (loss.item() - running) / min(step, 50)
        if step % 50 == 0:
            elapsed = time.perf_counter() - started
            print(f"step {step:5d} of {steps}  loss {running:7.3f}  {elapsed:5.0f} s", flush=True)
    return model


def to_onnx(model: Denoiser) -> onnx.ModelProto:
    """The denoiser as ONNX, from magnitude and state to mask and state_out.

    magnitude, mask: [time, batch, BINS]; state, state_out: [1, batch, HIDDEN]; all float32.
    Torch stacks the gates as reset, update, new; ONNX as update, reset, hidden. The normalisation
    of the features is folded into the first layer.
    """
    weights = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    mean, deviation = model.mean.double().numpy(), model.deviation.double().numpy()
    encoder = weights["encoder.weight"] / deviation

    def gates(name: str) -> np.ndarray:
        reset, update, new = np.split(weights[name], 3)
        return np.concatenate([update, reset, new])

    constants = {
        "floor": np.array(FLOOR),
        "encoder_weight": encoder.T,
        "encoder_bias": weights["encoder.bias"] - encoder @ mean,
        "gru_w": gates("gru.weight_ih_l0")[None],
        "gru_r": gates("gru.weight_hh_l0")[None],
        "gru_b": np.concatenate([gates("gru.bias_ih_l0"), gates("gru.bias_hh_l0")])[None],
        "decoder_weight": weights["decoder.weight"].T,
        "decoder_bias": weights["decoder.bias"],
    }
    initializers = [
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()
    ]
    initializers.append(numpy_helper.from_array(np.array([1], dtype=np.int64), "direction"))
    gru = {"hidden_size": HIDDEN, "linear_before_reset": 1}
    nodes = [
        helper.make_node("Add", ["magnitude", "floor"], ["raised"], "raise"),
        helper.make_node("Log", ["raised"], ["features"], "log"),
        helper.make_node("MatMul", ["features", "encoder_weight"], ["projected"], "encode"),
        helper.make_node("Add", ["projected", "encoder_bias"], ["biased"], "encode_bias"),
        helper.make_node("Relu", ["biased"], ["encoded"], "encode_relu"),
        helper.make_node(
            "GRU",
            ["encoded", "gru_w", "gru_r", "gru_b", "", "state"],
            ["hidden_4d", "state_out"],
            "gru",
            **gru,
        ),
        helper.make_node("Squeeze", ["hidden_4d", "direction"], ["hidden"], "one_direction"),
        helper.make_node("MatMul", ["hidden", "decoder_weight"], ["scores"], "decode"),
        helper.make_node("Add", ["scores", "decoder_bias"], ["logits"], "decode_bias"),
        helper.make_node("Sigmoid", ["logits"], ["mask"], "mask"),
    ]

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


def main() -> None:
    """Trains, writes the model, and says how large it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=MODEL)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = train(arguments.steps, arguments.batch, arguments.seed)
    onnx.save(to_onnx(model), arguments.output)
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
