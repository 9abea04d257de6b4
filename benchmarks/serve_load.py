"""Clients of a server over gRPC, on this machine: streams in real time, and ones that come and go.

Every run ends by itself: so many clients, so many seconds. Nothing but loopback is sent to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np

from ostinato.serve.messages import MESSAGES, SERVICE

MODEL = "m"
# Messages that take longer are lost.
_PATIENCE = 30.0
# Clients that share a connection, as they would behind a proxy.
_SHARED = 25


@dataclass
class Result:
    """What became of the messages. latencies: seconds. wrong: answers with other bits than alone.

    lost: messages of sequences that a worker took with it. said: how often each error came.
    """

    latencies: list[float] = field(default_factory=list)
    sequences: int = 0
    errors: int = 0
    wrong: int = 0
    lost: int = 0
    late: int = 0
    said: dict[str, int] = field(default_factory=dict)

    def quantile(self, q: float) -> float:
        """Seconds, NaN without messages."""
        return float(np.quantile(self.latencies, q)) if self.latencies else float("nan")

    def failed(self, error: grpc.aio.AioRpcError | Refused) -> None:
        """Count an answer that is an error."""
        is_call = isinstance(error, grpc.aio.AioRpcError)
        text = f"{error.code().name}: {error.details()}"[:200] if is_call else str(error)
        self.said[text] = self.said.get(text, 0) + 1
        if is_call and error.code() is grpc.StatusCode.UNAVAILABLE:
            self.lost += 1
        else:
            self.errors += 1


def request(name: str, x: np.ndarray, sequence: int | str, **flags: bool) -> bytes:
    """A message, ready to be sent."""
    message = MESSAGES["ModelInferRequest"](model_name=MODEL, raw_input_contents=[x.tobytes()])
    message.inputs.add(name=name, datatype="FP32", shape=x.shape)
    parameter = message.parameters["sequence_id"]
    if isinstance(sequence, str):
        parameter.string_param = sequence
    else:
        parameter.int64_param = sequence
    for flag, value in flags.items():
        message.parameters[f"sequence_{flag}"].bool_param = value
    return bytes(message.SerializeToString())


def output(answer: bytes) -> np.ndarray:
    """The values of the only output."""
    message = MESSAGES["ModelInferResponse"].FromString(answer)
    return np.frombuffer(message.raw_output_contents[0], np.float32)


class Refused(Exception):
    """An answer of a stream that is an error."""


class Channels:
    """Connections to a server, shared by clients.

    streamed: a call of many messages for each client, in place of a call for each message.
    """

    def __init__(self, address: str, clients: int, streamed: bool = False) -> None:
        count = -(-clients // _SHARED)
        # Each with a connection of its own: gRPC would let equal ones share.
        self._channels = [
            grpc.aio.insecure_channel(address, options=[("ostinato.number", number)])
            for number in range(count)
        ]
        self._streamed = streamed
        self._calls = [
            channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
            if streamed
            else channel.unary_unary(f"/{SERVICE}/ModelInfer")
            for channel in self._channels
        ]

    def asker(self, client: int) -> Callable[[bytes], Awaitable[bytes]]:
        """A function that sends a message of a client and waits for the answer.

        It raises `grpc.aio.AioRpcError`.
        """
        call = self._calls[client % len(self._calls)]

        async def alone(message: bytes) -> bytes:
            return bytes(await call(message, timeout=_PATIENCE))

        if not self._streamed:
            return alone
        stream = call()

        async def behind_others(message: bytes) -> bytes:
            await stream.write(message)
            answer = await stream.read()
            if answer is grpc.aio.EOF:
                raise Refused("the stream has ended")
            response = MESSAGES["ModelStreamInferResponse"].FromString(answer)
            if response.error_message:
                raise Refused(response.error_message)
            return bytes(answer)

        return behind_others

    async def __aenter__(self) -> Channels:
        return self

    async def __aexit__(self, *exception: object) -> None:
        for channel in self._channels:
            await channel.close()


async def steady(address: str, name: str, x: np.ndarray, clients: int, seconds: float,
                 period: float, streamed: bool = False) -> Result:  # fmt: skip
    """`clients` streams that each send the message `x` every `period` seconds, for `seconds`.

    late: messages whose answer came after the next one was due. streamed: as in `Channels`.
    """
    result = Result(sequences=clients)

    async def client(number: int, channels: Channels, start: float) -> None:
        # Runs follow each other, and a sequence that was not ended is still there.
        identity = f"{os.getpid()} {number}"
        going = request(name, x, identity)
        message = request(name, x, identity, start=True)
        turns, ask = int(seconds / period), channels.asker(number)
        for turn in range(turns):
            # Clients do not know of each other: their messages are spread over the period.
            due = start + (turn + number / clients) * period
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            try:
                await ask(message)
                taken = time.perf_counter() - due
                result.latencies.append(taken)
                result.late += taken > period
            except (grpc.aio.AioRpcError, Refused) as error:
                result.failed(error)
            message = going if turn < turns - 2 else request(name, x, identity, end=True)

    async with Channels(address, clients, streamed) as channels:
        start = time.perf_counter() + 0.5
        await asyncio.gather(*(client(number, channels, start) for number in range(clients)))
    return result


async def churn(
    address: str, clients: int, seconds: float, seed: int = 0, pause: float = 0.05
) -> Result:
    """Clients of the denoiser that come and go at random; each answer is compared with a single's.

    pause: mean seconds between the messages of a client.
    """
    import ostinato
    from benchmarks.serve_models import denoiser

    model = denoiser()
    session = ostinato.InferenceSession(model.path)
    # A few signals, each with the answer that a stream alone gives, in messages of several sizes.
    signals = [model.frames(number, 40) for number in range(8)]
    expected = [session.stream(model.states).step({model.input: x})[0] for x in signals]
    result, until = Result(), time.perf_counter() + seconds

    async def client(number: int, channels: Channels) -> None:
        chance = random.Random(f"{seed} {number}")
        while time.perf_counter() < until:
            await sequence(number, channels, chance)
            await asyncio.sleep(chance.expovariate(1 / pause))

    async def sequence(number: int, channels: Channels, chance: random.Random) -> None:
        which, at, first = chance.randrange(len(signals)), 0, True
        identity = f"{number} {result.sequences}"
        result.sequences += 1
        length, ask = chance.randint(1, len(signals[which])), channels.asker(number)
        while at < length and time.perf_counter() < until:
            count = min(chance.choice((1, 2, 5, 10)), length - at)
            x = signals[which][at : at + count]
            # Some leave without saying so.
            is_end = at + count == length and chance.random() < 0.8
            message = request(model.input, x, identity, start=first, end=is_end)
            before = time.perf_counter()
            try:
                mask = output(await ask(message))
            except grpc.aio.AioRpcError as error:
                result.failed(error)
                return
            result.latencies.append(time.perf_counter() - before)
            result.wrong += not np.array_equal(mask, expected[which][at : at + count].ravel())
            at, first = at + count, False
            await asyncio.sleep(chance.expovariate(1 / pause))

    async with Channels(address, clients) as channels:
        await asyncio.gather(*(client(number, channels) for number in range(clients)))
    return result


def main() -> None:
    """Run `steady` or `churn` in this process, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--churn", action="store_true")
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--input")
    parser.add_argument("--frames", type=Path, help=".npy file of the message")
    parser.add_argument("--period", type=float)
    parser.add_argument("--streamed", action="store_true")
    given = parser.parse_args()
    if given.churn:
        coroutine = churn(given.address, given.clients, given.seconds, pause=given.pause)
    else:
        x = np.load(given.frames)
        coroutine = steady(
            given.address, given.input, x, given.clients, given.seconds, given.period,
            given.streamed,
        )  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = asyncio.run(coroutine)
    used = resource.getrusage(resource.RUSAGE_SELF)
    facts: Mapping[str, Any] = asdict(result) | {
        "cpu": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
        "latencies": len(result.latencies),
        "p50": result.quantile(0.5),
        "p99": result.quantile(0.99),
        "most": result.quantile(1.0),
    }
    json.dump(facts, sys.stdout)


if __name__ == "__main__":
    main()
