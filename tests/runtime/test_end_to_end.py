"""The runtime with the real compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import timeit
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import ostinato

IDENTITY = """<ir_version: 8, opset_import: ["": 17]>
g (float[1] x) => (float[1] y) {y = Identity(x)}"""
SUM = """<ir_version: 8, opset_import: ["": 17]>
g (float[T, 4] x, float[T, 4] bias) => (float[T, 4] y, float[T] total) {
  sum = Add(x, bias)
  y = Tanh(sum)
  total = ReduceSum <keepdims = 0> (sum, axes)
}"""


def _sum_model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(SUM)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    return model


@pytest.fixture(scope="module")
def sums() -> ostinato.InferenceSession:
    return ostinato.InferenceSession(_sum_model(), cache_dir=None)


@pytest.mark.parametrize("length", [3, 0, 1, 50, 3])
def test_a_new_length_never_recompiles(sums: ostinato.InferenceSession, length: int) -> None:
    rng = np.random.default_rng(length)
    x, bias = (rng.standard_normal((length, 4)).astype("f") for _ in range(2))
    y, total = sums.run(None, {"x": x, "bias": bias})
    assert np.allclose(y, np.tanh(x + bias), atol=1e-6)
    assert np.allclose(total, (x + bias).sum(1), atol=1e-5)
    call = sums.bind({"x": x, "bias": bias})
    call()
    assert np.array_equal(call.outputs["y"], y)
    given = {"y": np.empty_like(y)}
    assert np.array_equal(sums.run(["total"], {"x": x, "bias": bias}, out=given)[0], total)
    assert np.array_equal(given["y"], y)


def test_a_model_without_fallback_is_called_directly(sums: ostinato.InferenceSession) -> None:
    assert sums.report()["fallback"] == []
    assert sums._direct is not None


LOAD = """
import sys
import numpy as np
import ostinato
session = ostinato.InferenceSession(sys.argv[1], cache_dir=sys.argv[2])
ones = np.ones((2, 4), "f")
print(session.run(["total"], {"x": ones, "bias": ones})[0].tolist(), session.report()["from_cache"])
print([name for name in ("onnx", "onnx_ir", "sympy") if name in sys.modules])
"""


def test_a_second_process_loads_from_the_cache_without_onnx(tmp_path: Path) -> None:
    path, cache = tmp_path / "sum.onnx", tmp_path / "cache"
    onnx.save(_sum_model(), path)
    environment = {**os.environ, "PYTHONPATH": str(Path(ostinato.__file__).parent.parent)}
    answers = []
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", LOAD, path, cache],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
        )
        assert result.returncode == 0, result.stderr
        answers.append(result.stdout.splitlines())
    assert answers[0][0] == "[8.0, 8.0] False"
    assert answers[1] == ["[8.0, 8.0] True", "[]"]


def test_calls_cost_well_under_a_microsecond() -> None:
    session = ostinato.InferenceSession(onnx.parser.parse_model(IDENTITY), cache_dir=None)
    feeds = {"x": np.ones(1, "f")}
    call = session.bind(feeds)

    def nanoseconds(function: object) -> float:
        return min(timeit.repeat(function, number=2000, repeat=20)) / 2000 * 1e9  # type: ignore[arg-type]

    # About 90 and 700 ns on an idle machine; the margin is for a busy one.
    assert nanoseconds(call) < 1000
    assert nanoseconds(lambda: session.run(None, feeds)) < 7000


def test_a_bound_call_gives_a_new_list_each_time() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (seq(float[2]) y) { z = Neg(x)  y = SequenceConstruct(x, z) }""")
    x = np.array([1, 2], np.float32)
    call = ostinato.InferenceSession(model, cache_dir=None).bind({"x": x})
    call()
    first = call.outputs["y"]
    x[:] = 3
    call()
    assert [a.tolist() for a in first] == [[1, 2], [-1, -2]]
    assert [a.tolist() for a in call.outputs["y"]] == [[3, 3], [-3, -3]]
