"""A process of the server, and how it is talked to.

While a step runs, messages gather in the socket; the next step takes one of each sequence. So
batches are as large as the load makes them, and nobody waits for a timer.
"""

from __future__ import annotations

import contextlib
import pickle
import select
import signal
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.serve.lanes import Lane, Served

READY = "ready"
_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Close:
    """Tell a worker to forget a sequence."""

    model: str
    sequence: int


def encoded(value: object) -> bytes:
    """A message of the socket: its length, and the pickled value. Both ends are this program."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


class Inbox:
    """Messages out of the bytes of a socket."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that are whole now."""
        self._bytes += data
        found, start = [], 0
        with memoryview(self._bytes) as view:
            while len(view) - start >= _LENGTH.size:
                end = start + _LENGTH.size + int(_LENGTH.unpack_from(view, start)[0])
                if end > len(view):
                    break
                with view[start + _LENGTH.size : end] as message:
                    found.append(pickle.loads(message))
                start = end
        del self._bytes[:start]
        return found


def _received(connection: socket.socket, wait: bool) -> bytes | None:
    """What has come, None when the other end is closed. wait: until something comes."""
    if not wait and not select.select([connection], [], [], 0)[0]:
        return b""
    return connection.recv(_CHUNK) or None


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
        data = _received(connection, wait=not any(lane.is_busy for lane in lanes.values()))
        if data is None:
            return
        for message in inbox.feed(data):
            lane = lanes[message.model]
            if isinstance(message, Close):
                lane.close(message.sequence)
            else:
                lane.accept(message)
        for lane in lanes.values():
            if lane.is_busy:
                connection.sendall(encoded(lane.step()))
