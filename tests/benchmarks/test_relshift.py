from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest

import ostinato
from benchmarks import bench_relshift as bench


def assert_equal(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("consumer", bench.CONSUMERS)
@pytest.mark.parametrize("indices", bench.RANGES)
def test_every_model_gives_what_numpy_gives(indices: str, consumer: str) -> None:
    proto = bench.model(indices, consumer)
    onnx.checker.check_model(proto, full_check=True)
    feeds = bench.feeds_of(proto)
    got = ostinato.InferenceSession(proto, cache_dir=None, fallback=False).run(None, feeds)
    _, outputs = bench.numpy_call(consumer, False, feeds)["numpy"]
    assert_equal(got, outputs())


@pytest.mark.parametrize(("indices", "consumer"), [("Range", "exp"), ("arange as data", "")])
def test_gradients(indices: str, consumer: str) -> None:
    proto = bench.trained(indices, consumer)
    assert [value.name for value in proto.graph.output] == ["y", "x_grad"]
    feeds = bench.feeds_of(proto)
    got = ostinato.InferenceSession(proto, cache_dir=None, fallback=False).run(None, feeds)
    _, outputs = bench.numpy_call(consumer, True, feeds)["numpy"]
    assert_equal(got, outputs())


def test_columns(tmp_path: Path) -> None:
    proto = bench.model("Range", "add")
    feeds = bench.feeds_of(proto)
    calls = bench.runtimes(lambda _: proto, feeds, tmp_path) | bench.numpy_call("add", False, feeds)
    has_peer = importlib.util.find_spec("onnxruntime") is not None
    assert len(calls) == (5 if has_peer else 3) and set(calls) <= set(bench.COLUMNS)
    assert bench.measure(calls, 0.01).keys() == calls.keys()
    calls["numpy"] = calls["numpy"][0], lambda: [np.zeros(bench.RESULT, np.float32)]
    with pytest.raises(ValueError, match="numpy gives something else"):
        bench.measure(calls, 0.01)
