from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import ostinato
from benchmarks import bench_stream, soak


def test_a_batch_of_a_model_that_was_made_for_one() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[1, 4] x) => (float[1, 2, 2] y) <int64[3] shape = {1, 2, 2}> "
        "{ y = Reshape(x, shape) }"
    )
    session = ostinato.InferenceSession(bench_stream.batched(proto, {}))
    assert session.run(None, {"x": np.zeros((3, 4), np.float32)})[0].shape == (3, 2, 2)
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


def test_every_way_to_step_is_called(tmp_path: Path) -> None:
    calls = bench_stream.stream_calls([bench_stream.gru(tmp_path, 16)], ["ostinato"])
    assert list(calls) == ["bound call", "bound step", "step"]
    calls |= bench_stream.pool_calls([bench_stream.gru(tmp_path, 16, batch=True)], ["ostinato"])
    percentiles = bench_stream.latencies(calls, 0.02)
    assert percentiles.keys() == calls.keys()
    assert all(0 < p50 <= p99 <= last for p50, p99, last in percentiles.values())


def test_a_soak_compares(capsys: pytest.CaptureFixture[str]) -> None:
    soak.run(3000)
    assert "grown by" in capsys.readouterr().out
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[1] x, float[1] s) => (float[1] y, float[1] t) { y = Add(x, s)  t = Neg(s) }"
    )
    follower = soak.Follower(ostinato.InferenceSession(proto).stream({"s": "t"}), [0])
    frames = [{"x": np.ones(1, np.float32)}]
    assert soak._compare({7: follower}, {7: [np.ones(1, np.float32)]}, frames) == 1
    follower.frames.append(0)
    with pytest.raises(SystemExit, match="stream 7 differs"):
        soak._compare({7: follower}, {7: [np.zeros(1, np.float32)]}, frames)
