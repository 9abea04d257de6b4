"""Run a fallback stage on the kernels shipped with `onnx`. Imports onnx on first use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ostinato.codegen.artifact import Argument
from ostinato.errors import RunError, UnsupportedError
from ostinato.stages.report import NotNative, not_native
from ostinato.stages.stage import FallbackStage

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator


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
            evaluator = ReferenceEvaluator(one_node_model(stage), new_ops=KERNELS)
        except Exception as error:
            reason = f"no native kernel and none in onnx.reference ({error})"
            raise UnsupportedError(stage.name, stage.op, reason) from error
        self._kernel = _kernel(stage, evaluator) or functools.partial(evaluator.run, None)

    def not_native(self) -> list[NotNative]:
        """The node's entry in the report."""
        return [not_native(self.stage)]

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name. Raises `RunError` naming the node when its kernel fails."""
        feeds = {name: values[name] for name in self._names}
        try:
            # ONNX arithmetic follows IEEE 754: overflow and division by zero are results.
            with np.errstate(all="ignore"):
                results = self._kernel(feeds)
        except Exception as error:
            message = f"node {self.stage.name!r} ({self.stage.op}): {error or type(error).__name__}"
            raise RunError(message) from error
        return {
            argument.name: _plain(argument, result)
            for argument, result in zip(self.stage.outputs, results, strict=True)
        }


def _kernel(
    stage: FallbackStage, evaluator: ReferenceEvaluator
) -> Callable[[Mapping[str, Any]], Sequence[Any]] | None:
    """Return the kernel of the node alone, which takes half as long as the evaluator around it.

    None for kernels that ask the evaluator for values, as those with subgraphs do.
    """
    nodes = evaluator.rt_nodes_
    node = nodes[0] if len(nodes) == 1 and not evaluator.rt_inits_ else None
    if node is None or node.need_context() or node.has_linked_attribute:
        return None
    operands, made = [*node.input], [*node.output]
    places = [made.index(argument.name) for argument in stage.outputs]

    def run(feeds: Mapping[str, Any]) -> Sequence[Any]:
        results = node.run(*[feeds[name] if name else None for name in operands])
        return [results[place] for place in places]

    return run


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
