"""The search among modules of layers finds nothing in some of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

from tools.fuzz import layers
from tools.fuzz.random_layers import random_layers

pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def test_a_short_run_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert layers.run(seconds=300, seed=2, count=2, folder=tmp_path) == 0
    assert "agree" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_random_layers_are_always_the_same() -> None:
    for seed in range(20):
        assert random_layers(seed) == random_layers(seed)
