"""Frames of a pool whose inputs are as long as the growing states of their stream, such as a mask.

All frames of a pool have one size in memory: such inputs have room for as many rows as there may
be, and how long they are is an input of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ostinato.errors import InputError
from ostinato.native.arguments import describe_array
from ostinato.runtime.slots import Slots
from ostinato.stages.stage import GrownInput

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Padding:
    """Makes frames of one size. grown: the inputs that grow. slots: the states that they follow."""

    def __init__(self, grown: Sequence[GrownInput], slots: Slots | None) -> None:
        self._grown, self._slots = grown, slots
        self._axes = {each.input: each.axis for each in grown}

    def fits(self, name: str, shape: Shape, kept: Shape) -> bool:
        """Whether an input is kept in memory of this shape."""
        axis = self._axes.get(name)
        if axis is None:
            return shape == kept
        return (*shape[:axis], kept[axis], *shape[axis + 1 :]) == kept

    def require_room(self, values: Mapping[str, Array]) -> None:
        """Raise `InputError` for an input that is longer than its states can be."""
        for each in self._grown:
            most, value = self._room(each), values[each.input]
            if value.shape[each.axis] > most:
                raise InputError(
                    f"input {each.input!r}: {describe_array(value)} is longer than the {most} rows "
                    "of the pool"
                )

    def of(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """A frame with room for more, and how long its inputs are."""
        padded = dict(values)
        for each in self._grown:
            value = values[each.input]
            room, extent = self._room(each), value.shape[each.axis]
            shape = (*value.shape[: each.axis], room, *value.shape[each.axis + 1 :])
            whole = padded[each.input] = np.zeros(shape, value.dtype)
            whole[(slice(None),) * each.axis + (slice(extent),)] = value
            padded[each.extent] = np.array([extent])
        return padded

    def _room(self, each: GrownInput) -> int:
        assert self._slots is not None
        return self._slots.room[each.length]


def require_fixed_room(grown: Sequence[GrownInput], rows: int | None) -> None:
    """Raise `InputError` for inputs that grow in a pool whose states have no fixed room."""
    if grown and rows is None:
        raise InputError(
            f"input {grown[0].input!r} is as long as the states after a step: pass `rows`, the "
            "most that there may be"
        )
