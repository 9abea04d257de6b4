"""Who computes for a server: processes behind sockets, or the one that takes requests."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.process
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.serve.lanes import Failure, Job, Lane, Outputs, Served, Step
from ostinato.serve.metrics import Metrics
from ostinato.serve.wire import READY, Close, Inbox, encoded, packed, unpacked_step
from ostinato.serve.worker import accept, main

Key = tuple[str, int | str]
Answer = asyncio.Future[Outputs | Failure]

# Turns of the event loop in which messages gather. For 150 streams of the denoiser a server with
# two workers takes 0.88 of the CPU time that it takes with one turn (`benchmarks.bench_serve`).
_TURNS = 8
# Parcels that a worker has not answered: one that it computes, and one to go on with.
_UNDER_WAY = 2


class Worker(ABC):
    """Sequences, and messages that are not answered."""

    def __init__(self, index: int, models: Sequence[Served], metrics: Metrics) -> None:
        self.index, self._models, self._metrics = index, models, metrics
        self.answers: dict[int, Answer] = {}
        self.sequences: set[Key] = set()
        self._of_model: Counter[str] = Counter()
        self.is_ready = False
        self._unsent: list[Job | Close] = []
        # How many turns of the event loop messages have been gathered for, 0 while there are none;
        # and whether one came since the last turn.
        self._turns, self._is_new = 0, False

    def opened(self, key: Key) -> None:
        """Count a sequence."""
        self.sequences.add(key)
        self._of_model[key[0]] += 1

    def closed(self, key: Key) -> None:
        """Count a sequence no more."""
        self.sequences.remove(key)
        self._of_model[key[0]] -= 1

    def count(self, model: str) -> int:
        """How many sequences of a model are open."""
        return self._of_model[model]

    def abandon(self) -> tuple[list[Key], list[Answer]]:
        """Forget all sequences and messages: those that there were."""
        lost = list(self.sequences), list(self.answers.values())
        self.sequences.clear()
        self._of_model.clear()
        self.answers = {}
        return lost

    def _take(self, step: Step) -> None:
        for call in step.calls:
            self._metrics.called(call)
        for number, outcome in step.outcomes.items():
            answer = self.answers.pop(number)
            # One whose client has gone is cancelled.
            if not answer.done():
                answer.set_result(outcome)

    def send(self, message: Job | Close) -> None:
        """Give it a message, with all others that come in the next turns of the event loop.

        Many messages at once cost little more than one, and a busy server gets some in each turn:
        it waits for a turn without any.
        """
        self._unsent.append(message)
        self._is_new = True
        if not self._turns:
            self._turns = 1
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if self._is_new and self._turns < _TURNS:
            self._is_new = False
            self._turns += 1
            asyncio.get_running_loop().call_soon(self._look)
            return
        self._turns = 0
        self._flush()

    @abstractmethod
    def _flush(self) -> None:
        """Take the messages that were gathered, if it can."""

    @property
    @abstractmethod
    def process(self) -> int | None:
        """The number of its process, None for this one."""

    @abstractmethod
    async def run(self) -> bool:
        """Work until the end: whether it had become ready."""

    @abstractmethod
    def ending(self) -> str:
        """How it ended."""

    @abstractmethod
    def close(self) -> None:
        """Let it end, behind the messages that it has."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once."""


class Inside(Worker):
    """The process that takes requests, which computes between them.

    What arrives together is stepped together. Nothing is sent anywhere, and nothing else is taken
    while native code runs.
    """

    def __init__(self, index: int, models: Sequence[Served], metrics: Metrics) -> None:
        super().__init__(index, models, metrics)
        self._lanes: Mapping[str, Lane] = {}
        self._ended: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    @property
    def process(self) -> int | None:
        return None

    async def run(self) -> bool:
        self._ended = asyncio.get_running_loop().create_future()
        self._lanes = await asyncio.to_thread(
            lambda: {served.name: Lane(served) for served in self._models}
        )
        self.is_ready = True
        try:
            await self._ended
        finally:
            self.is_ready = False
        return True

    def ending(self) -> str:
        return f"with {self._error!r}"

    def _flush(self) -> None:
        accept(self._lanes, self._unsent)
        self._unsent.clear()
        try:
            for lane in self._lanes.values():
                if lane.is_busy:
                    self._take(lane.step())
        except Exception as error:
            self._error = error
            self.close()
            return
        if not self._turns and any(lane.is_busy for lane in self._lanes.values()):
            # Behind requests that came meanwhile.
            self._turns = 1
            asyncio.get_running_loop().call_soon(self._look)

    def close(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def kill(self) -> None:
        self.close()


class Process(Worker):
    """A process, which may die alone.

    Its socket is written to without waiting: how much may lie there is limited by `Limits.queue`.
    """

    def __init__(self, index: int, models: Sequence[Served], metrics: Metrics) -> None:
        super().__init__(index, models, metrics)
        self._process: multiprocessing.process.BaseProcess | None = None
        self._transport: asyncio.WriteTransport | None = None
        # The numbers of the jobs that are under way, by what was sent together.
        self._parcels: list[set[int]] = []

    @property
    def process(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def run(self) -> bool:
        self._unsent.clear()
        self._parcels.clear()
        ours, theirs = socket.socketpair()
        context = multiprocessing.get_context("spawn")
        name = f"ostinato-serve-{self.index}"
        self._process = context.Process(target=main, args=(theirs, self._models), name=name)
        await asyncio.to_thread(self._process.start)
        theirs.close()
        loop, was_ready = asyncio.get_running_loop(), False
        ended: asyncio.Future[None] = loop.create_future()

        def said(parcel: Any) -> None:
            nonlocal was_ready
            if parcel == READY:
                self.is_ready = was_ready = True
            else:
                self._answered(unpacked_step(parcel))

        self._transport, _ = await loop.create_connection(lambda: _Link(said, ended), sock=ours)
        try:
            await ended
        finally:
            self.is_ready = False
            self._transport.close()
            await asyncio.to_thread(self._process.join)
        return was_ready

    def ending(self) -> str:
        assert self._process is not None
        code = self._process.exitcode or 0
        return f"by signal {-code}" if code < 0 else f"with exit code {code}"

    def _answered(self, step: Step) -> None:
        left = (parcel.difference(step.outcomes) for parcel in self._parcels)
        self._parcels = [parcel for parcel in left if parcel]
        self._flush()
        self._take(step)

    def _flush(self) -> None:
        # What comes while it has enough to do is the next parcel.
        if self._unsent and len(self._parcels) < _UNDER_WAY:
            self._write()

    def _write(self) -> None:
        assert self._transport is not None
        parcel = {message.number for message in self._unsent if isinstance(message, Job)}
        if parcel:
            self._parcels.append(parcel)
        self._transport.write(encoded(packed(self._unsent)))
        self._unsent.clear()

    def close(self) -> None:
        if self._transport is not None:
            self._write()
            self._transport.close()

    def kill(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.terminate()


class _Link(asyncio.BufferedProtocol):
    """What a worker process says, parcel by parcel."""

    def __init__(self, said: Any, ended: asyncio.Future[None]) -> None:
        self._said, self._ended = said, ended
        self._inbox = Inbox()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.space()

    def buffer_updated(self, nbytes: int) -> None:
        for parcel in self._inbox.received(nbytes):
            self._said(parcel)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
