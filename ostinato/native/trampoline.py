"""The call from Python into compiled code, without ctypes and without allocation.

`Trampoline.caller` and `Trampoline.bound` return built-in functions made from machine code that is
the same for all models (`trampoline_ir`), with a context per call site. Handlers of signals run
during the call where it takes long; what they raise ends it, and the states stay what they were.

Calls that may not run at the same time, because they use one arena or one state, share a
`Workspace`. Whether a call gives the GIL up is decided by how long the last one took. Looking at
the clock costs 20 ns, giving the GIL up and taking it again another 20 where no other thread wants
it. Where one does, the call waits until that thread lets go, up to `sys.getswitchinterval()`, which
would make a call of a few microseconds a thousand times longer. A call that kept the GIL for some
milliseconds gives it up on the way.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import math
import os
import platform
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ostinato.codegen import objects
from ostinato.errors import OptionError, RunError, StreamError
from ostinato.locks import new_lock
from ostinato.native import trampoline_ir
from ostinato.native.cache import Cache, machine_key

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

REFUSED = -1
"""What a caller returns when an argument is not exactly what it was made for."""

BUSY = -2
"""What a call returns when it ran nothing because another one over its workspace is running."""

NO_TURN = 2
"""What the turn is while no frame is kept."""

# 16 to 33 us at the 2 to 4 GHz that such counters run at.
LONG_CALL = 1 << 16
"""Ticks of the processor's counter from which on a call is long enough to give the GIL up."""

_NEVER = -1  # the largest number, as it is read there

# The addresses of a call live on the stack.
MAX_ARGUMENTS = 16384

_METH_FASTCALL, _METH_NOARGS = 0x0080, 0x0004
_PYTHON_API = (
    "PyTuple_GetItem",
    "PyByteArray_AsString",
    "Py_IncRef",
    "PyLong_FromLongLong",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_CheckSignals",
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
class State:
    """An input and an output of a compiled function that take turns with two buffers.

    input, output: positions among all inputs and outputs. buffers: of the same dtype and shape,
    C-contiguous; the function reads the first and writes the second, next time the other way round.
    """

    input: int
    output: int
    buffers: tuple[Array, Array]


def in_use() -> StreamError:
    """The error for `BUSY`."""
    return StreamError(
        "another thread is in a call over the same memory; wait for it, or give each thread a "
        "stream or a bound call of its own"
    )


class Workspace:
    """What calls have in common that must not run at the same time: an arena, and states.

    limit: ticks of the call before from which on a call gives up the GIL at once; None if it does
    so only on the way. A call that finds the workspace in use by another thread returns `BUSY`.
    """

    def __init__(self, states: Sequence[State] = (), limit: int | None = LONG_CALL) -> None:
        self.states = tuple(states)
        rows = [
            (state.input, state.output, *(buffer.ctypes.data for buffer in state.buffers))
            for state in self.states
        ]
        head = (0, 0, _NEVER if limit is None else limit, 0, 0, 0, len(rows))
        self.record = np.array([*head, *itertools.chain.from_iterable(rows)], np.int64)
        _WORKSPACES.add(self)

    def current(self, index: int) -> Array:
        """The buffer that the next call reads state `index` from."""
        first, second = self.states[index].buffers
        address = self.record[self._row(index) + 2]
        return first if address == first.ctypes.data else second

    def following(self, index: int) -> Array:
        """The buffer that the next call writes state `index` to."""
        first, second = self.states[index].buffers
        return second if self.current(index) is first else first

    def swap(self) -> None:
        """Exchange the buffers of every state, as a call that succeeded does."""
        rows = self.record[trampoline_ir.WORKSPACE_SLOTS :].reshape(-1, trampoline_ir.STATE_SLOTS)
        rows[:, 2:] = rows[:, :1:-1]

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Keep calls out while Python code uses the states. Raises `StreamError` when in use."""
        if self.record[0]:
            raise in_use()
        self.record[0] = 1
        try:
            yield
        finally:
            if self.record[0] == 1:
                self.record[0] = 0

    def close(self) -> None:
        """Let no call run from now on. Raises `StreamError` when one is running."""
        if self.record[0] == 1:
            raise in_use()
        self.record[0] = 2

    @staticmethod
    def _row(index: int) -> int:
        return trampoline_ir.WORKSPACE_SLOTS + index * trampoline_ir.STATE_SLOTS


_WORKSPACES: weakref.WeakSet[Workspace] = weakref.WeakSet()


def _release_all() -> None:
    """A thread that was in a call when the process was forked is not in the child.

    Its call has not exchanged the states, so they are what they were before it.
    """
    for workspace in _WORKSPACES:
        if workspace.record[0] == 1:
            workspace.record[0] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)


@dataclass(frozen=True)
class Callee:
    """What a call site calls: a compiled function and the tables it is given.

    entry: address of the compiled function. symbols: its int64 table of run-time dimensions.
    constants, arena: uint8 arrays aligned to 64 bytes. code: keeps the function's code alive.
    workspace: shared by all callees that use the arena.
    flush_denormals: treat subnormal numbers as zero during calls; see `require_denormal_control`.
    """

    entry: int
    symbols: Array
    constants: Array
    arena: Array
    code: object
    flush_denormals: bool = False
    workspace: Workspace = field(default_factory=lambda: Workspace(limit=None))


def can_flush_denormals() -> bool:
    """Whether this machine can treat subnormal numbers as zero around a call."""
    return platform.machine().lower() in ("x86_64", "amd64")


def require_denormal_control() -> None:
    """Raise `OptionError` where `can_flush_denormals` is false."""
    if not can_flush_denormals():
        raise OptionError("flush_denormals=True: only x86-64 processors can do this")


def _numbers(dtype: np.dtype[Any]) -> tuple[int, int]:
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


class Trampoline:
    """Machine code of the calls and the method definitions that make them Python functions."""

    def __init__(self, object_code: bytes) -> None:
        require_array_layout()
        api = {name: objects.address_of(getattr(ctypes.pythonapi, name)) for name in _PYTHON_API}
        names = ("ostinato_call", "ostinato_call_bound", "ostinato_keep", "ostinato_watch")
        self._code = objects.load(object_code, names, api | {"_Py_NoneStruct": id(None)})
        call, call_bound, self._keep, self._watch = (self._code.address(name) for name in names)
        self._at_once = Workspace(limit=None)
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
        or overlaps another argument; `BUSY`; or else the positive code of the compiled function. It
        raises what handlers of signals raise while it runs.
        Inputs and outputs that are states of the callee's workspace are left out.
        """
        callee.workspace.record[trampoline_ir.WATCH_SLOT] = self._watch
        arguments = [*inputs, *outputs]
        if len(arguments) > MAX_ARGUMENTS:
            raise RunError(f"{len(arguments)} inputs and outputs: at most {MAX_ARGUMENTS} can be")
        head = trampoline_ir.CONTEXT_SLOTS
        dims_start = head + trampoline_ir.SPEC_SLOTS * len(arguments)
        rank_sum = sum(len(shape) for _, shape in arguments)
        states = callee.workspace.states
        taken = {position for state in states for position in (state.input, state.output)}
        places = [i for i in range(len(arguments) + 2 * len(states)) if i not in taken]
        context = bytearray(8 * (dims_start + rank_sum))
        slots = np.frombuffer(context, np.int64)
        slots[:head] = (
            callee.entry,
            callee.flush_denormals,
            callee.symbols.ctypes.data,
            callee.workspace.record.ctypes.data,
            len(inputs),
            len(arguments),
            callee.constants.ctypes.data,
            callee.arena.ctypes.data,
            id(np.ndarray),
        )
        spec, dims = head, dims_start
        for place, (dtype, shape) in zip(places, arguments, strict=True):
            numbers = np.array(_numbers(dtype), np.int32)
            slots[spec : spec + trampoline_ir.SPEC_SLOTS] = (
                *numbers.view(np.int64),
                math.prod(shape) * dtype.itemsize,
                len(shape),
                slots.ctypes.data + 8 * dims,
                place,
            )
            slots[dims : dims + len(shape)] = shape
            spec, dims = spec + trampoline_ir.SPEC_SLOTS, dims + len(shape)
        function: Callable[..., int | None] = self._function(self._call, context, (slots, callee))
        return function

    def bound(self, callee: Callee, arrays: Sequence[Array]) -> Callable[[], int | None]:
        """A function `call()` over the memory of `arrays`: the inputs, then the outputs.

        Those that are states of the callee's workspace are left out. Nothing is checked, neither
        here nor in the call. It returns None on success, `BUSY`, or the positive code of the
        compiled function.
        """
        addresses = [array.ctypes.data for array in arrays]
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

    def keeper(
        self,
        slot: int,
        values: Sequence[tuple[np.dtype[Any], Shape]],
        stores: Sequence[Sequence[Array]],
        marks: Sequence[bytearray],
        turn: bytearray,
    ) -> Callable[..., int | None]:
        """A function `keep(*values)` that copies arrays of exactly these dtypes and shapes.

        slot: the row to copy to. stores: of each value two, C-contiguous, with a row for each slot.
        marks: a byte of each store for each slot, set when it is taken. turn: a byte that says
        which store is on, or `NO_TURN`.

        It returns None on success; 1 when the row is taken; `BUSY` without a turn; `REFUSED` as a
        `caller` does. It does not give up the GIL.
        """
        flags = [np.frombuffer(each, np.uint8) for each in (turn, *marks)]
        record = [flags[0].ctypes.data, *(each[slot:].ctypes.data for each in flags[1:])]
        record.append(len(stores))
        for pair in stores:
            record += [pair[0].strides[0], *(each[slot:].ctypes.data for each in pair)]
        nothing = np.empty(0, np.uint8)
        owned = (*flags, *itertools.chain.from_iterable(stores))
        symbols = np.array(record, np.int64)
        callee = Callee(self._keep, symbols, nothing, nothing, owned, workspace=self._at_once)
        return self.caller(callee, values, [])


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


_LOCK = new_lock()
_loaded: list[Trampoline] = []


def trampoline(folder: str | os.PathLike[str] | None) -> Trampoline:
    """This process's trampoline; its object is kept in the cache folder of the first caller."""
    with _LOCK:
        if not _loaded:
            _loaded.append(Trampoline(_object_code(folder)))
        return _loaded[0]
