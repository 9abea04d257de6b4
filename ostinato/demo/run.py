"""The demo: add noise to a signal, clean it frame by frame, show both."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import ostinato
from ostinato.demo.signal import FRAME, SAMPLE_RATE, FloatArray, analyze, mix, snr_db, synthesize
from ostinato.demo.spectrogram import write_spectrograms
from ostinato.demo.stream import Progress, Timing, stream
from ostinato.demo.synthetic import NOISES, speech
from ostinato.errors import InputError, OstinatoError

MODEL = Path(__file__).with_name("denoiser.onnx")
SECONDS = 10.0

_OWN, _PEER = "ostinato", "onnxruntime"


@dataclass(frozen=True)
class DemoResult:
    """Measurements and files of the demo.

    source: "synthetic speech", or the recording's path. noise: what was added to it.
    timing, peer_timing: one model call per frame on one thread; the peer is onnxruntime, None where
    it is not installed. max_difference: largest difference between the masks of the two.
    noisy_path, clean_path: WAV files before and after; spectrogram_path: a picture of both.
    """

    source: str
    noise: str
    seconds: float
    frames: int
    snr_in_db: float
    snr_out_db: float
    timing: Timing
    peer_timing: Timing | None
    max_difference: float | None
    noisy_path: Path
    clean_path: Path
    spectrogram_path: Path

    @property
    def gain_db(self) -> float:
        """By how much the signal-to-noise ratio rose, in dB."""
        return self.snr_out_db - self.snr_in_db


def run_demo(
    wav: str | Path | None,
    output: str | Path,
    session_factory: Callable[[Path], Any] | None = None,
    progress: Progress | None = None,
    *,
    noise: str = "pink",
    snr: float = 5.0,
    seed: int = 0,
) -> DemoResult:
    """Cleans a noisy signal frame by frame; writes noisy.wav, clean.wav and spectrogram.png.

    wav: a 16 kHz recording (channels are averaged), or None for ten seconds of synthetic speech.
        Noise is added to either: what was there before is the truth to measure by.
    output: folder to write to, made if missing.
    session_factory: makes a session, ours or onnxruntime's, from the model's path; by default
        `ostinato.InferenceSession`.
    progress: called as `progress(frames done, frames in all)` about once per second of signal.
    noise: one of `ostinato.demo.synthetic.NOISES`, added at a signal-to-noise ratio of `snr` dB.
    seed: 0 or more, of all random numbers. Training used none of these signals.

    Raises InputError for a recording that is unreadable or unsuitable, for an unknown noise and for
    an `snr` beyond 60 dB either way; OstinatoError where a package of `ostinato[demo]` is missing.
    """
    soundfile, figures = _require("soundfile"), _require("matplotlib.figure")
    folder = _folder(Path(output))
    clean, noisy = _signals(soundfile, wav, noise, snr, seed)

    sessions = {_OWN: (session_factory or ostinato.InferenceSession)(MODEL)}
    if (peer_session := _peer_session(MODEL)) is not None:
        sessions[_PEER] = peer_session
    spectra = analyze(noisy)
    streamed = stream(sessions, np.abs(spectra).astype(np.float32), progress)
    own, peer = streamed[_OWN], streamed.get(_PEER)
    cleaned = synthesize(spectra * own.masks, len(noisy))

    result = DemoResult(
        source="synthetic speech" if wav is None else str(wav),
        noise=noise,
        seconds=len(clean) / SAMPLE_RATE,
        frames=len(spectra),
        snr_in_db=snr_db(clean, noisy),
        snr_out_db=snr_db(clean, cleaned),
        timing=own.timing,
        peer_timing=peer.timing if peer else None,
        max_difference=float(np.abs(own.masks - peer.masks).max()) if peer else None,
        noisy_path=folder / "noisy.wav",
        clean_path=folder / "clean.wav",
        spectrogram_path=folder / "spectrogram.png",
    )
    soundfile.write(result.noisy_path, noisy, SAMPLE_RATE, subtype="PCM_16")
    soundfile.write(result.clean_path, cleaned, SAMPLE_RATE, subtype="PCM_16")
    panels = {
        f"Before: {noise} noise added, SNR {result.snr_in_db:.1f} dB": noisy,
        f"After: SNR {result.snr_out_db:.1f} dB, gain {result.gain_db:.1f} dB": cleaned,
        f"Truth: {Path(result.source).name}": clean,
    }
    write_spectrograms(figures.Figure(), result.spectrogram_path, panels)
    return result


def _signals(
    soundfile: ModuleType, wav: str | Path | None, noise: str, snr: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """The signal to recover and the noisy one: float64, `[samples]`, below full scale."""
    rng = np.random.default_rng([1, seed])
    if noise not in NOISES:
        raise InputError(f"noise {noise!r}: expected one of {', '.join(NOISES)}")
    if not -60 <= snr <= 60:
        raise InputError(f"snr={snr!r}: expected a ratio from -60 to 60 dB")
    clean = speech(SECONDS, rng) / 20 if wav is None else _read(soundfile, Path(wav))
    noisy = mix(clean, NOISES[noise](len(clean) / SAMPLE_RATE, rng), snr)
    level = min(1.0, 0.99 / float(np.abs(noisy).max()))
    return clean * level, noisy * level


def _require(module: str) -> ModuleType:
    """The module; an error that says what to install where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        message = f"the demo needs {package} ({error}): pip install 'ostinato[demo]'"
        raise OstinatoError(message) from error


def _folder(output: Path) -> Path:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output {str(output)!r}: expected a folder to write to: {error}"
        ) from error
    return output


def _read(soundfile: ModuleType, path: Path) -> FloatArray:
    """Samples [samples] of a recording, channels averaged; refuses what the model cannot clean."""
    try:
        samples, rate = soundfile.read(path, dtype="float64", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise InputError(f"recording {str(path)!r}: cannot be read: {error}") from error
    if rate != SAMPLE_RATE:
        raise InputError(
            f"recording {str(path)!r}: expected a sample rate of {SAMPLE_RATE} Hz, got {rate} Hz: "
            f"convert it first, for instance with `ffmpeg -i IN -ar {SAMPLE_RATE} OUT.wav`"
        )
    if len(samples) < FRAME:
        raise InputError(
            f"recording {str(path)!r}: expected {FRAME} samples or more, got {len(samples)}"
        )
    signal: FloatArray = samples.mean(axis=1)
    if not np.isfinite(signal).all() or not signal.any():
        raise InputError(
            f"recording {str(path)!r}: expected sound, got silence or samples not finite"
        )
    return signal


def _peer_session(model: Path) -> Any:
    """An onnxruntime session on one thread, None where it is not installed."""
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
