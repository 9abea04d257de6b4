"""States of a stream whose shapes change from step to step: arrays that each step makes anew.

Such as windows that fill up first, caches out of which rows are dropped, or those of a decoder
whose first step is a branch of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.native.arguments import bind_shapes
from ostinato.native.changing import ChangingCall, Sizes
from ostinato.native.function import stored
from ostinato.native.workspace import in_use
from ostinato.runtime.call import picker
from ostinato.runtime.states import Array, Pair, Shape
from ostinato.stages.flow import Flow


class Carried:
    """The states of `pairs` between the steps of a model.

    inputs, outputs: the names of what is fed and made beside them. patience: after how many steps
    in a row that leave all shapes as they were the states should have memory of their own.

    values: by name, C-contiguous, never written.
    """

    def __init__(
        self,
        flow: Flow,
        pairs: Sequence[Pair],
        inputs: Sequence[str],
        outputs: Sequence[str],
        values: Mapping[str, Array],
        patience: int,
    ) -> None:
        self._flow, self._pairs, self._patience = flow, tuple(pairs), patience
        self._inputs, self._outputs = list(inputs), list(outputs)
        places = {argument.name: i for i, argument in enumerate(flow.model.outputs)}
        self._made = [places[name] for name in outputs]
        self._pick = picker([argument.name for argument in flow.model.inputs])
        self._taken = threading.Lock()
        self.values, self._steady = dict(values), 0
        # The function and the inputs' shapes of the last step, what calls it for such inputs, and
        # the sizes of the states there.
        self._key: object = None
        self._call: ChangingCall | None = None
        self._sizes: Sizes | None = None

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the states now."""
        return tuple(self.values[pair.name].shape for pair in self._pairs)

    @property
    def is_steady(self) -> bool:
        """Whether so many steps have left the shapes as they were."""
        return self._steady >= self._patience

    def step(self, inputs: Mapping[str, Any], given: Mapping[str, Array]) -> list[Any]:
        """The outputs of a step, which leaves the states as they were where it raises.

        inputs: checked, sharing no memory with `given`. Raises `InputError` for states that the
        model cannot read, `StreamError` where a step is running, and what `Flow.run` raises.
        """
        if not self._taken.acquire(blocking=False):
            raise in_use()
        try:
            outputs = self._repeated(inputs, given)
            if outputs is not None:
                return outputs
            results = self._flow.run({**inputs, **self.values}, given)
            before = self.shapes
            self.values = self._fitting({p.name: results[p.output.name] for p in self._pairs})
            self._steady = self._steady + 1 if self.shapes == before else 0
            self._prepare(inputs)
        finally:
            self._taken.release()
        return [results[name] for name in self._outputs]

    def quick(self, feeds: Mapping[str, Any], out: Mapping[str, Any] | None) -> list[Any] | None:
        """A step of inputs as the last ones; None where `step` has to do it.

        A lacking name is a `KeyError`. Nothing else is checked.
        """
        if out is not None or not self._taken.acquire(blocking=False):
            return None
        try:
            return self._repeated(feeds, {})
        finally:
            self._taken.release()

    def _repeated(self, feeds: Mapping[str, Any], given: Mapping[str, Array]) -> list[Any] | None:
        """A step by the call for inputs as the last ones, if there is one and it takes these."""
        call, sizes = self._call, self._sizes
        if call is None or sizes is None or self._steady + 1 >= self._patience:
            return None
        results = call(self._pick({**feeds, **self.values}), sizes)
        if results is None:
            return None
        outputs = [results[place] for place in self._made]
        if given:
            arguments = [self._flow.model.outputs[place] for place in self._made]
            outputs = [stored(*each, given) for each in zip(arguments, outputs, strict=True)]
        states = [results[pair.written] for pair in self._pairs]
        following = call.sizes(states)
        named = {pair.name: array for pair, array in zip(self._pairs, states, strict=True)}
        self.values = named if following is not None else self._fitting(named)
        self._steady = self._steady + 1 if following == sizes else 0
        self._sizes = following
        return outputs

    def _prepare(self, inputs: Mapping[str, Any]) -> None:
        """Where inputs have the shapes of the last ones, make a call for any shapes of states."""
        native = self._flow.last.whole()
        if native is None or not native.can_change:
            return
        shapes = {name: value.shape for name, value in inputs.items()}
        if (native, shapes) != self._key:
            self._key, self._call = (native, shapes), None
        elif self._call is None:
            read = [shapes.get(argument.name) for argument in native.artifact.inputs]
            self._call = ChangingCall(native, read)
        self._sizes = None if self._call is None else self._call.sizes([*self.values.values()])

    def update(self, values: Mapping[str, Array]) -> None:
        """Set states of any shape that the model can read. Raises `InputError` for others."""
        copies = {name: np.array(array, order="C") for name, array in values.items()}
        self.values, self._sizes = self._fitting({**self.values, **copies}), None

    def _fitting(self, values: dict[str, Array]) -> dict[str, Array]:
        bind_shapes([p.input for p in self._pairs], [values[p.name].shape for p in self._pairs])
        return values
