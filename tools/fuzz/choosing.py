"""Random choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass
class Chooser:
    """Chooses by a generator of random numbers."""

    random: np.random.Generator

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return bool(self.random.random() < probability)

    def choose(self, items: Any) -> Any:
        """One of the items of a sequence."""
        return items[int(self.random.integers(len(items)))]

    def weighed(self, items: Sequence[tuple[int, T]]) -> T:
        """One of the items, each as often as the number before it says."""
        weights = np.array([weight for weight, _ in items], float)
        return items[int(self.random.choice(len(items), p=weights / weights.sum()))][1]
