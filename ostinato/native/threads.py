"""The worker threads of a compiled function.

They are threads of the operating system that run nothing but compiled code: they never hold the
GIL, Python does not know of them, and all signals are left to the threads it does know.
"""

from __future__ import annotations

import ctypes
import os
import weakref

from ostinato.codegen.objects import LoadedObject
from ostinato.codegen.target import host_target
from ostinato.codegen.team import systems
from ostinato.codegen.threads import EXPORTS, MOST
from ostinato.errors import RunError
from ostinato.system import address_of, system


def exports(threads: int) -> tuple[str, ...]:
    """Symbols that an object of this many threads exports for its team."""
    return EXPORTS if threads > 1 else ()


def imports(threads: int) -> dict[str, int]:
    """Addresses of the functions it needs. Raises `RunError` on systems that lack one."""
    if threads == 1:
        return {}
    try:
        names = systems.system(host_target().system).imports
        return {name: address_of(system().function(name)) for name in names}
    except AttributeError as error:
        raise RunError(f"threads={threads}: {error}; use threads=1") from error


def processors() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Team:
    """The workers of one compiled function; they end when nobody refers to the team any more.

    code: exports `EXPORTS`; it stays in memory as long as a worker runs.
    threads: of a call, the caller's included. Where the process has fewer processors, or the system
        starts fewer, calls use those.

    After `os.fork` the child has no workers: there, calls run on one thread.
    """

    def __init__(self, code: LoadedObject, threads: int) -> None:
        self._code = code
        ctypes.CFUNCTYPE(None)(code.address("team_open"))()
        workers = self._start(min(threads, processors(), MOST) - 1)
        self.threads = 1 + len(workers)
        end = ctypes.CFUNCTYPE(None)(code.address("team_end"))
        self._finalizer = weakref.finalize(self, _end, code, end, workers)
        self.lead(self.threads)
        _TEAMS.add(self)

    def _start(self, count: int) -> list[ctypes.c_void_p]:
        work, workers = self._code.address("team_work"), []
        for number in range(1, 1 + count):
            worker = system().start(work, number)
            if worker is None:
                break
            workers.append(worker)
        return workers

    def lead(self, count: int) -> None:
        """Let calls use this many threads from now on, `threads` at most."""
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._code.address("team_lead"))(count)

    @property
    def jobs(self) -> int:
        """The number of calls that ran on more than one thread so far."""
        return int(ctypes.CFUNCTYPE(ctypes.c_int64)(self._code.address("team_jobs"))())

    def forget(self) -> None:
        """There are no workers any more: calls run on one thread."""
        self._finalizer.detach()
        self.threads = 1
        self.lead(1)


def _end(code: LoadedObject, end: object, workers: list[ctypes.c_void_p]) -> None:
    """Workers return from compiled code before the code goes."""
    end()  # type: ignore[operator]
    for worker in workers:
        system().join(worker)
    del code


_TEAMS: weakref.WeakSet[Team] = weakref.WeakSet()


def _forget_all() -> None:
    for team in _TEAMS:
        team.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
