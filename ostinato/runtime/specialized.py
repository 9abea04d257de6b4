"""Runs a stage whose operands decide ranks or axes: it is compiled for the values they have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ostinato.errors import ModelError, RunError, UnsupportedError
from ostinato.options import Options
from ostinato.runtime.build import build
from ostinato.runtime.fallback import FallbackNode, one_node_model
from ostinato.runtime.flow import Flow
from ostinato.runtime.stage import FallbackStage

# Distinct values that are compiled for; operands that keep changing run on the reference kernel.
MAX_VARIANTS = 16


class SpecializedNode:
    """A node that becomes native code once the values of `stage.numbers` are known.

    options: of the session. The reference kernel takes over where the node has no native form for
    the values, and after `MAX_VARIANTS` different ones.
    """

    def __init__(self, stage: FallbackStage, options: Options) -> None:
        self.stage = stage
        # Why the reference kernel ran for some values.
        self.reasons: list[str] = []
        self._options = dataclasses.replace(options, fallback=False, specialize={})
        self._variants: dict[tuple[object, ...], Flow | None] = {}
        self._fallback: FallbackNode | None = None

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name. Raises what compiling and running the node raises."""
        numbers = {name: np.asarray(values[name]) for name in self.stage.numbers}
        key = tuple((array.shape, array.tobytes()) for array in numbers.values())
        if key not in self._variants and len(self._variants) < MAX_VARIANTS:
            self._variants[key] = self._compiled(numbers)
        flow = self._variants.get(key)
        if flow is not None:
            return flow.run({a.name: values[a.name] for a in flow.model.inputs}, {})
        if key not in self._variants:
            self._refuse(f"more than {MAX_VARIANTS} values of {', '.join(self.stage.numbers)}")
        if self._fallback is None:
            self._fallback = FallbackNode(self.stage)
        return self._fallback.run(values)

    def _compiled(self, numbers: Mapping[str, np.ndarray[Any, Any]]) -> Flow | None:
        try:
            compiled, _ = build(one_node_model(self.stage, numbers), self._options)
        except UnsupportedError as error:
            self._refuse(error.reason)
            return None
        except ModelError as error:
            raise RunError(str(error)) from error
        return Flow(compiled, self._options)

    def _refuse(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)
