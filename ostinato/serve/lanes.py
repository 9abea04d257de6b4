"""A model in a worker: the messages that wait, and the pools that step them together."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ostinato.errors import InputError, OstinatoError, PoolError, StreamError
from ostinato.options import Options
from ostinato.runtime.pool import MixedRows, Pool
from ostinato.runtime.session import InferenceSession
from ostinato.serve.protocol import Status
from ostinato.serve.singles import Singles

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Outputs = dict[str, Array]
Key = tuple[tuple[str, tuple[int, ...]], ...]

# Messages of one model that have different sizes are stepped by different pools. Clients of one
# application have a few; more at a time are refused, as each has memory for all streams: 570 MiB
# for 1,024 streams of the denoiser in each of 16 pools, whose messages have 1 to 16 frames.
MOST_SIZES = 16


@dataclass(frozen=True)
class Served:
    """A model to serve. states: of input names to output names, none for calls without a sequence.

    batch: the dimension of the streams, None for the only one there is. streams: the most
    sequences in a worker. shared: inputs that are the same in all messages, which do not send them.
    """

    name: str
    path: str
    states: Mapping[str, str] = field(default_factory=dict)
    batch: str | None = None
    streams: int = 1024
    shared: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Job:
    """A message for a worker. sequence: a number that no other sequence ever had, 0 for none."""

    number: int
    model: str
    inputs: Feeds
    sequence: int = 0
    start: bool = False
    end: bool = False


@dataclass(frozen=True)
class Failure:
    """The error of a job."""

    status: Status
    message: str


@dataclass(frozen=True)
class Call:
    """A call of native code: how many sequences it stepped, and how long it took in seconds."""

    model: str
    batch: int
    seconds: float


@dataclass
class Step:
    """The answer of a worker: outputs or failures by the number of a job, and its calls."""

    outcomes: dict[int, Outputs | Failure] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


class _Sequence:
    """The messages of a sequence that wait, and the stream that has its states."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.pool: Pool | Singles | None = None
        self.handle = -1

    def move(self, pool: Pool | Singles) -> None:
        """Go on in another pool, from the same states."""
        old, last = self.pool, self.handle
        if isinstance(old, Pool) and isinstance(pool, Pool):
            self.handle = pool.open(old.state(last))
            old.close(last)
        else:
            self.handle = pool.open()
        self.pool = pool


class Lane:
    """One model in this process."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._session = InferenceSession(served.path, served.options)
        written = set(served.states.values())
        names = [argument.name for argument in self._session.get_outputs()]
        self._outputs = [name for name in names if name not in written]
        self._singles: Singles | None = None
        if served.states and why_apart(self._session, served):
            of_all = served.states, served.streams, served.shared
            self._singles = Singles(self._session, *of_all)
        self._pools: dict[Key, Pool] = {}
        self._sequences: dict[int, _Sequence] = {}
        # Sequences with messages, and messages without a sequence.
        self._ready: deque[_Sequence] = deque()
        self._plain: deque[Job] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether messages wait."""
        return bool(self._ready or self._plain)

    def accept(self, job: Job) -> None:
        """Put a message behind the others of its sequence."""
        if not job.sequence:
            self._plain.append(job)
            return
        sequence = self._sequences.setdefault(job.sequence, _Sequence())
        if not sequence.waiting:
            self._ready.append(sequence)
        sequence.waiting.append(job)

    def close(self, number: int) -> None:
        """Forget a sequence, behind its messages that wait."""
        sequence = self._sequences.get(number)
        if sequence is None:
            return
        if sequence.waiting:
            sequence.waiting.append(replace(sequence.waiting.pop(), end=True))
            return
        del self._sequences[number]
        if sequence.pool is not None:
            sequence.pool.close(sequence.handle)

    def step(self) -> Step:
        """Answer a message of every sequence that has one, and one without a sequence."""
        step = Step()
        if self._plain:
            self._answer_plain(self._plain.popleft(), step)
        taken = [(sequence, sequence.waiting.popleft()) for sequence in self._ready]
        self._ready.clear()
        waiting: list[_Sequence] = []
        pushed: dict[int, tuple[Pool | Singles, dict[int, Job]]] = {}
        for sequence, job in taken:
            try:
                pool = self._pool(job.inputs) if self._singles is None else self._singles
                if sequence.pool is not pool:
                    if len(pool) == pool.capacity and _leaves(pool, taken):
                        sequence.waiting.appendleft(job)
                        waiting.append(sequence)
                        continue
                    sequence.move(pool)
                pool.push(sequence.handle, job.inputs)
            except OstinatoError as error:
                step.outcomes[job.number] = _failure(error)
                continue
            pushed.setdefault(id(pool), (pool, {}))[1][sequence.handle] = job
        for pool, members in pushed.values():
            self._answer(pool, members, step)
        for sequence, job in taken:
            if job.number in step.outcomes:
                self._go_on(sequence, job, step)
        self._ready.extend(waiting)
        return step

    def _go_on(self, sequence: _Sequence, job: Job, step: Step) -> None:
        """Close a sequence behind its last message, or one that did not begin."""
        if job.start and isinstance(step.outcomes[job.number], Failure):
            for later in sequence.waiting:
                step.outcomes[later.number] = Failure(
                    Status.NOT_FOUND, "the first message of this sequence failed: start it again"
                )
            sequence.waiting.clear()
            self.close(job.sequence)
        elif job.end:
            self.close(job.sequence)
        elif sequence.waiting:
            self._ready.append(sequence)

    def _pool(self, feeds: Feeds) -> Pool:
        """The pool of messages of these sizes."""
        key = tuple((name, feeds[name].shape) for name in sorted(feeds))
        pool = self._pools.get(key)
        if pool is None:
            pool = self._made()
            # A message that does not fit is refused before it gives the pool its sizes.
            pool.checked(feeds)
            self._pools[key] = pool
        return pool

    def _made(self) -> Pool:
        if len(self._pools) >= MOST_SIZES:
            for key in [key for key, pool in self._pools.items() if not len(pool)]:
                self._pools.pop(key).close()
        if len(self._pools) >= MOST_SIZES:
            raise StreamError(
                f"messages of {MOST_SIZES} different sizes are on their way, and a worker takes no "
                "more at a time: send messages of one size"
            )
        return _pool_of(self._session, self._served, self._served.streams)

    def _answer(self, pool: Pool | Singles, jobs: Mapping[int, Job], step: Step) -> None:
        """Step a pool whose streams have these jobs, by handle."""
        results: Mapping[int, list[Any]] = {}
        errors: Mapping[int, OstinatoError] = {}
        before = time.perf_counter()
        try:
            results = pool.step()
        except PoolError as error:
            results, errors = error.results, error.errors
        except OstinatoError as error:
            errors = dict.fromkeys(jobs, error)
        step.calls.append(Call(self._served.name, len(jobs), time.perf_counter() - before))
        for handle, job in jobs.items():
            if handle in results:
                named = dict(zip(self._outputs, results[handle], strict=True))
                step.outcomes[job.number] = named
            else:
                step.outcomes[job.number] = _failure(errors[handle])

    def _answer_plain(self, job: Job, step: Step) -> None:
        before = time.perf_counter()
        try:
            values = self._session.run(self._outputs, {**self._served.shared, **job.inputs})
        except OstinatoError as error:
            step.outcomes[job.number] = _failure(error)
            return
        step.calls.append(Call(self._served.name, 1, time.perf_counter() - before))
        step.outcomes[job.number] = dict(zip(self._outputs, values, strict=True))


def _leaves(pool: Pool | Singles, jobs: list[tuple[_Sequence, Job]]) -> bool:
    """Whether one of these messages is the last of a sequence that has a place in the pool."""
    return any(job.end and sequence.pool is pool for sequence, job in jobs)


def _failure(error: OstinatoError) -> Failure:
    status = Status.FULL if isinstance(error, StreamError) else Status.INVALID
    return Failure(status, str(error))


def _pool_of(session: InferenceSession, served: Served, streams: int) -> Pool:
    """A pool of the model. Raises what `InferenceSession.pool` raises."""
    return session.pool(served.states, streams, served.batch, shared=served.shared or None)


def why_apart(session: InferenceSession, served: Served) -> str | None:
    """Why streams of the model are not stepped together, None where they are.

    Those that would change each other's results are where the batch dimension is named. Raises
    `InputError` for states and a batch dimension that are none of the model.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MixedRows)
            pool = _pool_of(session, served, 1)
    except InputError as error:
        if served.batch is not None:
            raise
        session.stream(served.states).close()
        return str(error)
    pool.close()
    return pool.mixes if served.batch is None else None
