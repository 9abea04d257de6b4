"""Runs a model on states that stay in memory: one arena, two buffers a state, a call per shape.

A state of which the model replaces some rows, and keeps the others, may have a single buffer,
in which a step changes it (`schedule/replaced.py`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ostinato.errors import StreamError
from ostinato.native.arguments import check_output_shape, in_place
from ostinato.native.function import GuardError, NativeFunction, Plan, Values
from ostinato.native.memory import aligned_empty
from ostinato.native.workspace import BUSY, State, Workspace, in_use
from ostinato.runtime.call import picker
from ostinato.runtime.states import Pair
from ostinato.stages.flow import Flow

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# The outputs of a step, in the arrays of the second argument where there are some; None where it is
# to be run with all checks.
Quick = Callable[[Mapping[str, Any], "Mapping[str, Any] | None"], "list[Any] | None"]

# Steps of other shapes are planned again, in some 200 us.
MAX_STEPS = 256


@dataclass(frozen=True)
class Step:
    """A call `call(*inputs, *outputs)` for inputs of certain shapes; states are left out.

    native: what it calls. shapes, dtypes: of the outputs that are no states.
    """

    native: NativeFunction
    plan: Plan
    call: Callable[..., int | None]
    shapes: tuple[Shape, ...]
    dtypes: tuple[np.dtype[Any], ...]

    def on_dicts(self, names: Sequence[str], outputs: Sequence[str] = ()) -> Quick:
        """The shortest way from inputs by name to outputs; None where `call` gives a code.

        outputs: their names, for arrays that are given. Nothing else is checked: a lacking name is
        a `KeyError`.
        """
        call = self.call
        empty = self.plan.empty
        makers = [partial(empty, *each) for each in zip(self.shapes, self.dtypes, strict=True)]
        pick, pick_outputs = picker(list(names)), picker(list(outputs))

        def several(feeds: Mapping[str, Any], out: Mapping[str, Any] | None) -> list[Any] | None:
            if out is None:
                made = [make() for make in makers]
            elif len(out) == len(makers):
                made = [*pick_outputs(out)]
            else:
                return None
            return made if call(*pick(feeds), *made) is None else None

        if len(names) != 1 or len(makers) != 1:
            return several
        (name,), (make,) = names, makers

        def one(feeds: Mapping[str, Any], out: Mapping[str, Any] | None) -> list[Any] | None:
            if out is not None:
                return several(feeds, out)
            output = make()
            return [output] if call(feeds[name], output) is None else None

        return one


class Stepper:
    """Steps of a model whose `pairs` are states, each in `sizes[pair]` elements of memory at most.

    flow: runs the whole model. native: its only stage, if one native function is all of it.
    shapes: for how many shapes of inputs and states calls are kept. in_place: whether states have
    one buffer where one is enough. moved: a state beside them whose rows a step moves in place.

    replaced: the states that have one buffer, which is enough for them.
    """

    def __init__(
        self,
        flow: Flow,
        native: NativeFunction | None,
        pairs: Sequence[Pair],
        sizes: Sequence[int],
        shapes: int = MAX_STEPS,
        in_place: bool = False,
        moved: str | None = None,
    ) -> None:
        self._flow, self.native, self._pairs = flow, native, tuple(pairs)
        read, written = {pair.read for pair in pairs}, {pair.written for pair in pairs}
        self._read = sorted(read)
        self.inputs = [a for i, a in enumerate(flow.model.inputs) if i not in read]
        self.outputs = [a for i, a in enumerate(flow.model.outputs) if i not in written]
        self._kept = [i for i in range(len(flow.model.outputs)) if i not in written]
        self.replaced: list[Pair] = []
        if in_place and native is not None:
            keeps = native.artifact.keeps
            self.replaced = [pair for pair in pairs if keeps(pair.read, pair.written)]
        self._changed = self.replaced[0].name if self.replaced else moved
        self._lost: str | None = None
        count = len(flow.model.inputs)
        states = []
        for pair, size in zip(pairs, sizes, strict=True):
            first = _block(pair, size)
            second = first if pair in self.replaced else _block(pair, size)
            states.append(State(pair.read, count + pair.written, (first, second)))
        self.workspace = Workspace(states)
        self._starts = [0] * len(states)
        self._most = shapes
        self._arena = aligned_empty(0)
        self._steps: OrderedDict[object, Step] = OrderedDict()

    def state(self, index: int, shape: Shape) -> Array:
        """The memory of state `index`, seen as `shape`."""
        return self._seen(self.workspace.current(index), index, shape)

    def begin(self, index: int, start: int) -> None:
        """Let state `index`, one of the `replaced`, begin at this element of its memory."""
        self.workspace.begin(index, start * self._pairs[index].dtype.itemsize)
        self._starts[index] = start

    def _seen(self, block: Array, index: int, shape: Shape) -> Array:
        start = self._starts[index]
        return block[start : start + math.prod(shape)].reshape(shape)

    @property
    def lost(self) -> str | None:
        """The name of a state that a step had begun to change when it was interrupted, if any.

        A fork interrupts the steps of other threads in the child.
        """
        if self.workspace.is_abandoned:
            self.lose()
        return self._lost

    def lose(self) -> None:
        """Take a state that steps change in place, if there is one, for lost."""
        self._lost = self._changed

    def found(self) -> None:
        """Let all states be known again."""
        self._lost, self.workspace.is_abandoned = None, False

    def find(self, inputs: Sequence[Array], shapes: Sequence[Shape]) -> Step | None:
        """The step for checked inputs and states of `shapes`; None where no native code fits.

        Raises `InputError` when a state would change its shape, `StreamError` when one is `lost`,
        and what planning a call raises.
        """
        if self.lost is not None:
            raise lost(self.lost)
        if self.native is None or not self.native.has_direct_dtypes:
            return None
        key: tuple[object, Values] = (*(a.shape for a in inputs), *shapes), ()
        arrays = None
        if self.native.has_values:
            arrays = self._merged(inputs, shapes)
            key = key[0], self.native.values(arrays)
        step = self._steps.get(key)
        if step is None:
            step = self._planned(arrays or self._merged(inputs, shapes), shapes)
            if step is None:
                return None
            self._steps[key] = step
            if len(self._steps) > self._most:
                self._steps.popitem(last=False)
        self._steps.move_to_end(key)
        return step

    def _planned(self, arrays: Sequence[Array], shapes: Sequence[Shape]) -> Step | None:
        """A step of the first native function that is made for these inputs, if there is one."""
        assert self.native is not None
        for flow in self._flow.versions():
            native = flow.direct()
            if native is None or native.artifact.values != self.native.artifact.values:
                return None
            keeps = native.artifact.keeps
            if not all(keeps(pair.read, pair.written) for pair in self.replaced):
                return None
            try:
                plan = native.plan([array.shape for array in arrays], native.values(arrays))
            except GuardError:
                continue
            return self._made(native, plan, shapes)
        return None

    def repeated(self, inputs: Sequence[Array], shapes: Sequence[Shape]) -> Step | None:
        """`find`, where what fits these elements fits any; None where sizes depend on them."""
        if self.native is None or self.native.has_values:
            return None
        return self.find(inputs, shapes)

    def _merged(self, inputs: Sequence[Array], shapes: Sequence[Shape]) -> list[Array]:
        """All inputs of the model in order."""
        arrays = list(inputs)
        for index, (place, shape) in enumerate(zip(self._read, shapes, strict=True)):
            arrays.insert(place, self.state(index, shape))
        return arrays

    def _made(self, native: NativeFunction, plan: Plan, shapes: Sequence[Shape]) -> Step:
        for pair, shape in zip(self._pairs, shapes, strict=True):
            pair.require_same(shape, plan.shapes[pair.written])
        if plan.arena_bytes > self._arena.nbytes:
            self._steps.clear()
            self._arena = aligned_empty(max(plan.arena_bytes, 2 * self._arena.nbytes))
        call = self._watched(native.step(plan, self._arena, self.workspace))
        kept = self._kept
        return Step(
            native,
            plan,
            call,
            tuple(plan.shapes[i] for i in kept),
            tuple(plan.dtypes[i] for i in kept),
        )

    def _watched(self, call: Callable[..., int | None]) -> Callable[..., int | None]:
        """The call; if it is interrupted, states that it changes in place are lost.

        Codes tell of checks, which come before anything is stored.
        """
        if self._changed is None:
            return call

        def watched(*arrays: Any) -> int | None:
            if self.lost is not None:
                raise lost(self.lost)
            try:
                return call(*arrays)
            except (TypeError, ValueError, BufferError):
                # Arrays that do not fit are refused before anything runs.
                raise
            except BaseException:
                self.lose()
                raise

        return watched

    def run(
        self, inputs: Sequence[Any], shapes: Sequence[Shape], given: Mapping[str, Array]
    ) -> list[Any]:
        """One step: the outputs that are no states, those of `given` in its arrays.

        inputs: checked, sharing no memory with `given`. A step that raises leaves the states.
        """
        step = self.find(inputs, shapes)
        if step is None:
            return self._run_flow(inputs, shapes, given)
        outputs = self._targets(step, given)
        code = step.call(*map(in_place, inputs), *outputs)
        if code is None:
            return outputs
        if code == BUSY:
            raise in_use()
        failure = step.native.failure(code, step.plan.key)
        if isinstance(failure, GuardError):
            return self._run_flow(inputs, shapes, given)
        raise failure

    def _run_flow(
        self, inputs: Sequence[Any], shapes: Sequence[Shape], given: Mapping[str, Array]
    ) -> list[Any]:
        with self.workspace.taken():
            arrays = self._merged(inputs, shapes)
            feeds = {a.name: v for a, v in zip(self._flow.model.inputs, arrays, strict=True)}
            results = self._flow.run(feeds, given)
            for pair, shape in zip(self._pairs, shapes, strict=True):
                pair.require_same(shape, results[pair.output.name].shape)
            for index, (pair, shape) in enumerate(zip(self._pairs, shapes, strict=True)):
                following = self._seen(self.workspace.following(index), index, shape)
                following[...] = results[pair.output.name]
            self.workspace.swap()
        return [results[argument.name] for argument in self.outputs]

    def bind(
        self, inputs: Sequence[Array], shapes: Sequence[Shape], given: Mapping[str, Array]
    ) -> tuple[NativeFunction, Callable[[], int | None], list[Array]] | None:
        """A step over the memory of checked arrays, and its outputs; None where `run` has to do.

        With the function that it calls, which tells what its codes mean.
        """
        step = self.find(inputs, shapes)
        if step is None or step.native.has_values:
            return None
        outputs = self._targets(step, given)
        return step.native, self.bound(step, [*inputs, *outputs]), outputs

    def bound(self, step: Step, memory: Sequence[Array]) -> Callable[[], int | None]:
        """A call of the step over the memory of checked inputs and outputs."""
        bound = step.native.bound_step(step.plan, self._arena, self.workspace, memory)
        return self._watched(bound)

    def _targets(self, step: Step, given: Mapping[str, Array]) -> list[Array]:
        """The outputs of a step: those of `given`, checked, and fresh ones."""
        outputs = []
        for argument, shape, dtype in zip(self.outputs, step.shapes, step.dtypes, strict=True):
            array = given.get(argument.name)
            if array is None:
                array = step.plan.empty(shape, dtype)
            else:
                check_output_shape(argument, array, shape)
            outputs.append(array)
        return outputs


def lost(name: str) -> StreamError:
    """The error for a state that a step had begun to change."""
    return StreamError(
        f"state {name!r} is lost: a step ended while it changed it; reset or load the stream, or "
        "set its states"
    )


def _block(pair: Pair, size: int) -> Array:
    return aligned_empty(size * pair.dtype.itemsize).view(pair.dtype)
