"""A native function with lookups before it, and lookups or lists made of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ostinato.errors import InputError
from ostinato.native.function import NativeFunction
from ostinato.stages.lists import ListMaker
from ostinato.stages.lookup import Lookup
from ostinato.stages.stage import CompiledModel

Array = np.ndarray[Any, Any]
_Made = tuple[Callable[[Any], Any] | None, int]


class Around:
    """Converts a model's inputs into arguments of the function, and its results into outputs.

    before: for each argument its lookup, if there is one, and the input that it is made of. behind:
    for each output its lookup or list maker, if there is one, and the result that it is made of.
    """

    def __init__(
        self, native: NativeFunction, before: Sequence[_Made], behind: Sequence[_Made]
    ) -> None:
        self.native, self._before, self._behind = native, before, behind

    def arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the arguments, unchecked; raises `InputError` where a lookup is given no texts."""
        result = []
        for find, place in self._before:
            value = inputs[place]
            if find is not None:
                if type(value) is not np.ndarray or value.dtype != object:
                    raise InputError("expected an array of texts")
                value = find(value)
            result.append(value)
        return result

    def outputs(self, results: Sequence[Array]) -> list[Any]:
        """Return the outputs; raises `RunError` for results that they cannot be made of."""
        return [
            results[place] if make is None else make(results[place]) for make, place in self._behind
        ]


def around(model: CompiledModel, stages: Sequence[object]) -> Around | None:
    """Recognise a model of one native function whose values are only looked up or made into lists.

    None for other models, and for the function without anything around it.
    """
    natives = [stage for stage in stages if isinstance(stage, NativeFunction)]
    if len(natives) != 1 or len(stages) == 1:
        return None
    (native,) = natives
    inputs = {argument.name: place for place, argument in enumerate(model.inputs)}
    results = {a.name: place for place, a in enumerate(native.artifact.results)}
    known: dict[str, _Made] = {name: (None, place) for name, place in inputs.items()}
    made: dict[str, _Made] = {name: (None, place) for name, place in results.items()}
    for stage in stages:
        if isinstance(stage, Lookup) and stage.stage.operand.name in inputs:
            known[stage.stage.output.name] = stage.made, inputs[stage.stage.operand.name]
        elif isinstance(stage, Lookup) and stage.stage.operand.name in results:
            made[stage.stage.output.name] = stage.made, results[stage.stage.operand.name]
        elif isinstance(stage, ListMaker) and stage.operand in results:
            made[stage.stage.output.name] = stage.made, results[stage.operand]
        elif not isinstance(stage, NativeFunction):
            return None
    arguments = [argument.name for argument in native.artifact.inputs]
    outputs = [argument.name for argument in model.outputs]
    if not known.keys() >= set(arguments) or not made.keys() >= set(outputs):
        return None
    before = [known[name] for name in arguments]
    # An input that the function does not read would not be checked.
    if {place for _, place in before} != set(inputs.values()):
        return None
    return Around(native, before, [made[name] for name in outputs])
