from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from ostinato.cli import quantize as command
from ostinato.cli.app import app
from ostinato.demo.run import MODEL as DENOISER
from tests.quantization.models import feeds_of, model_of


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_SECONDS", 0.01)
    onnx.save(model_of("GRU"), "gru.onnx")
    return Path("gru.onnx")


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["quantize", *map(str, arguments)])
    return result.exit_code, result.output


def test_tables(model: Path) -> None:
    code, text = call(model, "-o", "out.onnx", "--verify", "--dim", "T=5", "--exclude", "*/R")
    assert code == 0, text
    for words in ("int8", "SNR alone", "random inputs", "call", "saved to out.onnx"):
        assert words in text
    assert "gru.onnx as out.onnx" in text and "/R" not in text


def test_random_inputs_have_several_steps(model: Path) -> None:
    code, text = call(model, "-o", "out.onnx", "--verify", "--json")
    assert code == 0, text
    assert all(layer["snr"] < 100 for layer in json.loads(text)["layers"])
    code, text = call(model, "-o", "out.onnx", "--verify", "--dim", "T=1")
    assert code == 0 and "inputs do not reach" in text
    code, text = call(model, "-o", "out.onnx", "--target-snr", "20", "--dim", "T=1")
    assert code == 0 and "warning: the samples do not show" in text and ".py" not in text


def test_random_inputs_of_a_log_are_positive(model: Path) -> None:
    code, text = call(DENOISER, "-o", "out.onnx", "--verify", "--json", "--dim", "time=20")
    assert code == 0 and json.loads(text)["snr"]["mask"] > 30


def test_weights_beside_the_file_count(model: Path) -> None:
    one, two = onnx.load(model), Path("two.onnx")
    onnx.save(one, two, save_as_external_data=True, location="two.data", size_threshold=0)
    code, text = call(two, "-o", "out.onnx", "--json")
    assert code == 0, text
    sizes = [path.stat().st_size for path in (two, Path("two.data"))]
    assert json.loads(text)["bytes"]["before"] == sum(sizes)


def test_figures(model: Path) -> None:
    samples = [feeds_of(model_of("GRU"), seed) for seed in range(3)]
    np.savez("data.npz", x=np.stack([sample["x"] for sample in samples]))
    options = ("--calibration", "data.npz", "--target-snr", "40", "--verify", "--json")
    code, text = call(model, "-o", "out.onnx", *options)
    assert code == 0, text
    found = json.loads(text)
    assert found["data"] == "data.npz" and found["snr"]["y"] >= 40
    assert found["bytes"]["after"] == Path("out.onnx").stat().st_size
    assert {layer["type"] for layer in found["layers"]} <= {"int8", "bf16", "f16"}
    assert all(seconds > 0 for seconds in found["seconds"].values())
    code, text = call(model, "-o", "out.onnx", *(o for o in options if o != "--verify"))
    assert code == 0 and json.loads(text)["snr"] == found["snr"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--weights", "int3"), "int3"),
        (("--dim", "T=3"), "--verify"),
        (("--calibration", "gru.onnx"), "npz"),
        (("--calibration", "none.npz"), "none.npz"),
        (("--state", "x"), "INPUT=OUTPUT"),
    ],
)
def test_mistakes(model: Path, options: tuple[str, ...], words: str) -> None:
    code, text = call(model, "-o", "out.onnx", *options)
    assert code == 2 and words in text
