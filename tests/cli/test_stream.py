from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from ostinato.demo import MODEL
from tests.cli.conftest import Invoke, save


@pytest.fixture
def filter_(tmp_path: Path) -> Path:
    """x [1, 2, T] -> y [1, 2, T] through a convolution that looks a frame ahead."""
    node = helper.make_node("Conv", ["x", "W"], ["y"], name="filter", pads=[1, 1])
    weights = np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)
    path = tmp_path / "filter.onnx"
    return save(path, [node], {"x": [1, 2, "T"]}, {"y": [1, 2, "T"]}, {"W": weights})


def test_it_lists_states_delays_and_latency(invoke: Invoke, filter_: Path) -> None:
    result = invoke("stream", filter_, "--time", "T")
    assert result.exit_code == 0, result.stderr
    words = result.stdout.split()
    for word in ("filter_past_in", "filter_past_out", "float32", "y"):
        assert word in words
    assert "latency: 1 (input frames)" in result.stdout
    assert "filter (Conv): looks ahead" in result.stdout


def test_it_writes_the_model_and_verifies_it(invoke: Invoke, filter_: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    result = invoke("stream", filter_, "--axis", "x=2", "--chunk", 5, "--verify", "-o", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("same bits") == 6
    shapes = {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in onnx.load(out).graph.input
    }
    assert shapes == {"x": [1, 2, 5], "filter_past_in": [1, 2, 2]}


def test_it_says_where_steps_need_no_conversion(invoke: Invoke) -> None:
    result = invoke("stream", MODEL, "--axis", "magnitude=0", "--verify")
    assert result.exit_code == 0, result.stderr
    assert "session.stream({'state': 'state_out'}) takes steps of denoiser.onnx" in result.stdout
    assert len(re.findall(r"mask +1 +400", result.stdout)) == 1
    assert len(re.findall(r"mask +1 alone +400", result.stdout)) == 1


def test_json_holds_the_same(invoke: Invoke, filter_: Path) -> None:
    result = invoke("stream", filter_, "--time", "T", "--chunk", 0, "--verify", "--json")
    found = json.loads(result.stdout)
    assert (found["chunk"], found["multiple"], found["latency"]) == (None, 1, 1)
    assert found["outputs"] == [{"name": "y", "axis": 2, "rate": "1", "delay": 1}]
    assert found["states"][0]["shape"] == [1, 2, 2]
    assert [row["chunk"] for row in found["verified"]] == [1, 2, 3, 7, 160]
    assert all(row["wrong"] == 0 and row["frames"] > 300 for row in found["verified"])


def test_attention_is_verified_as_far_as_it_looks_back(invoke: Invoke, tmp_path: Path) -> None:
    attributes = {"is_causal": 1, "q_num_heads": 2, "kv_num_heads": 2}
    node = helper.make_node("Attention", ["x", "x", "x"], ["y"], name="sees", **attributes)
    path = save(tmp_path / "sees.onnx", [node], {"x": [1, "T", 4]}, {"y": [1, "T", 4]})
    proto = onnx.load(path)
    proto.opset_import[0].version = 23
    onnx.save(proto, path)
    assert "context=" in invoke("stream", path, "--time", "T").stderr
    result = invoke("stream", path, "--time", "T", "--context", 50, "--verify")
    assert result.exit_code == 0, result.stderr
    assert "in a ring of 64" in result.stdout
    assert result.stdout.count("same bits") == 6
    result = invoke("stream", path, "--time", "T", "--context", "all", "--verify")
    assert result.exit_code == 0, result.stderr
    assert "states that grow" in result.stdout
    assert result.stdout.count("same bits") == 6
    result = invoke("stream", path, "--time", "T", "--context", "most")
    assert "a number of frames or all" in result.stderr


def test_other_bits_are_exit_code_1(
    invoke: Invoke, filter_: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ostinato.cli import stream_check

    right = stream_check.step_by_step

    def wrong(*arguments: object) -> object:
        for outputs in right(*arguments):  # type: ignore[arg-type]
            yield {name: np.nextafter(value, np.float32(9)) for name, value in outputs.items()}

    monkeypatch.setattr(stream_check, "step_by_step", wrong)
    result = invoke("stream", filter_, "--time", "T", "--verify")
    assert result.exit_code == 1
    assert "chunks of 7" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected one of --axis x=AXIS, --time T"),
        (["--time", "T", "--axis", "x=2"], "expected one of --axis x=AXIS, --time T"),
        (["--time", "2"], "--time 2: no input has such a size: --axis x=AXIS, --time T"),
        (["--axis", "z=1"], "no input 'z'"),
        (["--axis", "x=3"], "rank 3, so no axis 3"),
        (["--axis", "x=last"], "expected the number of an axis"),
        (["--axis", "x=1"], "node 'filter' (Conv): mixes all frames"),
    ],
)
def test_an_error_is_one_line_and_code_2(
    invoke: Invoke, filter_: Path, arguments: list[str], message: str
) -> None:
    result = invoke("stream", filter_, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr and result.stdout == ""
