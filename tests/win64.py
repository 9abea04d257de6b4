"""A host with Windows, as far as one can be made of this one.

Code is compiled for Windows and linked into this process. Calls into it and out of it go through
thunks, which LLVM makes of its two calling conventions; `kernel32` is a fake in LLVM assembly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ostinato.codegen import objects, target
from ostinato.codegen.llvm import emit_object
from ostinato.codegen.team.systems import WINDOWS
from ostinato.native import threads, trampoline
from ostinato.system import Posix, Windows, address_of

TRIPLE = "x86_64-pc-windows-msvc-elf"
# What compiled code calls in compiled code.
_INSIDE = ("entry", "ostinato_keep", "ostinato_watch", "ostinato_none")
_WORDS = "i64 %a, i64 %b, i64 %c, i64 %d"

# Locks are 1 while taken; condition variables count who was woken.
_KERNEL = """
declare i32 @sched_yield()
define void @__chkstk() {
  ret void
}
define win64cc i32 @SwitchToThread() {
  %ignored = call i32 @sched_yield()
  ret i32 1
}
define win64cc void @AcquireSRWLockExclusive(ptr %lock) {
  br label %try
try:
  %pair = cmpxchg ptr %lock, i64 0, i64 1 acq_rel monotonic
  %free = extractvalue { i64, i1 } %pair, 1
  br i1 %free, label %taken, label %wait
wait:
  %ignored = call i32 @sched_yield()
  br label %try
taken:
  ret void
}
define win64cc void @ReleaseSRWLockExclusive(ptr %lock) {
  store atomic i64 0, ptr %lock release, align 8
  ret void
}
define win64cc i32 @SleepConditionVariableSRW(ptr %variable, ptr %lock, i32 %most, i32 %shared) {
  %before = load atomic i64, ptr %variable acquire, align 8
  call win64cc void @ReleaseSRWLockExclusive(ptr %lock)
  br label %look
look:
  %now = load atomic i64, ptr %variable acquire, align 8
  %same = icmp eq i64 %now, %before
  br i1 %same, label %wait, label %woken
wait:
  %ignored = call i32 @sched_yield()
  br label %look
woken:
  call win64cc void @AcquireSRWLockExclusive(ptr %lock)
  ret i32 1
}
define win64cc void @WakeAllConditionVariable(ptr %variable) {
  %before = atomicrmw add ptr %variable, i64 1 acq_rel
  ret void
}
"""


def _thunks(addresses: Mapping[str, int], inwards: bool) -> tuple[object, dict[str, int]]:
    """Functions of four words that call those at `addresses`: for Windows, or in Windows."""
    own, other = ("", "win64cc ") if inwards else ("win64cc ", "")
    text = "".join(
        f"define {own}i64 @thunk{i}({_WORDS}) {{\n"
        f"  %f = inttoptr i64 {address} to ptr\n"
        f"  %r = call {other}i64 %f({_WORDS})\n  ret i64 %r\n}}\n"
        for i, address in enumerate(addresses.values())
    )
    names = [f"thunk{i}" for i in range(len(addresses))]
    code = _LOAD(emit_object(text, _HERE), names)
    return code, {name: code.address(n) for name, n in zip(addresses, names, strict=True)}


class _Loaded:
    """As `LoadedObject`; all that it holds stays in memory, for tests are few."""

    def __init__(self, addresses: Mapping[str, int], *owned: object) -> None:
        self._addresses, self._owned = addresses, owned

    def address(self, name: str) -> int:
        return self._addresses[name]


def _load(
    object_code: bytes,
    names: Iterable[str],
    imports: Mapping[str, int] | None = None,
    *_: object,
) -> _Loaded:
    names, imports = tuple(names), dict(imports or {})
    python = {name: at for name, at in imports.items() if name not in WINDOWS.imports}
    outwards, thunks = _thunks(python, inwards=False)
    code = _LOAD(object_code, names, imports | thunks)
    exports = {name: code.address(name) for name in names}
    called = {name: at for name, at in exports.items() if name not in _INSIDE}
    inwards, entries = _thunks(called, inwards=True)
    return _Loaded(exports | entries, code, outwards, inwards)


class _System(Posix):
    """The functions of Windows, and threads of this system."""

    called_unasked = Windows.called_unasked

    def __init__(self) -> None:
        super().__init__()
        names = (*WINDOWS.imports, "__chkstk")
        imports = {"sched_yield": address_of(self._library.sched_yield)}
        kernel = _LOAD(emit_object(_KERNEL, _HERE), names, imports)
        copies = set(self.called_unasked) - {"__chkstk"}
        found = {name: address_of(getattr(self._library, name)) for name in copies}
        thunks, addresses = _thunks(found, inwards=False)
        self._owned = kernel, thunks
        self._functions = addresses | {name: kernel.address(name) for name in names}

    def function(self, name: str) -> Any:
        return ctypes.CFUNCTYPE(None)(self._functions[name])


_LOAD, _HERE = objects.load, target.host_target()


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterable[None]:
    """Sessions made from now on compile and link as on Windows; models are not cached."""
    if _HERE.architecture != "x86_64" or _HERE.system != "linux":
        pytest.skip("calling conventions of x86-64")
    here, host = _System(), (TRIPLE, _HERE.cpu, _HERE.features)
    for module in (objects, target):
        monkeypatch.setattr(module, "host", lambda: host)
    for user in (objects, threads):
        monkeypatch.setattr(user, "system", lambda: here)
    monkeypatch.setattr(objects, "load", _load)
    monkeypatch.setattr(trampoline, "_loaded", [])
    target.host_target.cache_clear()
    yield
    target.host_target.cache_clear()
