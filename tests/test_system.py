from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

import pytest

from ostinato import system as module
from ostinato.system import Posix, Windows, address_of, system

pytestmark = pytest.mark.host


class Library:
    """A library of Windows that has these functions, and notes what they are called with."""

    def __init__(self, calls: list[Any], **functions: Any) -> None:
        for name, function in functions.items():

            def called(*given: Any, name: str = name, function: Any = function) -> Any:
                calls.append((name, *(getattr(g, "value", g) for g in given)))
                return function(*given) if callable(function) else function

            setattr(self, name, called)


def windows(**kernel: Any) -> tuple[Windows, list[Any]]:
    calls: list[Any] = []
    libraries = {
        "kernel32": Library(calls, **{"CreateThread": 0} | kernel),
        "ucrtbase": Library(calls, memcpy="fast"),
        "ntdll": Library(calls, memcpy="slow", memset="set", __chkstk="probe"),
    }
    return Windows(libraries.__getitem__), calls


def test_this_system_has_what_compiled_code_calls_unasked() -> None:
    here = system()
    assert here is system()
    assert all(address_of(here.function(name)) for name in here.called_unasked)
    with pytest.raises(AttributeError):
        here.function("no_such_function")


def test_threads_are_given_their_number_and_no_signals() -> None:
    if not isinstance(system(), Posix):
        pytest.skip("signals of POSIX")
    seen: list[Any] = []
    work = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        lambda number: seen.append((number, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    thread = Posix().start(address_of(work), 7)
    assert thread is not None
    Posix().join(thread)
    ((number, blocked),) = seen
    assert number == 7 and signal.SIGINT in blocked
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_functions_of_windows_come_from_the_first_library_that_has_them() -> None:
    here, _ = windows()
    assert here.function("memcpy")() == "fast"
    assert here.function("memset")() == "set"
    assert here.function("__chkstk")() == "probe"
    with pytest.raises(AttributeError, match="memmove in kernel32, ucrtbase, ntdll"):
        here.function("memmove")


def test_threads_of_windows() -> None:
    here, calls = windows(CreateThread=77, WaitForSingleObject=0, CloseHandle=1)
    thread = here.start(4096, 3)
    assert thread is not None
    here.join(thread)
    assert calls == [
        ("CreateThread", None, 0, 4096, 3, 0, None),
        ("WaitForSingleObject", 77, 0xFFFFFFFF),
        ("CloseHandle", 77),
    ]
    refusing, _ = windows(CreateThread=None)
    assert refusing.start(4096, 3) is None


def test_memory_of_windows() -> None:
    def tell(status: Any) -> int:
        assert status._obj.length == 64
        status._obj.total, status._obj.available = 8 << 30, 3 << 30
        return 1

    here, _ = windows(GlobalMemoryStatusEx=tell)
    assert (here.total_memory(), here.available_memory()) == (8 << 30, 3 << 30)
    silent, _ = windows(GlobalMemoryStatusEx=0)
    assert silent.total_memory() is silent.available_memory() is None


def test_memory_of_other_systems_than_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_first_number", lambda *_: None)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 16384}.__getitem__)
    assert Posix().total_memory() == Posix().available_memory() == 16384000
    monkeypatch.delattr(os, "sysconf")
    assert Posix().total_memory() is Posix().available_memory() is None


def test_memory_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"/proc/meminfo": 1 << 20, "memory.max": 3 << 20, "memory.current": 1 << 20}
    monkeypatch.setattr(
        module, "_first_number", lambda path, *_: told.get(path, told.get(path.split("/")[-1]))
    )
    assert Posix().available_memory() == 2 << 20
    del told["memory.max"]
    assert Posix().available_memory() == 1 << 30
