"""What a server and a worker process say to each other, as bytes of a socket.

A parcel is a list of jobs and of sequences to forget, or of what became of jobs. Arrays are sent as
their bytes: pickling them as objects takes ten times as long as the rest of a message.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato.serve.lanes import Call, Failure, Job, Outputs, Step

Array = np.ndarray[Any, Any]
Packed = list[tuple[str, str, tuple[int, ...], bytes]]

READY = "ready"
_LENGTH = struct.Struct("<Q")
# What a read asks for. Python would map fresh memory for each one of much more.
_CHUNK = 1 << 16
# Memory that an inbox keeps behind a long parcel.
_KEPT = 1 << 20


@dataclass(frozen=True)
class Close:
    """Tell a worker to forget a sequence."""

    model: str
    sequence: int


def encoded(value: object) -> bytes:
    """A parcel: its length, and the pickled value. Both ends are this program."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def packed(messages: Iterable[Job | Close]) -> list[Any]:
    """Messages as what pickles fast."""
    return [
        message
        if isinstance(message, Close)
        else (
            message.number,
            message.model,
            _packed(message.inputs),
            message.sequence,
            message.start,
            message.end,
        )
        for message in messages
    ]


def unpacked(messages: Iterable[Any]) -> list[Job | Close]:
    """What `packed` was given."""
    return [
        message
        if isinstance(message, Close)
        else Job(message[0], message[1], _unpacked(message[2]), *message[3:])
        for message in messages
    ]


def packed_step(step: Step) -> tuple[Any, ...]:
    """A step as what pickles fast."""
    outcomes = [
        (number, outcome if isinstance(outcome, Failure) else _packed(outcome))
        for number, outcome in step.outcomes.items()
    ]
    return outcomes, [(call.model, call.batch, call.seconds) for call in step.calls]


def unpacked_step(parts: tuple[Any, ...]) -> Step:
    """What `packed_step` was given."""
    outcomes, calls = parts
    return Step(
        {
            number: outcome if isinstance(outcome, Failure) else _unpacked(outcome)
            for number, outcome in outcomes
        },
        [Call(*call) for call in calls],
    )


def _packed(arrays: Mapping[str, Array]) -> Packed:
    return [(name, x.dtype.str, x.shape, x.tobytes()) for name, x in arrays.items()]


def _unpacked(arrays: Packed) -> Outputs:
    return {name: np.ndarray(shape, dtype, data) for name, dtype, shape, data in arrays}


class Inbox:
    """Parcels out of the bytes of a socket, which are read into `space`."""

    def __init__(self) -> None:
        self._bytes = bytearray(_CHUNK)
        self._end = 0

    def space(self) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self._bytes)[self._end :]

    def received(self, count: int) -> list[Any]:
        """The parcels that are whole, now that `count` more bytes are in the space."""
        self._end += count
        found, start, needed = [], 0, _LENGTH.size
        view = memoryview(self._bytes)
        while self._end - start >= needed:
            size = int(_LENGTH.unpack_from(view, start)[0])
            if self._end - start < _LENGTH.size + size:
                needed = _LENGTH.size + size
                break
            found.append(pickle.loads(view[start + _LENGTH.size : start + _LENGTH.size + size]))
            start += _LENGTH.size + size
        self._keep(start, needed)
        return found

    def _keep(self, start: int, needed: int) -> None:
        """Move what is left to the front, with room for a parcel of `needed` bytes."""
        rest = self._bytes[start : self._end] if start < self._end else b""
        self._end -= start
        size = max(_CHUNK, needed)
        if size > len(self._bytes) or len(self._bytes) > max(_KEPT, size):
            self._bytes = bytearray(size)
        elif not start:
            return
        self._bytes[: self._end] = rest
