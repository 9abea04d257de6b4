"""Sequences on Ray Serve: the Open Inference Protocol in front, shards that keep states behind.

A shard is a deployment with one replica, and a sequence belongs to the shard that its id says: so a
message finds the state wherever Ray has put the replica, and however many ingresses there are.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ray import serve
from ray.exceptions import RayError

from ostinato.options import Options
from ostinato.ray.predictor import first_on_this_node
from ostinato.serve.http import application as asgi
from ostinato.serve.lanes import Call, Failure, Job, Lane, Served
from ostinato.serve.metrics import Metrics
from ostinato.serve.protocol import (
    Request,
    ServeError,
    Status,
    is_not_open,
    is_open,
    require_sequence,
)
from ostinato.serve.service import Service, interface

Array = np.ndarray[Any, Any]
Outcome = dict[str, Array] | Failure


class Answer(NamedTuple):
    """The answer of a shard to a message.

    calls: of native code, each told once; open: how many sequences of the shard are.
    """

    outcome: Outcome
    calls: list[Call]
    open: int


class Shard:
    """The states of some sequences of a model, and the code that steps them together."""

    def __init__(self, served: Served, idle: float) -> None:
        with first_on_this_node(served.path, served.options):
            self._lane = Lane(served)
        self._idle = idle
        self._numbers = itertools.count(1)
        # The number of each open sequence, and when it was last heard of.
        self._open: dict[int | str, tuple[int, float]] = {}
        self._arrived: list[Job] = []
        self._answers: dict[int, asyncio.Future[Outcome]] = {}
        # Calls that no ingress was told of: they count them, beside their requests.
        self._calls: list[Call] = []
        self._closing: list[int] = []
        self._swept = time.monotonic()
        self._stepping: asyncio.Task[None] | None = None

    async def infer(self, request: Request) -> Answer:
        """The outputs of a message, or what went wrong."""
        outcome = await self._outcome(request)
        calls, self._calls = self._calls, []
        return Answer(outcome, calls, len(self._open))

    async def _outcome(self, request: Request) -> Outcome:
        try:
            number = self._number(request)
        except ServeError as error:
            return Failure(error.status, str(error))
        sequence = request.sequence
        job = Job(
            next(self._numbers), request.model, request.inputs, number, request.start, request.end
        )
        answer = asyncio.get_running_loop().create_future()
        self._answers[job.number] = answer
        self._arrived.append(job)
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.create_task(self._step())
        if request.end and sequence is not None:
            del self._open[sequence]
        outcome: Outcome = await answer
        is_lost = request.start and isinstance(outcome, Failure)
        if is_lost and sequence is not None and self._open.get(sequence, (0,))[0] == number:
            del self._open[sequence]
        return outcome

    def _number(self, request: Request) -> int:
        """The number of the request's sequence, 0 without one. Raises `ServeError`."""
        now, sequence = time.monotonic(), request.sequence
        if self._swept < now - 1:
            self._swept = now
            for silent in [k for k, (_, last) in self._open.items() if last < now - self._idle]:
                self.close(silent)
        if sequence is None:
            return 0
        if request.start and sequence in self._open:
            raise is_open(sequence)
        if not request.start and sequence not in self._open:
            raise is_not_open(sequence, self._idle)
        number = next(self._numbers) if request.start else self._open[sequence][0]
        self._open[sequence] = number, now
        return number

    def close(self, sequence: int | str) -> None:
        """End a sequence, if it is open."""
        number, _ = self._open.pop(sequence, (0, 0.0))
        self._closing.append(number)

    async def _step(self) -> None:
        """Step the lane, in a thread, as long as messages come."""
        while self._arrived or self._lane.is_busy:
            for job in self._arrived:
                self._lane.accept(job)
            self._arrived.clear()
            step = await asyncio.to_thread(self._lane.step)
            for number in self._closing:
                self._lane.close(number)
            self._closing.clear()
            self._calls += step.calls
            for number, outcome in step.outcomes.items():
                answer = self._answers.pop(number)
                if not answer.done():
                    answer.set_result(outcome)


class Shards:
    """The shards as `Service` asks them: that of a sequence, or the next one in turn."""

    def __init__(self, models: Mapping[str, Served], shards: list[Any], metrics: Metrics) -> None:
        self.models, self._shards, self._metrics = models, shards, metrics
        # For each shard the number it told last; and the messages that wait for one of them.
        self._sequences = [0] * len(shards)
        self._waiting = 0
        metrics.watch(lambda: sum(self._sequences), lambda: self._waiting)
        self._turns = itertools.count()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_ready(self) -> bool:
        return True

    def _shard(self, sequence: int | str | None) -> int:
        number = next(self._turns) if sequence is None else zlib.crc32(repr(sequence).encode())
        return number % len(self._shards)

    async def infer(self, request: Request) -> dict[str, Array]:
        """The outputs of a request. Raises `ServeError`, `UNAVAILABLE` where a replica died."""
        require_sequence(request.model, self.models[request.model].states, request.sequence)
        shard = self._shard(request.sequence)
        self._waiting += 1
        try:
            answer: Answer = await self._shards[shard].infer.remote(request)
        except RayError as error:
            self._sequences[shard] = 0
            raise ServeError(
                Status.UNAVAILABLE, f"the replica of this sequence is gone: start it again: {error}"
            ) from error
        finally:
            self._waiting -= 1
        outcome, calls, self._sequences[shard] = answer
        for call in calls:
            self._metrics.called(call)
        if isinstance(outcome, Failure):
            raise ServeError(outcome.status, outcome.message)
        return outcome

    def close(self, key: tuple[str, int | str]) -> None:
        """End a sequence, if it is open."""
        call = self._shards[self._shard(key[1])].close.remote(key[1])
        task = asyncio.ensure_future(_awaited(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _awaited(call: Any) -> None:
    await call


def application(
    model: str | Path,
    states: Mapping[str, str] | None = None,
    name: str | None = None,
    shards: int = 1,
    batch: str | None = None,
    streams: int = 1024,
    shared: Mapping[str, Any] | None = None,
    idle: float = 60.0,
    max_message: int = 16 << 20,
    frame: float | None = None,
    options: Options | None = None,
    actor: Mapping[str, Any] | None = None,
) -> serve.Application:
    """An application for `ray.serve.run`, which speaks what `ostinato serve` speaks over HTTP.

    model: a path that exists on every node. states: of input names to output names, those that a
        sequence keeps. name: of the model in addresses; default: the file's. batch: the dimension
        of streams; default: the only one that all inputs have.
    shards: replicas that keep states. A sequence belongs to one of them, by its id.
    streams: the most sequences in a shard. shared: inputs that are the same in all messages.
    idle: seconds after which a silent sequence may end.
    max_message: bytes of the longest message. frame: seconds of signal in a frame, for metrics.
    actor: `ray_actor_options` of a shard; default: one CPU.

    Raises what a session, a stream and a pool raise.
    """
    path = Path(model).resolve()
    served = Served(
        name or path.stem,
        str(path),
        dict(states or {}),
        batch,
        streams,
        dict(shared or {}),
        options or Options(),
    )
    found = interface(served)
    shard = serve.deployment(Shard)
    shards_ = [
        shard.options(
            name=f"{served.name}-{number}",
            num_replicas=1,
            ray_actor_options=dict(actor or {"num_cpus": 1}),
            max_ongoing_requests=streams,
        )
        for number in range(shards)
    ]

    def ingress() -> Any:
        handles = [serve.get_deployment_handle(one.name) for one in shards_]
        metrics = Metrics(frame)
        engine = Shards({served.name: served}, handles, metrics)
        return asgi(Service({served.name: found}, engine, metrics), max_message)

    front = serve.deployment(serve.ingress(ingress)())
    # It waits for shards most of the time: as many of them as there are CPUs fit a machine.
    return front.options(
        name=served.name,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=streams * shards,
    ).bind(*(one.bind(served, idle) for one in shards_))
