"""Random choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


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
