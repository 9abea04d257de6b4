from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime as theirs
import pytest

import ostinato.onnxruntime as ours

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint64", "bool"])
def test_a_value_tells_what_onnxruntimes_tells(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    mine, other = (m.OrtValue.ortvalue_from_numpy(array) for m in (ours, theirs))
    for name in (
        "shape data_type element_type device_name is_tensor is_sparse_tensor is_tensor_sequence"
        " has_value tensor_size_in_bytes data_ptr"
    ).split():
        assert getattr(mine, name)() == getattr(other, name)(), name
    np.testing.assert_array_equal(np.asarray(mine), array)
    assert np.from_dlpack(mine).tolist() == array.tolist() or dtype == "bool"


def test_values_share_memory_and_are_updated_in_place() -> None:
    array = X.copy()
    value = ours.OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(2 * X)
    np.testing.assert_array_equal(array, 2 * X)
    value.update_inplace(ours.OrtValue.ortvalue_from_numpy(X))
    np.testing.assert_array_equal(array, X)
    with pytest.raises(RuntimeError, match="does not match the size"):
        value.update_inplace(np.ones(3, np.float32))
    with pytest.raises(TypeError, match=r"numpy\.ndarray"):
        value.update_inplace([1])  # type: ignore[arg-type]


def test_values_of_types_that_numpy_lacks() -> None:
    value = ours.OrtValue.ortvalue_from_shape_and_type([2, 3], 16)
    assert value.data_type() == "tensor(bfloat16)" and value.shape() == [2, 3]
    bits = ours.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones(2, np.uint16), 16)
    assert bits.element_type() == 16 and bits.numpy().dtype == ml_dtypes.bfloat16
    with pytest.raises(RuntimeError, match="another size"):
        ours.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones(2, np.uint8), 16)


def test_there_is_no_other_device() -> None:
    with pytest.raises(RuntimeError, match="'cuda'"):
        ours.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert ours.OrtDevice.make("cpu", 0).device_type() == 0
    assert ours.get_device() == "CPU" and ours.get_ep_devices() == []


def test_devices_have_the_numbers_that_onnxruntime_gives_them() -> None:
    for name in ("cpu", "cuda", "dml", "gpu", "webgpu", "cann", "npu"):
        mine, other = ours.OrtDevice.make(name, 0), theirs.OrtDevice.make(name, 0)
        assert mine.device_type() == other.device_type()
        assert mine.device_vendor_id() == other.device_vendor_id()
    for module in (ours, theirs):
        with pytest.raises(Exception, match="Unsupported device type: tpu"):
            module.OrtDevice.make("tpu", 0)


def test_a_sequence_is_no_tensor() -> None:
    value = ours.OrtValue([X])
    assert value.is_tensor_sequence() and value.data_type() == "seq(tensor(float))"
    with pytest.raises(RuntimeError, match="Tensors"):
        value.numpy()


@pytest.mark.parametrize("data", [np.array(["a"]), np.array(["a"], object), [1, 2], np.float32(1)])
def test_values_are_made_of_arrays_of_numbers(data: object) -> None:
    for module in (ours, theirs):
        with pytest.raises(RuntimeError, match="non-string numpy arrays"):
            module.OrtValue.ortvalue_from_numpy(data)


@pytest.mark.parametrize(
    ("shape", "element_type"),
    [([-1], np.float32), ([2**62], np.float64), ([2], 99), ([2], -1), ([2], 8), ([2], np.str_)],
)
def test_memory_that_there_is_not_is_refused(shape: list[int], element_type: object) -> None:
    for module in (ours, theirs):
        with pytest.raises(RuntimeError):
            module.OrtValue.ortvalue_from_shape_and_type(shape, element_type)


def test_values_of_maps_tell_their_type() -> None:
    assert ours.OrtValue([{"a": 1.0}]).data_type() == "seq(map(string,tensor(float)))"
    assert ours.OrtValue([{3: 1.0}]).data_type() == "seq(map(int64,tensor(float)))"
