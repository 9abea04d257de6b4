"""Run the stages that look up texts, by their text or by their place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np

from ostinato.element_types import numpy_dtype
from ostinato.errors import RunError
from ostinato.stages.stage import LookupStage

Array = np.ndarray[Any, Any]


class Lookup:
    """Runs a `LookupStage`."""

    def __init__(self, stage: LookupStage) -> None:
        self.stage = stage
        self._dtype = numpy_dtype(stage.output.dtype)
        keys = stage.keys
        self._find = None if keys is None else dict(zip(keys, stage.values, strict=True)).get
        self._texts = np.array(stage.values if keys is None else (), object)

    def made(self, operand: Array) -> Array:
        """Look up every element; raises `RunError`, which names the output."""
        try:
            if self._find is None:
                return np.asarray(self._texts.take(operand), object)
            found = map(self._find, operand.reshape(-1).tolist(), repeat(self.stage.default))
            return np.fromiter(found, self._dtype, operand.size).reshape(operand.shape)
        except (IndexError, TypeError) as error:
            raise RunError(f"value {self.stage.output.name!r}: {error}") from error

    def run(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """The output by name."""
        return {self.stage.output.name: self.made(values[self.stage.operand.name])}
