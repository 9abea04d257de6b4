"""A pool: many independent streams stepped together as one batch, so weights are read once for all.

Every stream of a pool is a row of the batch axis. Rows that have a frame are stepped by one call;
the others are not touched. The states of the streams that were stepped last stay where the call
left them: the next step of the same streams copies none. When other streams have frames, the rows
are put back into a store with a row for every stream, and taken from there. States that grow are
never moved: each stream has a place for its rows, which the call is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.arguments import is_whole
from ostinato.caller import warn
from ostinato.codegen.artifact import Argument
from ostinato.errors import InputError, OstinatoError, PoolError, StreamError
from ostinato.locks import new_lock
from ostinato.native.abi import storage
from ostinato.native.arguments import (
    as_input,
    as_mapping,
    bind_shapes,
    check_names,
    describe,
    describe_array,
    in_place,
)
from ostinato.runtime.batch import batch_axis, batch_dimension
from ostinato.runtime.call import picker
from ostinato.runtime.frames import Frames, Keeper
from ostinato.runtime.pool_states import PoolStates
from ostinato.runtime.seats import Seats
from ostinato.runtime.states import Declaration, checked_sizes, declared_pairs
from ostinato.runtime.uncopied import Uncopied

if TYPE_CHECKING:
    from ostinato.runtime.async_stream import AsyncStream, Driver
    from ostinato.runtime.session import InferenceSession

Array = np.ndarray[Any, Any]


class MixedRows(RuntimeWarning):
    """Streams that are stepped together change each other's results."""


class Pool(Uncopied):
    """Up to `capacity` streams of a session's model. Made by `InferenceSession.pool`.

    A stream is known by a number, its handle, which is never used again. Its results are the bits
    that it would have alone, whoever else is in the pool, as long as the model is native code and
    treats each row of a batch alone. `mixes` says which node does not, where one is seen, and
    there is a warning.

    Several threads may `push`, `open` and `close` while one is in `step`; a single stream is used
    by one thread at a time.

    states, initial, sizes: as `InferenceSession.stream` takes them; initial values for a batch of
        1. capacity: how many streams may be open at a time. batch: the name of the dimension of the
        streams, which may be left out where there is one only. shared: inputs that are the same for
        all streams, whole arrays of the model's shapes and dtypes. rows: how many rows each stream
        has room for, of states that grow; without it the room of all doubles when one is full.

    Raises `InputError` for pairs, a batch dimension, initial values and sizes that do not fit the
    model, and `UnsupportedError` where states grow and the model is not all native.
    """

    _instead = "make another one, and open its streams with the states of this one"

    def __init__(
        self,
        session: InferenceSession,
        states: Declaration,
        capacity: int,
        batch: str | None = None,
        initial: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        shared: Mapping[str, Any] | None = None,
        rows: int | None = None,
    ) -> None:
        if not is_whole(capacity) or capacity < 1:
            raise InputError(f"capacity: expected a number of streams, got {capacity!r}")
        model = session._flow.model
        self.capacity = capacity
        self._pairs = declared_pairs(states, model.inputs, model.outputs)
        read = [pair.input for pair in self._pairs]
        names = {argument.name for argument in read}
        fed = {a.name: a for a in model.inputs if a.name not in names}
        self._shared = checked_shared(session, names, shared)
        self._fed = {name: a for name, a in fed.items() if name not in self._shared}
        self.batch = batch_dimension(read, list(self._fed.values()), batch)
        self.mixes = _mixing(model.report.get("mixed_rows", {}), self.batch)
        if self.mixes is not None:
            warn(f"the streams of this pool change each other's results: {self.mixes}", MixedRows)
        self._sizes = checked_sizes(sizes, model.inputs) | {self.batch: 1}
        of_all = self.batch, initial, self._sizes, self._shared, rows
        self._states = PoolStates(session, self._pairs, capacity, *of_all)
        self._batch = self._states.batch
        # The frames of all streams, made when the first one tells the sizes; and what keeps those
        # of a stream.
        self._frames: Frames | None = None
        self._pick = picker(list(self._fed))
        self._keepers: dict[int, Keeper] = {}
        self._seats = Seats(capacity)
        # One step at a time; and one thread at a time that changes who has which row.
        self._stepping, self._seating = new_lock(), new_lock()
        self._driver: Driver | None = None

    # Streams

    def open(self, state: Mapping[str, Any] | None = None) -> int:
        """The handle of a new stream.

        state: where it goes on, as `Stream.state` gives it: an array for each state, of its dtype,
            for a batch of 1; the first values without it.
        Raises `StreamError` when the pool is full or closed, `InputError` for states that are none
        of it, and `RunError` where there is no memory for rows that grow.
        """
        values = self._states.checked(state)
        # A step may be in the memory of all streams.
        with self._stepping if self._states.has_places else nullcontext(), self._seating:
            self._states.put(self._seats.next_free(), values)
            return self._seats.take()

    def fork(self, handle: int) -> int:
        """The handle of a new stream that goes on from the states that this one has now.

        Both read the same rows of states that grow until one of them appends: that one copies them
        first. Other states are copied. Raises `StreamError` for a stream that is not open, and when
        the pool is full.
        """
        with self._stepping, self._seating:
            slot = self._seats.slot(handle)
            self._batch.require(handle)
            self._batch.store(self._seats.slots)
            self._states.copy(slot, self._seats.next_free())
            return self._seats.take()

    def rewind(self, handle: int, rows: int) -> None:
        """Drop the last `rows` rows of all growing states of a stream; nothing is copied.

        Raises `InputError` for more rows than there are, and `StreamError` where a state does not
        grow: what it was is not known.
        """
        with self._stepping, self._seating:
            self._states.rewind(self._seats.slot(handle), rows)

    def close(self, handle: int | None = None) -> None:
        """Close a stream, and drop its frame; without handle close the pool with all its streams.

        Raises `StreamError` for a stream that is not open.
        """
        if handle is not None:
            with self._seating:
                slot = self._seats.leave(handle)
                if self._keepers.pop(handle, None) and self._frames:
                    self._frames.drop(slot)
                self._batch.marks = b""
            return
        with self._stepping, self._seating:
            self._seats.close()
            self._keepers.clear()
            self._batch.handles.clear()

    @property
    def handles(self) -> list[int]:
        """The streams that are open."""
        return list(self._seats.slots)

    def __len__(self) -> int:
        """The number of open streams."""
        return len(self._seats.slots)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def state(self, handle: int) -> dict[str, Array]:
        """Copies of the states of a stream by the names of their inputs, for a batch of 1.

        Those that grow have the rows so far. Raises `StreamError` for a stream that is not open.
        """
        with self._stepping, self._seating:
            slot = self._seats.slot(handle)
            self._batch.require(handle)
            self._batch.store(self._seats.slots)
            return self._states.get(slot)

    def reset(self, handle: int, state: Mapping[str, Any] | None = None) -> None:
        """Put a stream back to its beginning, or to `state`, which is as in `open`.

        Raises `StreamError` for a stream that is not open, `InputError` for states that do not fit.
        """
        values = self._states.checked(state)
        with self._stepping, self._seating:
            slot = self._seats.slot(handle)
            self._batch.store(self._seats.slots)
            self._states.put(slot, values)
            self._batch.find(handle)

    # Frames

    def push(self, handle: int, feeds: Mapping[str, Any]) -> None:
        """Give a stream its next frame, which is copied: an array per input, for a batch of 1.

        All frames of a pool have the sizes of the first. Raises `StreamError` for a stream that is
        not open or has a frame already, and `InputError` for a frame that does not fit.
        """
        try:
            is_plain = type(feeds) is dict and len(feeds) == len(self._fed)
            if is_plain and self._keepers[handle](*self._pick(feeds)) is None:
                return
        except (KeyError, TypeError):
            pass
        self._push_checked(handle, feeds)

    def _push_checked(self, handle: int, feeds: object) -> None:
        """`push` for whatever the caller passed: lists, foreign arrays, mistakes."""
        slot = self._seats.slot(handle)
        self._batch.require(handle)
        padded = self._states.padding.of(self.checked(feeds))
        values = [in_place(value) for value in padded.values()]
        values = [value.view(storage(value.dtype)) for value in values]
        assert self._frames is not None
        keep = self._keepers.get(handle) or self._frames.keeper(slot)
        with self._seating:
            self._seats.slot(handle)
            self._keepers[handle] = keep
            if keep(*values) is not None:
                raise StreamError(f"stream {handle} has a frame that no step has taken yet")

    def checked(self, feeds: object) -> dict[str, Array]:
        """A frame as arrays of the model's dtypes and the pool's shapes, by input.

        Raises `InputError` for names, dtypes and shapes that do not fit.
        """
        feeds = as_mapping("frame", feeds)
        check_names("input", feeds, list(self._fed), complete=True)
        values = {name: as_input(argument, feeds[name]) for name, argument in self._fed.items()}
        padding = self._states.padding
        padding.require_room(values)
        if self._frames is None:
            with self._seating:
                self._frames = self._frames or self._made_for(values)
        for rows in self._frames.rows:
            if rows.name in values and not padding.fits(
                rows.name, values[rows.name].shape, rows.shape
            ):
                expected = Argument(rows.name, self._fed[rows.name].dtype, rows.shape)
                raise InputError(
                    f"input {rows.name!r}: expected {describe(expected)} as in all frames of this "
                    f"pool, got {describe_array(values[rows.name])}"
                )
        return values

    def _made_for(self, values: Mapping[str, Array]) -> Frames:
        """Room for frames of the sizes of this one, which is the first."""
        arguments = [*(pair.input for pair in self._pairs), *self._fed.values()]
        known = [value.shape for value in self._states.first.values()]
        sizes = bind_shapes(arguments, [*known, *(value.shape for value in values.values())])
        for name, size in self._sizes.items():
            if sizes.get(name, size) != size:
                raise InputError(f"frame: {name} is {sizes[name]}, `sizes` says {size}")
        axes = {name: batch_axis(argument, self.batch) for name, argument in self._fed.items()}
        padded = self._states.padding.of(values)
        return Frames(padded, {name: axes.get(name, 0) for name in padded}, self.capacity)

    # Steps

    def step(self) -> dict[int, list[Any]]:
        """Step all streams that have a frame: their outputs that are no states, by handle.

        The arrays belong to the caller; those of one output are views of one batch. A step that an
        interrupt ends leaves all states as they were, and streams their frames, but those that got
        another one meanwhile; streams with states of which a step replaces some rows have lost them
        until `reset`. Raises `PoolError` when streams failed, which has the outputs of the others,
        and `StreamError` when another thread is in a step, and for a stream that has lost a state.
        """
        if self._driver is not None:
            raise StreamError("the asynchronous streams of this pool are stepped as they come")
        return self._step()

    def _step(self) -> dict[int, list[Any]]:
        if not self._stepping.acquire(blocking=False):
            raise StreamError("another thread is in a step of this pool")
        try:
            with self._seating:
                self._seats.require_open()
                frames = self._gathered()
                handles = self._batch.handles
            if frames is None:
                return {}
            try:
                return self._of_open(handles, self._batch.run(frames, len(handles)))
            except OstinatoError as error:
                return self._one_by_one(handles, frames, error)
            except BaseException:
                with self._seating:
                    self._give_back(handles)
                raise
            finally:
                with self._seating:
                    self._frames.done()  # type: ignore[union-attr]
        finally:
            self._stepping.release()

    def _give_back(self, handles: Sequence[int]) -> None:
        """Let streams have the frames that a step took, if they are still open and can go on."""
        lost, slots = self._batch.lost(), self._seats.slots
        kept = [slots[handle] for handle in handles if handle in slots and handle not in lost]
        self._frames.give_back(kept)  # type: ignore[union-attr]
        for handle in lost:
            self._keepers.pop(handle, None)

    def _gathered(self) -> dict[str, Array] | None:
        """The frames as batches, with the states of their streams in place; None without any."""
        if self._frames is None:
            return None
        marks, turn = self._frames.take()
        if 1 not in marks:
            return None
        lost = self._batch.lost()
        if marks != self._batch.marks:
            handles = [self._seats.owner(slot) for slot in _marked(marks)]
            if not lost.isdisjoint(handles):
                self._give_back(handles)
            self._batch.load(handles, self._seats.slots)
            self._frames.choose(self._batch.rows)
            self._batch.marks = marks
        return self._frames.batch(turn)

    def _of_open(self, handles: Sequence[int], rows: Iterable[list[Any]]) -> dict[int, list[Any]]:
        """The rows of the streams that were not closed meanwhile."""
        results = dict(zip(handles, rows, strict=True))
        if not self._batch.marks:
            results = {handle: row for handle, row in results.items() if handle in self._seats}
        return results

    def _one_by_one(
        self, handles: Sequence[int], frames: Mapping[str, Array], error: OstinatoError
    ) -> dict[int, list[Any]]:
        """Results of a step that failed for the batch: which stream failed is not known."""
        errors: dict[int, OstinatoError] = {}
        results: dict[int, list[Any]] = {}
        for i, handle in enumerate(handles):
            single = {
                rows.name: np.take(frames[rows.name], [i], axis=rows.axis)
                for rows in self._frames.rows  # type: ignore[union-attr]
            }
            with self._seating:
                if handle not in self._seats:
                    continue
                self._batch.load([handle], self._seats.slots)
            try:
                results |= self._of_open([handle], self._batch.run(single, 1))
            except OstinatoError as failure:
                errors[handle] = failure
        if errors:
            raise PoolError(errors, results) from error
        return results

    # Description

    def describe(self) -> str:
        """The states as a table: input, output, shape of one stream, dtype."""
        return self._states.describe()

    def __repr__(self) -> str:
        pairs = ", ".join(f"{pair.name} <- {pair.output.name}" for pair in self._pairs)
        closed = ", closed" if self._seats.is_closed else ""
        return f"<Pool {pairs}, {len(self)} of {self.capacity} streams{closed}>"

    # Streams of an event loop

    def connect(self, state: Mapping[str, Any] | None = None, depth: int = 8) -> AsyncStream:
        """A stream for coroutines of the running event loop, which steps the pool as frames come.

        state: where it goes on. depth: frames that wait to be stepped; sending more waits until the
        pool takes one. Raises what `open` raises.
        """
        from ostinato.runtime.async_stream import connect

        return connect(self, state, depth)


def _marked(marks: bytes) -> Iterator[int]:
    """The places of bytes that are 1."""
    place = marks.find(1)
    while place >= 0:
        yield place
        place = marks.find(1, place + 1)


def _mixing(mixed: Mapping[str, str], batch: str) -> str | None:
    """The operation along the dimension of the streams, if there is one. mixed: by dimension."""
    return f"{mixed[batch]} along {batch!r}, their dimension" if batch in mixed else None


def checked_shared(
    session: InferenceSession, states: Collection[str], shared: object
) -> dict[str, Array]:
    """Arrays for inputs that all streams have in common, which are none of the states.

    Raises `InputError` for unknown names, and for values that do not fit.
    """
    fed = {a.name: a for a in session._flow.model.inputs if a.name not in states}
    shared = as_mapping("shared", {} if shared is None else shared)
    check_names("input", shared, list(fed), complete=False)
    values = {name: as_input(fed[name], value) for name, value in shared.items()}
    bind_shapes([fed[name] for name in values], [value.shape for value in values.values()])
    return {name: np.array(value, order="C") for name, value in values.items()}
