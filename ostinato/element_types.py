"""The names of element types: those of NumPy and ml_dtypes, and those of ONNX."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# Types whose ONNX name is not their NumPy name.
_ONNX_NAMES = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float6_e2m3fn": "float6e2m3",
    "float6_e3m2fn": "float6e3m2",
    "float4_e2m1fn": "float4e2m1",
}
# Types by their numbers, which attributes of nodes have.
NUMBERED = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
_NUMPY_NAMES = {onnx: numpy for numpy, onnx in _ONNX_NAMES.items()}


def onnx_name(dtype: str) -> str:
    """The ONNX name of the element type with a NumPy (or ml_dtypes) name."""
    return _ONNX_NAMES.get(dtype, dtype)


def dtype_name(onnx_name: str) -> str:
    """The NumPy (or ml_dtypes) name of the element type that ONNX calls "float", "int64", ..."""
    return _NUMPY_NAMES.get(onnx_name, onnx_name)


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name; strings are objects, small floats are ml_dtypes'."""
    import numpy as np

    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
