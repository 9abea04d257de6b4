"""Streams of a pool for coroutines: frames are sent, outputs are iterated over.

One task of the event loop steps the pool, in a thread, as long as there are frames; frames that
come during a step are taken by the next. Without frames it sleeps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.arguments import is_whole
from ostinato.errors import InputError, OstinatoError, PoolError, StreamError

if TYPE_CHECKING:
    from ostinato.runtime.pool import Pool

Array = np.ndarray[Any, Any]
_Item = list[Any] | OstinatoError | None


class AsyncStream:
    """A stream of a pool; made by `Pool.connect`.

    `await stream.send(feeds)` gives it a frame, `async for outputs in stream` takes the outputs
    that are no states, one list for each frame, in order. At most `depth` frames wait to be
    stepped: then `send` waits until the pool takes one, which it does by itself. Outputs wait until
    they are taken, as many as there are, so one task may send everything and read it afterwards.
    `finish` says that no more frames come, and the iteration ends behind the last output; without
    it, it waits for the next one. `close`, and leaving `async with`, drops everything.

    A frame that fails raises its error where its outputs would have been taken, and leaves the
    state as it was; the stream goes on with the next frame.
    """

    def __init__(self, driver: Driver, handle: int, depth: int) -> None:
        self._driver, self._handle = driver, handle
        self._room = asyncio.Semaphore(depth)
        self._frames: deque[dict[str, Array]] = deque()
        self._outputs: asyncio.Queue[_Item] = asyncio.Queue()
        self._under_way = 0
        self._is_finished = self._is_closed = False

    async def send(self, feeds: Mapping[str, Any]) -> None:
        """Give the stream its next frame, which is copied.

        Raises `InputError` for a frame that does not fit, `StreamError` after `finish` or `close`.
        """
        self._require_unfinished()
        frame = self._driver.pool.checked(feeds)
        await self._room.acquire()
        if self._is_finished:
            # The next one that waits is woken in its turn.
            self._room.release()
        self._require_unfinished()
        self._frames.append({name: value.copy() for name, value in frame.items()})
        self._under_way += 1
        self._driver.wake.set()

    def _require_unfinished(self) -> None:
        if self._is_closed:
            raise StreamError("this stream is closed; connect another one")
        if self._is_finished:
            raise StreamError("this stream is finished; connect another one")

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> list[Any]:
        item = None
        if not (self._is_closed and self._outputs.empty()):
            item = await self._outputs.get()
        if item is None:
            # Whoever else iterates over this stream ends too.
            self._outputs.put_nowait(None)
            raise StopAsyncIteration
        if isinstance(item, OstinatoError):
            raise item
        return item

    def finish(self) -> None:
        """No more frames come: the iteration ends behind the outputs of those that were sent."""
        if not self._is_finished:
            self._is_finished = True
            if not self._under_way:
                self._outputs.put_nowait(None)

    def close(self) -> None:
        """Leave the pool; frames and outputs that nobody took are dropped. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = self._is_finished = True
        self._frames.clear()
        while not self._outputs.empty():
            self._outputs.get_nowait()
        self._outputs.put_nowait(None)
        # Those who wait in `send` find the stream closed.
        self._room.release()
        self._driver.leave(self._handle)

    def _take(self) -> dict[str, Array]:
        """The next frame to be stepped, which makes room for another one."""
        self._room.release()
        return self._frames.popleft()

    def _deliver(self, item: _Item) -> None:
        if self._is_closed:
            return
        self._under_way -= 1
        self._outputs.put_nowait(item)
        if self._is_finished and not self._under_way:
            self._outputs.put_nowait(None)

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()


class Driver:
    """Steps a pool for its asynchronous streams, in one task that ends with the last of them."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.wake = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self._streams: dict[int, AsyncStream] = {}
        self._task = self.loop.create_task(self._run())

    def join(self, state: Mapping[str, Any] | None, depth: int) -> AsyncStream:
        """Another stream."""
        handle = self.pool.open(state)
        stream = self._streams[handle] = AsyncStream(self, handle, depth)
        return stream

    def leave(self, handle: int) -> None:
        """The stream with this handle is closed."""
        self._streams.pop(handle, None)
        if handle in self.pool.handles:
            self.pool.close(handle)
        self.wake.set()

    @property
    def is_over(self) -> bool:
        """Whether no stream can join any more."""
        return self._task.done() or self.loop.is_closed()

    async def _run(self) -> None:
        try:
            while True:
                # What is ready to send at this moment is part of the step.
                await asyncio.sleep(0)
                taken = self._push()
                if taken:
                    await self._step(taken)
                elif not self._streams:
                    return
                else:
                    await self.wake.wait()
                    self.wake.clear()
        finally:
            if self.pool._driver is self:
                self.pool._driver = None
            for stream in list(self._streams.values()):
                stream.close()

    def _push(self) -> list[AsyncStream]:
        """Give every stream its next frame; the streams that had one."""
        taken = []
        for handle, stream in list(self._streams.items()):
            if stream._frames:
                try:
                    self.pool.push(handle, stream._take())
                except OstinatoError as error:
                    stream._deliver(error)
                else:
                    taken.append(stream)
        return taken

    async def _step(self, taken: list[AsyncStream]) -> None:
        errors: Mapping[int, OstinatoError] = {}
        results: Mapping[int, list[Any]] = {}
        try:
            results = await asyncio.to_thread(self.pool._step)
        except PoolError as error:
            errors, results = error.errors, error.results
        except OstinatoError as error:
            errors = {stream._handle: error for stream in taken}
        for stream in taken:
            handle = stream._handle
            if handle in results or handle in errors:
                stream._deliver(errors[handle] if handle in errors else results[handle])


def connect(pool: Pool, state: Mapping[str, Any] | None, depth: int) -> AsyncStream:
    """A new stream of `pool`, and a driver if it has none. See `Pool.connect`."""
    if not is_whole(depth) or depth < 1:
        raise InputError(f"depth: expected a number of frames, got {depth!r}")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise StreamError(
            "`connect` needs a running event loop; use `open`, `push` and `step` without one"
        ) from None
    driver = pool._driver
    if driver is None or driver.is_over:
        driver = pool._driver = Driver(pool)
    elif driver.loop is not loop:
        raise StreamError("this pool is stepped by another event loop")
    return driver.join(state, depth)
