"""Runs a fallback stage on the kernels shipped with `onnx`. Imports onnx on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ostinato.codegen.artifact import Argument
from ostinato.errors import RunError, UnsupportedError
from ostinato.stages.report import NotNative, not_native
from ostinato.stages.stage import FallbackStage


class FallbackNode:
    """A node wrapped in a model of its own and handed to `onnx.reference`.

    Values captured by subgraphs become inputs of that model. Raises `UnsupportedError` when the
    reference has no kernel for the node.
    """

    def __init__(self, stage: FallbackStage) -> None:
        from onnx.reference import ReferenceEvaluator

        from ostinato.reference.kernels import KERNELS
        from ostinato.stages.one_node import one_node_model

        self.stage = stage
        self._names = [argument.name for argument in stage.inputs]
        try:
            self._evaluator = ReferenceEvaluator(one_node_model(stage), new_ops=KERNELS)
        except Exception as error:
            reason = f"no native kernel and none in onnx.reference ({error})"
            raise UnsupportedError(stage.name, stage.op, reason) from error

    def not_native(self) -> list[NotNative]:
        """The node's entry in the report."""
        return [not_native(self.stage)]

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name. Raises `RunError` naming the node when its kernel fails."""
        feeds = {name: values[name] for name in self._names}
        try:
            # ONNX arithmetic follows IEEE 754: overflow and division by zero are results.
            with np.errstate(all="ignore"):
                results = self._evaluator.run(None, feeds)
        except Exception as error:
            message = f"node {self.stage.name!r} ({self.stage.op}): {error or type(error).__name__}"
            raise RunError(message) from error
        return {
            argument.name: _plain(argument, result)
            for argument, result in zip(self.stage.outputs, results, strict=True)
        }


def _plain(argument: Argument, value: Any) -> Any:
    """Convert a kernel's result to an array if it is a tensor; strings are objects."""
    if not argument.is_tensor:
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        got = type(value).__name__
        raise RunError(
            f"value {argument.name!r}: expected a tensor, its kernel made a {got}"
        ) from error
    return array.astype(object) if array.dtype.kind in "TU" else array
