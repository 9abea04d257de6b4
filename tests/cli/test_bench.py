import json
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Invoke


def test_calls_are_measured(invoke: Invoke, gru: Path) -> None:
    result = invoke("bench", gru, "--dim", "T=2", "--seconds", "0.02", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["inputs"] == {"x": [2, 1, 4]}
    assert set(record["calls"]) == {"ostinato bound", "ostinato run"}
    for figures in record["calls"].values():
        assert 0 < figures["min_us"] <= figures["median_us"] <= figures["p99_us"]
    assert record["ratios"] == {}


def test_ratios_are_the_peers_time_over_ours(invoke: Invoke, gru: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    result = invoke("bench", gru, "--vs", "onnxruntime", "--seconds", "0.02", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    for kind, ratio in record["ratios"].items():
        ours, theirs = (record["calls"][f"{p} {kind}"] for p in ("ostinato", "onnxruntime"))
        assert ratio == pytest.approx(theirs["median_us"] / ours["median_us"])
    assert set(record["ratios"]) == {"bound", "run"}


def test_a_model_whose_outputs_onnxruntime_does_not_bind(invoke: Invoke, gru: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = onnx.load(gru)
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 7
    onnx.save(model, gru)
    options = ("--dim", "T=3", "--vs", "onnxruntime", "--seconds", "0.02", "--json")
    result = invoke("bench", gru, *options)
    assert result.exit_code == 0, result.stderr
    assert "Without a bound call: " in result.stderr
    record = json.loads(result.stdout)
    assert set(record["ratios"]) == {"run"} and len(record["calls"]) == 3


def test_a_model_that_onnxruntime_refuses(
    invoke: Invoke, gru: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: Path) -> None:
        raise NotImplementedError("no kernel")

    monkeypatch.setattr("ostinato.cli.bench.onnxruntime_session", refuse)
    result = invoke("bench", gru, "--vs", "onnxruntime", "--seconds", "0.02")
    assert result.exit_code == 2
    assert f"onnxruntime failed on {gru}: no kernel" in result.stderr.replace("\n", "")


def test_table(invoke: Invoke, gru: Path) -> None:
    result = invoke("bench", gru, "--seconds", "0.02")
    assert result.exit_code == 0, result.stderr
    assert "ostinato bound" in result.stdout and "times ours" not in result.stdout
    assert "gru.onnx: x[1, 1, 4]" in result.stdout
