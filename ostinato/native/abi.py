"""Memory layouts of CPython and NumPy that the machine code of calls reads and writes."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ostinato.errors import RunError

METH_FASTCALL, METH_NOARGS = 0x0080, 0x0004
_INTEGER_LETTERS = "bhilqBHILQ"


class MethodDef(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@functools.cache
def dtype_numbers(dtype: np.dtype[Any]) -> tuple[int, int]:
    """NumPy's numbers of `dtype`: int64 is both "l" and "q" where long has 64 bits."""
    if not can_pass(dtype):
        raise RunError(f"arrays of {dtype} cannot be passed to compiled code")
    letters = _INTEGER_LETTERS if dtype.kind in "iu" else dtype.char
    same = [np.dtype(letter).num for letter in letters if np.dtype(letter) == dtype]
    return same[0], same[-1]


def can_pass(dtype: np.dtype[Any]) -> bool:
    """Whether compiled code takes arrays of this dtype."""
    return dtype.kind in "biuf"


def storage(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype whose buffers Python can describe: unsigned integers for ml_dtypes' floats."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == 2 else dtype


class _ArrayObject(ctypes.Structure):
    """NumPy's `PyArrayObject_fields`."""

    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("dimensions", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("dtype", ctypes.c_void_p),
        ("flags", ctypes.c_int),
    )


class _DtypeObject(ctypes.Structure):
    """The beginning of NumPy's `PyArray_Descr`."""

    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("element", ctypes.c_void_p),
        ("characters", ctypes.c_char * 3),
        ("number", ctypes.c_int),
    )


def require_array_layout() -> None:
    """Raise `RunError` unless arrays are laid out in memory as compiled code expects."""
    probe = np.zeros((2, 3), np.int16)
    array = _ArrayObject.from_address(id(probe))
    if array.type == id(np.ndarray) and array.dtype == id(probe.dtype) and array.rank == 2:
        dtype = _DtypeObject.from_address(array.dtype)
        found = (array.data, array.flags, *array.dimensions[:2], dtype.number, dtype.characters)
        if found == (probe.ctypes.data, probe.flags.num, 2, 3, probe.dtype.num, b"ih="):
            return
    raise RunError(
        f"arrays of NumPy {np.__version__} are laid out in another way than those of NumPy 2; "
        "install a version of NumPy that ostinato supports"
    )
