from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import models
from ostinato.cli.witness import outputs_of

SMALL = [
    models.recurrent_op("gru", "GRU", 8, 3, linear_before_reset=1),
    models.recurrent_op("lstm_bi", "LSTM", 8, 3, directions=2),
    models.recurrent_op("lengths", "GRU", 8, 5, batch=2, length=3),
    models.two_layer_gru("two", 8, 3),
    models.coupled_gate_lstm("scan", "scan", 8, 3),
    models.coupled_gate_lstm("loop", "loop", 8, 3),
    models.matmul("matmul", 2, 8, 3),
    models.conv("conv", (2, 3), [5], [3]),
    models.identity(),
]


@pytest.mark.parametrize("model", SMALL, ids=lambda model: model.proto.graph.name)
def test_models_run_and_nothing_saturates(model: models.Model, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    feeds = models.feeds(model.proto)
    for output in outputs_of("onnxruntime", model.save(tmp_path), feeds):
        assert np.isfinite(output).all()
        assert 0 < np.abs(output).max() < 10


def test_scan_and_loop_are_the_same_cell(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    scan, loop = (models.coupled_gate_lstm(kind, kind, 8, 5) for kind in ("scan", "loop"))
    feeds = models.feeds(scan.proto)
    pairs = [outputs_of("onnxruntime", each.save(tmp_path), feeds) for each in (scan, loop)]
    for a, b in zip(*pairs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_work_of_a_gru() -> None:
    model = models.recurrent_op("gru", "GRU", 8, 3)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.proto.graph.initializer}
    assert model.work.recurrent == weights["R"].nbytes
    assert model.work.projection == weights["W"].nbytes
    # Two flops for each weight and step, of both matrices.
    assert model.work.flops == 2 * 3 * (weights["R"].size + weights["W"].size)


def test_work_of_a_convolution() -> None:
    work = models.conv("conv", (2, 3), [5], [3]).work
    assert work.flops == 2 * 5 * 3 * 2 * 3
    assert work.projection == 4 * 3 * 2 * 3


def test_inputs_have_a_fixed_seed() -> None:
    model = SMALL[0]
    first, second = models.feeds(model.proto), models.feeds(model.proto)
    assert set(first) == {"x", "h0"}
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
