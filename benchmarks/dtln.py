"""DTLN, a streaming noise suppressor of two recurrent models, as its authors run it.

Models and speech are not part of this repository: a folder given by `--models` holds
dtln_model_1.onnx and dtln_model_2.onnx (https://github.com/breizhn/DTLN, pretrained_model; MIT),
for LiteRT the .tflite files beside them, and speech_16k.wav, 16 kHz mono.
"""

from __future__ import annotations

import argparse
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np

BLOCK, HOP, RATE = 512, 128, 16000
FRAMES_PER_SECOND = RATE // HOP
NAMES = ("dtln_model_1.onnx", "dtln_model_2.onnx")
SPEECH = "speech_16k.wav"

Stage = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(input, state) -> (output, next state)."""


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The `--models` argument."""
    parser.add_argument("--models", type=Path, default=Path("dtln"), help="folder of the models")


def paths(folder: Path, *more: str) -> tuple[Path, ...]:
    """The two models, and the files `more`, in `folder`; ends the program where one is missing."""
    found = tuple(folder / name for name in (*NAMES, *more))
    missing = [path.name for path in found if not path.exists()]
    if missing:
        raise SystemExit(
            f"{folder}: no {', '.join(missing)}; give the folder of the DTLN models with --models "
            "(benchmarks/dtln.py says where they come from)"
        )
    return found


def feeds() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs of both models, fixed seed: magnitudes and state, a block of samples and state."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)

    return (
        {"input_2": np.abs(normal(1, 1, BLOCK // 2 + 1)) * 10, "input_3": normal(1, 2, 128, 2)},
        {"input_4": normal(1, 1, BLOCK), "input_5": normal(1, 2, 128, 2)},
    )


def noisy_speech(path: Path, seconds: float, snr_db: float = 5.0) -> np.ndarray:
    """Samples [-1, 1] of the recording with white noise, fixed seed."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise SystemExit(f"{path}: expected 16 kHz, one channel, 16 bits")
        data = file.readframes(int(seconds * RATE))
    clean = np.frombuffer(data, "<i2").astype(np.float32) / 32768
    noise = np.random.default_rng(7).standard_normal(len(clean)).astype(np.float32)
    return clean + noise * np.sqrt(np.mean(clean**2) / 10 ** (snr_db / 10))


def pipeline(mask_stage: Stage, signal_stage: Stage, samples: np.ndarray) -> np.ndarray:
    """The whole suppressor over `samples`, block by block with overlap-add."""
    mask_state = signal_state = np.zeros((1, 2, 128, 2), np.float32)
    block, overlap = np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    cleaned = np.zeros(len(samples), np.float32)
    for start in range(0, len(samples) - HOP + 1, HOP):
        block[:-HOP] = block[HOP:]
        block[-HOP:] = samples[start : start + HOP]
        spectrum = np.fft.rfft(block)
        magnitude = np.abs(spectrum).reshape(1, 1, -1).astype(np.float32)
        mask, mask_state = mask_stage(magnitude, mask_state)
        phase = np.exp(1j * np.angle(spectrum))
        estimate = np.fft.irfft(magnitude * mask * phase).reshape(1, 1, -1).astype(np.float32)
        estimate, signal_state = signal_stage(estimate, signal_state)
        overlap[:-HOP] = overlap[HOP:]
        overlap[-HOP:] = 0
        overlap += np.squeeze(estimate)
        cleaned[start : start + HOP] = overlap[:HOP]
    return cleaned
