"""A server from its start to its end: workers, transports, signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import uvicorn

from ostinato.serve import grpc
from ostinato.serve.cluster import Cluster, Limits
from ostinato.serve.http import application
from ostinato.serve.lanes import Served
from ostinato.serve.limited import LimitedProtocol
from ostinato.serve.metrics import Metrics
from ostinato.serve.service import Interface, Service, interface

logger = logging.getLogger("ostinato.serve")


@dataclass(frozen=True)
class Settings:
    """How to serve.

    host: the address to listen on. http, grpc: ports; 0 for any that is free, None for none.
    workers: processes that compute, 0 for this one alone. drain: seconds in which open sequences
    may end when the server is told to stop. most: bytes of the longest message. frame: seconds of
    signal in a frame.
    """

    host: str = "127.0.0.1"
    http: int | None = 8000
    grpc: int | None = 8001
    workers: int = 1
    drain: float = 30.0
    most: int = 16 << 20
    frame: float | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Addresses:
    """Where a server listens, None for what it does not serve."""

    http: str | None
    grpc: str | None


def look(models: list[Served]) -> dict[str, Interface]:
    """Compile the models, before any process needs them. Raises what sessions raise."""
    return {served.name: interface(served) for served in models}


async def serve(
    models: list[Served],
    interfaces: Mapping[str, Interface],
    settings: Settings,
    started: Callable[[Addresses, Cluster], None],
) -> None:
    """Serve until SIGTERM or SIGINT; a second one stops at once.

    started: called when everything is ready. Raises `OSError` for addresses that are taken.
    """
    for transport, port in (("HTTP", settings.http), ("gRPC", settings.grpc)):
        _listening(transport, settings.host, port or 0).close()
    metrics = Metrics(settings.frame)
    cluster = Cluster(
        {served.name: served for served in models}, settings.workers, settings.limits, metrics
    )
    service = Service(interfaces, cluster, metrics)
    stop, hurry = asyncio.Event(), asyncio.Event()

    def told() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    async with contextlib.AsyncExitStack() as transports:
        try:
            await cluster.start()
            addresses = await _listen(service, settings, transports)
            started(addresses, cluster)
            await stop.wait()
            left = cluster.open_sequences()
            patience = f"; open sequences ({left}) have {settings.drain:g} s to end" if left else ""
            logger.warning("stopping%s", patience)
        finally:
            draining = asyncio.create_task(cluster.drain(settings.drain if stop.is_set() else 0))
            hurried = asyncio.create_task(hurry.wait())
            await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            cluster.kill()
            await draining


async def _listen(
    service: Service, settings: Settings, transports: contextlib.AsyncExitStack
) -> Addresses:
    """Start the transports, to be stopped when the stack is left."""
    http = grpc_address = None
    if settings.grpc is not None:
        server, port = grpc.server(service, f"{settings.host}:{settings.grpc}", settings.most)
        await server.start()
        transports.push_async_callback(server.stop, 1.0)
        grpc_address = f"{settings.host}:{port}"
    if settings.http is not None:
        port = await _listen_http(service, settings, transports)
        http = f"http://{settings.host}:{port}"
    return Addresses(http, grpc_address)


def _listening(transport: str, host: str, port: int) -> socket.socket:
    """A socket that listens. Raises `OSError` for an address that is taken or not this host's."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise OSError(
            f"{transport}: {host}:{port} cannot be listened on ({reason}): "
            "name another port, or 0 for any that is free"
        ) from error


async def _listen_http(
    service: Service, settings: Settings, transports: contextlib.AsyncExitStack
) -> int:
    config = uvicorn.Config(
        application(service, settings.most),
        http=LimitedProtocol,
        log_level="warning",
        lifespan="off",
        ws_max_size=settings.most,
        timeout_graceful_shutdown=1,
    )
    listening = _listening("HTTP", settings.host, settings.http or 0)
    server = uvicorn.Server(config)
    # Signals are for the whole server, which tells its transports when to stop.
    server.capture_signals = contextlib.nullcontext
    task = asyncio.create_task(server.serve([listening]))

    async def stop() -> None:
        server.should_exit = True
        await task

    transports.push_async_callback(stop)
    while not server.started:
        if task.done():
            await task
        await asyncio.sleep(0.01)
    return int(listening.getsockname()[1])
