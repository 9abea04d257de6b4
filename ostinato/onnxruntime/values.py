"""OrtValue, devices and element types: arrays with the names that onnxruntime gives them."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from ostinato.element_types import dtype_name, numpy_dtype, onnx_name
from ostinato.onnxruntime import absent
from ostinato.onnxruntime.errors import require_own

Array = np.ndarray[Any, Any]

# Element types by their number in TensorProto.DataType, as onnxruntime spells them.
ELEMENTS = (
    *("undefined", "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string"),
    *("bool", "float16", "double", "uint32", "uint64", "complex64", "complex128", "bfloat16"),
    *("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4"),
)
_NO_TEXTS = "Creation of OrtValues is currently only supported from non-string numpy arrays"
# Devices by name: the numbers of their kind and their vendor.
_DEVICES = {
    **{"cpu": (0, 0), "cuda": (1, 0x10DE), "dml": (1, 0x1414), "gpu": (1, 0), "webgpu": (1, 0)},
    **{"cann": (3, 0x19E5), "npu": (3, 0)},
}
_ONLY_CPU = "there is one device here, the CPU"


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """The NumPy dtype of an element type: a dtype already, or a number of TensorProto.DataType.

    Raises `RuntimeError`, as onnxruntime does, for a number that is none.
    """
    if isinstance(element_type, int):
        if not 0 < element_type < len(ELEMENTS):
            raise RuntimeError(f"tensor type {element_type} is not supported")
        return numpy_dtype(dtype_name(ELEMENTS[element_type]))
    dtype: np.dtype[Any] = np.dtype(element_type)
    return dtype


def element_of(dtype: np.dtype[Any]) -> str:
    """onnxruntime's name of a dtype, such as "float"; texts are "string"."""
    if dtype.kind in "OUST":
        return "string"
    return onnx_name(dtype.name)


class OrtDevice:
    """A device by name and number; values can be on the CPU alone.

    name: also the number of its kind, which memory and device follow as in onnxruntime's native
        module, or a device. Raises `Exception`, as there, for a name that onnxruntime has not.
    """

    def __init__(self, name: str | int | OrtDevice = "cpu", *numbers: int) -> None:
        self._device_id: int = numbers[-1] if numbers else 0
        if isinstance(name, OrtDevice):
            self._device_id = name._device_id
            name = name._name
        elif isinstance(name, int):
            kinds = {kind: known for known, (kind, _) in reversed(_DEVICES.items())}
            name = kinds.get(name, str(name))
        if name not in _DEVICES:
            raise Exception(f"Unsupported device type: {name}")
        self._name: str = name

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        return OrtDevice(ort_device_name, device_id)

    @staticmethod
    def cpu() -> int:
        return 0

    @staticmethod
    def default_memory() -> int:
        return 0

    def device_id(self) -> int:
        return self._device_id

    def device_type(self) -> int:
        return _DEVICES[self._name][0]

    def device_mem_type(self) -> int:
        return 0

    def device_vendor_id(self) -> int:
        return _DEVICES[self._name][1]

    def require_cpu(self) -> None:
        """Raise `RuntimeError` for another device, as onnxruntime for the CPU does."""
        if self._name != "cpu":
            raise RuntimeError(f"device {self._name!r}: {_ONLY_CPU}")


class OrtAllocatorType(enum.IntEnum):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(enum.IntEnum):
    """Kinds of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtMemoryInfo:
    """The memory of an allocator; there is one kind here."""

    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType
    ) -> None:
        self.name, self.allocator_type = name, allocator_type
        self.device_id, self.mem_type = device_id, mem_type
        self.device_mem_type, self.device_vendor_id = 0, 0

    @classmethod
    def create_v2(cls, name: str, *_: Any) -> OrtMemoryInfo:
        """The memory of the CPU under this name."""
        return cls(name, OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)


class OrtValue:
    """A value of a run: an array, whose memory it shares; a list for a sequence, or None.

    Made by `ortvalue_from_numpy` and its sisters. An `onnx_type` tells elements that the array
    holds under another dtype of the same size.
    """

    def __init__(self, value: Any, onnx_type: str = "") -> None:
        self._value, self._onnx_type = value, onnx_type

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """An OrtValue on the memory of an array."""
        OrtDevice(device_type, device_id).require_cpu()
        if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "OUST":
            raise RuntimeError(_NO_TEXTS)
        # onnxruntime copies what is not laid out in order as well.
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """An OrtValue on the memory of an array whose bits are elements of another type."""
        dtype = dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise RuntimeError(f"elements of {data.dtype} cannot be read as {dtype}: another size")
        return cls(np.asarray(data, order="C").view(dtype), ELEMENTS[onnx_element_type])

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[SupportsIndex],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """An OrtValue with memory of its own, whose elements are not set.

        Raises `RuntimeError` for sizes that no memory has, and for texts.
        """
        OrtDevice(device_type, device_id).require_cpu()
        dtype = dtype_of(element_type)
        if dtype.kind in "OUST":
            raise RuntimeError(_NO_TEXTS)
        try:
            return cls(np.empty(tuple(shape), dtype))
        except ValueError as error:
            raise RuntimeError(f"shape {list(shape)}: {error}") from error

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """An OrtValue on the memory of a tensor of another library."""
        return cls(np.asarray(np.from_dlpack(data), order="C"))

    @property
    def _ortvalue(self) -> OrtValue:
        """The native value that programs expect behind the one of Python."""
        return self

    def to_dlpack(self) -> Any:
        """The memory as a DLPack capsule."""
        return self.__dlpack__()

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self._tensor().ctypes.data)

    def device_name(self) -> str:
        return "cpu"

    def shape(self) -> list[int]:
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """The type, such as "tensor(float)"."""
        if isinstance(self._value, list):
            inner = OrtValue(self._value[0]).data_type() if self._value else "tensor(float)"
            return f"seq({inner})"
        if isinstance(self._value, dict):  # of ai.onnx.ml's ZipMap, which makes no others
            key = "int64" if isinstance(next(iter(self._value), ""), int) else "string"
            return f"map({key},tensor(float))"
        return f"tensor({self._onnx_type or element_of(self._tensor().dtype)})"

    def element_type(self) -> int:
        """The number of the element type in TensorProto.DataType."""
        return ELEMENTS.index(self._onnx_type or element_of(self._tensor().dtype))

    def tensor_size_in_bytes(self) -> int:
        return self._tensor().nbytes

    def has_value(self) -> bool:
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        return False

    def as_sparse_tensor(self) -> Any:
        raise RuntimeError("Only OrtValues that are SparseTensors are currently supported")

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: Any) -> OrtValue:
        """Raise `NotImplemented`: there are no sparse tensors."""
        absent.refuse("ort_value_from_sparse_tensor", absent.REASONS["SparseTensor"])

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list)

    def numpy(self) -> Array:
        """The array itself. Raises `RuntimeError` for what is no tensor."""
        return self._tensor()

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Copy elements into the memory of this value; raises `RuntimeError` for another size."""
        array = data.numpy() if isinstance(data, OrtValue) else data
        if not isinstance(array, np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        target = self._tensor()
        if array.size != target.size or array.dtype != target.dtype:
            raise RuntimeError(
                "The input size of numpy arrays does not match the size of the OrtValue."
            )
        target.reshape(-1)[...] = array.reshape(-1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._tensor(), dtype=dtype, copy=copy)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self._tensor().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def _tensor(self) -> Array:
        if not isinstance(self._value, np.ndarray):
            raise RuntimeError("Only OrtValues that are Tensors are currently supported")
        return self._value


def unwrapped(value: Any) -> Any:
    """Unwrap the value of an OrtValue; anything else is returned as it is."""
    return value._value if isinstance(value, OrtValue) else value


def memory_at(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """The array at an address, which the caller keeps alive."""
    size = int(np.prod([int(n) for n in shape], dtype=np.int64)) * dtype.itemsize
    memory = memoryview((ctypes.c_ubyte * size).from_address(address)) if size else b""
    return np.frombuffer(memory, dtype).reshape([int(n) for n in shape])


def held(what: str, value: Any) -> Any:
    """What an OrtValue holds; one of onnxruntime itself shares its memory.

    what: what it is given as. Raises `TypeError` for anything else.
    """
    if type(value).__module__.startswith("onnxruntime.") and type(value).__name__ == "OrtValue":
        return value.numpy()
    require_own(what, value, OrtValue)
    return value._value
