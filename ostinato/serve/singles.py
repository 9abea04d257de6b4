"""Streams that are stepped one by one, where a pool would make a batch.

Those of a model whose batch is fixed, or whose rows change each other's results.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ostinato.errors import OstinatoError, PoolError, StreamError
from ostinato.runtime.growing import GrowingStream
from ostinato.runtime.session import InferenceSession
from ostinato.runtime.stream import Stream

Array = np.ndarray[Any, Any]


class Singles:
    """The part of `Pool` that a worker uses, for up to `capacity` streams; raises the same."""

    def __init__(
        self,
        session: InferenceSession,
        states: Mapping[str, str],
        capacity: int,
        shared: Mapping[str, Any],
    ) -> None:
        self._session, self._states, self.capacity = session, states, capacity
        self._shared = shared
        self._streams: dict[int, Stream | GrowingStream] = {}
        self._frames: dict[int, Mapping[str, Array]] = {}
        self._handles = itertools.count()

    def __len__(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    def open(self) -> int:
        """The handle of a new stream."""
        if len(self._streams) >= self.capacity:
            raise StreamError(f"all {self.capacity} streams are open")
        handle = next(self._handles)
        self._streams[handle] = self._session.stream(self._states)
        return handle

    def close(self, handle: int) -> None:
        """Close a stream, and drop its frame."""
        self._streams.pop(handle).close()
        self._frames.pop(handle, None)

    def push(self, handle: int, feeds: Mapping[str, Array]) -> None:
        """Give a stream its next frame, which is looked at when it is stepped."""
        self._frames[handle] = feeds

    def step(self) -> dict[int, list[Any]]:
        """The outputs of all streams that have a frame. Raises `PoolError` when some failed."""
        frames, self._frames = self._frames, {}
        results: dict[int, list[Any]] = {}
        errors: dict[int, OstinatoError] = {}
        for handle, feeds in frames.items():
            try:
                results[handle] = self._streams[handle].step({**self._shared, **feeds})
            except OstinatoError as error:
                errors[handle] = error
        if errors:
            raise PoolError(errors, results)
        return results
