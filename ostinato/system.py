"""The operating system of this process, behind one small interface.

`Posix` is Linux and macOS, `Windows` is Windows on x86-64. Each has

    `function(name)`          a function of the system's libraries; `AttributeError` where it is not
    `start(work, number)`     a thread that calls the C function at `work` with this number and is
                              given no signals; None if the system starts no more
    `join(thread)`            wait until it has returned
    `total_memory()`          bytes that the machine has; None where unknown, as for the next
    `available_memory()`      bytes that can be had without swapping or being killed
    `called_unasked`          functions that LLVM calls without being told to
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Functions that LLVM calls for a copy or a fill that it recognises in a loop.
_COPIES = ("memcpy", "memmove", "memset", "memcmp")


def address_of(function: Any) -> int:
    """Address of a ctypes foreign function."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


# arch_prctl with ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA, as asm/prctl.h and the kernel's
# Documentation/arch/x86/xstate.rst number them on x86-64.
_USE_TILES = 158, 0x1023, 18


class Posix:
    """Linux, macOS and their like: what the process has loaded, POSIX threads."""

    called_unasked = _COPIES

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def function(self, name: str) -> Any:
        return getattr(self._library, name)

    def start(self, work: int, number: int) -> ctypes.c_void_p | None:
        thread = ctypes.c_void_p()
        arguments = (ctypes.byref(thread), None, ctypes.c_void_p(work), ctypes.c_void_p(number))
        # A thread begins with the signals that are blocked where it is made.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            return None if self._library.pthread_create(*arguments) else thread
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def join(self, thread: ctypes.c_void_p) -> None:
        self._library.pthread_join(thread, None)

    def allows_tiles(self) -> bool:
        """Whether this process may use AMX, for which it has to ask Linux (arch_prctl(2))."""
        if sys.platform != "linux" or os.uname().machine != "x86_64":
            return False
        return not self._library.syscall(*(ctypes.c_long(n) for n in _USE_TILES))

    def total_memory(self) -> int | None:
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None

    def available_memory(self) -> int | None:
        kibibytes = _first_number("/proc/meminfo", "MemAvailable:")
        if kibibytes is None:
            return self.total_memory()
        free = kibibytes * 1024
        limit = _first_number("/sys/fs/cgroup/memory.max")
        used = _first_number("/sys/fs/cgroup/memory.current")
        return free if limit is None or used is None else min(free, limit - used)


def _first_number(path: str, after: str = "") -> int | None:
    try:
        text = Path(path).read_text()
        return int(text[text.index(after) + len(after) :].split()[0])
    except (OSError, ValueError, IndexError):
        return None


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        *((f"other{i}", ctypes.c_uint64) for i in range(5)),
    )


class Windows:
    """Windows on x86-64, where all functions have one calling convention.

    load: a library by its name.
    """

    # Pages of a frame above 4 KiB are touched one by one.
    called_unasked = (*_COPIES, "__chkstk")

    _LIBRARIES = ("kernel32", "ucrtbase", "ntdll")
    _FOREVER = 0xFFFFFFFF

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._libraries = [load(name) for name in self._LIBRARIES]
        self.function("CreateThread").restype = ctypes.c_void_p

    def function(self, name: str) -> Any:
        for library in self._libraries:
            if hasattr(library, name):
                return getattr(library, name)
        raise AttributeError(f"no function {name} in {', '.join(self._LIBRARIES)}")

    def start(self, work: int, number: int) -> ctypes.c_void_p | None:
        arguments = (None, ctypes.c_size_t(0), ctypes.c_void_p(work), ctypes.c_void_p(number))
        handle = self.function("CreateThread")(*arguments, ctypes.c_uint32(0), None)
        return ctypes.c_void_p(handle) if handle else None

    def join(self, thread: ctypes.c_void_p) -> None:
        self.function("WaitForSingleObject")(thread, ctypes.c_uint32(self._FOREVER))
        self.function("CloseHandle")(thread)

    def total_memory(self) -> int | None:
        status = self._memory_status()
        return None if status is None else int(status.total)

    def available_memory(self) -> int | None:
        status = self._memory_status()
        return None if status is None else int(status.available)

    def allows_tiles(self) -> bool:
        return False

    def _memory_status(self) -> _MemoryStatus | None:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        return status if self.function("GlobalMemoryStatusEx")(ctypes.byref(status)) else None


@functools.cache
def system() -> Posix | Windows:
    """The system of this process."""
    return Windows() if sys.platform == "win32" else Posix()
