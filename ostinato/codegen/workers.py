"""Processes in which LLVM compiles the first kernels of a model while the next ones are written.

Two threads of one process cannot do that: llvmlite lets one of them into LLVM at a time, and each
of its calls ends with a wait for Python's lock. A process gets the text of a unit and returns its
object, the same that LLVM makes here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from typing import IO

from ostinato.codegen import units
from ostinato.codegen.llvm import Keep, Make, make_object, unkept
from ostinato.codegen.target import Target

# One more process is started when units of this many characters wait: LLVM takes 0.5 us for a
# character (`units.SHORTEST`), and a process 0.2 s to start.
WORTH = 600_000
# More processes find nothing to do: writing a kernel takes about as long as compiling it.
MOST = 3

_PROGRAM = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from ostinato.codegen.workers import serve
serve()
"""


class Workers:
    """The objects of units, compiled between when they are known and when they are needed.

    keep: stored objects, or None. most: processes beside this one, which itself compiles what waits
    when the first object is needed. A context, at whose end the processes end.
    """

    def __init__(self, target: Target, keep: Keep | None, most: int) -> None:
        self._target, self._keep, self._most = target, keep or unkept, most
        self._made: dict[str, Future[bytes]] = {}
        self._waiting: deque[str] = deque()
        self._characters = 0
        self._threads: list[threading.Thread] = []
        self._processes: list[_Process] = []
        self._changed = threading.Condition()
        self._is_over = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._waiting.clear()
            self._changed.notify_all()
        for process in self._processes:
            process.end()
        for thread in self._threads:
            thread.join()

    def begin(self, text: str) -> None:
        """Compile the units of a module, in processes as soon as there is enough for one."""
        with self._changed:
            for unit in units.divide(text).kernels:
                if unit not in self._made:
                    self._made[unit] = Future()
                    self._waiting.append(unit)
                    self._characters += len(unit)
            if self._characters >= WORTH and len(self._threads) < self._most:
                self._characters = 0
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        process = _Process()
        thread = threading.Thread(target=self._compile, args=[process], daemon=True)
        self._processes.append(process)
        self._threads.append(thread)
        thread.start()

    def __call__(self, unit: str, target: Target, make: Make) -> bytes:
        """Return the object of a unit, as a `Keep`."""
        found = self._made.get(unit)
        if found is None:
            return self._keep(unit, target, make)
        # Take the unit that was begun last: no process would reach it sooner.
        while not found.done() and (other := self._next(last=True)) is not None:
            self._make(other, make)
        return found.result()

    def _next(self, last: bool = False, waits: bool = False) -> str | None:
        """Take a unit that nobody compiles yet; None if there is, or if it waits will be, none."""
        with self._changed:
            while not self._waiting:
                if self._is_over or not waits:
                    return None
                self._changed.wait()
            return self._waiting.pop() if last else self._waiting.popleft()

    def _make(self, unit: str, make: Make) -> None:
        try:
            self._made[unit].set_result(self._keep(unit, self._target, make))
        except BaseException as error:
            self._made[unit].set_exception(error)

    def _compile(self, process: _Process) -> None:
        while (unit := self._next(waits=True)) is not None:
            self._make(unit, process.make)


class _Process:
    """A process that compiles, started with the first unit; this process if none can be."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._can_start = _is_interpreter()

    def end(self) -> None:
        """End it."""
        self._can_start = False
        if self._process is not None:
            self._process.kill()

    def make(self, text: str, target: Target) -> bytes:
        """Return the object of a text."""
        if self._can_start:
            try:
                return self._asked(text, target)
            except (OSError, EOFError, pickle.PickleError):
                self.end()
        return make_object(text, target)

    def _asked(self, text: str, target: Target) -> bytes:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            _send(self._process.stdin, sys.path)
        _send(self._process.stdin, (text, target))
        assert self._process.stdout is not None
        answer = pickle.load(self._process.stdout)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)


def _is_interpreter() -> bool:
    """Whether this process can be started anew as Python; one that embeds it cannot."""
    name = os.path.basename(sys.executable or "").lower()
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def _send(stream: IO[bytes] | None, message: object) -> None:
    assert stream is not None
    pickle.dump(message, stream)
    stream.flush()


def serve() -> None:
    """Answer texts with objects until the stream of texts ends."""
    # An interrupt ends the program, and with it the stream of texts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError):
        while True:
            text, target = pickle.load(sys.stdin.buffer)
            answer: bytes | Exception
            try:
                answer = make_object(text, target)
            except Exception as error:
                answer = error
            _send(answers, answer)
