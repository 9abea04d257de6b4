"""Streams whose states grow: caches of keys and values, to which every step adds rows.

Where the model computes `present = Concat(past, new)`, the stream owns memory with room for more
rows. A step stores its rows behind the others and reads all of them where they are: nothing of the
past is copied, whatever its length, and one compiled program serves all lengths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.errors import InputError, OstinatoError, StreamError
from ostinato.native.arguments import as_mapping, bind_shapes, check_names
from ostinato.runtime.archive import Entry
from ostinato.runtime.caches import FIRST_ROWS, Caches
from ostinato.runtime.call import BoundCall
from ostinato.runtime.grown_stepper import GrownStepper
from ostinato.runtime.states import (
    Declaration,
    Pair,
    checked_count,
    checked_rows,
    filled,
    read_states,
    resolve,
    table,
    unresolved,
)
from ostinato.runtime.stepped import Stepped, as_state
from ostinato.stages.stage import CompiledModel

if TYPE_CHECKING:
    from ostinato.runtime.session import InferenceSession

Array = np.ndarray[Any, Any]


class GrowingStream(Stepped):
    """Steps of a session's model some of whose states grow.

    Made by `InferenceSession.stream`. States that grow begin without rows, or with those of
    `initial`; all others are as in a `Stream`. Used by one thread at a time.

    session: of the model compiled for such steps. model: as the caller knows it. states: the output
    of each state by its input. initial: first values of states, of their dtypes; of those that grow
    any number of rows. sizes: of run-time dimensions by name, where neither `initial` nor the first
    step tells them. capacity: how many rows there is room for; without it the room doubles when it
    is full, which copies the rows once.

    Raises `InputError` for pairs, first values and sizes that do not fit the model.
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
        self._limit = checked_rows(capacity, "capacity")
        super().__init__(session, model, states, initial, sizes)
        self._kept = {state.input: state for state in session._flow.model.kept}
        # The states, when their sizes are known.
        self._stepper: GrownStepper | None = None

    # Stepping

    def _step_checked(self, feeds: object, out: object) -> list[Any]:
        """`step` for whatever the caller passed, and where there is no room."""
        inputs, given = self._arguments(feeds, out)
        stepper = self._started(inputs)
        self._quick = None
        results = stepper.run(inputs, given)
        self._quick = stepper.quick(inputs)
        return results

    def bind(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Array] | None = None
    ) -> BoundCall:
        """A step that reads and writes the memory of these arrays each time it is called.

        feeds, outputs: C-contiguous arrays of exactly the model's dtypes, which are kept; outputs
            left out are made by a first step of a fork. Raises `InputError` for any other, and for
            an output that overlaps an input; calling it raises what `step` does.
        """
        inputs, given = self._memory(feeds, outputs)
        if len(given) < len(self._outputs):
            made = dict(zip(self._outputs, self.fork().step(inputs), strict=True))
            given = made | given
        given = {name: given[name] for name in self._outputs}
        bound: Callable[[], int | None] | None = None
        stepper, changes = self._stepper, -1

        def call() -> None:
            nonlocal bound, stepper, changes
            is_current = stepper is not None and stepper.changes == changes
            if is_current and bound is not None and bound() is None:
                return
            self._step_checked(inputs, given)
            stepper = self._stepper
            if stepper is not None:
                bound, changes = stepper.bound(inputs, given), stepper.changes

        return BoundCall(call, lambda code: OstinatoError(f"code {code}"), inputs, given)

    # The states

    def _started(self, inputs: Mapping[str, Any]) -> GrownStepper:
        """The states, made where a first step tells their sizes; else see that sizes agree."""
        tensors = [a for a in self._inputs.values() if a.is_tensor]
        sizes = bind_shapes(tensors, [inputs[a.name].shape for a in tensors])
        if self._stepper is not None:
            read = [pair.input for pair in self._pairs]
            shapes = [self._valid(pair).shape for pair in self._pairs]
            bind_shapes([*read, *tensors], [*shapes, *(inputs[a.name].shape for a in tensors)])
            return self._stepper
        self._stepper = self._made({**sizes, **self._sizes}, self._initial)
        return self._stepper

    def _made(self, sizes: dict[str, int], initial: Mapping[str, Array]) -> GrownStepper:
        """The states before the first step. Raises `InputError` where a size is unknown."""
        told = {n for pair in self._pairs if pair.name in initial for n in pair.input.shape}
        lengths = {state.length for state in self._kept.values()}
        sizes = {name: 0 for name in lengths - told} | sizes
        shapes = resolve(self._pairs, sizes, initial)
        if shapes is None:
            raise unresolved(self._pairs, sizes, initial)
        values = {pair.name: filled(pair, shapes[pair.name], initial) for pair in self._pairs}
        rows = {s.length: shapes[s.input][s.axis] for s in self._kept.values()}
        return self._with(values, Caches([*self._kept.values()], self._limit, values), rows)

    def _with(
        self, values: Mapping[str, Array], caches: Caches, rows: Mapping[str, int]
    ) -> GrownStepper:
        """States with these values and rows. values: at least of those that do not grow."""
        flow, native = self._session._flow, self._session._native
        fixed = [pair for pair in self._pairs if pair.name not in self._kept]
        names = list(self._inputs), list(self._outputs)
        return GrownStepper(flow, native, fixed, values, caches, rows, *names)

    def _valid(self, pair: Pair) -> Array:
        """A state's rows so far, in its memory."""
        assert self._stepper is not None
        if pair.name not in self._kept:
            return self._stepper.fixed(pair.name)
        rows = self._stepper.rows[self._kept[pair.name].length]
        return self._stepper.caches.valid(list(self._kept).index(pair.name), rows)

    @property
    def state(self) -> GrowingState:
        """Copies of the states by the name of their input: of those that grow, the rows so far.

        Each has the model's dtype and shape. Empty before a first step has told the sizes.
        """
        self._require_open()
        if self._stepper is None:
            return GrowingState(self, {})
        with self._stepper.taken():
            copies = {pair.name: self._valid(pair).copy() for pair in self._pairs}
        return GrowingState(self, copies)

    def _set(self, values: Mapping[str, Any]) -> None:
        """Go on from these states, and from those that they leave out."""
        pairs = {pair.name: pair for pair in self._pairs}
        check_names("state", list(as_mapping("state", values)), list(pairs), complete=False)
        arrays = {name: as_state(pairs[name], value) for name, value in values.items()}
        known = self._initial if self._stepper is None else self.state
        self._replace(self._made(dict(self._sizes), {**known, **arrays}))

    def reset(self) -> None:
        """Go back to the states before the first step."""
        self._require_open()
        self._replace(None)

    def _replace(self, stepper: GrownStepper | None) -> None:
        """Go on from other states."""
        if self._stepper is not None:
            with self._stepper.taken():
                self._stepper.retire()
        self._stepper, self._quick = stepper, None

    def rewind(self, rows: int) -> None:
        """Drop the last `rows` rows of all states that grow; nothing is copied.

        Raises `InputError` for more rows than there are, and `StreamError` where a state does not
        grow: what it was is not known.
        """
        self._require_open()
        fixed = [pair.name for pair in self._pairs if pair.name not in self._kept]
        if fixed:
            raise StreamError(f"state {fixed[0]!r} does not grow, so that it cannot be rewound")
        count = checked_count(rows)
        now = {} if self._stepper is None else self._stepper.rows
        least = min(now.values(), default=0)
        if count > least:
            raise InputError(f"rewind: {count} rows, there are {least}")
        if self._stepper is not None:
            with self._stepper.taken():
                self._stepper.rows = {name: n - count for name, n in now.items()}

    def fork(self) -> GrowingStream:
        """Another stream that goes on from the states that this one has now.

        Both read the same rows until one of them appends: that one copies them first, and raises
        `RunError` where there is no memory for that.
        """
        self._require_open()
        twin = GrowingStream(
            self._session, self._model, self._declared(), self._initial, self._sizes, self._limit
        )
        if self._stepper is not None:
            with self._stepper.taken():
                stepper = self._stepper
                fixed = [pair for pair in self._pairs if pair.name not in self._kept]
                values = {pair.name: stepper.fixed(pair.name) for pair in fixed}
                twin._stepper = twin._with(values, stepper.share(), stepper.rows)
                self._quick = None
        return twin

    def close(self) -> None:
        """Free the memory of the stream; every later use of it raises `StreamError`."""
        self._replace(None)
        self._is_closed = True

    # Files

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from the states in a file that `save` wrote for the same model.

        Raises `InputError` for a file that is no such file, or that another model's stream wrote,
        and leaves the states as they were.
        """
        self._require_open()
        entries = {pair.name: Entry(pair.dtype, pair.sizes) for pair in self._pairs}
        self._replace(self._made({}, read_states(path, self._fingerprint, entries)))

    # Description

    def describe(self) -> str:
        """The states as a table: input, output, shape so far, dtype, room."""
        stepper = self._stepper
        shapes = [p.input.shape if stepper is None else self._valid(p).shape for p in self._pairs]
        rooms = []
        for state in (self._kept.get(pair.name) for pair in self._pairs):
            if state is None:
                rooms.append("fixed")
                continue
            limit = self._limit or FIRST_ROWS
            count = limit if stepper is None else stepper.caches.limit(state.length)
            rooms.append(f"{count} rows of {state.length}")
        return table(self._pairs, shapes, "room", rooms)


class GrowingState(Mapping[str, Array]):
    """Copies of the states of a stream. Setting some lets the stream go on from them."""

    def __init__(self, stream: GrowingStream, copies: dict[str, Array]) -> None:
        self._stream, self._copies = stream, copies

    def __getitem__(self, name: str) -> Array:
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._copies)

    def __len__(self) -> int:
        return len(self._copies)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, values: Mapping[str, Any]) -> None:
        """Set several states, or none if one is refused. Those of one length change together.

        Raises `InputError` for names, dtypes and shapes that are not those of the states.
        """
        self._stream._set(values)
        self._copies = self._stream.state._copies

    def __repr__(self) -> str:
        return repr(self._copies)
