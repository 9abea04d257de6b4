"""The call from Python into compiled code, without ctypes and without allocation.

`Trampoline.caller` and `Trampoline.bound` return built-in functions made from machine code that is
the same for all models (`trampoline_ir`), with a context per call site. Handlers of signals run
during the call where it takes long; what they raise ends it, and the states stay what they were.

Calls that may not run at the same time, because they use one arena or one state, share a
`Workspace`.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ostinato.codegen import objects
from ostinato.codegen.processor import processor
from ostinato.codegen.target import host_target
from ostinato.errors import RunError
from ostinato.locks import new_lock
from ostinato.native import trampoline_ir
from ostinato.native.abi import (
    METH_FASTCALL,
    METH_NOARGS,
    MethodDef,
    dtype_numbers,
    require_array_layout,
)
from ostinato.native.cache import Cache, machine_key
from ostinato.native.memory import data_address
from ostinato.native.workspace import Workspace
from ostinato.records import dataclass
from ostinato.system import address_of

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# What an argument of a call has to be.
Spec = tuple[np.dtype[Any], Shape]

REFUSED = -1
"""The status of a caller when an argument is not exactly what it was made for."""

# The addresses of a call live on the stack.
MAX_ARGUMENTS = 16384

_PYTHON_API = (
    "PyTuple_GetItem",
    "PyByteArray_AsString",
    "Py_IncRef",
    "PyLong_FromLongLong",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_CheckSignals",
)
_NAMES = (
    "ostinato_none",
    "ostinato_call",
    "ostinato_call_bound",
    "ostinato_keep",
    "ostinato_watch",
)


@dataclass(frozen=True)
class Callee:
    """The target of a call site: a compiled function and the tables it is given.

    entry: address of the compiled function. symbols: its int64 table of run-time dimensions.
    constants, arena: uint8 arrays aligned to 64 bytes. code: keeps the function's code alive.
    workspace: shared by all callees that use the arena.
    flush_denormals: treat subnormal numbers as zero during calls.
    """

    entry: int
    symbols: Array
    constants: Array
    arena: Array
    code: object
    flush_denormals: bool = False
    workspace: Workspace = field(default_factory=lambda: Workspace(limit=None))


def _call_context(
    callee: Callee,
    inputs: Sequence[Spec | None],
    outputs: Sequence[Spec | None],
) -> bytearray:
    """The record that `trampoline_ir` reads: head, a specification of each array, dimensions."""
    arguments = [*inputs, *outputs]
    states = callee.workspace.states
    taken = {position for state in states for position in (state.input, state.output)}
    places = [i for i in range(len(arguments) + 2 * len(states)) if i not in taken]
    dims = [n for spec in arguments if spec is not None for n in spec[1]]
    dims_start = trampoline_ir.CONTEXT_SLOTS + trampoline_ir.SPEC_SLOTS * len(arguments)
    context = bytearray(8 * (dims_start + len(dims)))
    address = data_address(context) + 8 * dims_start
    slots: list[int] = [
        callee.entry,
        callee.flush_denormals,
        data_address(callee.symbols),
        data_address(callee.workspace.record),
        len(inputs),
        len(arguments),
        data_address(callee.constants),
        data_address(callee.arena),
        id(np.ndarray),
    ]
    for place, spec in zip(places, arguments, strict=True):
        if spec is None:
            slots += (*trampoline_ir.UNCHECKED, place)
            continue
        dtype, shape = spec
        first, second = dtype_numbers(dtype)
        rank = len(shape)
        slots += (
            first | second << 32,
            math.prod(shape) * dtype.itemsize,
            rank,
            address,
            place,
        )
        address += 8 * rank
    struct.pack_into(f"={dims_start + len(dims)}q", context, 0, *slots, *dims)
    return context


class Trampoline:
    """Machine code of the calls and the method definitions that make them Python functions."""

    def __init__(self, object_code: bytes) -> None:
        require_array_layout()
        api = {name: address_of(getattr(ctypes.pythonapi, name)) for name in _PYTHON_API}
        self._code = objects.load(object_code, _NAMES, api)
        none, call, call_bound, self.keep, self._watch = map(self._code.address, _NAMES)
        ctypes.c_void_p.from_address(none).value = id(None)
        self._call = MethodDef(b"call", call, METH_FASTCALL, b"call(*inputs, *outputs)")
        self._call_bound = MethodDef(b"call", call_bound, METH_NOARGS, b"call()")
        prototype = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
        )
        self._new_function = prototype(("PyCFunction_NewEx", ctypes.pythonapi))

    def _function(
        self, definition: MethodDef, context: bytearray, owned: tuple[object, ...]
    ) -> Any:
        # CPython reads the definition for as long as the function lives and lets `self` own it.
        return self._new_function(ctypes.addressof(definition), (context, self, *owned), None)

    def caller(
        self,
        callee: Callee,
        inputs: Sequence[Spec | None],
        outputs: Sequence[Spec | None],
    ) -> Callable[..., int | None]:
        """A function `call(*inputs, *outputs)` over arrays of exactly these dtypes and shapes.

        It returns None on success; `REFUSED` when it ran nothing because an argument is no array
        or has another dtype, byte order, shape or memory layout, or is an output that is read-only
        or overlaps another argument; `BUSY`; or else the positive code of the compiled function. It
        raises what handlers of signals raise while it runs.
        Inputs and outputs that are states of the callee's workspace are left out. Of one that has
        None in the place of dtype and shape nothing is checked but that it is an array.
        """
        if len(inputs) + len(outputs) > MAX_ARGUMENTS:
            count = len(inputs) + len(outputs)
            raise RunError(f"{count} inputs and outputs: at most {MAX_ARGUMENTS} can be")
        callee.workspace.record[trampoline_ir.WATCH_SLOT] = self._watch
        context = _call_context(callee, inputs, outputs)
        function: Callable[..., int | None] = self._function(self._call, context, (callee,))
        return function

    def bound(self, callee: Callee, arrays: Sequence[Array]) -> Callable[[], int | None]:
        """A function `call()` over the memory of `arrays`: the inputs, then the outputs.

        Those that are states of the callee's workspace are left out. Nothing is checked, neither
        here nor in the call. It returns None on success, `BUSY`, or the positive code of the
        compiled function.
        """
        addresses = [data_address(array) for array in arrays]
        states = callee.workspace.states
        for position in sorted(p for state in states for p in (state.input, state.output)):
            addresses.insert(position, 0)
        record = callee.workspace.record
        record[trampoline_ir.WATCH_SLOT] = self._watch
        watch = record[trampoline_ir.WATCH_SLOT :].ctypes.data
        table = [*addresses, callee.constants.ctypes.data, callee.arena.ctypes.data, watch]
        head = [
            callee.entry,
            callee.flush_denormals,
            callee.symbols.ctypes.data,
            record.ctypes.data,
        ]
        slots = np.array([*head, *table], np.int64)
        context = bytearray(slots.tobytes())
        owned = (callee, *arrays)
        function: Callable[[], int | None] = self._function(self._call_bound, context, owned)
        return function


def _object_code(folder: str | os.PathLike[str] | None) -> bytes:
    target = host_target()
    text = trampoline_ir.assembly(processor(target.architecture))
    key = machine_key("trampoline", hashlib.sha256(text.encode()).digest())
    cache = Cache(folder)
    entry = cache.load(key)
    if entry is not None:
        return entry.blobs[0].tobytes()
    from ostinato.codegen.llvm import emit_object, unkept

    code = emit_object(text, target, unkept)
    cache.store(key, {}, [code])
    return code


_LOCK = new_lock()
_loaded: list[Trampoline] = []


def trampoline(folder: str | os.PathLike[str] | None) -> Trampoline:
    """This process's trampoline; its object is kept in the cache folder of the first caller."""
    with _LOCK:
        if not _loaded:
            _loaded.append(Trampoline(_object_code(folder)))
        return _loaded[0]
