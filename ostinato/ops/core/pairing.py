"""Along which axes convolutions take positions by pairs, whatever sizes a model is compiled for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

Axes: TypeAlias = "tuple[int, ...]"


class Pairing:
    """The spatial axes along which each convolution of a model takes its positions by pairs.

    axes: by the name of the result, if it is decided; those of others have none. Sizes that the
    model itself leaves open decide otherwise than the same sizes in the model would.
    """

    def __init__(self, axes: Mapping[str, Axes] | None = None) -> None:
        self._given = axes
        self.axes: dict[str, Axes] = {}

    def of(self, name: str, decide: Callable[[], Axes]) -> Axes:
        """The axes of the convolution that makes this value; `decide` tells them, if nobody has."""
        self.axes[name] = decide() if self._given is None else self._given.get(name, ())
        return self.axes[name]
