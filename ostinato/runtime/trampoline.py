"""The call from Python into compiled code, without ctypes and without allocation.

`Trampoline.caller` and `Trampoline.bound` return built-in functions made from machine code that is
the same for all models (`trampoline_ir`), with a context per call site. The GIL is held during a
call: it is what keeps two threads of one session from using the session's arena at the same time.
Interrupts are delivered after the call.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.codegen import objects
from ostinato.errors import OptionError, RunError
from ostinato.runtime import trampoline_ir
from ostinato.runtime.cache import Cache, machine_key

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

REFUSED = -1
"""What a caller returns when an argument is not exactly what it was made for."""

# The views of a call live on the stack, 88 bytes an argument.
MAX_ARGUMENTS = 2048

_METH_FASTCALL, _METH_NOARGS = 0x0080, 0x0004
_PYTHON_API = (
    "PyTuple_GetItem",
    "PyByteArray_AsString",
    "PyObject_GetBuffer",
    "PyBuffer_Release",
    "PyErr_Clear",
    "PyObject_Type",
    "Py_IncRef",
    "Py_DecRef",
    "PyLong_FromLongLong",
)
_INTEGER_LETTERS = "bhilqBHILQ"


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class Callee:
    """What a call site calls: a compiled function and the tables it is given.

    entry: address of the compiled function. symbols: its int64 table of run-time dimensions.
    constants, arena: uint8 arrays aligned to 64 bytes. code: keeps the function's code alive.
    flush_denormals: treat subnormal numbers as zero during calls; see `require_denormal_control`.
    """

    entry: int
    symbols: Array
    constants: Array
    arena: Array
    code: object
    flush_denormals: bool = False


def can_flush_denormals() -> bool:
    """Whether this machine can treat subnormal numbers as zero around a call."""
    return platform.machine().lower() in ("x86_64", "amd64")


def require_denormal_control() -> None:
    """Raise `OptionError` where `can_flush_denormals` is false."""
    if not can_flush_denormals():
        raise OptionError("flush_denormals=True: only x86-64 processors can do this")


def _letters(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The buffer formats that mean `dtype`: int64 is "l" or "q" where long has 64 bits."""
    same = [
        letter
        for letter in (_INTEGER_LETTERS if dtype.kind in "iu" else dtype.char)
        if np.dtype(letter) == dtype
    ]
    if dtype.kind not in "biuf" or len(same) > 2:
        raise RunError(f"arrays of {dtype} cannot be passed to compiled code")
    return ord(same[0]), ord(same[-1])


class Trampoline:
    """Machine code of the two calls and the method definitions that make them Python functions."""

    def __init__(self, object_code: bytes) -> None:
        api = {name: objects.address_of(getattr(ctypes.pythonapi, name)) for name in _PYTHON_API}
        names = ("ostinato_call", "ostinato_call_bound")
        self._code = objects.load(object_code, names, api | {"_Py_NoneStruct": id(None)})
        call, call_bound = (self._code.address(name) for name in names)
        self._call = _MethodDef(b"call", call, _METH_FASTCALL, b"call(*inputs, *outputs)")
        self._call_bound = _MethodDef(b"call", call_bound, _METH_NOARGS, b"call()")
        prototype = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
        )
        self._new_function = prototype(("PyCFunction_NewEx", ctypes.pythonapi))

    def _function(
        self, definition: _MethodDef, context: bytearray, owned: tuple[object, ...]
    ) -> Any:
        # CPython reads the definition for as long as the function lives and lets `self` own it.
        return self._new_function(ctypes.addressof(definition), (context, self, *owned), None)

    def caller(
        self,
        callee: Callee,
        inputs: Sequence[tuple[np.dtype[Any], Shape]],
        outputs: Sequence[tuple[np.dtype[Any], Shape]],
    ) -> Callable[..., int | None]:
        """A function `call(*inputs, *outputs)` over arrays of exactly these dtypes and shapes.

        It returns None on success; `REFUSED` when it ran nothing because an argument is no array
        or has another dtype, byte order, shape or memory layout, or is an output that is read-only
        or overlaps another argument; or else the positive code of the compiled function.
        """
        arguments = [*inputs, *outputs]
        if len(arguments) > MAX_ARGUMENTS:
            raise RunError(f"{len(arguments)} inputs and outputs: at most {MAX_ARGUMENTS} can be")
        head = trampoline_ir.CONTEXT_SLOTS
        dims_start = head + trampoline_ir.SPEC_SLOTS * len(arguments)
        rank_sum = sum(len(shape) for _, shape in arguments)
        context = bytearray(8 * (dims_start + rank_sum))
        slots = np.frombuffer(context, np.int64)
        slots[:head] = (
            callee.entry,
            callee.flush_denormals,
            callee.symbols.ctypes.data,
            len(inputs),
            len(arguments),
            callee.constants.ctypes.data,
            callee.arena.ctypes.data,
            id(np.ndarray),
        )
        spec, dims = head, dims_start
        for dtype, shape in arguments:
            dims_address = slots.ctypes.data + 8 * dims
            alignment_mask = dtype.alignment - 1
            slots[spec : spec + trampoline_ir.SPEC_SLOTS] = (
                *_letters(dtype),
                dtype.itemsize,
                len(shape),
                dims_address,
                alignment_mask,
            )
            slots[dims : dims + len(shape)] = shape
            spec, dims = spec + trampoline_ir.SPEC_SLOTS, dims + len(shape)
        function: Callable[..., int | None] = self._function(self._call, context, (slots, callee))
        return function

    def bound(self, callee: Callee, arrays: Sequence[Array]) -> Callable[[], int | None]:
        """A function `call()` over the memory of `arrays`: the inputs, then the outputs.

        Nothing is checked, neither here nor in the call. It returns None on success or the
        positive code of the compiled function.
        """
        addresses = [array.ctypes.data for array in arrays]
        table = [*addresses, callee.constants.ctypes.data, callee.arena.ctypes.data]
        slots = np.array(
            [callee.entry, callee.flush_denormals, callee.symbols.ctypes.data, *table], np.int64
        )
        context = bytearray(slots.tobytes())
        owned = (callee, *arrays)
        function: Callable[[], int | None] = self._function(self._call_bound, context, owned)
        return function


def _object_code(folder: str | os.PathLike[str] | None) -> bytes:
    text = trampoline_ir.assembly(can_flush_denormals())
    key = machine_key("trampoline", hashlib.sha256(text.encode()).digest())
    cache = Cache(folder)
    entry = cache.load(key)
    if entry is not None:
        return entry.blobs[0].tobytes()
    from ostinato.codegen.machine import emit_object
    from ostinato.codegen.target import host_target

    code = emit_object(text, host_target())
    cache.store(key, {}, [code])
    return code


_LOCK = threading.Lock()
_loaded: list[Trampoline] = []


def trampoline(folder: str | os.PathLike[str] | None) -> Trampoline:
    """This process's trampoline; its object is kept in the cache folder of the first caller."""
    with _LOCK:
        if not _loaded:
            _loaded.append(Trampoline(_object_code(folder)))
        return _loaded[0]
