import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import ostinato
from ostinato.demo import MODEL, run_demo
from ostinato.demo import run as run_module
from ostinato.demo.stream import FrameDenoiser
from ostinato.errors import InputError, OstinatoError

soundfile = pytest.importorskip("soundfile", reason="soundfile (ostinato[demo]) is not installed")
pytest.importorskip("matplotlib", reason="matplotlib (ostinato[demo]) is not installed")


class ReferenceSession:
    """The demo's model on the reference kernels of onnx, behind the interface of a session."""

    def __init__(self, path):
        self.evaluator = ReferenceEvaluator(onnx.load(path))

    def get_inputs(self):
        return [
            type("Arg", (), {"name": name, "shape": [1, 1, size]})
            for name, size in (("magnitude", 161), ("state", 96))
        ]

    def bind(self, inputs, outputs):
        def call():
            for array, value in zip(
                (outputs["mask"], outputs["state_out"]),
                self.evaluator.run(["mask", "state_out"], inputs),
                strict=True,
            ):
                array[...] = value

        return call


@pytest.fixture
def no_peer(monkeypatch):
    monkeypatch.setattr(run_module, "_peer_session", lambda path: None)


@pytest.fixture
def no_picture(monkeypatch):
    """Drawing takes longer than all else."""
    monkeypatch.setattr(run_module, "write_spectrograms", lambda *_: None)


def write_speech(path, rate=16_000, channels=2, seconds=0.5):
    samples = run_module.speech(seconds, np.random.default_rng([3, 0])) / 20
    soundfile.write(path, np.stack([samples] * channels, axis=1), rate, subtype="FLOAT")
    return path


def test_synthetic_speech_gets_cleaner_and_files_are_written(tmp_path, no_peer):
    reports = []
    result = run_demo(
        None, tmp_path / "new" / "folder", ReferenceSession, lambda *report: reports.append(report)
    )
    assert result.snr_in_db == pytest.approx(5)
    assert result.gain_db >= 6
    assert (result.frames, result.seconds) == (1001, 10.0)
    assert reports[-1] == (1001, 1001)
    assert result.peer_timing is result.max_difference is None
    assert result.spectrogram_path.read_bytes().startswith(b"\x89PNG")
    noisy, rate = soundfile.read(result.noisy_path)
    clean, _ = soundfile.read(result.clean_path)
    assert rate == 16_000
    assert len(noisy) == len(clean) == 160_000
    assert np.sum(clean**2) < np.sum(noisy**2)


def test_two_runs_write_the_same_sound(tmp_path, no_peer, no_picture):
    wav = write_speech(tmp_path / "in.wav")
    first, second = (run_demo(wav, tmp_path / name, ReferenceSession) for name in "ab")
    assert first.clean_path.read_bytes() == second.clean_path.read_bytes()
    assert first.gain_db == second.gain_db
    other = run_demo(wav, tmp_path / "c", ReferenceSession, seed=1, snr=12.0)
    assert other.snr_in_db == pytest.approx(12)
    assert other.noisy_path.read_bytes() != first.noisy_path.read_bytes()


def test_peer_is_timed_and_compared(tmp_path, monkeypatch, no_picture):
    monkeypatch.setattr(run_module, "_peer_session", ReferenceSession)
    result = run_demo(write_speech(tmp_path / "in.wav"), tmp_path, ReferenceSession)
    assert result.max_difference == 0
    assert result.peer_timing.median_us > 0


def test_loud_recordings_do_not_clip(tmp_path, no_peer, no_picture):
    wav = tmp_path / "loud.wav"
    samples, rate = soundfile.read(write_speech(wav, channels=1))
    soundfile.write(wav, samples / np.abs(samples).max(), rate, subtype="FLOAT")
    result = run_demo(wav, tmp_path, ReferenceSession)
    assert np.abs(soundfile.read(result.noisy_path)[0]).max() == pytest.approx(0.99, abs=1e-4)


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.ones(8000), 8000, "expected a sample rate of 16000 Hz, got 8000 Hz"),
        (np.ones(10), 16_000, "expected 320 samples or more, got 10"),
        (np.zeros(16_000), 16_000, "silence"),
        (np.full(16_000, np.nan), 16_000, "not finite"),
    ],
)
def test_unsuitable_recordings_are_refused(tmp_path, samples, rate, message):
    wav = tmp_path / "in.wav"
    soundfile.write(wav, samples, rate, subtype="FLOAT")
    with pytest.raises(InputError, match=message):
        run_demo(wav, tmp_path, ReferenceSession)


def test_unreadable_recordings_are_refused(tmp_path):
    (tmp_path / "in.wav").write_bytes(b"not a sound")
    for name in ("in.wav", "missing.wav"):
        with pytest.raises(InputError, match=f"{name}.*cannot be read"):
            run_demo(tmp_path / name, tmp_path, ReferenceSession)


def test_unknown_noise_useless_ratio_and_useless_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="snr=nan: expected a ratio from -60 to 60 dB"):
        run_demo(None, tmp_path, ReferenceSession, snr=float("nan"))
    with pytest.raises(InputError, match="noise 'loud': expected one of white, pink"):
        run_demo(None, tmp_path, ReferenceSession, noise="loud")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="expected a folder"):
        run_demo(None, tmp_path / "file", ReferenceSession)


@pytest.mark.parametrize("package", ["soundfile", "matplotlib"])
def test_missing_packages_are_named(tmp_path, monkeypatch, package):
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OstinatoError, match=rf"needs {package}.*pip install 'ostinato\[demo\]'"):
        run_demo(None, tmp_path, ReferenceSession)


COMPARE_WITH_ONNXRUNTIME = """
import sys
from ostinato.demo import run_demo
from ostinato.demo.run import _peer_session
from ostinato.demo.stream import stream
result = run_demo(None, sys.argv[1], _peer_session if sys.argv[2] == "peer" else None)
assert result.gain_db >= 6, result
assert result.max_difference <= float(sys.argv[3]), result
"""


needs_compiler = pytest.mark.skipif(
    find_spec("ostinato.compiler") is None, reason="the compiler is not part of this tree yet"
)


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
@pytest.mark.parametrize(
    ("session", "tolerance"), [("peer", 0.0), pytest.param("own", 1e-5, marks=needs_compiler)]
)
def test_agrees_with_onnxruntime(tmp_path, session, tolerance):
    command = [sys.executable, "-c", COMPARE_WITH_ONNXRUNTIME, tmp_path, session, str(tolerance)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@needs_compiler
def test_own_session_agrees_with_the_reference_kernels():
    own = FrameDenoiser(ostinato.InferenceSession(MODEL, cache_dir=None))
    reference = FrameDenoiser(ReferenceSession(MODEL))
    rng = np.random.default_rng(8)
    for t in range(20):
        own.magnitude[:] = reference.magnitude[:] = rng.exponential(0.1, own.magnitude.shape)
        own.calls[t % 2]()
        reference.calls[t % 2]()
        np.testing.assert_allclose(own.mask, reference.mask, rtol=0, atol=1e-5)
