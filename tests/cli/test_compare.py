import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato.cli.compare
from ostinato.cli.compare import difference
from tests.cli.conftest import Invoke

NAN, INF = float("nan"), float("inf")


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("ours", "expected", "largest", "ok"),
    [
        (floats(1, 2), floats(1, 2), 0.0, True),
        (floats(1, 2.5), floats(1, 2), 0.5, False),
        (floats(1000.5), floats(1000), 0.5, True),
        (floats(NAN, INF, -INF), floats(NAN, INF, -INF), 0.0, True),
        (floats(NAN), floats(1), INF, False),
        (floats(1), floats(NAN), INF, False),
        (floats(INF), floats(-INF), INF, False),
        (floats(1), floats(INF), INF, False),
        (floats(), floats(), 0.0, True),
        (np.array([1, 2]), np.array([1, 3]), 1.0, False),
        (np.array([True]), np.array([False]), 1.0, False),
    ],
)
def test_difference(ours: np.ndarray, expected: np.ndarray, largest: float, ok: bool) -> None:
    row = difference(ours, expected, 1e-3)
    assert (row["max_abs"], row["ok"]) == (largest, ok)
    assert bool(row["reason"]) != ok


def test_the_figure_that_is_shown_is_the_one_that_is_tested() -> None:
    row = difference(floats(0.5, 3), floats(0, 2), 0.4)
    assert (row["max_abs"], row["max_scaled"]) == (1.0, 0.5)
    assert not row["ok"] and "is 0.5, tolerance 0.4" in row["reason"]
    assert difference(floats(0.5, 3), floats(0, 2), 0.5)["ok"]


@pytest.mark.parametrize(
    "ours", [np.zeros(2, np.float64), np.zeros((1, 2), np.float32), np.zeros(3, np.float32)]
)
def test_type_and_shape_count(ours: np.ndarray) -> None:
    row = difference(ours, np.zeros(2, np.float32), INF)
    assert not row["ok"]
    assert "expected float32[2]" in row["reason"]


def test_strings_are_equal_or_not() -> None:
    assert difference(np.array(["a"], object), np.array(["a"], object), 0.0)["ok"]
    assert not difference(np.array(["a"], object), np.array(["b"], object), 0.0)["ok"]


def test_floats_that_numpy_lacks_are_numbers() -> None:
    ours, expected = (np.array([value], ml_dtypes.bfloat16) for value in (1.5, 1.0))
    assert difference(ours, expected, 0.3)["max_abs"] == 0.5
    assert not difference(ours, expected, 0.2)["ok"]


@pytest.mark.parametrize(
    ("ours", "ok", "reason"),
    [
        ([{"cat": 0.5, "dog": 0.25}], True, ""),
        ([{"cat": 0.5, "dog": 0.25 + 1e-4}], True, ""),
        ([{"cat": 0.5, "dog": 0.75}], False, "element [0]['dog']: |a - b| / (1 + |b|) is 0.4"),
        ([{"cat": 0.5}], False, "element [0]['dog'] is only there"),
        ([{"cat": 0.5, "dog": 0.25}, {}], False, "element [1][] is only here"),
        ([], False, "only there"),
    ],
)
def test_sequences_and_maps_are_compared_by_element(ours: object, ok: bool, reason: str) -> None:
    row = difference(ours, [{"cat": 0.5, "dog": 0.25}], 1e-3)
    assert row["ok"] == ok and reason in row["reason"]
    assert difference([floats(1), floats(2.5)], [floats(1), floats(2)], 1.0)["max_abs"] == 0.5


def test_agrees_with_the_reference(invoke: Invoke, gru: Path) -> None:
    result = invoke("compare", gru, "--vs", "reference", "--dim", "T=4", "--json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["outputs"]
    assert [row["name"] for row in rows] == ["y", "h"]
    assert all(row["ok"] and row["max_abs"] < 1e-5 for row in rows)


def test_agrees_with_onnxruntime(invoke: Invoke, gru: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    result = invoke("compare", gru)
    assert result.exit_code == 0, result.stderr
    assert "gru.onnx: ostinato against onnxruntime" in result.stdout


def test_a_difference_is_exit_code_1(
    invoke: Invoke, gru: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., list[Any]] = ostinato.cli.compare.outputs_of

    def shifted(*arguments: Any) -> list[Any]:
        first, second = original(*arguments)
        return [first, second + np.float32(1e-3)]

    monkeypatch.setattr(ostinato.cli.compare, "outputs_of", shifted)
    result = invoke("compare", gru, "--vs", "reference")
    assert result.exit_code == 1
    assert "failed: output 'h'" in result.stderr
    assert "output 'y'" not in result.stderr
    assert invoke("compare", gru, "--vs", "reference", "--tolerance", "0.01").exit_code == 0
