"""A process of the server.

While a step runs, messages gather in the socket; the next step takes one of each sequence. So
batches are as large as the load makes them, and nobody waits for a timer.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections.abc import Iterable, Mapping

from ostinato.serve.lanes import Job, Lane, Served
from ostinato.serve.wire import READY, Close, Inbox, encoded, packed_step, unpacked


def main(connection: socket.socket, models: Iterable[Served]) -> None:
    """Be a worker: a process that ends when the other end of its socket is closed."""
    # Ctrl-C in a terminal reaches all processes, the server too, which knows when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(connection, models)


def serve(connection: socket.socket, models: Iterable[Served]) -> None:
    """Answer jobs until the other end is closed. Says `READY` first."""
    with contextlib.suppress(ConnectionError):
        _serve(connection, {served.name: Lane(served) for served in models})


def _serve(connection: socket.socket, lanes: Mapping[str, Lane]) -> None:
    connection.sendall(encoded(READY))
    inbox = Inbox()
    while True:
        is_busy = any(lane.is_busy for lane in lanes.values())
        if not is_busy or select.select([connection], [], [], 0)[0]:
            count = connection.recv_into(inbox.space())
            if not count:
                return
            for parcel in inbox.received(count):
                accept(lanes, unpacked(parcel))
        for lane in lanes.values():
            if lane.is_busy:
                connection.sendall(encoded(packed_step(lane.step())))


def accept(lanes: Mapping[str, Lane], messages: Iterable[Job | Close]) -> None:
    """Give messages to the lanes of their models."""
    for message in messages:
        lane = lanes[message.model]
        if isinstance(message, Close):
            lane.close(message.sequence)
        else:
            lane.accept(message)
