from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as theirs
import pytest

import ostinato.onnxruntime as ours
from tests.onnxruntime.models import RELU, SUM

X = np.ones((2, 4), np.float32)
both = pytest.mark.parametrize("module", [ours, theirs])


@both
def test_memory_that_is_bound_is_read_and_written_in_every_run(module: Any) -> None:
    session = module.InferenceSession(RELU)
    x, y = X.copy(), np.zeros_like(X)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    for value in (3, 5):
        x[...] = value
        session.run_with_iobinding(binding)
        assert (y == value).all()
    assert binding.get_outputs()[0].data_ptr() == y.ctypes.data


def test_lengths_that_change_in_place_are_read_again() -> None:
    x, ends = np.arange(4, dtype=np.float32), np.array([1])
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x, int64[1] e) => (float[4] y) '
        "<int64[1] s = {0}, int64[1] four = {4}, float[1] z = {0}> "
        "{ p = Slice (x, s, e) m = Sub (four, e) q = Expand (z, m) y = Concat <axis = 0> (p, q) }"
    )
    session = ours.InferenceSession(model.SerializeToString())
    binding, y = session.io_binding(), np.zeros(4, np.float32)
    for name, array in (("x", x), ("e", ends)):
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    for end in (1, 3, 2):
        ends[0] = end
        session.run_with_iobinding(binding)
        assert (y == np.where(np.arange(4) < end, x, 0)).all()


@both
def test_a_cache_may_be_input_and_output(module: Any) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> '
        "g (float[6, 3] past, float[1, 3] x, int64[1, 1] p) => (float[6, 3] present, float s) "
        "{ present = ScatterND (past, p, x) s = ReduceSum <keepdims = 0> (present) }"
    )
    session = module.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    cache = module.OrtValue.ortvalue_from_numpy(np.zeros((6, 3), np.float32))
    sums = []
    for row in range(6):
        binding = session.io_binding()
        binding.bind_cpu_input("x", np.full((1, 3), row, np.float32))
        binding.bind_cpu_input("p", np.array([[row]]))
        binding.bind_ortvalue_input("past", cache)
        binding.bind_ortvalue_output("present", cache)
        binding.bind_output("s")
        session.run_with_iobinding(binding)
        sums.append(float(binding.get_outputs()[1].numpy()))
    assert sums == [0, 3, 9, 18, 30, 45]
    assert (cache.numpy() == np.arange(6)[:, None]).all()


@both
def test_outputs_without_memory_get_some(module: Any) -> None:
    session = module.InferenceSession(SUM)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_input("w", module.OrtValue.ortvalue_from_numpy(X))
    binding.bind_output("s")
    session.run_with_iobinding(binding)
    (s,) = binding.copy_outputs_to_cpu()
    assert s == 16
    target = module.OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32)
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    assert (target.numpy() == 2).all()
    binding.clear_binding_outputs()
    assert not len(binding.get_outputs())


@both
def test_outputs_are_what_is_bound(module: Any) -> None:
    session = module.InferenceSession(RELU)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    values = [module.OrtValue.ortvalue_from_numpy(np.full_like(X, n)) for n in (3, 4)]
    binding.bind_ortvalue_output("y", values[0])
    session.run_with_iobinding(binding)
    binding.bind_ortvalue_output("y", values[1])
    assert (binding.get_outputs()[0].numpy() == 4).all()
    assert (values[0].numpy() == np.maximum(X, 0)).all()


@both
def test_mistakes_are_runtime_errors(module: Any) -> None:
    theirs.set_default_logger_severity(4)
    session = module.InferenceSession(RELU)
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="zz"):
        binding.bind_cpu_input("zz", X)
    binding.bind_cpu_input("x", X)
    with pytest.raises(RuntimeError, match="At least one output"):
        session.run_with_iobinding(binding)
    wrong = np.zeros((3, 4), np.float32)
    binding.bind_output("y", "cpu", 0, np.float32, wrong.shape, wrong.ctypes.data)
    with pytest.raises(RuntimeError, match="output"):
        session.run_with_iobinding(binding)
    assert not wrong.any()
    binding.bind_cpu_input("x", X[0])
    with pytest.raises(RuntimeError, match="Invalid rank"):
        session.run_with_iobinding(binding)


@both
def test_a_list_is_no_array(module: Any) -> None:
    with pytest.raises(RuntimeError, match="Unable to create OrtValue"):
        module.InferenceSession(RELU).io_binding().bind_cpu_input("x", [1, 2])
