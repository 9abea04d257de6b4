from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ostinato
from ostinato import compiler
from ostinato.compiler import compile_model
from ostinato.options import Options
from ostinato.stages.stage import NativeStage

X = np.linspace(-1, 1, 3 * 40, dtype=np.float32).reshape(3, 40)


def dense(weights: np.ndarray, bias: np.ndarray) -> onnx.ModelProto:
    """A layer whose weights are packed, with lanes left over, and whose bias stays as it is."""
    is_narrow = weights.dtype != np.float32
    nodes = [helper.make_node("Cast", ["w"], ["v"], to=onnx.TensorProto.FLOAT)] * is_narrow
    nodes += [
        helper.make_node("MatMul", ["x", "v" if is_narrow else "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 40])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, len(bias)])
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph(nodes, "dense", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def scheduled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects the programs that are scheduled."""
    found: list[Any] = []
    schedule = compiler.schedule
    monkeypatch.setattr(
        compiler, "schedule", lambda *given: (found.append(given[0]), schedule(*given))[1]
    )
    return found


def check(model: onnx.ModelProto, folder: Path) -> None:
    """The results, code, constants and report are those of a compiler that knows no other model."""
    expected = ostinato.InferenceSession(model, cache_dir=None).run(None, {"x": X})
    (got,) = ostinato.InferenceSession(model, cache_dir=folder / "other").run(None, {"x": X})
    np.testing.assert_array_equal(got, expected[0])
    fresh, found = (
        compile_model(model, Options(cache_dir=place)).stages[0] for place in (None, folder)
    )
    assert isinstance(fresh, NativeStage) and isinstance(found, NativeStage)
    np.testing.assert_array_equal(fresh.artifact.constants, found.artifact.constants)
    assert fresh.artifact.report == found.artifact.report
    assert fresh.artifact.inputs == found.artifact.inputs
    assert fresh.artifact.outputs == found.artifact.outputs


def test_other_weights_that_are_turned_have_the_code_of_those_before(
    tmp_path: Path, scheduled: list[Any]
) -> None:
    def model(weights: np.ndarray) -> onnx.ModelProto:
        made = dense(weights, np.ones(37, np.float32))
        turn = helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0])
        made.graph.node[0].input[1] = "turned"
        made.graph.node.insert(0, turn)
        return made

    weights = np.random.default_rng(0).standard_normal((37, 40)).astype(np.float32)
    compile_model(model(weights), Options(cache_dir=tmp_path))
    scheduled.clear()
    compile_model(model(weights + 1), Options(cache_dir=tmp_path))
    assert not scheduled
    check(model(weights * 3), tmp_path)


def test_other_weights_have_the_code_of_those_before(tmp_path: Path, scheduled: list[Any]) -> None:
    random = np.random.default_rng(0)
    weights, bias = (random.standard_normal(n).astype(np.float32) for n in ((40, 37), 37))
    compile_model(dense(weights, bias), Options(cache_dir=tmp_path))
    scheduled.clear()
    compile_model(dense(weights + 1, bias), Options(cache_dir=tmp_path))
    compile_model(dense(weights, bias + 1), Options(cache_dir=tmp_path))
    assert not scheduled
    check(dense(weights * 3, bias * 2), tmp_path)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("width", [37, 64])
def test_other_weights_of_16_bits_have_the_code_of_those_before(
    tmp_path: Path, scheduled: list[Any], dtype: Any, width: int
) -> None:
    """Pairs of bfloat16 are words, which are other ones for other weights."""
    random = np.random.default_rng(0)
    weights, other = (random.standard_normal((40, width)).astype(dtype) for _ in range(2))
    bias = np.ones(width, np.float32)
    compile_model(dense(weights, bias), Options(cache_dir=tmp_path))
    scheduled.clear()
    compile_model(dense(other, bias), Options(cache_dir=tmp_path))
    assert not scheduled
    check(dense(other, bias), tmp_path)


@pytest.mark.parametrize("target", ["host", "x86-64-v3", "cortex-a53", "raspberry-pi-5"])
def test_other_words_of_bytes_are_not_those_before(tmp_path: Path, target: str) -> None:
    """Where there are no dots of bytes, words of them are widened while compiling."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["N", 64])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, ["N", 48])
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    found = []
    for seed, place in ((0, tmp_path), (1, tmp_path), (1, None)):
        weights = np.random.default_rng(seed).integers(-128, 128, (64, 48)).astype(np.int8)
        constants = [numpy_helper.from_array(weights, "w")]
        graph = helper.make_graph([node], "bytes", [x], [y], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        (stage,) = compile_model(model, Options(cache_dir=place, target=target)).stages
        assert isinstance(stage, NativeStage)
        found.append(np.asarray(stage.artifact.constants))
    np.testing.assert_array_equal(found[1], found[2])
    assert not np.array_equal(found[0], found[1])


def test_weights_that_are_widened_while_compiling_are_those_of_the_model(tmp_path: Path) -> None:
    """Scales of columns beside 16 bits save less than half, so that nobody widens them later."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 40])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 48])
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["v"], axis=1),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    for seed in range(2):
        random = np.random.default_rng(seed)
        weights = {
            "w": random.integers(-3000, 3000, (40, 48)).astype(np.int16),
            "scale": random.uniform(1e-4, 1e-3, 48).astype(np.float32),
        }
        tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
        graph = helper.make_graph(nodes, "columns", [x], [y], tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        if seed == 0:
            compile_model(model, Options(cache_dir=tmp_path))
    check(model, tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        {"threads": 2},
        {"disable": ("pack",)},
        {"target": "cortex-a53"},
    ],
)
def test_other_options_have_code_of_their_own(
    tmp_path: Path, scheduled: list[Any], other: dict[str, Any]
) -> None:
    model = dense(np.ones((40, 37), np.float32), np.ones(37, np.float32))
    compile_model(model, Options(cache_dir=tmp_path))
    compile_model(model, Options(cache_dir=tmp_path, **other))
    assert len(scheduled) == 2


def test_other_bytes_may_need_more_bits(tmp_path: Path, scheduled: list[Any]) -> None:
    bias = np.zeros(32, np.float32)
    narrow = (np.arange(40 * 32) % 16 - 8).astype(np.int8).reshape(40, 32)
    compile_model(dense(narrow, bias), Options(cache_dir=tmp_path))
    check(dense(narrow * 10, bias), tmp_path)
    assert len(scheduled) > 2
    scheduled.clear()
    compile_model(dense(narrow, bias + 1), Options(cache_dir=tmp_path))
    assert not scheduled
    check(dense(narrow, bias + 2), tmp_path)
