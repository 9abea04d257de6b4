"""The streams of a pool that are stepped together: their states as one batch, and its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.codegen.artifact import Argument
from ostinato.errors import InputError
from ostinato.native.arguments import describe
from ostinato.runtime.rows import Rows
from ostinato.runtime.stepper import Quick, Stepper

Array = np.ndarray[Any, Any]


class Batch:
    """The states of the streams that were stepped last, where the stepper reads and writes them.

    stepper: has room for all streams. states: a row for each stream of the pool, where its states
    are while it is not in the batch. axes: the batch axis of each output that is no state. shared:
    inputs that all streams have in common.

    handles: the streams in the batch, in its order. rows: their numbers among the `states`. marks:
    these rows as `Frames.take` says which have a frame; empty when a stream has left since.
    """

    def __init__(
        self,
        stepper: Stepper,
        states: Sequence[Rows],
        axes: Sequence[int],
        shared: Mapping[str, Array],
    ) -> None:
        self._stepper, self._states, self._shared = stepper, states, shared
        self._names = [argument.name for argument in stepper.inputs]
        outputs = zip(axes, stepper.outputs, strict=True)
        self._cutters = [_cutter(axis, len(output.shape)) for axis, output in outputs]
        self.handles: list[int] = []
        self.rows = np.empty(0, np.intp)
        self.marks = b""
        # The call for as many streams.
        self._quick: Quick | None = None

    def load(self, handles: list[int], slots: Mapping[int, int]) -> None:
        """Take the states of these streams into the batch. slots: the rows of open streams."""
        self.store(slots)
        chosen = np.array([slots[handle] for handle in handles], np.intp)
        self.marks, self._quick = b"", None
        for index, rows in enumerate(self._states):
            batch = self._stepper.state(index, rows.batch_shape(len(handles)))
            rows.gather(chosen, batch)
        # Only now: a batch that is not filled must not be put back, be it in a forked child.
        self.handles, self.rows = handles, chosen

    def store(self, slots: Mapping[int, int]) -> None:
        """Put the states of the batch back into the rows of the streams that are still open."""
        places = [i for i, handle in enumerate(self.handles) if handle in slots]
        if places:
            chosen = np.array(places, np.intp)
            for index, rows in enumerate(self._states):
                batch = self._stepper.state(index, rows.batch_shape(len(self.handles)))
                rows.scatter(self.rows[chosen], batch, chosen)
        self.handles, self.marks = [], b""

    def run(self, frames: Mapping[str, Array], count: int) -> Iterable[list[Array]]:
        """Step the `count` streams of the batch: the outputs of each that are no states."""
        values = {**self._shared, **frames} if self._shared else frames
        outputs = None if self._quick is None else self._quick(values)
        if outputs is None:
            outputs = self._run_checked([values[name] for name in self._names], count)
        parts = [cut(output) for cut, output in zip(self._cutters, outputs, strict=True)]
        return map(list, zip(*parts, strict=True)) if parts else ([] for _ in range(count))

    def _run_checked(self, inputs: Sequence[Array], count: int) -> list[Array]:
        shapes = [rows.batch_shape(count) for rows in self._states]
        outputs = self._stepper.run(inputs, shapes, {})
        step = self._stepper.repeated(inputs, shapes)
        self._quick = None if step is None else step.on_dicts(self._names)
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
        if batch not in common:
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
