"""Steps of a model that stores rows beside its growing states: numbers of rows, room, calls.

The model is compiled for memory with room for more rows. How many there are is a state like any
other, which the call itself brings forward; so a step whose rows fit in is one native call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.errors import InputError, RunError, ShapeError, StreamError
from ostinato.native.function import NativeFunction
from ostinato.runtime.caches import Caches, GrownBuffer
from ostinato.runtime.call import picker
from ostinato.runtime.states import Pair, declared_pairs
from ostinato.runtime.stepper import Quick, Step, Stepper, lost
from ostinato.stages.flow import Flow
from ostinato.stages.stage import NO_ROOM

Array = np.ndarray[Any, Any]


class GrownStepper:
    """The states of one stream, and its steps.

    flow, native: of the model compiled for such streams. fixed: its states that do not grow, with
    `values`. caches: those that do, with this many `rows` by length. inputs, outputs: the names of
    what is fed and made.

    changes: how often other memory has taken the place of some, so that calls are to be made anew.
    """

    def __init__(
        self,
        flow: Flow,
        native: NativeFunction | None,
        fixed: Sequence[Pair],
        values: Mapping[str, Array],
        caches: Caches,
        rows: Mapping[str, int],
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        model = flow.model
        self._caches, self._inputs, self._outputs = caches, list(inputs), list(outputs)
        self._lengths = list(rows)
        kept = {f"length of {name}": f"next length of {name}" for name in rows}
        # Rows of any contents are not known to be equal.
        tables = {
            state.common: np.zeros((caches.valid(i, 0).shape[state.moved],) * 2, np.int64)
            for i, state in enumerate(model.kept)
            if state.common is not None and state.moved is not None
        }
        kept |= {name: f"next {name}" for name in tables}
        states = {pair.name: pair.output.name for pair in fixed} | kept
        pairs = declared_pairs(states, model.inputs, model.outputs)
        known = {**values, **tables}
        arrays = [known.get(pair.name, np.zeros((), np.int64)) for pair in pairs]
        self._places = {pair.name: place for place, pair in enumerate(pairs)}
        self._shapes = tuple(array.shape for array in arrays)
        moved = next((state.input for state in model.kept if state.moved is not None), None)
        self._stepper = Stepper(flow, native, pairs, [array.size for array in arrays], moved=moved)
        for place, array in enumerate(arrays):
            self._stepper.state(place, array.shape)[...] = array
        self.rows = dict(rows)
        self._presents = [state.output for state in model.kept]
        self._grown = {each.input: each for each in model.grown}
        self._buffers: dict[str, GrownBuffer] = {}
        # The rows that a step of inputs of certain shapes adds.
        self._added: dict[object, dict[str, int]] = {}
        names = [a.name for a in self._stepper.inputs if a.name not in self._inputs]
        self._numbers = {name: np.zeros((), np.int64) for name in names}
        self.changes = 0
        self._tell_room()

    def _tell_room(self) -> None:
        for name in self._lengths:
            self._numbers[f"capacity of {name}"][()] = self._caches.capacity(name)
            self._numbers[f"limit of {name}"][()] = self._caches.limit(name)

    # The states

    def taken(self) -> Any:
        """Keep steps out; see `Workspace.taken`."""
        return self._stepper.workspace.taken()

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows, by length."""
        return {name: int(self.fixed(f"length of {name}")) for name in self._lengths}

    @rows.setter
    def rows(self, rows: Mapping[str, int]) -> None:
        for name, count in rows.items():
            self.fixed(f"length of {name}")[()] = count

    @property
    def caches(self) -> Caches:
        """The memory of the states that grow."""
        if self._stepper.lost is not None:
            raise lost(self._stepper.lost)
        return self._caches

    def fixed(self, name: str) -> Array:
        """The memory of a state that does not grow."""
        place = self._places[name]
        return self._stepper.state(place, self._shapes[place])

    def share(self) -> Caches:
        """The growing states for another stream: the next step copies them if it is the first."""
        self.changes += 1
        return self.caches.shared()

    def retire(self) -> None:
        """Let no call made so far step these states any more."""
        self.changes += 1
        self._caches.release()

    def _make_room(self, needed: Mapping[str, int]) -> None:
        if self._caches.make_room(self.rows, needed):
            self.changes += 1
            self._tell_room()

    # Steps

    def run(self, inputs: Mapping[str, Array], given: Mapping[str, Array]) -> list[Any]:
        """One step: the outputs that are no states, those of `given` in its arrays.

        inputs: checked, sharing no memory with `given`. A step that raises leaves the states, but
        for rows that have changed places by then.
        """
        key = tuple(value.shape for value in inputs.values())
        before = self.rows
        added = self._added.get(key, {})
        with self.taken():
            self._make_room({name: before[name] + count for name, count in added.items()})
        while True:
            targets = {**dict(zip(self._presents, self._caches.arrays, strict=True)), **given}
            try:
                values = self._values(inputs)
                results = self._stepper.run(values, self._shapes, targets)
                break
            except (InputError, ShapeError, StreamError):
                raise
            except BaseException as error:
                full = [n for n in self._lengths if f"axis {n!r} {NO_ROOM}" in str(error)]
                if not full or not isinstance(error, RunError):
                    if not isinstance(error, RunError) or error.has_stored:
                        self._stepper.lose()
                    raise
                with self.taken():
                    self._make_room({name: self._caches.capacity(name) + 1 for name in full})
        self._added[key] = {name: count - before[name] for name, count in self.rows.items()}
        made = dict(zip((a.name for a in self._stepper.outputs), results, strict=True))
        return [made[name] for name in self._outputs]

    def _values(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The arrays that the compiled model is given, in its order."""
        given = {name: self._placed(name, value) for name, value in inputs.items()}
        return [given.get(a.name, self._numbers.get(a.name)) for a in self._stepper.inputs]  # type: ignore[misc]

    def _placed(self, name: str, value: Array) -> Array:
        """An input, in memory with room for more if it is as long as the states."""
        grown = self._grown.get(name)
        if grown is None:
            return value
        room, buffer = self._caches.capacity(grown.length), self._buffers.get(name)
        placed = buffer.put(value) if buffer is not None and buffer.room >= room else None
        if placed is None:
            # Longer than there is room for: the step finds out why.
            room = max(room, value.shape[grown.axis])
            buffer = self._buffers[name] = GrownBuffer(grown, room, value)
            self._numbers[grown.extent] = buffer.extent
            placed = buffer.put(value)
            assert placed is not None
        return placed

    def _step(self, inputs: Mapping[str, Array]) -> Step | None:
        """The native step for such inputs, if there is one."""
        if self._stepper.native is None:
            return None
        return self._stepper.find(self._values(inputs), self._shapes)

    def quick(self, inputs: Mapping[str, Array]) -> Quick | None:
        """The shortest way from inputs like these to outputs, until there are other `changes`.

        It gives None where a step is to be run by `run`; a lacking name is a `KeyError`.
        """
        step = self._step(inputs)
        if step is None:
            return None
        call = step.call
        pick, pick_outputs = picker(self._inputs), picker(self._outputs)
        numbers = [self._numbers[a.name] for a in self._stepper.inputs[len(self._inputs) :]]
        fixed = (*numbers, *self._caches.arrays)
        first = len(self._presents)
        makers = [*zip(step.shapes[first:], step.dtypes[first:], strict=True)]
        places = [(i, self._buffers[n]) for i, n in enumerate(self._inputs) if n in self._grown]

        def quick(feeds: Mapping[str, Any], out: Mapping[str, Any] | None) -> list[Any] | None:
            if out is None:
                outputs = [step.plan.empty(shape, dtype) for shape, dtype in makers]
            elif len(out) == len(makers):
                outputs = [*pick_outputs(out)]
            else:
                return None
            values = [*pick(feeds)]
            for place, buffer in places:
                values[place] = buffer.put(values[place])
            return outputs if call(*values, *fixed, *outputs) is None else None

        return quick

    def bound(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> Callable[[], int | None] | None:
        """A step over the memory of these arrays, until there are other `changes`.

        It gives a code where a step is to be run by `run`; None where all are.
        """
        step = None if self._grown else self._step(inputs)
        if step is None:
            return None
        memory = [*self._values(inputs), *self._caches.arrays, *outputs.values()]
        return self._stepper.bound(step, memory)
