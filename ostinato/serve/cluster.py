"""The workers of a server: which of them has which sequence, and what happens when one dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from ostinato.serve.lanes import Failure, Job, Outputs, Served
from ostinato.serve.metrics import Metrics
from ostinato.serve.protocol import (
    Request,
    ServeError,
    Status,
    is_not_open,
    is_open,
    require_sequence,
)
from ostinato.serve.wire import Close
from ostinato.serve.workers import Answer, Inside, Key, Process, Worker

logger = logging.getLogger("ostinato.serve")

# Ids of sequences that were lost with a worker, to tell their clients; the oldest are forgotten.
_LOST = 10_000
# A worker that ends this often before it is ready is not started again.
_STARTS = 3


@dataclass(frozen=True)
class Limits:
    """queue: messages that wait for a worker. idle: seconds after which a silent sequence ends."""

    queue: int = 4096
    idle: float = 60.0


class _Sequence:
    """A sequence that is open. number: of no other one, ever. jobs: messages under way."""

    def __init__(self, number: int, worker: Worker) -> None:
        self.number, self.worker = number, worker
        self.jobs, self.last = 0, time.monotonic()


class Cluster:
    """Workers that serve models. A request goes to the worker of its sequence.

    models: by name. workers: processes, 0 for this one alone. All methods are those of one event
    loop.
    """

    def __init__(
        self, models: Mapping[str, Served], workers: int, limits: Limits, metrics: Metrics
    ) -> None:
        self.models, self._limits, self._metrics = models, limits, metrics
        served = list(models.values())
        self._workers: list[Worker] = [
            Process(index, served, metrics) for index in range(workers)
        ] or [Inside(0, served, metrics)]
        self._sequences: dict[Key, _Sequence] = {}
        self._lost: OrderedDict[Key, str] = OrderedDict()
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self.is_draining = False
        metrics.watch(self.open_sequences, self.waiting)

    # Life

    async def start(self) -> None:
        """Start the workers, and wait until all are ready. Raises `ServeError`."""
        self._tasks = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        while not self.is_ready:
            if any(task.done() for task in self._tasks):
                raise ServeError(Status.FAILED, "a worker could not start; see what it printed")
            await asyncio.sleep(0.02)
        self._tasks.append(asyncio.create_task(self._end_idle()))

    async def _keep(self, worker: Worker) -> None:
        """Start a worker again whenever it ends."""
        failures = 0
        while failures < _STARTS:
            was_ready = await worker.run()
            # A server that stops ends workers as well, and mourns those who still had work.
            if not self.is_draining or worker.answers or worker.sequences:
                self._mourn(worker)
            if self.is_draining:
                return
            failures = 0 if was_ready else failures + 1
        logger.error("worker %d ended %d times while it started", worker.index, failures)

    def _mourn(self, worker: Worker) -> None:
        """Tell everybody who waited for a worker, or had a sequence there, that it is gone."""
        how = worker.ending()
        sequences, answers = worker.abandon()
        ids = sorted(str(sequence) for _, sequence in sequences)
        listed = ", ".join(ids[:20]) + (", ..." if len(ids) > 20 else "")
        logger.error(
            "worker %d (process %s) ended %s; lost sequences: %s",
            worker.index,
            worker.process,
            how,
            f"{len(ids)} ({listed})" if ids else "none",
        )
        self._metrics.died(len(ids))
        text = f"worker {worker.index} ended {how} and its sequences are lost: start them again"
        for key in sequences:
            del self._sequences[key]
            self._lost[key] = text
        while len(self._lost) > _LOST:
            self._lost.popitem(last=False)
        for answer in answers:
            if not answer.done():
                answer.set_result(Failure(Status.UNAVAILABLE, text))

    async def _end_idle(self) -> None:
        """Close sequences that have been silent for too long."""
        while True:
            await asyncio.sleep(min(1.0, self._limits.idle / 4))
            before = time.monotonic() - self._limits.idle
            for key, sequence in [*self._sequences.items()]:
                if not sequence.jobs and sequence.last < before:
                    self.close(key)

    async def drain(self, seconds: float) -> None:
        """Start no sequence any more, and wait until those that are open end; then stop."""
        self.is_draining = True
        until = time.monotonic() + seconds
        while self._busy() and time.monotonic() < until:
            await asyncio.sleep(0.05)
        for worker in self._workers:
            worker.close()
        for task in self._tasks[len(self._workers) :]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kill(self) -> None:
        """End all workers at once."""
        self.is_draining = True
        for worker in self._workers:
            worker.kill()

    def _busy(self) -> bool:
        return bool(self._sequences) or any(worker.answers for worker in self._workers)

    # State

    @property
    def is_ready(self) -> bool:
        """Whether every worker takes messages, and new sequences may start."""
        return not self.is_draining and all(worker.is_ready for worker in self._workers)

    @property
    def processes(self) -> list[int]:
        """The process of each worker."""
        return [worker.process for worker in self._workers if worker.process is not None]

    def open_sequences(self) -> int:
        return len(self._sequences)

    def waiting(self) -> int:
        """Messages that no worker has answered yet."""
        return sum(len(worker.answers) for worker in self._workers)

    # Requests

    def close(self, key: Key) -> None:
        """End a sequence behind its messages that are under way, if it is open."""
        sequence = self._sequences.get(key)
        if sequence is not None:
            sequence.worker.send(Close(key[0], sequence.number))
            self._forget(key, sequence)

    async def infer(self, request: Request) -> Outputs:
        """The outputs of a request for one of the models. Raises `ServeError`."""
        require_sequence(request.model, self.models[request.model].states, request.sequence)
        outcome = await (
            self._plain(request) if request.sequence is None else self._of_sequence(request)
        )
        if isinstance(outcome, Failure):
            raise ServeError(outcome.status, outcome.message)
        return outcome

    async def _plain(self, request: Request) -> Outputs | Failure:
        if self.is_draining:
            raise ServeError(Status.UNAVAILABLE, "this server is about to stop")
        worker = min(self._alive(), key=lambda worker: len(worker.answers))
        return await self._ask(worker, Job(next(self._numbers), request.model, request.inputs))

    async def _of_sequence(self, request: Request) -> Outputs | Failure:
        assert request.sequence is not None
        key = request.model, request.sequence
        sequence = self._started(key) if request.start else self._known(key)
        worker = sequence.worker
        number = next(self._numbers)
        job = Job(number, key[0], request.inputs, sequence.number, request.start, request.end)
        sequence.jobs += 1
        try:
            answer = self._ask(worker, job)
            if request.end:
                # The worker forgets it behind this message; the id may start again at once.
                self._forget(key, sequence)
            outcome = await answer
        except BaseException:
            # A client that left before its sequence had begun.
            if request.start and self._sequences.get(key) is sequence:
                self.close(key)
            raise
        finally:
            sequence.jobs -= 1
            sequence.last = time.monotonic()
        if request.start and isinstance(outcome, Failure):
            self._forget(key, sequence)
        return outcome

    def _started(self, key: Key) -> _Sequence:
        """A new sequence, on the worker that has the fewest."""
        model, name = key
        if self.is_draining:
            raise ServeError(Status.UNAVAILABLE, "this server is about to stop: no new sequences")
        if key in self._sequences:
            raise is_open(name)
        streams = self.models[model].streams
        room = [worker for worker in self._alive() if worker.count(model) < streams]
        if not room:
            raise ServeError(
                Status.FULL,
                f"all {streams} sequences of each worker are open: try again later, or serve with "
                "--streams of more",
            )
        worker = min(room, key=lambda worker: len(worker.sequences))
        self._require_room(worker)
        sequence = self._sequences[key] = _Sequence(next(self._numbers), worker)
        worker.opened(key)
        self._lost.pop(key, None)
        return sequence

    def _known(self, key: Key) -> _Sequence:
        sequence = self._sequences.get(key)
        if sequence is None:
            if key in self._lost:
                raise ServeError(Status.UNAVAILABLE, self._lost[key])
            raise is_not_open(key[1], self._limits.idle)
        return sequence

    def _forget(self, key: Key, sequence: _Sequence) -> None:
        if self._sequences.get(key) is sequence:
            del self._sequences[key]
            sequence.worker.closed(key)

    def _alive(self) -> list[Worker]:
        workers = [worker for worker in self._workers if worker.is_ready]
        if not workers:
            raise ServeError(Status.UNAVAILABLE, "no worker is ready: try again in a moment")
        return workers

    def _require_room(self, worker: Worker) -> None:
        if len(worker.answers) >= self._limits.queue:
            raise ServeError(
                Status.FULL,
                f"{self._limits.queue} messages wait already: send slower, or try again later",
            )

    def _ask(self, worker: Worker, job: Job) -> Answer:
        """Send a job: what becomes of it."""
        self._require_room(worker)
        answer = asyncio.get_running_loop().create_future()
        worker.answers[job.number] = answer
        worker.send(job)
        return answer
