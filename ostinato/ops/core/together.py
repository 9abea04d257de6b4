"""How many positions convolutions compute together, for whatever sizes a model is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

Counts: TypeAlias = "tuple[int, ...]"


class Together:
    """How many positions along each spatial axis each convolution of a model computes together.

    counts: by the name of the result, one for each spatial axis, if it is decided; convolutions
    without an entry compute each position alone. Sizes that the model itself leaves open decide
    otherwise than the same sizes in the model would.
    """

    def __init__(self, counts: Mapping[str, Counts] | None = None) -> None:
        self._given = counts
        self.counts: dict[str, Counts] = {}

    def of(self, name: str, decide: Callable[[], Counts]) -> Counts:
        """Return the counts of the convolution that makes this value; `decide` finds new ones."""
        self.counts[name] = decide() if self._given is None else self._given.get(name, ())
        return self.counts[name]
