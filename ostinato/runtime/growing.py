"""Streams whose states grow: caches of keys and values, to which every step adds rows.

Where the model computes `present = Concat(past, new)`, the stream owns memory with room for more
rows. A step stores its rows behind the others and reads all of them where they are: nothing of the
past is copied, whatever its length, and one compiled program serves all lengths.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import InputError, OstinatoError, RunError, StreamError
from ostinato.native.arguments import (
    as_buffer,
    as_input,
    as_mapping,
    as_outputs,
    bind_shapes,
    check_names,
    describe_array,
    overlapping,
)
from ostinato.native.memory import aligned_empty, require_memory
from ostinato.runtime.archive import Entry, Kind, read_arrays, write_arrays
from ostinato.runtime.call import BoundCall
from ostinato.runtime.states import (
    Declaration,
    Pair,
    checked_initial,
    checked_sizes,
    declared_pairs,
    table,
)
from ostinato.stages.compiled import CompiledModel
from ostinato.stages.stage import NO_ROOM, KeptState

if TYPE_CHECKING:
    from ostinato.runtime.session import InferenceSession

Array = np.ndarray[Any, Any]

_SAVED = Kind("saved state", "the state of another model")
_STATE = "state "
# Rows that a state has room for at first: they take less than any weights.
_FIRST_ROWS = 64
# A cache line of the narrowest rows; an odd number of them keeps rows of different axes in
# different sets of a cache.
_LINE = 16


@dataclass
class _Memory:
    """Rows of a state, with room for more. users: how many streams read it."""

    array: Array
    users: int = 1


class GrowingStream:
    """Steps of a session's model some of whose states grow.

    Made by `InferenceSession.stream`. States that grow begin without rows, or with those of
    `initial`; all others are as in a `Stream`. Used by one thread at a time.

    session: of the model compiled for such steps. model: as the caller knows it. capacity: how many
    rows there is room for; without it the room doubles when it is full, which copies the rows once.
    """

    def __init__(
        self,
        session: InferenceSession,
        model: CompiledModel,
        states: Declaration,
        initial: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        capacity: int | None = None,
    ) -> None:
        self._session, self._model, self._limit = session, model, _checked(capacity)
        self._pairs = declared_pairs(states, model.inputs, model.outputs)
        self._kept = {state.input: state for state in session._flow.model.kept}
        self._initial = checked_initial(initial, self._pairs)
        self._sizes = checked_sizes(sizes, model.inputs)
        names = {pair.name for pair in self._pairs}
        written = {pair.output.name for pair in self._pairs}
        self._inputs = {a.name: a for a in model.inputs if a.name not in names}
        self._outputs = {a.name: a for a in model.outputs if a.name not in written}
        self._lock = threading.Lock()
        self._is_closed = False
        self._forget()

    def _forget(self) -> None:
        """Go back to where no step has told the sizes."""
        self._memory: dict[str, _Memory] = {}
        self._rows: dict[str, int] = {}
        self._values: dict[str, Array] = {}
        # What a step of inputs of certain shapes adds, and the outputs it makes.
        self._known: dict[object, tuple[dict[str, int], dict[str, tuple[Any, Any]]]] = {}

    # Stepping

    def step(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> list[Any]:
        """Compute the outputs that are no states, in the model's order, and advance the states.

        feeds, out: as in `Stream.step`. A step that raises leaves the states as they were. Raises
        what `InferenceSession.run` raises, and `StreamError` for a stream that is closed, in use by
        another thread, or full (`capacity`).
        """
        inputs = self._checked(feeds, as_input)
        given = {} if out is None else as_outputs(out, self._outputs)
        for name, value in inputs.items():
            if given and overlapping(value, given.values()):
                inputs[name] = value.copy()
        with self._taken():
            return self._advance(inputs, given)

    def _advance(self, inputs: dict[str, Any], given: Mapping[str, Array]) -> list[Any]:
        key = tuple(value.shape for value in inputs.values())
        if key in self._known:
            self._make_room(self._known[key][0])
        else:
            self._begin(inputs)
        while True:
            try:
                results = self._run(inputs, given, key)
                break
            except RunError as error:
                if NO_ROOM not in str(error):
                    raise
                self._make_room({}, is_full=True)
        following = {name: int(results[f"next length of {name}"]) for name in self._rows}
        for state in self._kept.values():
            self._check_limit(state, following[state.length])
        if key not in self._known:
            added = {name: following[name] - self._rows[name] for name in self._rows}
            made = {n: (a.shape, a.dtype) for n, a in results.items() if n not in self._buffers()}
            self._known[key] = added, made
        self._rows = following
        self._values = {p.name: results[p.output.name] for p in self._fixed()}
        return [results[name] for name in self._outputs]

    def _run(
        self, inputs: dict[str, Any], given: Mapping[str, Array], key: object
    ) -> dict[str, Any]:
        """All outputs of one run, by name."""
        feeds = {**inputs, **self._values}
        for state in self._kept.values():
            feeds[f"length of {state.length}"] = np.array(self._rows[state.length])
            feeds[f"capacity of {state.length}"] = np.array(self._capacity(state))
        out = self._buffers()
        for name, (shape, dtype) in self._known.get(key, ((), {}))[1].items():
            out[name] = np.empty(shape, dtype)
        out.update(given)
        names = [argument.name for argument in self._session._flow.model.outputs]
        return dict(zip(names, self._session.run(None, feeds, out=out), strict=True))

    def bind(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Array] | None = None
    ) -> BoundCall:
        """A step that reads and writes the memory of these arrays each time it is called."""
        inputs = self._checked(feeds, lambda argument, value: as_buffer("input", argument, value))
        given = as_outputs({} if outputs is None else outputs, self._outputs)
        for name, array in given.items():
            if overlapping(array, inputs.values()):
                raise InputError(f"output {name!r} overlaps an input; bind a separate array")
        if len(given) < len(self._outputs):
            made = dict(zip(self._outputs, self.fork().step(inputs), strict=True))
            given = made | given

        def call() -> None:
            self.step(inputs, given)

        return BoundCall(call, lambda code: OstinatoError(f"code {code}"), inputs, given)

    def _checked(self, feeds: object, check: Callable[[Any, object], Any]) -> dict[str, Any]:
        if self._is_closed:
            raise _closed()
        feeds = as_mapping("feeds", feeds)
        for pair in self._pairs:
            if pair.name in feeds:
                raise InputError(f"input {pair.name!r} is a state of this stream, which keeps it")
        check_names("input", feeds, list(self._inputs), complete=True)
        return {name: check(argument, feeds[name]) for name, argument in self._inputs.items()}

    def _taken(self) -> _Taken:
        return _Taken(self._lock)

    # The states

    def _fixed(self) -> Iterator[Pair]:
        """The states that do not grow."""
        return (pair for pair in self._pairs if pair.name not in self._kept)

    def _buffers(self) -> dict[str, Array]:
        """The memory of the states that grow, as the outputs that it is."""
        return {state.output: self._memory[name].array for name, state in self._kept.items()}

    def _begin(self, inputs: Mapping[str, Any]) -> None:
        """Make the states where a first step tells their sizes; else see that sizes agree."""
        tensors = [a for a in self._inputs.values() if a.is_tensor]
        sizes = bind_shapes(tensors, [inputs[a.name].shape for a in tensors])
        if self._memory:
            read = [pair.input for pair in self._pairs]
            shapes = [self._shape(pair) for pair in self._pairs]
            bind_shapes([*read, *tensors], [*shapes, *(inputs[a.name].shape for a in tensors)])
            return
        self._make({**sizes, **self._sizes})

    def _make(self, sizes: dict[str, int]) -> None:
        """The states before the first step. Raises `InputError` where a size is unknown."""
        for pair in self._pairs:
            if pair.name in self._initial:
                shape = self._initial[pair.name].shape
                sizes.update(bind_shapes([pair.input], [shape]))
        rows: dict[str, int] = {}
        for state in self._kept.values():
            rows[state.length] = sizes.setdefault(state.length, 0)
        memory, values = {}, {}
        for pair in self._pairs:
            shape = tuple(_known_size(pair, size, sizes) for size in pair.input.shape)
            first = self._initial.get(pair.name, np.zeros(shape, pair.dtype))
            if first.shape != shape:
                raise InputError(
                    f"state {pair.name!r}: expected an initial value of shape {list(shape)}, got "
                    f"{describe_array(first)}"
                )
            if pair.name in self._kept:
                state = self._kept[pair.name]
                self._check_limit(state, first.shape[state.axis])
                room = _FIRST_ROWS if self._limit is None else self._limit
                memory[pair.name] = self._enlarged(state, first, max(room, first.shape[state.axis]))
            else:
                values[pair.name] = first.copy()
        self._memory, self._values, self._rows = memory, values, rows

    def _enlarged(self, state: KeptState, rows: Array, room: int) -> _Memory:
        """Memory that begins with these rows. Raises `RunError` where there is none."""
        # States of one length have one room, whatever their layouts.
        lines = -(-room // _LINE)
        room = (lines + 1 - lines % 2) * _LINE
        shape = (*rows.shape[: state.axis], room, *rows.shape[state.axis + 1 :])
        if state.is_last:
            shape = (*shape[: state.axis], *shape[state.axis + 1 :], room)
        count = int(np.prod(shape))
        require_memory(count * rows.itemsize, f"state {state.input!r} of {room} rows")
        array = aligned_empty(count * rows.itemsize).view(rows.dtype).reshape(shape)
        made = _Memory(array)
        _view(state, made, rows.shape[state.axis])[...] = rows
        return made

    def _check_limit(self, state: KeptState, rows: int) -> None:
        if self._limit is not None and rows > self._limit:
            raise StreamError(
                f"state {state.input!r} is full: its {self._limit} rows of axis {state.length!r} "
                "are its capacity; give a larger one, or rewind"
            )

    def _make_room(self, added: Mapping[str, int], is_full: bool = False) -> None:
        """Let a step append rows: enough memory, which no other stream reads.

        is_full: whether there are more rows than fit, however many. Raises `StreamError` beyond the
        capacity, `RunError` where there is no memory, and changes nothing then.
        """
        made: dict[str, _Memory] = {}
        for name, state in self._kept.items():
            memory, rows = self._memory[name], self._rows[state.length]
            needed, room = rows + added.get(state.length, 0), self._capacity(state)
            self._check_limit(state, room + 1 if is_full else needed)
            if is_full or needed > room:
                room = max(needed, 2 * room)
            elif memory.users == 1:
                continue
            made[name] = self._enlarged(state, _view(state, memory, rows), room)
        for name, memory in made.items():
            self._memory[name].users -= 1
            self._memory[name] = memory

    def _capacity(self, state: KeptState) -> int:
        """How many rows the memory of a state has room for."""
        return int(self._memory[state.input].array.shape[_place(state)])

    def _shape(self, pair: Pair) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._valid(pair.name).shape
        return shape

    def _valid(self, name: str) -> Array:
        """A state's rows so far, in its memory."""
        if name not in self._kept:
            return self._values[name]
        state = self._kept[name]
        return _view(state, self._memory[name], self._rows[state.length])

    @property
    def state(self) -> Mapping[str, Array]:
        """Copies of the states by the name of their input: of those that grow, the rows so far.

        Empty before a first step has told the sizes.
        """
        if self._is_closed:
            raise _closed()
        with self._taken():
            return {p.name: self._valid(p.name).copy() for p in self._pairs if self._memory}

    def reset(self) -> None:
        """Go back to the states before the first step."""
        if self._is_closed:
            raise _closed()
        with self._taken():
            self._release()
            self._forget()

    def rewind(self, rows: int) -> None:
        """Drop the last rows of all states that grow; nothing is copied.

        Raises `InputError` for more rows than there are, and `StreamError` where a state does not
        grow: what it was is not known.
        """
        if self._is_closed:
            raise _closed()
        fixed = [pair.name for pair in self._fixed()]
        if fixed:
            raise StreamError(f"state {fixed[0]!r} does not grow, so that it cannot be rewound")
        if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 0:
            raise InputError(f"rewind: {rows!r} rows, expected a number of rows")
        with self._taken():
            least = min(self._rows.values(), default=0)
            if rows > least:
                raise InputError(f"rewind: {rows} rows, there are {least}")
            self._rows = {name: count - int(rows) for name, count in self._rows.items()}

    def fork(self) -> GrowingStream:
        """Another stream that goes on from the states that this one has now.

        Both read the same rows until one of them appends: that one copies them first.
        """
        if self._is_closed:
            raise _closed()
        with self._taken():
            declared = [(pair.name, pair.output.name) for pair in self._pairs]
            twin = GrowingStream(
                self._session, self._model, declared, self._initial, self._sizes, self._limit
            )
            twin._memory, twin._rows = dict(self._memory), dict(self._rows)
            twin._values, twin._known = dict(self._values), dict(self._known)
            for memory in self._memory.values():
                memory.users += 1
            return twin

    def _release(self) -> None:
        for memory in self._memory.values():
            memory.users -= 1

    def close(self) -> None:
        """Free the memory of the stream; every later use of it raises `StreamError`."""
        if not self._is_closed:
            self._release()
        self._is_closed = True
        self._forget()

    def __enter__(self) -> GrowingStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the states to an .npz file, with the fingerprint of the model."""
        arrays = {_STATE + name: array for name, array in self.state.items()}
        if not arrays:
            raise StreamError("the states have no sizes before the first step")
        write_arrays(path, self._fingerprint, arrays)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from the states in a file that `save` wrote for the same model.

        Raises `InputError` for a file that is no such file, or that another model's stream wrote,
        and leaves the states as they were.
        """
        entries = {_STATE + pair.name: Entry(pair.dtype, pair.sizes) for pair in self._pairs}
        saved = read_arrays(path, _SAVED, self._fingerprint, entries)
        declared = [(pair.name, pair.output.name) for pair in self._pairs]
        values = {name.removeprefix(_STATE): array for name, array in saved.items()}
        other = GrowingStream(self._session, self._model, declared, values, None, self._limit)
        other._make({})
        with self._taken():
            self._release()
            self._memory, self._rows, self._values = other._memory, other._rows, other._values
            self._known.clear()

    @property
    def _fingerprint(self) -> str:
        return str(self._model.report.get("fingerprint", ""))

    # Description

    def describe(self) -> str:
        """The states as a table: input, output, shape so far, dtype, room."""
        rows = [("state", "next state", "shape", "dtype", "room")]
        for pair in self._pairs:
            shape = self._shape(pair) if self._memory else pair.input.shape
            state, room = self._kept.get(pair.name), "fixed"
            if state is not None:
                count = self._capacity(state) if self._memory else self._limit or _FIRST_ROWS
                room = f"{count} rows of {state.length}"
            listed = f"[{', '.join(map(str, shape))}]"
            rows.append((pair.name, pair.output.name, listed, pair.input.dtype, room))
        return table(rows)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{pair.name} <- {pair.output.name}" for pair in self._pairs)
        return f"<GrowingStream {pairs}{', closed' if self._is_closed else ''}>"


class _Taken:
    """A lock that is not waited for."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise StreamError("this stream is in use by another thread; use one in one at a time")

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


def _place(state: KeptState) -> int:
    """The axis of the rows in memory."""
    return -1 if state.is_last else state.axis


def _view(state: KeptState, memory: _Memory, rows: int) -> Array:
    """The first rows, as the model sees them."""
    array = memory.array
    seen = np.moveaxis(array, -1, state.axis) if state.is_last else array
    return seen[(slice(None),) * state.axis + (slice(rows),)]


def _known_size(pair: Pair, size: int | str, sizes: Mapping[str, int]) -> int:
    if isinstance(size, str) and size not in sizes:
        raise InputError(
            f"state {pair.name!r}: nothing tells the size of {size!r}; pass `sizes` or `initial`"
        )
    return sizes[size] if isinstance(size, str) else size


def _checked(capacity: object) -> int | None:
    if capacity is None:
        return None
    if isinstance(capacity, bool) or not isinstance(capacity, (int, np.integer)) or capacity < 1:
        raise InputError(f"capacity is {capacity!r}, expected a number of rows")
    return int(capacity)


def _closed() -> StreamError:
    return StreamError("this stream is closed; make another one with `session.stream`")
