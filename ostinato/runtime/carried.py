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
from ostinato.native.workspace import in_use
from ostinato.runtime.states import Array, Pair, Shape
from ostinato.stages.flow import Flow


class Carried:
    """The states of `pairs` between the steps of a model.

    values: by name, never written. steady: how many steps in a row have left all shapes as they
    were.
    """

    def __init__(self, flow: Flow, pairs: Sequence[Pair], values: Mapping[str, Array]) -> None:
        self._flow, self._pairs = flow, tuple(pairs)
        self._taken = threading.Lock()
        self.values, self.steady = dict(values), 0

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the states now."""
        return tuple(self.values[pair.name].shape for pair in self._pairs)

    def step(self, inputs: Mapping[str, Any], given: Mapping[str, Array]) -> dict[str, Any]:
        """The outputs of a step, which leaves the states as they were where it raises.

        inputs: checked, sharing no memory with `given`. Raises `InputError` for states that the
        model cannot read, `StreamError` where a step is running, and what `Flow.run` raises.
        """
        if not self._taken.acquire(blocking=False):
            raise in_use()
        try:
            results = self._flow.run({**inputs, **self.values}, given)
            before = self.shapes
            self.values = self._fitting({p.name: results[p.output.name] for p in self._pairs})
            self.steady = self.steady + 1 if self.shapes == before else 0
        finally:
            self._taken.release()
        return results

    def update(self, values: Mapping[str, Array]) -> None:
        """Set states of any shape that the model can read. Raises `InputError` for others."""
        self.values = self._fitting({**self.values, **{n: np.array(a) for n, a in values.items()}})

    def _fitting(self, values: dict[str, Array]) -> dict[str, Array]:
        bind_shapes([p.input for p in self._pairs], [values[p.name].shape for p in self._pairs])
        return values
