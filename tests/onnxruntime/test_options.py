from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as theirs
import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model

import ostinato.onnxruntime as ours
from ostinato.onnxruntime.options import IGNORED, cores
from tests.onnxruntime.models import RELU, model

X = np.ones((2, 4), np.float32)


def test_every_attribute_of_onnxruntimes_options_is_there_with_its_default() -> None:
    mine, other = ours.SessionOptions(), theirs.SessionOptions()
    for name in dir(other):
        if name.startswith("_"):
            continue
        value = getattr(other, name)
        if callable(value):
            assert callable(getattr(mine, name))
        elif hasattr(value, "name"):
            assert getattr(mine, name).name == value.name
        else:
            assert getattr(mine, name) == value


def test_every_attribute_of_onnxruntimes_run_options_is_there() -> None:
    mine, other = ours.RunOptions(), theirs.RunOptions()
    for name in dir(other):
        if not name.startswith("_") and not callable(getattr(other, name)):
            assert getattr(mine, name) == getattr(other, name)
    mine.add_run_config_entry("a", "b")
    assert mine.get_run_config_entry("a") == "b"
    with pytest.raises(RuntimeError, match="configuration with key: c"):
        mine.get_run_config_entry("c")


def test_what_has_no_effect_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ostinato.onnxruntime")
    options = ours.SessionOptions()
    options.enable_mem_pattern = False
    options.something_new = 3
    options.set_load_cancellation_flag(True)
    ours.InferenceSession(RELU, options).run(None, {"x": X})
    assert IGNORED["enable_mem_pattern"] in caplog.text
    assert "something_new" in caplog.text and "set_load_cancellation_flag" in caplog.text
    copy.copy(options)


@pytest.mark.parametrize(
    ("options", "slip", "meant"),
    [
        (ours.SessionOptions, "intra_op_num_thread", "intra_op_num_threads"),
        (ours.SessionOptions, "graph_optimisation_level", "graph_optimization_level"),
        (ours.RunOptions, "terminated", "terminate"),
    ],
)
def test_a_slip_of_the_pen_is_an_error_as_in_onnxruntime(
    options: type, slip: str, meant: str
) -> None:
    with pytest.raises(AttributeError, match=f"did you mean .*{meant}"):
        setattr(options(), slip, 1)
    with pytest.raises(AttributeError):
        setattr(getattr(theirs, options.__name__)(), slip, 1)


@pytest.mark.parametrize("module", [ours, theirs])
def test_unknown_names_are_absent(module: Any) -> None:
    assert not hasattr(module.SessionOptions(), "intra_op_threads")
    assert not hasattr(module.RunOptions(), "something_new")
    assert hasattr(module.SessionOptions(), "add_provider_for_devices")


@pytest.mark.parametrize("module", [ours, theirs])
def test_integers_are_what_converts_to_one_but_no_float_of_python(module: Any) -> None:
    options = module.SessionOptions()
    for value in (np.True_, np.float32(1), np.int8(1), True, np.array(1)):
        options.intra_op_num_threads = value
        assert options.intra_op_num_threads == 1
        options.add_free_dimension_override_by_name("N", value)
    for wrong in (1.0, np.float64(1), "1", None):
        with pytest.raises(TypeError):
            options.intra_op_num_threads = wrong
        with pytest.raises(TypeError):
            options.add_free_dimension_override_by_name("N", wrong)
    with pytest.raises(TypeError):
        options.intra_op_num_threads = 2**40


def test_what_runs_do_not_know_is_told(caplog: pytest.LogCaptureFixture) -> None:
    ours.RunOptions().something_new = 3
    assert "RunOptions.something_new is not known here" in caplog.text


def test_bytes_are_multiplied_where_onnxruntime_does() -> None:
    level = ours.GraphOptimizationLevel
    options = ours.SessionOptions()
    assert options.multiplies_bytes()
    options.graph_optimization_level = level.ORT_ENABLE_BASIC
    assert not options.multiplies_bytes()
    options.graph_optimization_level = level.ORT_ENABLE_EXTENDED
    assert options.multiplies_bytes()
    exact = ours.SessionOptions()
    exact.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    assert not exact.multiplies_bytes()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    assert not options.multiplies_bytes()
    model = parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (uint8[2,4] x) => (float[2,3] y) '
        "<float s = {0.1}, int8[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}> "
        "{ a = DequantizeLinear (x, s) b = DequantizeLinear (w, s) y = MatMul (a, b) }"
    ).SerializeToString()
    for chosen, count in ((ours.SessionOptions(), 1), (options, 0)):
        session = ours.InferenceSession(model, chosen)._compiled
        assert session is not None
        report = session.report()
        assert report.passes.get("integer_products", 0) == count
        assert len(report.advice) == 1 - count
        assert all("integer_products=True" in text for text in report.advice)
        assert all(text in str(report) for text in report.advice)


def test_values_of_a_wrong_type_are_refused() -> None:
    options = ours.SessionOptions()
    with pytest.raises(TypeError, match="intra_op_num_threads"):
        options.intra_op_num_threads = "a"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="execution_mode"):
        options.execution_mode = ours.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = theirs.ExecutionMode.ORT_PARALLEL
    assert options.execution_mode is ours.ExecutionMode.ORT_PARALLEL


@pytest.mark.parametrize("package", [ours, theirs])
def test_runs_have_the_types_of_onnxruntime(package: Any) -> None:
    options = package.RunOptions()
    for name, wrong in (("terminate", "no"), ("log_severity_level", "low"), ("logid", 1)):
        with pytest.raises(TypeError):
            setattr(options, name, wrong)
    options.terminate = None
    assert options.terminate is False
    options.log_verbosity_level = np.int64(2)
    assert type(options.log_verbosity_level) is int
    session = package.SessionOptions()
    for given, taken in ((np.True_, True), (np.int32(0), False), (0.5, True), (None, False)):
        session.enable_profiling = given
        assert session.enable_profiling is taken
    session.intra_op_num_threads = np.int32(2)
    assert type(session.intra_op_num_threads) is int
    with pytest.raises(TypeError):
        session.intra_op_num_threads = 2.0


@pytest.mark.parametrize("package", [ours, theirs])
@pytest.mark.parametrize("by", ["name", "denotation"])
def test_sizes_of_dimensions_are_integers(package: Any, by: str) -> None:
    override = getattr(package.SessionOptions(), f"add_free_dimension_override_by_{by}")
    override("N", np.int64(2))
    with pytest.raises(TypeError):
        override("N", "2")


def test_threads_and_denormals_reach_the_compiler() -> None:
    options = ours.SessionOptions()
    assert options.threads() == cores() >= 1
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    assert options.threads() == 2 and options.flushes_denormals()
    small = np.full((1, 4), 1e-40, np.float32)
    y = ours.InferenceSession(
        model("g (float[N, 4] x) => (float[N, 4] y) { y = Add(x, x) }"), options
    ).run(None, {"x": small})
    assert not y[0].any()


@pytest.mark.parametrize("how", ["name", "denotation"])
def test_free_dimensions_get_their_size(how: str) -> None:
    proto = onnx.load_model_from_string(RELU)
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ours.SessionOptions()
    if how == "name":
        options.add_free_dimension_override_by_name("N", 2)
        options.add_free_dimension_override_by_name("M", 3)
    else:
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    session = ours.InferenceSession(proto.SerializeToString(), options)
    assert session.get_inputs()[0].shape == [2, 4]
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument, match="Got: 3"):
        session.run(None, {"x": np.ones((3, 4), np.float32)})


def test_initializers_get_other_values(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [1, 1, 1, 1])
    proto = onnx.load_model_from_string(
        model("g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 1, 1, 1}> { y = Mul(x, w) }")
    )
    proto.graph.initializer[0].CopyFrom(weight)
    options = ours.SessionOptions()
    value = ours.OrtValue.ortvalue_from_numpy(np.arange(4, dtype=np.float32))
    options.add_initializer("w", value)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    for given in (path, path.read_bytes()):
        (y,) = ours.InferenceSession(given, options).run(None, {"x": X})
        np.testing.assert_array_equal(y[0], np.arange(4))
    options.add_initializer("nowhere", value)
    ours.InferenceSession(path, options)
    options.add_external_initializers(["v"], [value])
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.Fail, match="name v"):
        ours.InferenceSession(path, options)


def test_initializers_that_only_onnxruntime_takes_are_kept_for_it() -> None:
    """It has pointers to their values, which nothing else holds."""
    data = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    options = ours.SessionOptions()
    value = ours.OrtValue.ortvalue_from_numpy(np.arange(3, dtype=np.float32))
    options.add_initializer("w", value)
    session = ours.InferenceSession(data, options)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.Fail):
        session.run(None, {"x": np.ones(2, np.float32)})


def test_weights_of_files_in_memory_are_those_of_onnxruntime(tmp_path: Path) -> None:
    weights = np.arange(4, dtype=np.float32)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    made = parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[4] x) => (float[4] y) <float[4] w = {0, 0, 0, 0}> { y = Add(x, w) }"
    )
    made.graph.initializer[0].CopyFrom(tensor)
    # Beside the model is another file of this name.
    (tmp_path / "w.bin").write_bytes(bytes(16))
    onnx.save(made, tmp_path / "model.onnx")
    options = ours.SessionOptions()
    data = weights.tobytes()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
    session = ours.InferenceSession(tmp_path / "model.onnx", options)
    np.testing.assert_array_equal(session.run(None, {"x": np.ones(4, "f")})[0], weights + 1)


def test_settings_of_arenas_are_taken_and_a_missing_library_is_refused() -> None:
    arena = ours.OrtArenaCfg({"max_mem": 1 << 20, "arena_extend_strategy": 1})
    assert arena.max_mem == 1 << 20
    ours.create_and_register_allocator(None, ours.OrtArenaCfg(0, -1, -1, -1))
    with pytest.raises(ValueError, match="nothing"):
        ours.OrtArenaCfg({"nothing": 1})
    with pytest.raises(TypeError):
        ours.OrtArenaCfg(1)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.Fail, match=r"kernels\.so"):
        ours.SessionOptions().register_custom_ops_library("kernels.so")


@pytest.mark.parametrize("entry", [("", "1"), ("k" * 1025, "1"), ("k", "1" * 8193), ("k", 1)])
def test_entries_that_onnxruntime_refuses_are_refused(entry: tuple[str, str]) -> None:
    kinds = []
    for module in (ours, theirs):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            module.SessionOptions().add_session_config_entry(*entry)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


def test_negative_threads_are_as_many_as_there_are_cores() -> None:
    options = ours.SessionOptions()
    options.intra_op_num_threads = -1
    assert options.threads() == ours.SessionOptions().threads() >= 1
