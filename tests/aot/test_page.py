"""The programs of docs/build.md and examples/c: compiled, run, and compared."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

import ostinato
from ostinato.demo.signal import SAMPLE_RATE, analyze, synthesize
from ostinato.demo.synthetic import speech
from tests.aot import models
from tests.aot.caller import CC, CXX, needs_compiler

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "build.md").read_text()
STATES = {"state": "state_out"}


def block(language: str) -> str:
    """The program in this language; parts of programs have no `main`."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    (found,) = [text for text in blocks if language == "python" or " main(" in text]
    return str(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `lib` has the library that the page builds."""
    place = tmp_path_factory.mktemp("page")
    sizes = {"batch": 1, "time": 1}
    ostinato.build(models.DENOISER, place / "lib", states=STATES, specialize=sizes, shared=False)
    return place


def run(command: list[object], folder: Path) -> str:
    found = subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@needs_compiler
@pytest.mark.parametrize("language, compiler, suffix", [("c", CC, ".c"), ("cpp", CXX, ".cpp")])
def test_programs_of_the_page_run(language: str, compiler: str, suffix: str, folder: Path) -> None:
    (folder / f"main{suffix}").write_text(block(language))
    strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-std=c99"]
    strict[-1] = strict[-1] if language == "c" else "-std=c++17"
    files = [f"main{suffix}", "-Ilib", "lib/libdenoiser.a", "-o", language]
    run([compiler, *strict, *files], folder)
    run([folder / language], folder)


@needs_compiler
def test_python_of_the_page_runs(folder: Path) -> None:
    whole = ["-Wl,--whole-archive", "lib/libdenoiser.a", "-Wl,--no-whole-archive"]
    run([CC, "-shared", *whole, "-o", "lib/libdenoiser.so"], folder)
    printed = run([sys.executable, "-c", block("python")], folder)
    assert 0 < float(printed) <= 1


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no rustc here")
def test_rust_of_the_page_runs(folder: Path) -> None:
    (folder / "main.rs").write_text(block("rust"))
    run(["rustc", "main.rs", "-L", "lib", "-o", "rust"], folder)
    assert 0 < float(run([folder / "rust"], folder)) <= 1


@needs_compiler
def test_the_example_cleans_a_file_as_the_demo_does(folder: Path) -> None:
    program = ROOT / "examples" / "c" / "denoise.c"
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    files = [program, "-Ilib", "lib/libdenoiser.a", "-lm", "-o", "denoise"]
    run([CC, "-O2", *strict, *sanitized, *files], folder)
    samples = np.round(1000 * speech(1, np.random.default_rng(0))[:8100]).astype("<i2")
    with wave.open(str(folder / "noisy.wav"), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    assert "frames of 10 ms" in run([folder / "denoise", "noisy.wav", "clean.wav"], folder)
    with wave.open(str(folder / "clean.wav")) as file:
        cleaned = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    signal = samples / 32768
    spectra = analyze(signal)
    stream = ostinato.InferenceSession(models.DENOISER).stream(STATES, sizes={"batch": 1})
    frames = np.abs(spectra).astype(np.float32)[:, None, None]
    masks = [stream.step({"magnitude": frame})[0][0, 0] for frame in frames]
    expected = synthesize(spectra * np.array(masks), len(signal))
    # Both transforms are in doubles: what differs is the rounding to 16 bits.
    np.testing.assert_allclose(cleaned / 32768, expected, atol=0.6 / 32768)
