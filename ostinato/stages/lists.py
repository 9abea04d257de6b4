"""Run the stages that make lists: sequences of tensors, and dicts of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.errors import RunError
from ostinato.reference.maps import map_maker
from ostinato.stages.stage import ListStage

Array = np.ndarray[Any, Any]


class ListMaker:
    """Runs a `ListStage`.

    operand: the name of the only tensor that the list is made of, None where there are more.
    """

    def __init__(self, stage: ListStage) -> None:
        self.stage = stage
        elements = stage.elements or ()
        self.operand = elements[0].name if len(elements) == 1 else None
        self._maps = None if stage.keys is None else map_maker(stage.keys)

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The list by name."""
        elements = self.stage.elements
        made = None if elements is None else self._of([values[each.name] for each in elements])
        return {self.stage.output.name: made}

    def made(self, operand: Array) -> list[Any]:
        """Make the list of one tensor."""
        return self._of([operand])

    def _of(self, tensors: Sequence[Array]) -> list[Any]:
        if self.stage.is_rows:
            # Each element is an array of its own, as the elements of any sequence.
            return [row.copy() for row in tensors[0]]
        if self._maps is not None:
            try:
                return self._maps(tensors[0])
            except ValueError as error:
                raise RunError(f"output {self.stage.output.name!r}: {error}") from error
        if self.stage.axis is not None:
            rows, borders = tensors
            pieces = np.split(rows, borders[1:-1]) if len(borders) > 1 else []
            return [np.moveaxis(piece, 0, self.stage.axis).copy() for piece in pieces]
        return list(tensors)
