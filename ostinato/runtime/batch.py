"""The streams of a pool that are stepped together: their states as one batch, and its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ostinato.arguments import is_one_of
from ostinato.codegen.artifact import Argument
from ostinato.errors import InputError, RunError
from ostinato.native.arguments import describe
from ostinato.runtime.residents import Residents
from ostinato.runtime.rows import Rows
from ostinato.runtime.slots import Slots
from ostinato.runtime.stepper import MAX_STEPS, Quick, Step, Stepper, lost
from ostinato.stages.stage import NO_ROOM, CompiledModel

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Batch:
    """The states of the streams that were stepped last, where the stepper reads and writes them.

    stepper: has room for all streams. states: a row for each stream of the pool, where its states
    are while it is not in the batch, by their numbers. residents: other states. axes: the batch
    axis of each output that is no state. shared: inputs that all streams have in common.

    handles: the streams in the batch, in its order. rows: their numbers among the `states`. marks:
    these rows as `Frames.take` says which have a frame; empty when a stream has left since.
    """

    def __init__(
        self,
        stepper: Stepper,
        states: Mapping[int, Rows],
        residents: Residents,
        axes: Mapping[str, int],
        shared: Mapping[str, Array],
    ) -> None:
        self._stepper, self._states, self._shared = stepper, states, shared
        self._residents = residents
        self._names = [argument.name for argument in stepper.inputs]
        outputs = [output for output in stepper.outputs if output.name in axes]
        self._cutters = [_cutter(axes[output.name], len(output.shape)) for output in outputs]
        self.handles: list[int] = []
        self.rows = np.empty(0, np.intp)
        self.marks = b""
        # For each stream, the state that a step had begun to change.
        self._lost: dict[int, str] = {}
        # The call for this many streams.
        self._quick: dict[int, Quick] = {}

    def lost(self) -> Set[int]:
        """The streams that had begun to change a state in a step that was interrupted."""
        name = self._stepper.lost
        if name is not None:
            self._lost |= dict.fromkeys(self.handles, name)
            self.handles, self.marks = [], b""
            self._stepper.found()
        return self._lost.keys()

    def require(self, handle: int) -> None:
        """Raise `StreamError` for a stream whose state is lost."""
        if handle in self.lost():
            raise lost(self._lost[handle])

    def find(self, handle: int) -> None:
        """Let the states of a stream, which are set anew, be known again."""
        self._lost.pop(handle, None)

    def load(self, handles: Sequence[int], slots: Mapping[int, int]) -> None:
        """Take the states of these streams into the batch. slots: the rows of open streams.

        Raises `StreamError` for one whose state is lost.
        """
        if self.lost():
            for handle in handles:
                self.require(handle)
        self.store(slots)
        self._lost = {handle: name for handle, name in self._lost.items() if handle in slots}
        owners = {slots[handle]: handle for handle in handles}
        self.marks = b""
        chosen = self._residents.gather(np.array([*owners], np.intp), slots.values())
        for index, rows in self._states.items():
            batch = self._stepper.state(index, rows.batch_shape(len(handles)))
            rows.gather(chosen, batch)
        # Only now: a batch that is not filled must not be put back, be it in a forked child.
        self.handles, self.rows = [owners[slot] for slot in chosen.tolist()], chosen

    def store(self, slots: Mapping[int, int]) -> None:
        """Put the states of the batch back into the rows of the streams that are still open."""
        self.lost()
        places = [i for i, handle in enumerate(self.handles) if handle in slots]
        if places:
            chosen = np.array(places, np.intp)
            for index, rows in self._states.items():
                batch = self._stepper.state(index, rows.batch_shape(len(self.handles)))
                rows.scatter(self.rows[chosen], batch, chosen)
        self.handles, self.marks = [], b""

    def run(self, frames: Mapping[str, Array], count: int) -> Iterable[list[Array]]:
        """Step the `count` streams of the batch: the outputs of each that are no states."""
        values = {**self._shared, **frames} if self._shared else frames
        quick = self._quick.get(count)
        outputs = None if quick is None else quick(values, None)
        if outputs is None:
            outputs = self._run_checked([values[name] for name in self._names], count)
        parts = [cut(output) for cut, output in zip(self._cutters, outputs, strict=True)]
        return map(list, zip(*parts, strict=True)) if parts else ([] for _ in range(count))

    def _shapes(self, count: int) -> list[Shape]:
        """The shapes of the states of this many streams."""
        moving = {index: rows.batch_shape(count) for index, rows in self._states.items()}
        return [
            shape for _, shape in sorted((moving | self._residents.batch_shapes(count)).items())
        ]

    def _run_checked(self, inputs: Sequence[Array], count: int) -> list[Array]:
        shapes = self._shapes(count)
        outputs = self._stepper.run(inputs, shapes, {})
        step = self._stepper.repeated(inputs, shapes)
        if step is not None:
            if len(self._quick) >= MAX_STEPS:
                self._quick.clear()
            self._quick[count] = step.on_dicts(self._names)
        return outputs


class GrownBatch(Batch):
    """A batch of streams some of whose states grow, each in its place of `slots`.

    model: compiled for such pools.
    """

    def __init__(
        self,
        stepper: Stepper,
        states: Mapping[int, Rows],
        residents: Residents,
        axes: Mapping[str, int],
        shared: Mapping[str, Array],
        slots: Slots,
        model: CompiledModel,
    ) -> None:
        super().__init__(stepper, states, residents, axes, shared)
        self._slots = slots
        self._presents = [state.output for state in model.kept]
        self._following = {f"next length of {name}": name for name in slots.lengths}
        made = enumerate(stepper.outputs)
        self._outputs = [place for place, argument in made if argument.name in axes]
        self._numbers = {
            "number of streams": np.array(slots.streams),
            "one stream": np.zeros(1, np.int64),
        }
        # The step of batches of a size, while memory stays where it is.
        self._step: tuple[int, Step] | None = None

    def load(self, handles: Sequence[int], slots: Mapping[int, int]) -> None:
        """Take these streams into the batch, each with rows of its own, to which it may append."""
        super().load(handles, slots)
        if self._slots.are_shared:
            self._slots.separate(self.rows, list(slots.values()))

    def run(self, frames: Mapping[str, Array], count: int) -> Iterable[list[Array]]:
        """Step the `count` streams of the batch: the outputs of each that are no states."""
        slots = self._slots
        self._make_room(slots.added)
        while True:
            try:
                outputs = self._outputs_of(self._fed(frames), count)
                break
            except RunError as error:
                full = [name for name in slots.lengths if f"axis {name!r} {NO_ROOM}" in str(error)]
                if not full:
                    raise
                self._make_room({name: slots.room[name] // 2 for name in full}, is_full=True)
        made = dict(zip((a.name for a in self._stepper.outputs), outputs, strict=True))
        for output, name in self._following.items():
            slots.added[name] = int(made[output][0] - slots.lengths[name][self.rows[0]])
            slots.lengths[name][self.rows] = made[output]
        results = [outputs[place] for place in self._outputs]
        parts = [cut(output) for cut, output in zip(self._cutters, results, strict=True)]
        return map(list, zip(*parts, strict=True)) if parts else ([] for _ in range(count))

    def _make_room(self, added: Mapping[str, int], is_full: bool = False) -> None:
        """Have room for this many more rows of each stream."""
        slots = self._slots
        needed = {n: int(slots.lengths[n][self.rows].max()) + a for n, a in added.items()}
        if is_full:
            needed = {name: max(needed[name], slots.room[name] + 1) for name in added}
        if slots.make_room(needed):
            self._step = None

    def _fed(self, frames: Mapping[str, Array]) -> list[Array]:
        """The arrays that the compiled model is given, in its order."""
        slots, values = self._slots, {**self._shared, **frames, **self._numbers}
        values["places of streams"] = slots.places[self.rows]
        for name, lengths in slots.lengths.items():
            values[f"length of {name}"] = lengths[self.rows]
            values[f"capacity of {name}"] = np.array(slots.room[name])
            values[f"limit of {name}"] = np.array(slots.limit(name))
        return [values[name] for name in self._names]

    def _outputs_of(self, values: list[Array], count: int) -> list[Array]:
        if self._step is not None and self._step[0] == count:
            first, step = len(self._presents), self._step[1]
            made = map(step.plan.empty, step.shapes[first:], step.dtypes[first:])
            outputs = [*self._slots.arrays, *made]
            if step.call(*values, *outputs) is None:
                return outputs
        shapes = self._shapes(count)
        given = dict(zip(self._presents, self._slots.arrays, strict=True))
        outputs = self._stepper.run(values, shapes, given)
        found = self._stepper.find(values, shapes)
        self._step = None if found is None else (count, found)
        return outputs


def _cutter(axis: int, rank: int) -> Callable[[Array], list[Array]]:
    """Make a function that cuts a batch into streams, each of which keeps the batch axis."""
    order = (axis, *(i for i in range(rank) if i != axis))
    index = (*(slice(None),) * (1 + axis), np.newaxis)

    def cut(batch: Array) -> list[Array]:
        return list(batch.transpose(order)[index])

    return cut


def batch_axis(argument: Argument, batch: str) -> int:
    """The axis of the dimension called `batch`. Raises `InputError` unless there is one."""
    axes = [axis for axis, size in enumerate(argument.shape) if size == batch]
    if len(axes) != 1:
        raise InputError(
            f"{argument.name!r} is {describe(argument)}: a pool needs the batch, {batch!r}, as one "
            "of its dimensions"
        )
    return axes[0]


def batch_dimension(states: Sequence[Argument], fed: Sequence[Argument], batch: str | None) -> str:
    """The name of the dimension that all states and all inputs have; `batch` if that is one."""
    arguments = [*states, *fed]
    listed = ", ".join(f"{argument.name!r} {describe(argument)}" for argument in arguments)
    common = [
        name
        for name in dict.fromkeys(arguments[0].shape)
        if isinstance(name, str) and all(name in argument.shape for argument in arguments)
    ]
    if batch is not None:
        if not is_one_of(batch, common):
            raise InputError(
                f"batch={batch!r} is no dimension of every state and input: {listed}; inputs that "
                "all streams have in common are passed as `shared`"
            )
        return batch
    if len(common) != 1:
        found = (
            f"several: {', '.join(map(str, common))}; say which as `batch`" if common else "none"
        )
        raise InputError(
            f"a pool needs a named dimension for the batch in every state and input, there is "
            f"{found}: {listed}; inputs that all streams have in common are passed as `shared`"
        )
    return str(common[0])
