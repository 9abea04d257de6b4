from pathlib import Path

import numpy as np
import pytest

from ostinato.cli.witness import outputs_of
from ostinato.errors import OptionError, RunError

FEEDS = {"x": np.full((3, 1, 4), 0.5, np.float32)}


def test_two_witnesses_agree(gru: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pairs = zip(
        outputs_of("onnxruntime", gru, FEEDS), outputs_of("reference", gru, FEEDS), strict=True
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_witness_that_refuses_is_named(gru: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with pytest.raises(RunError, match=r"onnxruntime failed on .*gru\.onnx"):
        outputs_of("onnxruntime", gru, {})
    with pytest.raises(RunError, match=r"onnx\.reference failed on .*gru\.onnx"):
        outputs_of("reference", gru, {})


def test_a_missing_witness_says_what_to_install(gru: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(OptionError, match="pip install onnxruntime, or compare with --vs ref"):
        outputs_of("onnxruntime", gru, FEEDS)
